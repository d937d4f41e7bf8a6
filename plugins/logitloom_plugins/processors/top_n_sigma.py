"""Top-n-sigma: keep the tokens within n standard deviations of the highest logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["TopNSigma"]


@dataclass(frozen=True)
class TopNSigma(Processor):
    """Forbid every token whose logit is more than ``n`` standard deviations below the highest.

    ``keep = logits >= max(logits) - n * sigma``, where ``sigma`` is the standard deviation (of the population) of the
    row's logits, those of forbidden tokens left out. Dividing by a temperature before or after keeps the same
    tokens.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("top_n_sigma", {"n": 1.0}))
        >>> logits = np.array([[0.0, 0.0, 3.5, 4.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[-inf, -inf,  3.5,  4. ]], dtype=float32)

    References:
        C. Tang et al., "Top-n-sigma: not all logits are you need", 2024.
    """

    stage = "warp"
    effect = TRUNCATION

    n: float = option(
        1.0,
        help="Distance from the highest logit within which tokens stay.",
        ge=0.0,
        le=1e4,
        unit="standard deviations",
    )

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Mean and variance in two sweeps (exact for large offsets), a comparison and a masked fill."""
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        xp = backend.xp
        wide = backend.at_least_float32(logits)
        absent = wide == NEG_INF
        top = xp.max(wide, axis=-1, keepdims=True)
        present = xp.sum(xp.astype(~absent, wide.dtype), axis=-1, keepdims=True)
        present = xp.where(present > 0, present, 1.0)
        mean = xp.sum(backend.masked_fill(wide, absent, 0.0), axis=-1, keepdims=True) / present
        apart = backend.masked_fill(wide - mean, absent, 0.0, donate=True)
        sigma = xp.sqrt(xp.sum(apart * apart, axis=-1, keepdims=True) / present)
        return wide < top - self.n * sigma
