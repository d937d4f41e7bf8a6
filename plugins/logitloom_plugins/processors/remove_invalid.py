"""Removal of infinite and undefined logits, which a model in a half type may give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._precision import in_dtype_of

__all__ = ["RemoveInvalid"]


@dataclass(frozen=True)
class RemoveInvalid(Processor):
    """Replace not-a-number by 0, and infinity by the largest number of the dtype.

    Put this processor first in a chain. -inf is how processors forbid tokens, so -inf stays. With ``keep_forbidden``
    off, -inf becomes the lowest number of the dtype, as in transformers, but never where a constraint earlier in the
    chain forbade the token.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load("remove_invalid")
        >>> logits = np.array([[np.nan, np.inf, -np.inf, 1.0]], dtype=np.float16)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0].tolist()
        [[0.0, 65504.0, -inf, 1.0]]

    References:
        IEEE, "Standard for floating-point arithmetic", IEEE 754-2019 (values that are not numbers).
    """

    stage = "penalty"

    keep_forbidden: bool = option(True, help="Whether -inf stays -inf.")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """Any change; -inf stays if the options say so."""
        return Effect(keeps=("forbidden", "last") if self.keep_forbidden else ("last",))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A masked fill for each kind."""
        backend, xp = context.backend, context.backend.xp
        largest = float(xp.finfo(logits.dtype).max)
        out = backend.masked_fill(logits, logits != logits, 0.0, context.donate)
        out = backend.masked_fill(out, logits == float("inf"), largest, True)
        if not self.keep_forbidden:
            out = backend.masked_fill(out, logits == NEG_INF, -largest, True)
        return in_dtype_of(logits, backend, out), state
