"""Requests that ask for a chain where vLLM does not look: refused, since the answer would be unconstrained.

vLLM passes on ``vllm_xargs`` as it comes, ignores unknown fields of a request, and starts the requests of a beam search
without the extra arguments of the original request. vLLM finds :func:`watch` as a general plug-in
(``vllm.general_plugins``); the function checks requests over HTTP before parameters are made of them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Container
from typing import Any, Final

from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines.vllm.front_door import open_front_door
from logitloom_contrib.engines.vllm.shared_folder import offer_shared_folder
from logitloom_contrib.requests.request_document import KEY
from logitloom_contrib.requests.request_key import is_alike, require_right_fields, require_right_key
from logitloom_contrib.requests.request_record import RECORD_KEY

__all__ = ["require_chain", "require_right_place", "watch"]

#: The request classes over HTTP that can bring a chain: module, class.
_REQUESTS: Final = (
    ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),
    ("vllm.entrypoints.openai.completion.protocol", "CompletionRequest"),
    ("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest"),
)


def require_chain(keys: Container[str]) -> None:
    """Refuse a record without a chain.

    Raises:
        NeedsNotMet: naming both keys.
    """
    if RECORD_KEY in keys and KEY not in keys:
        raise NeedsNotMet(f"The request has {RECORD_KEY!r} and no chain ({KEY!r}): records are written by chains.")


def require_right_place(request: Any, beams: bool) -> None:
    """Refuse a request over HTTP whose chain would not reach the engine.

    Args:
        request: vLLM's request, with ``vllm_xargs`` and ``model_extra``.
        beams: whether it asks for a beam search.

    Raises:
        NeedsNotMet: naming the place or the option.
    """
    for key in getattr(request, "model_extra", None) or ():
        if is_alike(key):
            raise NeedsNotMet(
                f"The request has the field {key!r:.100}, which vLLM ignores, so its answer would not be constrained. "
                f'Put the chain into vllm_xargs: {{"vllm_xargs": {{"{KEY}": ...}}}}.'
            )
    require_right_fields(getattr(request, "model_extra", None) or {})
    given = getattr(request, "vllm_xargs", None) or {}
    require_right_key(given)
    if beams and KEY in given:
        raise NeedsNotMet(
            "vLLM's beam search starts requests of its own and does not hand on vllm_xargs, so the chain would not "
            "run. Leave out use_beam_search."
        )


def watch() -> None:
    """Check requests over HTTP from now on, in a process that serves them, share compiled results between processes,
    and lead structured outputs to logitloom where the operator asks for it.

    Raises:
        NeedsNotMet: logitloom cannot enforce the structured outputs of this vLLM, as the environment asks.
    """
    offer_shared_folder()
    open_front_door()
    for module, name in _REQUESTS:
        request = getattr(sys.modules.get(module), name, None)
        for method, beams in (("to_sampling_params", False), ("to_beam_search_params", True)):
            original = vars(request).get(method) if request is not None else None
            if original is not None and not hasattr(original, "looks_for_chains"):
                setattr(request, method, _watched(original, beams))


def _watched(original: Any, beams: bool) -> Any:
    @functools.wraps(original)
    def looking(self: Any, *given: Any, **more: Any) -> Any:
        require_right_place(self, beams)
        return original(self, *given, **more)

    looking.looks_for_chains = True  # type: ignore[attr-defined]
    return looking
