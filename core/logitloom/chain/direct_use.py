"""A chain that was given to an engine as if it were the engine's own kind of processor.

An engine that calls a chain has been imported, and the engine's plug-in has the name of the engine's package. So each
plug-in of an imported engine is asked for its function ``direct_call``, which answers the call or names the adapter
that makes the engine's own object.
"""

from __future__ import annotations

import sys
from typing import Any

from logitloom.errors import NeedsNotMet
from logitloom.host.registry import available, load_plugin

__all__ = ["call_directly"]


def call_directly(chain: Any, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """The answer to an engine that calls a chain as one of the engine's own processors.

    Args:
        chain: the chain.
        given: the positional arguments.
        more: the others.

    Returns:
        The answer of the function ``direct_call`` of an engine's plug-in.

    Raises:
        NeedsNotMet: no engine answers; the sentence lists the adapters. ``direct_call`` may raise this error and name
            one adapter.
    """
    names = [record.name for record in available("engines")]
    for name in names:
        if name in sys.modules:
            module = sys.modules.get(load_plugin("engines", name).__module__)
            asked = getattr(module, "direct_call", None)
            answer = None if asked is None else asked(chain, given, more)
            if answer is not None:
                return answer
    raise NeedsNotMet(
        f"{chain!r} was called as if it were an engine's processor. Make one of it with the engine's adapter "
        f"(logitloom.host.registry.load_plugin('engines', name), name being one of "
        f"{', '.join(names) or 'none installed'}); "
        f"a loop of your own calls chain.process(logits, state, context)."
    )
