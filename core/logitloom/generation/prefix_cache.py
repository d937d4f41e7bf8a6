"""A model adapter that takes known prompts from a key-value cache and keeps the cache of their continuations.

The adapter has the interface of every model adapter, so all strategies and chains can continue cached sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend
from logitloom.context import padded
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.generation.token_prefix import common_prefix

__all__ = ["PrefixCachedModel", "gathered_rows"]

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """The tokens of a row of a cache, as a linked list of the fed parts. ``start`` is the number of their prompt."""

    before: _Line | None
    fed: Ids
    length: int
    start: int

    def tokens(self) -> Ids:
        parts = []
        line: _Line | None = self
        while line is not None:
            parts.append(line.fed)
            line = line.before
        return tuple(token for part in reversed(parts) for token in part)

    def cropped(self, length: int) -> _Line | None:
        line: _Line | None = self
        while line is not None and line.length - len(line.fed) >= length:
            line = line.before
        if line is None or line.length <= length:
            return line
        return _Line(line.before, line.fed[: length - line.length], length, line.start)


class _TracedCache:
    """A model's cache with the tokens of its rows. Caches that derive from the same first cache share a ``family``."""

    __slots__ = ("family", "inner", "lines", "owner")

    def __init__(
        self, owner: PrefixCachedModel, inner: Cache, lines: tuple[_Line | None, ...], family: int = -1
    ) -> None:
        self.owner, self.inner, self.lines, self.family = owner, inner, lines, family

    @property
    def lengths(self) -> NDArray[np.int32]:
        return self.inner.lengths

    def row_count(self) -> int:
        return self.inner.row_count()

    def take_rows(self, index: Any) -> _TracedCache:
        host = np.asarray(index, dtype=np.int32).reshape(-1).tolist()
        taken = _TracedCache(self.owner, self.inner.take_rows(index), tuple(self.lines[i] for i in host), self.family)
        self.owner._moved(self, taken, host)
        return taken

    def concat_rows(self, others: Sequence[Any]) -> _TracedCache:
        inner = self.inner.concat_rows([other.inner for other in others])
        lines = (*self.lines, *(line for other in others for line in other.lines))
        return _TracedCache(self.owner, inner, lines, self.family)

    def crop(self, lengths: NDArray[np.int32] | Sequence[int]) -> _TracedCache:
        lines = tuple(line and line.cropped(int(n)) for line, n in zip(self.lines, lengths, strict=True))
        cropped = _TracedCache(self.owner, self.inner.crop(lengths), lines, self.family)
        self.owner._moved(self, cropped, range(len(cropped.lines)))
        return cropped


class PrefixCachedModel:
    """A model adapter that computes only the tokens of known prompts that a cache does not hold yet.

    A row is recognised as a continuation of a prompt by its first tokens. After a generation, :meth:`computed` returns
    the cache of its sequences.

    Args:
        model: any model adapter.
        prompts: rows that will be continued.
        cache: the cache of the first tokens of each prompt, or None.
        search: whether the generation is a beam search, whose dropped rows are not needed. Otherwise dropped rows are
            finished sequences, and their caches are kept.
    """

    def __init__(
        self, model: ModelAdapter, prompts: Sequence[Ids], cache: Cache | None = None, *, search: bool = False
    ) -> None:
        self.model, self.search = model, search
        self.backend: Backend = model.backend
        self.vocab_size, self.max_length = model.vocab_size, model.max_length
        self._cache = cache
        self._held = [0] * len(prompts) if cache is None else [int(n) for n in cache.lengths]
        # Among equal prompts the one with most cached tokens is used.
        self._starts = {tuple(prompts[i]): i for i in sorted(range(len(prompts)), key=lambda i: self._held[i])}
        self._start_lengths = sorted({len(prompt) for prompt in prompts}, reverse=True)
        self._kept: list[tuple[Cache, tuple[_Line | None, ...]]] = []
        if cache is not None:
            lines = (_Line(None, tuple(p[:n]), n, self._starts[p]) for p, n in zip(prompts, self._held, strict=True))
            self._kept.append((cache, tuple(lines)))
        # A processor of the chain may also run the model; its rows have another family.
        self._latest: dict[int, _TracedCache] = {}
        self._families = 0

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # not set yet while the object is copied
            raise AttributeError(name)
        return getattr(self.model, name)

    def empty_cache(self, rows: int) -> Cache:
        """A cache of ``rows`` rows without tokens."""
        return _TracedCache(self, self.model.empty_cache(rows), (None,) * rows)

    def forward(self, tokens: NDArray[np.int32], cache: Any, *, all_positions: bool = False) -> tuple[Array, Any]:
        """As the model's own ``forward``. A new row that begins with a known prompt uses the cached part of it."""
        fed = [tuple(token for token in row if token >= 0) for row in tokens.tolist()]
        if not any(cache.lines):
            return self._begin(tokens, fed, cache, all_positions)
        lines = tuple(
            _Line(line, new, (line.length if line else 0) + len(new), line.start if line else -1) if new else line
            for line, new in zip(cache.lines, fed, strict=True)
        )
        logits, inner = self.model.forward(tokens, cache.inner, all_positions=all_positions)
        return logits, self._noted(_TracedCache(self, inner, lines, cache.family))

    def _begin(
        self, tokens: NDArray[np.int32], fed: list[Ids], cache: _TracedCache, all_positions: bool
    ) -> tuple[Array, _TracedCache]:
        starts = [self._start(row) for row in fed]
        inner = cache.inner
        held = [min(self._held[i], len(row) - 1) if i >= 0 else 0 for i, row in zip(starts, fed, strict=True)]
        # Logits of cached positions are not available, so with ``all_positions`` all tokens are computed.
        if self._cache is not None and any(held) and not all_positions:
            inner = self._cache.take_rows(np.maximum(starts, 0)).crop(held)
            tokens = padded([row[n:] for row, n in zip(fed, held, strict=True)])
        logits, inner = self.model.forward(tokens, inner, all_positions=all_positions)
        lines = (_Line(None, row, len(row), start) if row else None for row, start in zip(fed, starts, strict=True))
        self._families += 1
        traced = self._noted(_TracedCache(self, inner, tuple(lines), self._families))
        if self.search:
            self._kept.append((inner, traced.lines))
        return logits, traced

    def _start(self, row: Ids) -> int:
        for length in self._start_lengths:
            if length <= len(row) and row[:length] in self._starts:
                return self._starts[row[:length]]
        return -1

    def _noted(self, traced: _TracedCache) -> _TracedCache:
        if any(line is not None and line.start >= 0 for line in traced.lines):
            self._latest[traced.family] = traced
        return traced

    def _moved(self, before: _TracedCache, after: _TracedCache, index: Sequence[int]) -> None:
        if before is not self._latest.get(before.family):
            return
        self._latest[before.family] = after
        if self.search:
            return
        staying = set(index)
        dropped = [
            i for i, line in enumerate(before.lines) if line is not None and line.start >= 0 and i not in staying
        ]
        if dropped:
            rows = before.inner.take_rows(np.asarray(dropped, dtype=np.int32))
            self._kept.append((rows, tuple(before.lines[i] for i in dropped)))

    def computed(self, rows: Sequence[Ids]) -> Cache | None:
        """The cache of sequences: of each the longest prefix that is still cached.

        Args:
            rows: sequences that begin with prompts.

        Returns:
            A cache with one row per sequence, each without at least the last token; None if no token is cached.
        """
        sources = [*self._kept, *((latest.inner, latest.lines) for latest in self._latest.values())]
        by_start: dict[int, list[tuple[Ids, int, int]]] = {}
        exact: dict[Ids, tuple[int, int]] = {}
        for s, (_, lines) in enumerate(sources):
            for i, line in enumerate(lines):
                if line is not None and line.start >= 0:
                    held = line.tokens()
                    by_start.setdefault(line.start, []).append((held, s, i))
                    exact[held] = (s, i)
        lengths = sorted({len(held) for held in exact}, reverse=True)
        chosen = []
        for row in rows:
            found = next(((n, *exact[row[:n]]) for n in lengths if n < len(row) and row[:n] in exact), (0, -1, -1))
            if self.search or not found[0]:
                candidates = by_start.get(self._start(row), ())
                found = max([found, *((min(common_prefix(row, c), len(row) - 1), s, i) for c, s, i in candidates)])
            chosen.append(found)
        if not any(n for n, _, _ in chosen):
            return None
        return gathered_rows([cache for cache, _ in sources], chosen)


def gathered_rows(caches: Sequence[Cache], chosen: Sequence[tuple[int, int, int]]) -> Cache:
    """A cache of rows of several caches, with one row operation per source cache.

    Args:
        caches: caches of one model.
        chosen: per row its length, the index of its source cache, and its row there; length 0 for an empty row.
    """
    anywhere = next((s, i) for n, s, i in chosen if n)
    pairs = [(s, i) if n else anywhere for n, s, i in chosen]
    used = sorted({s for s, _ in pairs})
    order = [r for s in used for r, pair in enumerate(pairs) if pair[0] == s]
    taken = [caches[s].take_rows([i for t, i in pairs if t == s]) for s in used]
    joined = taken[0].concat_rows(taken[1:]) if len(taken) > 1 else taken[0]
    if order != list(range(len(order))):
        joined = joined.take_rows(np.argsort(order).astype(np.int32))
    lengths = np.asarray([n for n, _, _ in chosen], dtype=np.int32)
    return joined if (joined.lengths == lengths).all() else joined.crop(lengths)
