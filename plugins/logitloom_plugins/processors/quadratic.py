"""Quadratic sampling (smoothing): bend the distances of the logits from the highest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from logitloom import Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._precision import in_dtype_of

__all__ = ["Quadratic"]

#: Farther tokens are forbidden, or have no probability: their cube would overflow.
_FARTHEST: Final = 1e12


@dataclass(frozen=True)
class Quadratic(Processor):
    """Replace each logit's distance ``d`` from the highest one by a polynomial: small ones shrink, large ones grow.

    ``out = max - factor * ((3 - curve) / 2 * d ** 2 + (curve - 1) / 2 * d ** 3)`` with ``d = max - logits``. With
    ``curve = 1`` it is ``max - factor * d ** 2`` (``smoothing_factor`` of text-generation-webui and ExLlama); above 1
    ``smoothing_curve`` mixes in the cube. The order of the tokens stays up to ``curve = 3``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("quadratic", {"factor": 0.5}))
        >>> logits = np.array([[4.0, 3.0, 0.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[ 4. ,  3.5, -4. ]], dtype=float32)

    References:
        kalomaze, "Quadratic sampling / smooth sampling", pull requests 5403 and 5551 to text-generation-webui, 2024.
    """

    stage = "warp"
    effect = Effect("replaces", reads=("distribution",), keeps=("order", "forbidden", "last"))

    factor: float = option(help="Smoothing factor: weight of the polynomial.", gt=0.0, le=100.0)
    curve: float = option(1.0, help="Smoothing curve: from 1, a square only, to 3, a cube only.", ge=1.0, le=3.0)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A maximum and a polynomial."""
        backend, xp = context.backend, context.backend.xp
        x = backend.at_least_float32(logits)
        top = xp.max(x, axis=-1, keepdims=True)
        top = backend.masked_fill(top, top == NEG_INF, 0.0)
        distance = top - x
        gone = distance > _FARTHEST
        distance = backend.masked_fill(distance, gone, 0.0, True)
        bent = (3.0 - self.curve) / 2.0 * distance**2 + (self.curve - 1.0) / 2.0 * distance**3
        # A logit below the dtype's lowest number has no probability, and stays possible.
        lowest = -float(xp.finfo(logits.dtype).max)
        out = in_dtype_of(logits, backend, xp.clip(top - self.factor * bent, lowest, None))
        return backend.masked_fill(out, gone, NEG_INF, True), state
