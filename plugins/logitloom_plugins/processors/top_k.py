"""Top-k: keep the k most likely tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.arrays.row_operations import KEEP_HIGHEST, RowOperation

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Processor):
    """Forbid every token less likely than the k-th most likely one.

    Tokens that tie with the k-th stay, so more than k may remain. A k beyond the vocabulary keeps everything.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("top_k", {"k": 1}))
        >>> logits = np.array([[1.0, 3.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[-inf,   3., -inf]], dtype=float32)

    References:
        A. Fan, M. Lewis, Y. Dauphin, "Hierarchical neural story generation", 2018.
    """

    stage = "warp"

    k: int = option(
        help="How many tokens to keep.", ge=1, unit="tokens", remedy="To keep all, leave the processor out."
    )

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A truncation to a number of tokens."""
        return TRUNCATION.but(reads=("higher",), at_most=self.k, operation=RowOperation(KEEP_HIGHEST, self.k))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A selection and a masked fill."""
        k = min(self.k, logits.shape[-1])
        threshold = context.backend.kth_largest(logits, k)
        return context.backend.masked_fill(logits, logits < threshold, NEG_INF, context.donate), state
