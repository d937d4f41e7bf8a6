"""Epsilon cutoff: keep tokens above a fixed probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Processor, option
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["EpsilonCutoff"]


@dataclass(frozen=True)
class EpsilonCutoff(Processor):
    """Forbid every token whose probability is below ``epsilon``, except the ``min_keep`` most likely.

    ``keep = (softmax(logits) >= epsilon) or (logits >= the min_keep-th largest logit)``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("epsilon_cutoff", {"epsilon": 0.25}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False]])

    References:
        J. Hewitt, C. Manning, P. Liang, "Truncation sampling as language model desmoothing", 2022.
    """

    stage = "warp"
    effect = TRUNCATION

    epsilon: float = option(help="Least probability of a token that stays; usually 3e-4 to 9e-4.", gt=0.0, lt=1.0)
    min_keep: int = option(1, help="Least number of tokens that stay.", ge=1, unit="tokens")

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A softmax, a selection, two comparisons and a masked fill."""
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        certain = backend.kth_largest(logits, min(self.min_keep, logits.shape[-1]))
        return (backend.softmax(logits) < self.epsilon) & (logits < certain)
