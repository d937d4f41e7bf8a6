"""Length ramp: the end of a sequence grows likelier as its target length comes near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from logitloom import BIAS, Array, Context, HostTable, Processor, errors, option

__all__ = ["LengthRamp"]


@dataclass(frozen=True)
class LengthRamp(Processor):
    """Raise the logit of end-of-sequence smoothly while a sequence grows towards a target length.

    With ``n`` generated tokens and ``t = clip((n / target - start) / (1 - start), 0, 1)``, the logits of all
    end-of-sequence tokens get ``strength * t^2 * (3 - 2 t)`` more: nothing before ``start * target`` tokens,
    ``strength`` from ``target`` on, and no jump between.

    Example:
        >>> from logitloom import processors
        >>> chain = processors.load(("length_ramp", {"target": 2, "start": 0.0, "strength": 8.0, "eos": [0]}))
        >>> logits = np.zeros((1, 3), dtype=np.float32)
        >>> context = Context.start(logits)
        >>> state = chain.init_state(context)
        >>> for token in (1, 2):
        ...     out, state = chain.process(logits, state, context.accept([token]))
        ...     print(out)
        [[4. 0. 0.]]
        [[8. 0. 0.]]
    """

    stage = "penalty"
    effect = BIAS

    target: int = option(help="Length at which the whole strength is reached.", ge=1, unit="generated tokens")
    strength: float = option(10.0, help="What is added to the logit at the target length.", gt=0.0, unit="nats")
    start: float = option(0.5, help="Part of the target length at which the ramp begins.", ge=0.0, lt=1.0)
    eos: tuple[int, ...] = option((), help="End-of-sequence ids; empty: those of the tokenizer.", ge=0)

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Lengths; and a tokenizer, unless the ids are given."""
        return frozenset({"length"} if self.eos else {"length", "vocabulary"})

    def init_state(self, context: Context) -> Any:
        """No state of its own; places the shared table, so that a compiler finds it there."""
        self._table(context).on(context.backend)
        return ()

    def process(self, logits: Array, context: Context) -> Array:
        """One pass over the logits."""
        backend = context.backend
        part = backend.cast(context.step, "float32") / self.target
        ramp = backend.xp.clip((part - self.start) / (1.0 - self.start), 0.0, 1.0)
        bonus = self.strength * ramp * ramp * (3.0 - 2.0 * ramp)
        return backend.add(logits, bonus[:, None] * self._table(context).on(backend), context.donate)

    def _table(self, context: Context) -> HostTable:
        ids = self.eos or (context.vocabulary.eos if context.vocabulary is not None else ())
        if not ids:
            raise errors.NeedsNotMet("The tokenizer names no end-of-sequence token; give length_ramp the option eos.")
        if max(ids) >= context.vocab_size:
            raise errors.OptionError(
                f"length_ramp: the end-of-sequence id {max(ids)} is beyond the {context.vocab_size} columns of the "
                f"logits."
            )
        return _indicator(ids, context.vocab_size)


@lru_cache(maxsize=16)
def _indicator(ids: tuple[int, ...], vocab_size: int) -> HostTable:
    """``[1, vocab] float32``: 1 at the ids, else 0."""
    row = np.zeros((1, vocab_size), dtype=np.float32)
    row[0, list(ids)] = 1.0
    return HostTable(row)
