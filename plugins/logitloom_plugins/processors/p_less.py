"""P-less: a truncation without a parameter, by the chance that two draws agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Effect, Processor, option
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["PLess"]


@dataclass(frozen=True)
class PLess(Processor):
    """Forbid every token that is less likely than two draws from the distribution are to agree.

    ``keep = p >= sum(p ** 2)``. The relaxed variant (p-less-norm) lowers the threshold by the chance that two draws
    agree on a wrong token at random: ``(n * sum(p ** 2) - 1) / (n - 1)``, with ``n`` the tokens of the vocabulary. The
    threshold is never above the highest probability, so the most likely tokens stay.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load("p_less")
        >>> logits = np.log(np.array([[0.5, 0.4, 0.1]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True, False, False]])

    References:
        R. Tan, S. Wu, P. Howard, "p-less sampling: a robust hyperparameter-free approach for LLM decoding", 2025.
    """

    stage = "warp"

    relaxed: bool = option(False, help="Whether the threshold is the relaxed one (p-less-norm), which keeps more.")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A truncation; the relaxed threshold goes by the size of the vocabulary."""
        return TRUNCATION.but(reads=("distribution", "ids")) if self.relaxed else TRUNCATION

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A softmax, a sum of squares and a masked fill."""
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        xp = backend.xp
        vocab = logits.shape[-1]
        p = backend.softmax(logits)
        threshold = xp.sum(p * p, axis=-1, keepdims=True)
        if self.relaxed and vocab > 1:
            threshold = (vocab * threshold - 1.0) / (vocab - 1.0)
        # Rounding may put the sum of squares above the highest probability.
        threshold = xp.minimum(threshold, xp.max(p, axis=-1, keepdims=True))
        return p < threshold
