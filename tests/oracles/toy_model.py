"""A language model without weights files: its logits depend on the whole row through a rolling mix of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logitloom.backend import Backend


@dataclass(frozen=True)
class ToyCache:
    rows: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> np.ndarray:
        return np.asarray([len(row) for row in self.rows], dtype=np.int32)

    def row_count(self) -> int:
        return len(self.rows)

    def take_rows(self, index: Any) -> ToyCache:
        return ToyCache(tuple(self.rows[int(i)] for i in index))

    def concat_rows(self, others: Sequence[Any]) -> ToyCache:
        return ToyCache(self.rows + tuple(row for other in others for row in other.rows))

    def crop(self, lengths: Any) -> ToyCache:
        return ToyCache(tuple(row[: int(n)] for row, n in zip(self.rows, lengths, strict=True)))


class ToyModel:
    """Implements the ModelAdapter protocol; counts its forward passes in ``calls``."""

    def __init__(self, backend: Backend, vocab: int = 17, seed: int = 0, max_length: int = 256) -> None:
        self.backend, self.vocab_size, self.max_length = backend, vocab, max_length
        random = np.random.default_rng(seed)
        self.tables = random.normal(size=(3, vocab, vocab)).astype(np.float32) * 2
        self.calls = 0

    def empty_cache(self, rows: int) -> ToyCache:
        return ToyCache(((),) * rows)

    def row_logits(self, row: Sequence[int]) -> np.ndarray:
        """The logits after a row, from its tokens alone."""
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        for back, table in enumerate(self.tables):
            if len(row) > back:
                logits = logits + table[row[-1 - back]] / (back + 1)
        return logits + np.float32(0.1) * self.tables[0, sum(row) % self.vocab_size]

    def forward(self, tokens: np.ndarray, cache: ToyCache, *, all_positions: bool = False) -> tuple[Any, ToyCache]:
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
