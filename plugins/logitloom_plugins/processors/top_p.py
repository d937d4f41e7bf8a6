"""Top-p (nucleus sampling): keep the smallest set of tokens that has a given mass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Context, Effect, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.arrays.row_operations import KEEP_NUCLEUS, RowOperation

__all__ = ["TopP"]


@dataclass(frozen=True)
class TopP(Processor):
    """Forbid the least likely tokens as long as together they have no more than ``1 - p`` of the mass.

    A token stays if the tokens before it, from the most likely down, have less than ``p``. Tokens with exactly the
    logit of the least likely kept token stay too, so that the result does not depend on the order in which a sort
    leaves equal values. mlx-lm keeps these tokens as well; transformers cuts them in an order that PyTorch's unstable
    sort leaves open.

    Libraries add up in different orders, and not all in double precision. So a token with ``p`` of the mass before it,
    up to ``1e-4``, may stay with one library and go with another. All other tokens are those of double precision on
    each.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("top_p", {"p": 0.7}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False]])

    References:
        A. Holtzman et al., "The curious case of neural text degeneration", 2020.
    """

    stage = "warp"

    p: float = option(help="Probability to keep; 1 keeps all tokens, 0 only the most likely.", ge=0.0, le=1.0)
    min_keep: int = option(1, help="Least number of tokens that stay.", ge=1, unit="tokens")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A truncation; that to a nucleus alone is an operation."""
        nucleus = self.min_keep == 1 and self.p < 1.0
        return TRUNCATION.but(operation=RowOperation(KEEP_NUCLEUS, self.p) if nucleus else None)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """The border of the nucleus and a masked fill."""
        vocab = logits.shape[-1]
        if self.p == 1.0 or vocab == 1:
            return logits, state
        backend = context.backend
        threshold = backend.nucleus_threshold(logits, self.p)
        if self.min_keep > 1:
            threshold = backend.xp.minimum(threshold, backend.kth_largest(logits, min(self.min_keep, vocab)))
        return backend.masked_fill(logits, logits < threshold, NEG_INF, context.donate), state
