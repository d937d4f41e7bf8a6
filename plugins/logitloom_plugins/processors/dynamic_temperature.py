"""Dynamic temperature: a temperature that follows the entropy of the distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.processors._entropy import entropy
from logitloom_plugins.processors._precision import in_dtype_of, is_float16, lowered_to_fit
from logitloom_plugins.processors.temperature import LARGEST, SHARP

__all__ = ["DynamicTemperature"]


@dataclass(frozen=True)
class DynamicTemperature(Processor):
    """Divide the logits by a temperature between two bounds: low where the model is sure, high where it is not.

    ``temperature = low + (high - low) * (entropy / log(n)) ** exponent``, where ``n`` is the number of allowed tokens,
    so ``log(n)`` is the highest possible entropy. A row with one legal token stays as it is.

    llama.cpp (``temp_ext``) and text-generation-webui give the bounds as ``temperature - range`` and
    ``temperature + range``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("dynamic_temperature", {"low": 0.5, "high": 2.0}))
        >>> logits = np.array([[3.0, 3.0, 3.0], [300.0, 0.0, 0.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[  1.5,   1.5,   1.5],
               [600. ,   0. ,   0. ]], dtype=float32)

    References:
        kalomaze, "Dynamic temperature sampling", pull request 4972 to llama.cpp, 2024.
    """

    stage = "warp"
    effect = Effect("replaces", reads=("distribution",), keeps=("order", "forbidden", "last"))

    low: float = option(0.5, help="Temperature where one token has all the probability.", ge=1e-4, le=1e4)
    high: float = option(1.5, help="Temperature where all tokens are equally likely.", ge=1e-4, le=1e4)
    exponent: float = option(
        1.0,
        help="Exponent of the normalised entropy; above 1 the temperature stays near 'low' for longer.",
        gt=0.0,
        le=100.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise OptionError(
                f"Option 'low' of 'dynamic_temperature' is {self.low}, which is above 'high', {self.high}. Swap them."
            )

    @as_one_function
    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """An entropy and a division."""
        backend, xp = context.backend, context.backend.xp
        count = backend.cast(xp.sum(backend.cast(logits > NEG_INF, "int32"), axis=-1, keepdims=True), "float32")
        # With one token, or none, there is no entropy; the 2 only keeps the logarithm away from 0.
        highest = xp.log(backend.masked_fill(count, count < 2, 2.0))
        sure = entropy(backend, backend.log_softmax(logits), backend.softmax(logits)) / highest
        sure = xp.clip(sure, 0.0, 1.0)
        temperature = self.low + (self.high - self.low) * sure**self.exponent
        temperature = backend.masked_fill(temperature, count < 2, 1.0)
        x = backend.at_least_float32(logits)
        if self.low < SHARP:
            top = xp.max(x, axis=-1, keepdims=True)
            x = x - backend.masked_fill(top, top == NEG_INF, 0.0)
            # A logit for which the quotient would overflow has no probability.
            x = backend.masked_fill(x, x < -LARGEST * temperature, NEG_INF, True)
        x = x / temperature
        return in_dtype_of(logits, backend, lowered_to_fit(backend, x) if is_float16(backend, logits) else x), state
