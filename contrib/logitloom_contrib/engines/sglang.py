"""SGLang: chains that the server offers by name, for requests that ask for them.

SGLang makes new processor objects at will, so the objects keep no state: rows are recognised by their ids, in one
tracker per chain of the server's process. Checked against the protocol; it has never run inside SGLang.

On the server::

    from logitloom_contrib.engines import sglang
    sglang.offer("phone", chain)

    class Logitloom(sglang.SglangProcessor, CustomLogitProcessor): ...

In a request: ``custom_logit_processor=Logitloom.to_str()`` and ``custom_params={"logitloom": "phone"}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from logitloom import Array, Chain, backend_of
from logitloom.engines import bind
from logitloom.errors import NeedsNotMet, UnknownPlugin
from logitloom_contrib.row_tracking import RowTracker, right_aligned

__all__ = ["SglangProcessor", "offer", "withdraw"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "SGLang"
#: Key of a request's parameters that names a chain.
KEY: Final = "logitloom"

_OFFERED: dict[str, RowTracker] = {}


def offer(name: str, chain: Chain, *, seed: int = 0) -> None:
    """Let requests to this server's process ask for a chain by name.

    Args:
        name: the name of the chain in requests.
        chain: the processors, with a vocabulary if they need one.
        seed: of processors that draw random numbers.

    Raises:
        NeedsNotMet: the chain needs what SGLang does not give.
        ChainIncomplete: options are missing.
    """
    chain = bind(chain, ENGINE, GIVES)
    eos = chain.vocabulary.eos if chain.vocabulary is not None else ()
    _OFFERED[name] = RowTracker(chain, eos=eos, seed=seed)


def withdraw(name: str) -> None:
    """Undo :func:`offer`."""
    _OFFERED.pop(name, None)


class SglangProcessor:
    """The interface of a ``CustomLogitProcessor`` of SGLang; derive from both."""

    def __call__(self, logits: Array, custom_param_list: Sequence[dict[str, Any]] | None = None) -> Array:
        """Process logits ``[rows, vocab]``, one request each.

        Raises:
            UnknownPlugin: a request names a chain that is not offered.
            NeedsNotMet: SGLang does not show the request, or shows it in several rows (drafts) without their tokens.
        """
        params = list(custom_param_list or ())
        if len(params) != logits.shape[0]:
            raise NeedsNotMet(f"{ENGINE} passed {len(params)} parameter records for {logits.shape[0]} rows of logits.")
        groups: dict[str, list[int]] = {}
        for row, given in enumerate(params):
            name = given.get(KEY)
            if name not in _OFFERED:
                offered = ", ".join(sorted(_OFFERED)) or "none"
                raise UnknownPlugin(f"Row {row} asks for the chain {name!r}; this server offers {offered}.")
            if given.get("__req__") is None:
                raise NeedsNotMet(f"{ENGINE} did not show the request of row {row}, so its tokens are unknown.")
            groups.setdefault(name, []).append(row)
        seen = [id(given["__req__"].output_ids) for given in params]
        if len(set(seen)) < len(seen):
            raise NeedsNotMet(
                f"{ENGINE} passed several rows of one request (drafts) and does not show their tokens, so a chain "
                f"cannot follow them. Run without speculative decoding."
            )
        backend = backend_of(logits)
        parts, order = [], []
        for name, rows in groups.items():
            requests = [params[row]["__req__"] for row in rows]
            ids, starts = right_aligned([[*r.origin_input_ids, *r.output_ids] for r in requests])
            chosen = backend.take_rows(logits, np.asarray(rows, dtype=np.int32)) if len(groups) > 1 else logits
            lengths = [len(r.origin_input_ids) for r in requests]
            parts.append(_OFFERED[name].process(chosen, ids, starts, prompt_lengths=lengths))
            order += rows
        if len(parts) == 1:
            return parts[0]
        return backend.take_rows(backend.concat_rows(parts), np.argsort(order).astype(np.int32))
