"""Exponential decay of length: the end of sequence gets ever more likely after some length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from logitloom import BIAS, Array, Context, option
from logitloom_plugins.processors._ends import EndProcessor, end_needs
from logitloom_plugins.processors._precision import in_dtype_of

__all__ = ["ExponentialDecayLengthPenalty"]

#: Logarithm of the power up to which a logit is raised; larger ones would overflow.
_MOST: Final = 40.0
#: The largest size of a logit that counts; the product of this size and the power is still finite.
_WIDEST: Final = 1e20


@dataclass(frozen=True)
class ExponentialDecayLengthPenalty(EndProcessor):
    """Raise the logits of end-of-sequence ids, exponentially in the number of tokens beyond a start.

    ``out = logits + abs(logits) * (factor ** (generated - start) - 1)`` for rows that generated more than ``start``
    tokens. A forbidden end stays forbidden. The power grows up to ``e ** 40``, and the logit up to the largest number
    of its dtype.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> options = {"start": 1, "factor": 1.5, "eos": [0]}
        >>> chain = processors.load(("exponential_decay_length_penalty", options))
        >>> logits = np.array([[-2.0, 1.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context.accept([[1, 1, 1]]))[0]
        array([[0.5, 1. ]], dtype=float32)

    References:
        T. Wolf et al., "Transformers: state-of-the-art natural language processing", 2020 (its
        ``exponential_decay_length_penalty``).
    """

    owner = "exponential_decay_length_penalty"
    stage = "penalty"
    effect = BIAS.but(reads=("logit", "ids"))

    start: int = option(help="Number of generated tokens after which the decay begins.", ge=0, unit="tokens")
    factor: float = option(
        help="Growth of the factor per token; above 1 makes the end more likely, below 1 less.", gt=0.0, le=100.0
    )
    eos: tuple[int, ...] | None = option(
        None, help="Ids that end a sequence; default: those of the tokenizer.", ge=0, unit="id"
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The length, and the vocabulary if the ids are not given."""
        return end_needs(self.eos, "length")

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A store per end-of-sequence id and row."""
        backend, xp = context.backend, context.backend.xp
        ids = self._ends(context)
        beyond = backend.cast(xp.maximum(context.step - self.start, 0 * context.step), "float32")[:, None]
        index = xp.broadcast_to(ids, (logits.shape[0], ids.shape[1]))
        ends = backend.at_least_float32(backend.gather(logits, index))
        # The logit of a forbidden end is infinite.
        size = xp.clip(xp.abs(ends), None, _WIDEST)
        if self.factor > 1.0:
            beyond = xp.clip(beyond, None, _MOST / math.log(self.factor))
        raised = ends + size * (self.factor**beyond - 1.0)
        raised = xp.clip(raised, None, float(xp.finfo(logits.dtype).max))
        return backend.write_at(logits, index, in_dtype_of(logits, backend, raised), context.donate), state
