"""Greedy decoding: the most likely token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from logitloom.arguments import MOST_ROWS, whole
from logitloom.arrays.backend import Array, Backend
from logitloom.errors import GenerationError

__all__ = ["Greedy"]


@dataclass(frozen=True)
class Greedy:
    """Choose the most likely token; among equally likely tokens the one with the lowest id."""

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
            seeds: ``[rows] int32``; unused.
            lengths: ``[rows] int32``; unused.

        Returns:
            ``[rows]`` token ids and ``[rows]`` their log-probabilities.
        """
        del seeds, lengths
        tokens = backend.xp.argmax(logits, axis=-1)
        return tokens, backend.gather(backend.log_softmax(logits), tokens[:, None])[:, 0]
