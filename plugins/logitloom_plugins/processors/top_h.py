"""Top-H: keep the most likely tokens as long as they have no more than a fraction of the entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.compiled_steps import as_one_function

__all__ = ["TopH"]


@dataclass(frozen=True)
class TopH(Processor):
    """Keep the most likely tokens, from the top down, while their part of the entropy stays within a budget.

    Among the ``candidates`` most likely tokens, whose probabilities are normalised: the token of rank ``r`` stays if
    ``sum over the first r of -p log(p) <= h * entropy``. The most likely token always stays. Of equal tokens those
    with lower ids come first.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("top_h", {"h": 0.7}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False]])

    References:
        E. Potraghloo, S. Azizi, S. Kundu, M. Pedram, "Top-H decoding: adapting the creativity and coherence with
        bounded entropy in text generation", 2025.
    """

    stage = "warp"
    effect = TRUNCATION

    h: float = option(0.4, help="Share of the distribution's entropy that the kept tokens may have.", gt=0.0, le=1.0)
    candidates: int = option(
        100, help="How many of the most likely tokens are considered; all others are forbidden.", ge=1, unit="tokens"
    )

    @as_one_function
    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """The largest logits, a cumulative sum over them, and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        values, ids = backend.top_k(logits, min(self.candidates, logits.shape[-1]))
        p, surprise = backend.softmax(values), backend.log_softmax(values)
        terms = -p * backend.masked_fill(surprise, surprise == NEG_INF, 0.0)
        spent = xp.cumulative_sum(terms, axis=-1)
        # The largest sum, and not a sum of its own, which rounding might leave below it.
        kept = (spent <= self.h * xp.max(spent, axis=-1, keepdims=True)) & (values > NEG_INF)
        first = backend.arange(values.shape[-1])[None, :] == 0
        index = xp.where(kept | first, backend.cast(ids, "int32"), -1)
        forbidden = backend.set_at(logits > NEG_INF, index, False, True)
        return backend.masked_fill(logits, forbidden, NEG_INF, context.donate), state
