"""Mirostat, version 2, corrected by the probability with which the sampler chose: after all other processors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from logitloom import TRUNCATION, Array, Context, Processor, option

__all__ = ["SurpriseControl"]


@dataclass(frozen=True)
class SurpriseControl(Processor):
    """Forbid tokens whose surprise is above a limit, and move the limit so that the mean surprise is the target.

    ``limit -= rate * (surprise - target)`` with ``surprise = -log2 p`` of what was chosen, ``p`` being its probability
    after the whole chain. The most likely token always stays.

    Example:
        >>> from logitloom import processors
        >>> chain = processors.load(SurpriseControl(target=1.0))
        >>> logits = np.log(np.array([[0.5, 0.4, 0.1]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> out, _ = chain.process(logits, chain.init_state(context), context)
        >>> np.isneginf(out).tolist()
        [[False, False, True]]

    References:
        S. Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", ICLR 2021.
    """

    stage = "warp"
    needs = frozenset({"chosen_logprob"})
    sees_every_step = True
    effect = TRUNCATION.but(reads=("distribution", "seen"))

    target: float = option(3.0, help="Mean surprise of the text.", gt=0.0, unit="bits")
    rate: float = option(0.1, help="How fast the limit follows.", ge=0.0, le=1.0)

    def init_state(self, context: Context) -> Array:
        """The limit of each row, ``[rows] float32``, in bits."""
        return context.backend.asarray(np.full(context.batch, 2 * self.target, dtype=np.float32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        """Learn how surprising the last token was, then forbid what is too surprising."""
        backend, xp = context.backend, context.backend.xp
        if context.tokens is not None:
            surprise = xp.sum(context.chosen_logprob, axis=1) * (-1.0 / math.log(2.0))
            chosen = xp.sum(backend.cast(context.tokens >= 0, "int32"), axis=1)
            # A row that accepted nothing waits.
            state = xp.where(chosen > 0, state - self.rate * (surprise - self.target), state)
        logprob = backend.log_softmax(logits)
        least = xp.minimum(state[:, None] * -math.log(2.0), xp.max(logprob, axis=-1, keepdims=True))
        return backend.masked_fill(logits, logprob < least, float("-inf"), context.donate), state
