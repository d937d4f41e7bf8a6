"""A language model without weights files: its logits depend on the whole row through a rolling mix of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend

__all__ = ["ToyCache", "ToyModel"]


@dataclass(frozen=True)
class ToyCache:
    """The rows themselves: what a key-value cache stands for.

    Attributes:
        rows: the tokens of each row.
    """

    rows: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """``[rows] int32``: tokens per row."""
        return np.asarray([len(row) for row in self.rows], dtype=np.int32)

    def row_count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def take_rows(self, index: Any) -> ToyCache:
        """Rows ``index``."""
        return ToyCache(tuple(self.rows[int(i)] for i in index))

    def concat_rows(self, others: Sequence[Any]) -> ToyCache:
        """The rows of this cache, then the rows of the others."""
        return ToyCache(self.rows + tuple(row for other in others for row in other.rows))

    def crop(self, lengths: Any) -> ToyCache:
        """The first ``lengths[i]`` tokens of each row."""
        return ToyCache(tuple(row[: int(n)] for row, n in zip(self.rows, lengths, strict=True)))

    def to_host(self) -> dict[str, NDArray[Any]]:
        """``[rows, longest] int32``, the tokens, and -1 behind them."""
        held = np.full((len(self.rows), max(self.lengths, default=0)), -1, dtype=np.int32)
        for row, tokens in enumerate(self.rows):
            held[row, : len(tokens)] = tokens
        return {"tokens": held}


class ToyModel:
    """A model adapter for tests; counts its forward passes in ``calls``.

    Args:
        backend: the backend of its logits.
        vocab: columns of its logits.
        seed: of its tables.
        max_length: most tokens of a row.

    Example:
        >>> from logitloom import load_backend
        >>> model = ToyModel(load_backend("numpy"), vocab=5)
        >>> logits, cache = model.forward(np.array([[1, 2]], dtype=np.int32), model.empty_cache(1))
        >>> logits.shape, cache.rows
        ((1, 5), ((1, 2),))
    """

    def __init__(self, backend: Backend, vocab: int = 17, seed: int = 0, max_length: int = 256) -> None:
        self.backend, self.vocab_size, self.max_length = backend, vocab, max_length
        random = np.random.default_rng(seed)
        #: What a token one, two and three positions back adds to each logit: ``[3, vocab, vocab] float32``.
        self.tables = random.normal(size=(3, vocab, vocab)).astype(np.float32) * 2
        self.calls = 0

    @property
    def fingerprint(self) -> bytes:
        """Equal for models with equal tables."""
        return hashlib.blake2b(self.tables.tobytes(), digest_size=16).digest()

    def cache_from_host(self, arrays: Mapping[str, NDArray[Any]], lengths: NDArray[Any]) -> ToyCache:
        """The cache that :meth:`ToyCache.to_host` told."""
        rows = zip(arrays["tokens"].tolist(), lengths.tolist(), strict=True)
        return ToyCache(tuple(tuple(row[:length]) for row, length in rows))

    def empty_cache(self, rows: int) -> ToyCache:
        """Rows without tokens."""
        return ToyCache(((),) * rows)

    def row_logits(self, row: Sequence[int]) -> NDArray[np.float32]:
        """The logits after a row, from its tokens alone."""
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        for back, table in enumerate(self.tables):
            if len(row) > back:
                logits = logits + table[row[-1 - back]] / (back + 1)
        mixed: NDArray[np.float32] = logits + np.float32(0.1) * self.tables[0, sum(row) % self.vocab_size]
        return mixed

    def forward(
        self, tokens: NDArray[np.int32], cache: ToyCache, *, all_positions: bool = False
    ) -> tuple[Array, ToyCache]:
        """Logits after ``tokens: [rows, n]`` (-1 = none): of the last token of each row, or of all positions."""
        self.calls += 1
        out = np.zeros((*tokens.shape, self.vocab_size), dtype=np.float32)
        last = np.zeros((tokens.shape[0], self.vocab_size), dtype=np.float32)
        rows = []
        for i, (new, old) in enumerate(zip(tokens.tolist(), cache.rows, strict=True)):
            row = list(old)
            for j, token in enumerate(new):
                if token >= 0:
                    row.append(token)
                    out[i, j] = last[i] = self.row_logits(row)
            rows.append(tuple(row))
        return self.backend.asarray(out if all_positions else last), ToyCache(tuple(rows))
