"""Loops over tables of the bytes of characters, compiled by Numba.

The loops are functions of :class:`logitloom.automata.automaton_kernels.AutomatonKernels`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from logitloom.automata import DEAD
from logitloom_plugins.kernels._numba_shared import alike, compiled, read_only, slot_of

__all__ = ["partition", "regroup"]

_CONTINUATIONS: Final = 64
_BLOCKS: Final = 0x110000 // 64
_UPPERS: Final = _BLOCKS // 64
_ROWS: Final = types.int64[:, ::1]
_ROW: Final = types.int64[::1]
_NUMBERS: Final = read_only(types.int64)


@compiled(types.int64(_ROWS, types.int64, types.int32[::1]), cache=True, nogil=True)
def _merged(table: Any, count: int, slots: Any) -> int:  # pragma: no cover - compiled
    """The number of the first row that equals row ``count`` (possibly this row itself); -1 if all entries of the row
    are -1.
    """
    for entry in table[count]:
        if entry != DEAD:
            slot = slot_of(table.view(np.uint64), count, slots)
            if slots[slot] < 0:
                slots[slot] = count
            return int(slots[slot])
    return DEAD


@compiled(types.int32[::1](types.int64), cache=True, nogil=True)
def _slots(rows: int) -> Any:  # pragma: no cover - compiled
    """A hash table for some rows."""
    size = 64
    while size < 2 * rows:
        size *= 2
    return np.full(size, np.int32(-1), dtype=np.int32)


@compiled(
    types.Tuple((_ROW, _ROW, types.boolean[:, ::1]))(_NUMBERS, _NUMBERS),
    cache=True,
    nogil=True,
)
def _classes(edges: Any, set_starts: Any) -> tuple[Any, Any, Any]:  # pragma: no cover - compiled
    """The bounds of the segments, the class of each segment, and which classes each set has."""
    known = np.array([0x80, 0xD800, 0xE000, 0x110000], dtype=np.int64)
    bounds = np.unique(np.concatenate((known, edges)))
    segments, sets = len(bounds) - 1, len(set_starts) - 1
    label = np.zeros(segments, dtype=np.int64)
    fresh = np.empty(2 * segments + 2, dtype=np.int64)
    classes, none = 1, 0
    for each in range(sets):
        # Each set divides the classes in two; new classes are numbered in the order of their first characters.
        fresh[: 2 * classes] = -1
        begin, at, classes = set_starts[each], set_starts[each], 0
        for segment in range(segments):
            while at < set_starts[each + 1] and edges[at] <= bounds[segment]:
                at += 1
            key = 2 * label[segment] + (at - begin) % 2
            if fresh[key] < 0:
                fresh[key] = classes
                classes += 1
            label[segment] = fresh[key]
    for segment in range(segments):
        if bounds[segment] == 0xD800:  # no set has surrogates
            none = label[segment]
    for segment in range(segments):
        if label[segment] == none:
            label[segment] = DEAD
        elif label[segment] > none:
            label[segment] -= 1
    held = np.zeros((sets, classes - 1), dtype=np.bool_)
    for each in range(sets):
        at = set_starts[each]
        for segment in range(segments):
            while at < set_starts[each + 1] and edges[at] <= bounds[segment]:
                at += 1
            if (at - set_starts[each]) % 2:
                held[each, label[segment]] = True
    return bounds, label, held


@compiled(types.Tuple((_ROWS, _ROW))(_ROW, _ROW), cache=True, nogil=True)
def _compress(bounds: Any, label: Any) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """Nodes ``[K, 64]`` over the bytes 0x80 to 0xBF, and root ``[128]`` over the bytes from 0x80."""
    segments = len(label)
    table = np.empty((2 * segments + _UPPERS + 6, _CONTINUATIONS), dtype=np.int64)
    slots = _slots(len(table))
    count = 0
    code = np.where(label >= 0, -2 - label, np.int64(DEAD))
    # The node of each block of 64 characters, whose encodings differ in the last byte only.
    leaf = np.full(_BLOCKS, np.int64(DEAD), dtype=np.int64)
    for segment in range(segments):
        first, stop = (bounds[segment] + 63) // 64, bounds[segment + 1] // 64
        if first < stop:
            table[count] = code[segment]
            leaf[first:stop] = _merged(table, count, slots)
            count += leaf[first] == count
    block = -1
    for inner in range(1, segments):
        if bounds[inner] % 64 == 0 or bounds[inner] // 64 == block:
            continue
        block, segment = bounds[inner] // 64, inner - 1
        for column in range(64):
            if bounds[segment + 1] == 64 * block + column:
                segment += 1
            table[count, column] = code[segment]
        leaf[block] = _merged(table, count, slots)
        count += leaf[block] == count
    upper = np.empty(_UPPERS, dtype=np.int64)
    for number in range(_UPPERS):
        same = number > 1
        for column in range(64):
            node = leaf[64 * number + column]
            # The first 32 would be overlong.
            table[count, column] = node if number or column >= 32 else DEAD
            same = same and node == leaf[64 * number - 64 + column]
        upper[number] = upper[number - 1] if same else _merged(table, count, slots)
        count += upper[number] == count
    root = np.full(128, np.int64(DEAD), dtype=np.int64)
    root[0x42:0x60] = leaf[2:32]
    root[0x60:0x70] = upper[:16]
    for plane in range(5):
        for column in range(64):
            number = 64 * plane + column
            table[count, column] = upper[number] if 16 <= number < _UPPERS else DEAD
        root[0x70 + plane] = _merged(table, count, slots)
        count += root[0x70 + plane] == count
    return table[:count], root


@compiled(types.boolean(_ROWS, _ROW, types.int64, types.int64), cache=True, nogil=True)
def _alike_columns(table: Any, root: Any, one: int, other: int) -> bool:  # pragma: no cover - compiled
    """Whether two bytes lead from each node to the same node. Bytes from 0xC0 lead nowhere from a node."""
    if root[one] != root[other]:
        return False
    for node in range(len(table)):
        after = table[node, one] if one < _CONTINUATIONS else DEAD
        if after != (table[node, other] if other < _CONTINUATIONS else DEAD):
            return False
    return True


@compiled(
    types.Tuple((_ROW, _ROW, types.boolean[:, ::1], _ROWS, _ROW, types.uint8[::1]))(_NUMBERS, _NUMBERS),
    cache=True,
    nogil=True,
)
def partition(edges: Any, set_starts: Any) -> tuple[Any, ...]:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.partition`."""
    bounds, label, held = _classes(edges, set_starts)
    table, root = _compress(bounds, label)
    column_of = np.empty(128, dtype=np.uint8)
    first = np.empty(128, dtype=np.int64)
    columns = 0
    for byte in range(128):
        # Most bytes are like the byte before.
        column: Any = np.int64(0)
        if byte and _alike_columns(table, root, byte - 1, byte):
            column = np.int64(column_of[byte - 1])
        while column < columns and not _alike_columns(table, root, first[column], byte):
            column += 1
        if column == columns:
            first[column] = byte
            columns += 1
        column_of[byte] = column
    nodes = np.full((len(table), columns), np.int64(DEAD), dtype=np.int64)
    top = np.empty(columns, dtype=np.int64)
    for column in range(columns):
        top[column] = root[first[column]]
        if first[column] < _CONTINUATIONS:
            nodes[:, column] = table[:, first[column]]
    return bounds[:-1], label, held, nodes, top, column_of


@compiled(
    types.Tuple((_ROWS, _ROW))(read_only(types.int64, 2), _NUMBERS, _NUMBERS),
    cache=True,
    nogil=True,
)
def regroup(nodes: Any, root: Any, codes: Any) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.regroup`."""
    known, columns = nodes.shape
    # The new value of each entry: from the front the nodes, from the end the classes, between them -1.
    meaning = np.empty(known + len(codes) + 1, dtype=np.int64)
    meaning[-1] = DEAD
    meaning[known:-1] = codes[::-1]
    table = np.empty((known + 1, columns), dtype=np.int64)
    slots = _slots(len(table))
    count = 0
    for node in range(known):
        for column in range(columns):
            table[count, column] = meaning[nodes[node, column]]
        meaning[node] = _merged(table, count, slots)
        count += meaning[node] == count
    top = np.empty(columns, dtype=np.int64)
    for column in range(columns):
        top[column] = meaning[root[column]]
    return table[:count], top


partition, regroup = map(alike, (partition, regroup))
