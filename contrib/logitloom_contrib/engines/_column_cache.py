"""Keys and values of rows of different lengths, in columns, some of which are masked for some rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.errors import ModelError
from logitloom.generation import Cache

__all__ = ["ColumnCache", "check_tokens"]


class ColumnCache:
    """Keys and values of rows of different lengths: immutable to its holder, and a leaf of row trees.

    Tokens stand in columns in the order in which they were fed. A column that holds no token of a row (padding, or a
    cropped token) is masked for that row; columns that no row uses are dropped.

    Args:
        backend: of the keys and values.
        layers: keys and values per layer, ``[rows, heads, width, head_dim]``; empty for a width of 0.
        used: ``[rows, width]`` on the host: which columns hold a token of which row.
    """

    __slots__ = ("_lengths", "backend", "layers", "used")

    def __init__(self, backend: Backend, layers: tuple[tuple[Array, Array], ...], used: NDArray[np.bool_]) -> None:
        self.backend, self.layers, self.used = backend, layers, used
        self._lengths: NDArray[np.int32] = used.sum(axis=1, dtype=np.int32)

    @classmethod
    def empty(cls, backend: Backend, rows: int) -> ColumnCache:
        """Rows without tokens."""
        return cls(backend, (), np.zeros((rows, 0), dtype=np.bool_))

    @property
    def lengths(self) -> NDArray[np.int32]:
        """``[rows]`` host integers."""
        return self._lengths

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(part.nbytes for layer in self.layers for part in layer)

    def row_count(self) -> int:
        """Number of rows."""
        return len(self.used)

    def take_rows(self, index: Any) -> ColumnCache:
        """Rows ``index`` (host integers)."""
        host = np.asarray(index, dtype=np.int64).reshape(-1)
        if len(host) == self.row_count() and (host == np.arange(len(host))).all():
            return self
        native = self.backend.asarray(host.astype(np.int32))
        return self._mapped(lambda part: self.backend.take_rows(part, native), self.used[host])._trimmed()

    def concat_rows(self, others: Sequence[Any]) -> ColumnCache:
        """The rows of this cache, followed by the rows of the other caches; all caches must belong to one model."""
        caches: list[ColumnCache] = [self, *others]
        width = max(cache.used.shape[1] for cache in caches)
        used = np.concatenate([np.pad(c.used, ((0, 0), (0, width - c.used.shape[1]))) for c in caches])
        filled = next((cache for cache in caches if cache.layers), None)
        if filled is None:
            return ColumnCache(self.backend, (), used)
        xp = self.backend.xp

        def part(cache: ColumnCache, layer: int, n: int) -> Array:
            like = filled.layers[layer][n]
            held = cache.layers[layer][n] if cache.layers else None
            missing = width - (held.shape[2] if held is not None else 0)
            blank = xp.zeros((cache.row_count(), like.shape[1], missing, like.shape[3]), dtype=like.dtype)
            return blank if held is None else xp.concat([held, blank], axis=2) if missing else held

        layers = tuple(
            (
                self.backend.concat_rows([part(c, i, 0) for c in caches]),
                self.backend.concat_rows([part(c, i, 1) for c in caches]),
            )
            for i in range(len(filled.layers))
        )
        return ColumnCache(self.backend, layers, used)

    def crop(self, lengths: NDArray[np.int32] | Sequence[int]) -> ColumnCache:
        """Each row shortened to ``lengths[row]`` tokens.

        Raises:
            ModelError: if a length is negative or above the row's own.
        """
        wanted = np.asarray(lengths, dtype=np.int64)
        for row in np.flatnonzero((wanted < 0) | (wanted > self._lengths)):
            raise ModelError(
                f"Row {row} of the cache holds {self._lengths[row]} tokens and cannot be cropped to {wanted[row]}; "
                f"crop only shortens."
            )
        used = self.used & (np.cumsum(self.used, axis=1) <= wanted[:, None])
        return ColumnCache(self.backend, self.layers, used)._trimmed()

    def _trimmed(self) -> ColumnCache:
        """Without the columns at the end that no row uses, and packed where most columns are holes."""
        columns = np.flatnonzero(self.used.any(axis=0))
        width = int(columns[-1]) + 1 if len(columns) else 0
        if width == 0:
            return ColumnCache.empty(self.backend, self.row_count())
        if len(columns) * 2 < width:
            native = self.backend.asarray(columns.astype(np.int32))
            return self._mapped(lambda part: self.backend.xp.take(part, native, axis=2), self.used[:, columns])
        if width == self.used.shape[1]:
            return self
        return self._mapped(lambda part: part[:, :, :width], self.used[:, :width])

    def _mapped(self, function: Callable[[Array], Array], used: NDArray[np.bool_]) -> ColumnCache:
        return ColumnCache(self.backend, tuple((function(k), function(v)) for k, v in self.layers), used)


def check_tokens(tokens: NDArray[Any], cache: Cache, vocab_size: int, max_length: int) -> None:
    """Raise unless a model can append tokens to the rows of a cache.

    Raises:
        ModelError: naming the row or the token.
    """
    if tokens.shape[0] != cache.row_count():
        raise ModelError(f"Tokens for {tokens.shape[0]} rows came with a cache of {cache.row_count()} rows.")
    if tokens.size and int(tokens.max()) >= vocab_size:
        raise ModelError(f"Token {int(tokens.max())} is out of range; the model has {vocab_size} tokens.")
    lengths = cache.lengths + (tokens >= 0).sum(axis=1)
    for row in np.flatnonzero(lengths > max_length):
        raise ModelError(f"Row {row} would have {lengths[row]} tokens, but the model takes {max_length} at most.")
