"""Top-a: forbid every token that is less likely than a fraction of the square of the highest probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Processor, option
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["TopA"]


@dataclass(frozen=True)
class TopA(Processor):
    """Forbid every token whose probability is below ``a`` times the square of the highest probability.

    ``keep = p >= a * max(p) ** 2``. The surer the model, the more tokens are forbidden.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("top_a", {"a": 0.8}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False, False]])

    References:
        B. Peng, "The top-a sampling method", README of RWKV-LM, 2022.
    """

    stage = "warp"
    effect = TRUNCATION

    a: float = option(0.2, help="Fraction of the square of the highest probability; 0 keeps all.", ge=0.0, le=1.0)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A softmax, a maximum and a masked fill."""
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        p = backend.softmax(logits)
        top = backend.xp.max(p, axis=-1, keepdims=True)
        return p < self.a * top * top
