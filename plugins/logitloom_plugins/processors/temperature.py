"""Temperature: sharpen or flatten the distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from logitloom import SCALE, Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.arrays.row_operations import DIVIDE, RowOperation
from logitloom_plugins.processors._precision import in_dtype_of, is_float16, lowered_to_fit

__all__ = ["LARGEST", "SHARP", "Temperature"]

#: Temperatures below it could make quotients overflow.
SHARP: Final = 0.1
#: About the largest number of float16.
LARGEST: Final = 6e4


@dataclass(frozen=True)
class Temperature(Processor):
    """Divide the logits by a temperature.

    ``out = logits / temperature``. Below 1 the distribution sharpens, above 1 it flattens; the order of the
    tokens never changes. Below 0.1 the highest logit of each row is subtracted first, which changes no distribution and
    keeps the quotients within float16.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("temperature", {"temperature": 0.5}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[2., 4.]], dtype=float32)

    References:
        D. Ackley, G. Hinton, T. Sejnowski, "A learning algorithm for Boltzmann machines", 1985.
    """

    stage = "warp"

    temperature: float = option(
        1.0,
        help="Divisor of the logits; for the likeliest token alone use top_k with k = 1.",
        ge=1e-4,
        le=1e4,
        remedy="For greedy decoding leave the processor out and do not sample, or use top_k with k = 1.",
    )

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A division; below a temperature the highest logit is subtracted first."""
        if self.temperature >= SHARP:
            return SCALE.but(operation=RowOperation(DIVIDE, self.temperature))
        return Effect("replaces", reads=("higher",), keeps=("order", "forbidden", "last"))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One pass over the logits; none at temperature 1."""
        if self.temperature == 1.0:
            return logits, state
        if self.temperature < 1.0 and is_float16(context.backend, logits):
            wide = context.backend.cast(logits, "float32") / self.temperature
            return in_dtype_of(logits, context.backend, lowered_to_fit(context.backend, wide)), state
        if self.temperature < SHARP:
            xp = context.backend.xp
            top = xp.max(logits, axis=-1, keepdims=True)
            # A row without any legal token has no highest logit, and stays as it is.
            shifted = logits - xp.where(top == NEG_INF, xp.zeros_like(top), top)
            # A logit for which the quotient would overflow has no probability.
            lost = shifted < -LARGEST * self.temperature
            shifted = context.backend.masked_fill(shifted, lost, NEG_INF, True)
            return context.backend.divide(shifted, self.temperature, True), state
        return context.backend.divide(logits, self.temperature, context.donate), state
