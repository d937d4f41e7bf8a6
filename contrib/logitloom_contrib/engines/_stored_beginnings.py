"""Caches whose rows are beginnings of sequences that a library stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import ModelError

__all__ = ["PrefixCache"]

Stored = TypeVar("Stored")


class PrefixCache(Generic[Stored]):
    """Rows as beginnings of stored sequences: immutable to its holder, and a leaf of row trees.

    A row may be the beginning of a sequence that other rows have continued, so that moving, duplicating and shortening
    rows moves no keys and values. The model must handle a row that continues although other tokens have already
    continued its sequence.

    Args:
        rows: per row its sequence (None for an empty row), and how many of that sequence's tokens are the row's.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[tuple[Stored | None, int]]) -> None:
        self.rows = tuple(rows)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """``[rows]`` host integers."""
        return np.asarray([length for _, length in self.rows], dtype=np.int32)

    def row_count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def take_rows(self, index: Any) -> PrefixCache[Stored]:
        """Rows ``index`` (host integers)."""
        return PrefixCache([self.rows[i] for i in np.asarray(index).reshape(-1).tolist()])

    def concat_rows(self, others: Sequence[PrefixCache[Stored]]) -> PrefixCache[Stored]:
        """The rows of this cache, followed by the rows of the other caches; all caches must belong to one model."""
        return PrefixCache(sum((other.rows for other in others), self.rows))

    def crop(self, lengths: NDArray[np.int32] | Sequence[int]) -> PrefixCache[Stored]:
        """Each row shortened to ``lengths[row]`` tokens.

        Raises:
            ModelError: if a length is negative or above the row's own.
        """
        shorter: list[tuple[Stored | None, int]] = []
        for row, ((stored, length), wanted) in enumerate(zip(self.rows, np.asarray(lengths).tolist(), strict=True)):
            if not 0 <= wanted <= length:
                raise ModelError(
                    f"Row {row} of the cache holds {length} tokens and cannot be cropped to {wanted}; crop only "
                    f"shortens."
                )
            shorter.append((stored if wanted else None, wanted))
        return PrefixCache(shorter)
