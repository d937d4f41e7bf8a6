"""Code points as UTF-8 byte sequences.

Text is read byte by byte, so a set of characters above ASCII becomes an automaton that reads two to four bytes. Only
valid encodings occur: no overlong forms, no surrogates, nothing above U+10FFFF.

:class:`HighPartition` divides the code points from U+0080 up into classes that a pattern does not distinguish. Such a
character's transitions are compressed to a table of shared nodes. Tables are cached: the table of ``\\w`` is computed
once per process and copied into each automaton.

References:
    F. Yergeau, "UTF-8, a transformation format of ISO 10646", RFC 3629, 2003.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.char_sets import HighSet, category
from logitloom.automata.small_cache import BoundedCache
from logitloom.masks.kernels import KernelFailed

__all__ = ["DEAD", "HighPartition", "Shape", "byte_sequences", "high_partition"]

#: Entry of a transition table: no accepted text continues with this byte.
DEAD: Final = -1
_BLOCKS: Final = 0x110000 // 64
#: The largest number of sets times edges that the kernel divides, which takes some milliseconds.
_MOST_DIVIDED: Final = 1 << 20
_NO_EDGES: Final = np.zeros(0, dtype=np.int64)
# (first, last) code points of each encoded length, surrogates left out.
_LENGTHS: Final = ((0x0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))


def byte_sequences(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The encodings of a range of code points, as sequences of inclusive byte ranges.

    Args:
        low: first code point.
        high: last code point; surrogates in between are left out.

    Yields:
        Tuples of one to four ``(low byte, high byte)``. Each tuple stands for all byte strings with one byte of each
        range. The tuples are disjoint and in increasing order.

    Example:
        >>> list(byte_sequences(0x41, 0xFF))
        [((65, 127),), ((194, 195), (128, 191))]
    """
    for first, last in _LENGTHS:
        start, stop = max(low, first), min(high, last)
        if start <= stop:
            yield from _aligned(start, stop)


def _aligned(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    length = len(chr(high).encode())
    for shift in range(6, 6 * length, 6):
        mask = (1 << shift) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                yield from _aligned(low, low | mask)
                yield from _aligned((low | mask) + 1, high)
                return
            if high & mask != mask:
                yield from _aligned(low, (high & ~mask) - 1)
                yield from _aligned(high & ~mask, high)
                return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))


class Shape(NamedTuple):
    """The transitions of the bytes of one character above ASCII, for a grouping of the classes.

    Entries are a node (0 or more), ``DEAD``, or ``-2 - group`` where the last byte completes a character.
    ``nodes`` is ``[K, columns]``, ``root`` (the first byte) ``[columns]``.
    """

    nodes: NDArray[np.intp]
    root: NDArray[np.intp]

    def moved(self, base: int, targets: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Nodes and root as rows of a table.

        Node ``n`` is state ``base + n``, group ``g`` leads to ``targets[-2 - g]``; ``targets[-1]`` is ``DEAD``.
        """
        # Negative codes index from the end, where the targets are.
        meaning = np.concatenate([np.arange(base, base + len(self.nodes), dtype=np.int32), targets])
        return meaning.take(self.nodes), meaning.take(self.root)


class HighPartition:
    """Classes of code points from U+0080 up that no set of a pattern distinguishes.

    Attributes:
        classes: number of classes.
        members: for each set, its classes.
        columns: number of classes of the bytes 0x80 to 0xFF that the encodings distinguish.
        column_of: ``[128] uint8``, the column of each byte from 0x80.
    """

    def __init__(self, sets: tuple[HighSet, ...], tracker: BudgetTracker) -> None:
        parts = _compiled(sets) or _divided(sets, tracker)
        self._parts = parts
        self.classes = int(parts.labels.max(initial=-1)) + 1
        self.members: dict[HighSet, tuple[int, ...]] = dict(zip(sets, parts.members, strict=True))
        self.columns = len(parts.finest.root)
        self.column_of = parts.column_of
        self._shapes: dict[tuple[int, ...], Shape] = {tuple(range(self.classes)): parts.finest}

    @cached_property
    def kinds(self) -> NDArray[np.bool_]:
        """``[2, classes + 1]``: which classes contain word characters, and which contain other characters.

        The last entry stands for characters that are in no set of the pattern.
        """
        starts, labels = self._parts.starts, self._parts.labels
        edges = category("w", 0).high.edges
        before = np.searchsorted(edges, starts, side="right")
        mixed = np.searchsorted(edges, [*starts[1:], 0x110000], side="left") > before
        word = before & 1 == 1
        surrogates = starts == 0xD800
        held = np.zeros((2, self.classes + 1), dtype=bool)
        held[0, labels[(word | mixed) & ~surrogates]] = True
        held[1, labels[(~word | mixed) & ~surrogates]] = True
        return held

    def shape(self, groups: tuple[int, ...]) -> Shape:
        """The table for a grouping: ``groups[c]`` is the group of class ``c``, or ``DEAD``."""
        known = self._shapes.get(groups)
        if known is None:
            codes = np.array([DEAD if group == DEAD else -2 - group for group in groups], dtype=np.int64)
            known = _regrouped(self._parts.finest, codes)
            if len(self._shapes) < 256:
                self._shapes[groups] = known
        return known


class _PartitionParts(NamedTuple):
    """The parts of a :class:`HighPartition`.

    Attributes:
        starts: ``[segments]``, the first code point of each segment between the bounds of all sets.
        labels: ``[segments]``, the class of each segment; ``DEAD`` for none.
        members: for each set, its classes.
        finest: the table for which each class is a group.
        column_of: as for :class:`HighPartition`.
    """

    starts: NDArray[np.int64]
    labels: NDArray[np.int64]
    members: list[tuple[int, ...]]
    finest: Shape
    column_of: NDArray[np.uint8]


def _compiled(sets: tuple[HighSet, ...]) -> _PartitionParts | None:
    """The parts by the kernel; ``None`` if it could take long, because the kernel cannot check the budget."""
    kernels = automaton_kernels()
    sizes = [0, *[len(each.edges) for each in sets]]
    if kernels is None or len(sizes) * sum(sizes) > _MOST_DIVIDED:
        return None
    edges = np.concatenate([_NO_EDGES, *[each.edges for each in sets]])
    try:
        starts, labels, held, nodes, root, column_of = kernels.partition(edges, np.cumsum(sizes, dtype=np.int64))
    except KernelFailed:
        return None
    members = [tuple(row.nonzero()[0].tolist()) for row in held]
    return _PartitionParts(starts, labels, members, Shape(nodes, root), column_of)


def _divided(sets: tuple[HighSet, ...], tracker: BudgetTracker) -> _PartitionParts:
    """The parts of a partition, computed without the kernel."""
    flat = []
    for high_set in sets:
        flat.append(high_set.edges)
        tracker.check_time()
    bounds = np.unique(np.concatenate([np.array([0x80, 0xD800, 0xE000, 0x110000]), *flat]))
    starts: NDArray[np.int64] = bounds[:-1]
    # Per segment one bit for each set; segments with equal bits are one class.
    tracker.check_bytes(len(sets) * len(starts) // 8, "its sets of characters")
    held = np.zeros((-(-len(sets) // 8), len(starts)), dtype=np.uint8)
    for row, edges in enumerate(flat):
        held[row // 8] |= (np.searchsorted(edges, starts, side="right") & 1).astype(np.uint8) << (row % 8)
        tracker.check_time()
    labels = np.full(len(starts), DEAD, dtype=np.int64)
    used = np.flatnonzero(held.any(axis=0))
    columns = np.ascontiguousarray(held[:, used].T).view(f"V{max(len(held), 1)}").ravel()
    _, first, label = np.unique(columns, return_index=True, return_inverse=True)
    # Numbered in the order of their first characters.
    labels[used] = first.argsort().argsort()[label.ravel()]
    members: list[tuple[int, ...]] = []
    size = 0
    for row in range(len(sets)):
        members.append(tuple(np.unique(labels[(held[row // 8] >> (row % 8)) & 1 == 1]).tolist()))
        size += 8 * len(members[-1])
        tracker.check_time()
        tracker.check_bytes(size, "its sets of characters")
    nodes, root = _compress(starts, labels)
    columns = np.concatenate([nodes, root[None]], axis=0).T
    # Most columns equal the previous column.
    changes = np.concatenate([[True], (columns[1:] != columns[:-1]).any(axis=1)])
    seen: dict[bytes, int] = {}
    distinct = [seen.setdefault(column.tobytes(), len(seen)) for column in columns[changes]]
    column_of = np.array(distinct, dtype=np.uint8).take(np.cumsum(changes) - 1)
    first_of = np.unique(column_of, return_index=True)[1]
    # The tables of ``finest`` have one column per byte class instead of one per byte. The dtype is intp, because NumPy
    # would convert other integers at each use as an index.
    finest = Shape(nodes[:, first_of].astype(np.intp, order="C"), root[first_of].astype(np.intp))
    return _PartitionParts(starts, labels, members, finest, column_of)


def _regrouped(finest: Shape, codes: NDArray[np.int64]) -> Shape:
    """A shape with other codes for completed characters, and with equal nodes merged."""
    kernels = automaton_kernels()
    if kernels is not None:
        with suppress(KernelFailed):
            return Shape(*kernels.regroup(*finest, codes))
    nodes, root = finest
    # The new value of each entry: nodes from the front, the negative codes of classes from the end.
    meaning = np.full(len(nodes) + len(codes) + 1, DEAD, dtype=np.intp)
    meaning[len(nodes) : -1] = codes[::-1]
    # The number of bytes from each node that complete a character; the last entry is for DEAD and completed characters.
    height = np.zeros(len(nodes) + 1, dtype=np.intp)
    for _ in range(3):
        height[:-1] = height.take(np.maximum(nodes, DEAD)).max(axis=1, initial=0) + 1
    rows = _DistinctRows(nodes.shape[1], np.intp)
    for level in (1, 2, 3):
        here = np.flatnonzero(height[:-1] == level)
        meaning[here] = rows.add(meaning.take(nodes[here]))
    return Shape(rows.table(), meaning.take(root))


def _compress(starts: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Nodes ``[K, 128]`` and root ``[128]`` over the bytes 0x80 to 0xFF, with equal nodes merged."""
    # Blocks of 64 code points, whose encodings differ in the last byte only: the segment of each block's first code
    # point, -1 below U+0080; the blocks with more than one segment, and for these the segment of each code point.
    points = np.arange(_BLOCKS, dtype=np.int64) * 64
    segment = np.searchsorted(starts, points, side="right") - 1
    mixed = np.unique(starts[starts % 64 != 0] // 64)
    inside = np.searchsorted(starts, points[mixed, None] + np.arange(64), side="right") - 1
    labels = np.append(labels, DEAD)  # for segment -1
    codes = np.where(labels >= 0, -2 - labels, DEAD).astype(np.int32)
    rows = _DistinctRows(64, np.int32)
    uniform = np.zeros(len(codes), dtype=bool)
    uniform[np.delete(segment, mixed)] = True
    of_segment = np.full(len(codes), DEAD, dtype=np.int32)
    of_segment[uniform] = rows.add(np.repeat(codes[uniform, None], 64, axis=1))
    leaf = of_segment[segment]
    leaf[mixed] = rows.add(codes[inside])
    root = np.full(128, DEAD, dtype=np.int32)
    root[0x42:0x60] = leaf[2:32]
    middle = leaf.reshape(-1, 64).copy()
    middle[0, :32] = DEAD  # overlong
    upper = rows.add(middle)
    root[0x60:0x70] = upper[:16]
    planes = np.full((5, 64), DEAD, dtype=np.int32)
    planes[0, 16:] = upper[16:64]
    planes[1:4] = upper[64:256].reshape(3, 64)
    planes[4, :16] = upper[256:]
    root[0x70:0x75] = rows.add(planes)
    table = rows.table()
    nodes = np.full((len(table), 128), DEAD, dtype=np.int32)
    nodes[:, :64] = table
    return nodes, root


class _DistinctRows:
    """Distinct rows of a table; the number of a row with only ``DEAD`` entries is ``DEAD``."""

    def __init__(self, width: int, dtype: type[np.signedinteger[Any]]) -> None:
        self._width, self._dtype = width, dtype
        self._size = width * np.dtype(dtype).itemsize
        self._numbers: dict[bytes, int] = {np.full(width, DEAD, dtype=dtype).tobytes(): DEAD}

    def add(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Add rows ``[n, width]`` and return their numbers ``[n]``."""
        if not len(rows):
            return np.zeros(0, dtype=np.int32)
        # Most rows equal the previous row, so only changed rows are looked up.
        changes = np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])
        data, size, numbers = rows[changes].tobytes(), self._size, self._numbers
        distinct = [numbers.setdefault(data[at : at + size], len(numbers) - 1) for at in range(0, len(data), size)]
        return np.array(distinct, dtype=np.int32).take(np.cumsum(changes) - 1)

    def table(self) -> NDArray[Any]:
        """All rows but that of ``DEAD`` entries."""
        return np.frombuffer(b"".join([*self._numbers][1:]), dtype=self._dtype).reshape(-1, self._width)


_partitions: BoundedCache[frozenset[HighSet], HighPartition] = BoundedCache(256)


def high_partition(sets: frozenset[HighSet], tracker: BudgetTracker) -> HighPartition:
    """The cached partition of the given sets; empty sets have no effect."""
    known = _partitions.get(sets)
    return known or _partitions.add(sets, HighPartition(tuple(sorted(sets, key=lambda s: s.ranges)), tracker))
