"""Min-p: keep tokens at least a fraction as likely as the most likely one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.arrays.row_operations import KEEP_NEAR_TOP, RowOperation

__all__ = ["MinP"]


@dataclass(frozen=True)
class MinP(Processor):
    """Forbid every token whose probability is below ``p`` times that of the most likely token.

    ``keep = logits >= max(logits) + log(p)``, which is ``probability >= p * max(probability)`` without the
    exponentials. Tokens that tie with the ``min_keep``-th most likely one stay.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("min_p", {"p": 0.5}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False]])

    References:
        N. Nguyen et al., "Turning up the heat: min-p sampling for creative and coherent LLM outputs", 2024.
    """

    stage = "warp"

    p: float = option(help="Least probability, as a fraction of the highest; 0 keeps all.", ge=0.0, le=1.0)
    min_keep: int = option(1, help="Least number of tokens that stay.", ge=1, unit="tokens")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A truncation near the most likely token, an operation if it goes by that token alone."""
        alone = self.min_keep == 1 and self.p > 0.0
        operation = RowOperation(KEEP_NEAR_TOP, math.log(self.p)) if alone else None
        return TRUNCATION.but(reads=("higher",), operation=operation)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A maximum, a comparison and a masked fill."""
        if self.p == 0.0:
            return logits, state
        backend, xp = context.backend, context.backend.xp
        top = backend.at_least_float32(xp.max(logits, axis=-1, keepdims=True))
        threshold = top + math.log(self.p)
        if self.min_keep > 1:
            kept = backend.kth_largest(logits, min(self.min_keep, logits.shape[-1]))
            threshold = xp.minimum(threshold, backend.at_least_float32(kept))
        return backend.masked_fill(logits, logits < threshold, NEG_INF, context.donate), state
