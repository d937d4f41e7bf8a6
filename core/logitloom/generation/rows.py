"""The model and its cache for the rows of a decoding loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array
from logitloom.context import padded
from logitloom.errors import GenerationError
from logitloom.generation.model import Cache, ModelAdapter

__all__ = ["ModelRows"]


class ModelRows:
    """A model with the cache of the rows of a decoding loop.

    With several branches (one-pass guidance) the model has ``branches * rows`` rows: first all rows of the first
    branch, then all rows of the second. Methods take row numbers and apply to all branches.

    Args:
        model: any model adapter.
        prompts: the prompt of each row, per branch.
    """

    def __init__(self, model: ModelAdapter, prompts: Sequence[Sequence[Sequence[int]]]) -> None:
        self.model = model
        self.branches = len(prompts)
        flat = [tuple(row) for branch in prompts for row in branch]
        for i, row in enumerate(flat):
            if not row:
                raise GenerationError(
                    f"The prompt of row {i % max(len(prompts[0]), 1)} has no tokens; a model needs at least one "
                    f"to continue from (for example its beginning-of-sequence token)."
                )
        # Rows that share a prompt (several samples, beams) are computed once.
        unique = list(dict.fromkeys(flat))
        index = {row: i for i, row in enumerate(unique)}
        self.cache: Cache
        self.logits: Array
        self.logits, self.cache = self._forward(padded(unique), model.empty_cache(len(unique)))
        if len(unique) < len(flat):
            self._move(np.asarray([index[row] for row in flat], dtype=np.int32))

    def feed(self, tokens: Sequence[Sequence[int]]) -> None:
        """Append tokens to each row (at least one each) and set ``logits`` to the logits after the last one."""
        self.logits, self.cache = self._forward(padded(list(tokens) * self.branches), self.cache)

    def take(self, index: NDArray[np.int32]) -> None:
        """Keep rows ``index``, in that order. The logits stay as they are until the next pass."""
        self.cache = self.cache.take_rows(self._in_branches(index))

    def _forward(self, tokens: NDArray[np.int32], cache: Cache) -> tuple[Array, Cache]:
        """One pass of the model."""
        return self.model.forward(tokens, cache)

    def _move(self, index: NDArray[np.int32]) -> None:
        """Keep rows ``index`` of the model, with their logits."""
        self.cache = self.cache.take_rows(index)
        self.logits = self.model.backend.take_rows(self.logits, index)

    def _in_branches(self, index: NDArray[np.int32]) -> NDArray[np.int32]:
        """The rows of the model that belong to rows ``index``: those of the first branch, then of the next."""
        rows = self.cache.row_count() // self.branches
        return np.concatenate([index + b * rows for b in range(self.branches)])
