"""Multinomial sampling: draw a token from the processed distribution, reproducibly for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitloom.arguments import MOST_ROWS, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.errors import GenerationError

__all__ = ["STREAM", "Multinomial", "draw"]

#: Random stream of the sampler; it differs from the streams of processors at the same position.
STREAM = 0x5A3D1E


@dataclass(frozen=True)
class Multinomial:
    """Draw from the processed distribution by inverting its cumulative sum.

    The draw of a row depends only on the row's own seed and length (see :mod:`.arrays.rng`). So a row samples the
    same tokens alone, in any batch, and (up to rounding in the model) on every backend.
    """

    #: Adding a constant to all logits of a row does not change the result.
    shift_invariant: ClassVar[bool] = True

    #: Sequences per prompt, at least 1.
    samples: int = 1

    def __post_init__(self) -> None:
        whole(self.samples, "samples", GenerationError, least=1, most=MOST_ROWS)

    def choose(self, backend: Backend, logits: Array, seeds: Array, lengths: Array) -> tuple[Array, Array]:
        """The next token of each row.

        Args:
            backend: the backend of the arrays.
            logits: ``[rows, vocab]``, processed.
            seeds: ``[rows] int32``.
            lengths: ``[rows] int32``, tokens so far.

        Returns:
            ``[rows]`` token ids and ``[rows]`` their log-probabilities.
        """
        p = backend.softmax(logits)
        tokens = draw(backend, p, rng.uniform(backend.xp, seeds, lengths, STREAM))
        chosen = backend.gather(p, tokens[:, None])[:, 0]
        # A row without a legal token has the weight 0, of which NumPy takes no logarithm without a warning.
        weighty, xp = chosen > 0, backend.xp
        logprobs = xp.log(xp.where(weighty, chosen, xp.ones_like(chosen)))
        return tokens, backend.masked_fill(logprobs[:, None], ~weighty[:, None], NEG_INF)[:, 0]


def draw(backend: Backend, weights: Array, u: Array) -> Array:
    """Invert the cumulative sum of weights.

    Args:
        backend: the backend of the arrays.
        weights: ``[rows, vocab]``, not negative; their sum need not be 1.
        u: ``[rows] float32`` in [0, 1).

    Returns:
        ``[rows]`` token ids, each with a weight above 0 (token 0 if a row has none).
    """
    xp = backend.xp
    # The sums of a library that adds in parallel, such as JAX, also change where a weight is 0, and may fall.
    total = xp.where(weights > 0, xp.cumulative_sum(weights, axis=-1), xp.zeros_like(weights))
    target = backend.cast(u, "float32")[:, None] * xp.max(total, axis=-1, keepdims=True)
    # u <= 1 - 2**-23, so the target is below the largest sum.
    return xp.argmax(backend.cast(total > target, "int32"), axis=-1)
