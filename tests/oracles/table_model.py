"""A language model of two tables, computed for all rows at once: logits depend on a row's last two tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logitloom.arrays.backend import Backend


@dataclass(frozen=True)
class TableCache:
    tokens: np.ndarray  # [rows, capacity]
    lengths: np.ndarray  # [rows]

    def row_count(self) -> int:
        return len(self.lengths)

    def take_rows(self, index: Any) -> TableCache:
        index = np.asarray(index)
        return TableCache(self.tokens[index], self.lengths[index])

    def concat_rows(self, others: Sequence[Any]) -> TableCache:
        caches = [self, *others]
        return TableCache(
            np.concatenate([cache.tokens for cache in caches]), np.concatenate([cache.lengths for cache in caches])
        )

    def crop(self, lengths: Any) -> TableCache:
        return TableCache(self.tokens, np.minimum(self.lengths, np.asarray(lengths, dtype=np.int32)))


class TableModel:
    """Implements the ModelAdapter protocol."""

    max_length = 32

    def __init__(self, backend: Backend, vocab: int, seed: int = 0, scale: float = 1.0) -> None:
        self.backend, self.vocab_size = backend, vocab
        self.tables = np.random.default_rng(seed).normal(size=(2, vocab, vocab)).astype(np.float32) * scale

    def empty_cache(self, rows: int) -> TableCache:
        return TableCache(np.zeros((rows, self.max_length), dtype=np.int32), np.zeros(rows, dtype=np.int32))

    def row_logits(self, row: Sequence[int]) -> np.ndarray:
        return self.tables[0, row[-1]] + (self.tables[1, row[-2]] if len(row) > 1 else 0)

    def forward(self, tokens: np.ndarray, cache: TableCache, *, all_positions: bool = False) -> tuple[Any, TableCache]:
        row, place = np.nonzero(tokens >= 0)
        target = cache.lengths[row] + place
        held = cache.tokens.copy()
        held[row, target] = tokens[row, place]
        out = np.zeros((*tokens.shape, self.vocab_size), dtype=np.float32)
        before = np.where((target > 0)[:, None], self.tables[1, held[row, np.maximum(target - 1, 0)]], 0)
        out[row, place] = self.tables[0, tokens[row, place]] + before
        counts = (tokens >= 0).sum(axis=1, dtype=np.int32)
        after = TableCache(held, cache.lengths + counts)
        if not all_positions:
            out = out[np.arange(len(counts)), np.maximum(counts - 1, 0)]
        return self.backend.asarray(out), after
