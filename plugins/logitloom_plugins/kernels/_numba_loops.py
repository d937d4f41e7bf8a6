"""Loops in host memory, compiled by Numba: the functions of :class:`logitloom.automata.automaton_kernels.HostKernels`.

Numba compiles the loops when this module is first imported and caches them on disk, beside this file or in the user's
cache folder. :mod:`logitloom_plugins.kernels.numba` decides when the module is imported.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numba import types

from logitloom.automata import DEAD
from logitloom.automata.automaton_kernels import Notes, Paths, WalkProgress
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, NODE
from logitloom.constraints import FINISHED
from logitloom.masks.kernels import ALLOWED, DENSE, FORBIDDEN, ByteTable, StepTables
from logitloom_plugins.kernels._numba_shared import (
    alike,
    bytes_at,
    compiled,
    elements_at,
    integers_at,
    read_only,
    slot_of,
)

__all__ = [
    "collect",
    "determinize",
    "marks",
    "paths",
    "product",
    "rewrite",
    "step",
    "walk",
    "works",
    "write",
]

_FINISHED: Final = FINISHED.value
_BYTES: Final = read_only(types.uint8)
_INTS: Final = read_only(types.int32)
_WORDS: Final = read_only(types.uint64)
_AUTOMATON: Final = types.Tuple((read_only(types.int32, 2), read_only(types.boolean), _BYTES))
_NODES: Final = read_only(numba.from_dtype(NODE))
_PATHS: Final = types.Tuple((_WORDS, _WORDS, _BYTES, read_only(types.int64), types.int64, types.int64))


_NOTES: Final = types.Tuple((types.int32[::1], types.uint8[::1]))


@compiled(types.void(_INTS, types.uint8[::1]), cache=True, nogil=True)
def _mark(listed: Any, marked: Any) -> None:  # pragma: no cover - compiled
    """Set ``marked`` to 1 at the listed positions and to 0 elsewhere."""
    marked[:] = 0
    for position in listed:
        marked[position] = 1


@compiled(
    types.UniTuple(types.int64, 5)(
        _AUTOMATON, _NODES, _BYTES, _PATHS, types.int32[:, ::1], _NOTES, types.UniTuple(types.int64, 6), types.int64
    ),
    cache=True,
    nogil=True,
)
def _walk(
    automaton: Any, nodes: Any, byte: Any, paths: Any, pairs: Any, notes: Any, progress: Any, limit: int
) -> tuple[int, int, int, int, int]:  # pragma: no cover - compiled
    """See :meth:`.AutomatonKernels.walk`; Numba resolves plain tuples faster than records."""
    listed, marked = notes
    table, ready, byte_class = automaton
    low, high, marks, row_of_height, known, stride = paths
    begin, end, waiting, special, found, answered = progress
    visited, left = 0, special
    # A queue, because nodes are numbered level by level, so breadth-first order reads memory sequentially.
    while left > answered or (begin < end and visited < limit):
        # Unsigned, here and below, so that Numba emits no checks for negative indices.
        if left > answered:
            # Read from the end backwards, so that new pairs for the caller overwrite only pairs that were read.
            left -= 1
            first, state = np.uint64(pairs[left, 0]), np.uint64(-2 - pairs[left, 1])
            stop = first + np.uint64(1)
        else:
            node, state = np.uint64(pairs[begin, 0]), np.uint64(pairs[begin, 1])
            begin += 1
            if not ready[state]:
                pairs[waiting, 0], pairs[waiting, 1] = node, state
                waiting += 1
                continue
            first = np.uint64(nodes[node].child_start)
            stop = first + np.uint64(nodes[node].child_count)
            visited += nodes[node].child_count
        for child in range(first, stop):
            target = table[state, byte_class[byte[child]]]
            if target < 0:
                if target < -1:
                    special -= 1
                    pairs[special, 0], pairs[special, 1] = child, target
                continue
            here = nodes[child]
            start, last = np.uint64(here.first), np.uint64(here.own)
            if here.child_count:
                whole = known >= 0
                if whole:
                    entry = np.uint64(row_of_height[here.height] + stride * min(np.int64(target), known))
                    whole = (
                        here.low & low[entry] == 0 and here.high & high[entry] == 0 and here.marks & marks[entry] == 0
                    )
                if whole:
                    last = np.uint64(here.last)
                else:
                    pairs[end, 0], pairs[end, 1] = child, target
                    end += 1
            before: Any = found
            found += np.int64(last - start)
            if found <= len(listed):
                entry = np.uint64(before)
                for position in range(start, last):
                    listed[entry] = position
                    entry += np.uint64(1)
                continue
            if before <= len(listed):
                _mark(listed[:before], marked)
            for position in range(start, last):
                marked[position] = 1
    return begin, end, waiting, special, found


def walk(
    automaton: ByteTable,
    nodes: Any,
    byte: Any,
    paths: Paths,
    pairs: Any,
    notes: Notes,
    progress: WalkProgress,
    limit: int,
) -> WalkProgress:
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.walk`."""
    plain = tuple(automaton), nodes, byte, tuple(paths), pairs, tuple(notes), tuple(progress), limit
    return WalkProgress(*_walk(*plain))


@compiled(
    types.Tuple((types.uint64[::1], types.uint64[::1], types.uint8[::1]))(
        read_only(types.int32, 2),
        types.Tuple((_BYTES, read_only(types.int64), read_only(types.uint64, 2))),
        *(types.int64, read_only(types.boolean, 2), _BYTES, types.int64),
    ),
    cache=True,
    nogil=True,
)
def paths(
    source: Any, ascii_part: Any, split: int, kinds: Any, given: Any, levels: int
) -> tuple[Any, Any, Any]:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.paths`."""
    columns, sizes, bits = ascii_part
    known = len(source)
    width = known + 1
    every = ~np.uint64(0)
    low = np.full((levels + 2) * width, every, dtype=np.uint64)
    high = np.full((levels + 2) * width, every, dtype=np.uint64)
    marks = np.full((levels + 2) * width, np.uint8(255), dtype=np.uint8)
    there = np.empty(width, dtype=np.int64)
    there[known] = known
    for state in range(known):
        row = source[state]
        most, default = -1, np.int32(-1)
        for i in range(len(columns)):
            target = row[columns[i]]
            if target >= 0 and sizes[i] > most:
                most, default = sizes[i], target
        there[state] = default if default >= 0 else known
        low[state] = high[state] = 0
        for i in range(len(columns)):
            target = row[columns[i]]
            if target != default or target < 0:
                low[state] |= bits[0, i]
                high[state] |= bits[1, i]
        if len(given):
            marks[state] = given[state]
            continue
        last = kinds.shape[1] - 1
        word, other = kinds[0, last], kinds[1, last]
        for i in range(last):
            target = row[split + i]
            if target != default or target < 0:
                word |= kinds[0, i]
                other |= kinds[1, i]
        found = np.uint8(MALFORMED)
        if word:
            found |= np.uint8(HIGH_WORD | HIGH_PARTIAL)
        if other:
            found |= np.uint8(HIGH_OTHER | HIGH_PARTIAL)
        marks[state] = found
    # Doubling: a path of 2n characters is a path of n characters, and n more from the state that it reaches.
    for level in range(levels):
        before, after = level * width, (level + 1) * width
        for state in range(width):
            then = before + there[state]
            low[after + state] = low[before + state] | low[then]
            high[after + state] = high[before + state] | high[then]
            marks[after + state] = marks[before + state] | marks[then]
        further = np.empty_like(there)
        for state in range(width):
            further[state] = there[there[state]]
        there = further
    return low, high, marks


_TABLE: Final = read_only(types.int32, 2)
_KINDS: Final = types.Tuple((_TABLE, _INTS, _BYTES, _BYTES, _BYTES))
#: Not computed yet. Other entries are a state, -1 for none, or -2 for several.
_UNKNOWN: Final = -3


@compiled(types.int64(_TABLE, _BYTES, types.int32[:, ::1], types.int64, types.int64), cache=True, nogil=True)
def _uniform(table: Any, byte_class: Any, uniform: Any, state: int, more: int) -> Any:  # pragma: no cover - compiled
    """The state after every sequence of ``more`` continuation bytes; -1 if there is none, -2 if they differ."""
    if state < 0:
        return np.int64(-1)
    found = np.int64(uniform[state, more - 1])
    if found != _UNKNOWN:
        return found
    before = np.int64(_UNKNOWN)
    for byte in range(0x80, 0xC0):
        target = np.int64(table[state, byte_class[byte]])
        if target == before:
            continue
        before = target
        if more > 1:
            target = _uniform(table, byte_class, uniform, target, more - 1)
        if found == _UNKNOWN:
            found = target
        if target == -2 or target != found:
            found = np.int64(-2)
            break
    uniform[state, more - 1] = found
    return found


@compiled(
    types.int64(_TABLE, _BYTES, types.int32[:, ::1], _KINDS, types.int64, types.int64, types.int64, types.int64),
    cache=True,
    nogil=True,
)
def _leads_off(
    table: Any, byte_class: Any, uniform: Any, kinds: Any, state: int, node: int, more: int, default: int
) -> Any:  # pragma: no cover - compiled
    """The kinds, as bits, of the characters below a node of the tree of kinds that do not lead to state ``default``."""
    nodes, _, column_of, of_group, below = kinds
    reached = _uniform(table, byte_class, uniform, state, more)
    if reached == default:
        return np.int64(0)
    if reached != -2:
        return np.int64(below[node])
    found = np.int64(0)
    code_before = target_before = np.int64(_UNKNOWN)
    for byte in range(0x80, 0xC0):
        code = np.int64(nodes[node, column_of[byte - 0x80]])
        target = np.int64(table[state, byte_class[byte]])
        # Neighbouring bytes mostly have the same code and target.
        if code == -1 or (code == code_before and target == target_before):
            continue
        code_before, target_before = code, target
        if code < -1:
            if target != default:
                found |= np.int64(of_group[-2 - code])
        elif target < 0 or uniform[target, more - 2] != default:
            found |= _leads_off(table, byte_class, uniform, kinds, target, code, more - 1, default)
        if found == below[node]:
            break
    return found


@compiled(types.uint8[::1](_TABLE, _BYTES, _INTS, _KINDS), cache=True, nogil=True)
def marks(table: Any, byte_class: Any, default: Any, kinds: Any) -> Any:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.marks`."""
    _, root, column_of, _, _ = kinds
    every = np.int64(HIGH_WORD | HIGH_OTHER)
    uniform = np.full((len(table), 3), _UNKNOWN, dtype=np.int32)
    result = np.empty(len(table), dtype=np.uint8)
    for state in range(len(table)):
        found = np.int64(0) if default[state] >= 0 else every
        if found == 0:
            before = reached = node_before = np.int64(_UNKNOWN)
            for lead in range(0xC2, 0xF5):
                more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
                target = np.int64(table[state, byte_class[lead]])
                # Neighbouring lead bytes mostly have the same target.
                if target != before or lead == 0xE0 or lead == 0xF0:
                    before, node_before = target, np.int64(_UNKNOWN)
                    reached = _uniform(table, byte_class, uniform, target, more)
                node = np.int64(root[column_of[lead - 0x80]])
                if reached == default[state] or node == node_before:
                    continue
                node_before = node
                found |= _leads_off(table, byte_class, uniform, kinds, target, node, more, np.int64(default[state]))
                if found == every:
                    break
        result[state] = found | (MALFORMED | HIGH_PARTIAL if found else MALFORMED)
    return result


_FACTOR: Final = types.Tuple((_TABLE, types.int64, types.boolean))


@compiled(
    types.Tuple((types.int64[:, ::1], types.int32[:, ::1]))(_FACTOR, _FACTOR, types.int64), cache=True, nogil=True
)
def product(one_factor: Any, other_factor: Any, limit: int) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.product`."""
    first, start_first, needs_first = one_factor
    second, start_second, needs_second = other_factor
    dead_first, dead_second = len(first) - 1, len(second) - 1
    columns = first.shape[1]
    number = np.full((len(first), len(second)), -1, dtype=np.int32)
    pairs = np.empty((256, 2), dtype=np.int64)
    table = np.empty((256, columns), dtype=np.int32)
    pairs[0, 0], pairs[0, 1] = start_first, start_second
    number[start_first, start_second] = 0
    count, at = 1, 0
    while at < count <= limit:
        for column in range(columns):
            one = first[pairs[at, 0], column]
            two = second[pairs[at, 1], column]
            gone_first, gone_second = one == dead_first, two == dead_second
            if (gone_first and (needs_first or gone_second)) or (gone_second and needs_second):
                table[at, column] = -1
                continue
            known = number[one, two]
            if known < 0:
                if count == len(pairs):
                    more_pairs, more_table = (
                        np.empty((4 * count, 2), np.int64),
                        np.empty((4 * count, columns), np.int32),
                    )
                    more_pairs[:count], more_table[:count] = pairs, table
                    pairs, table = more_pairs, more_table
                known = number[one, two] = count
                pairs[count, 0], pairs[count, 1] = one, two
                count += 1
            table[at, column] = known
        at += 1
    return pairs[:count], table[:count]


_RAGGED: Final = types.Tuple((_INTS, read_only(types.int64)))


#: The transitions of one DFA state by character set: the NFA positions after the set, the DFA state of these positions
#: (-1: not known), the list of sets that occur, and whether a set occurs.
_SETS: Final = types.Tuple((types.uint64[:, ::1], types.int64[::1], types.int64[::1], types.boolean[::1]))
#: The transitions by byte class: the positions after a class that several sets contain, the last set that contains the
#: class (-1: several sets were united), and the number of sets that contain the class.
_COLUMNS: Final = types.Tuple((types.uint64[:, ::1], types.int64[::1], types.int64[::1]))


@compiled(types.int64(types.uint64[::1], _RAGGED, _INTS, _RAGGED, _SETS, _COLUMNS), cache=True, nogil=True)
def _follow(
    positions: Any, following: Any, set_at: Any, ragged: Any, sets: Any, columns: Any
) -> int:  # pragma: no cover - compiled
    """Fill in the sets that follow the NFA positions of one DFA state; returns the number of character sets that
    occur.
    """
    (follow, follow_at), (members, members_at) = following, ragged
    after, state_after, present, seen = sets
    union, holding, holds = columns
    one, none, many = np.uint64(1), np.uint64(0), 0
    for word in range(len(positions)):
        rest, position = positions[word], 64 * word
        while rest != none:
            if rest & one and position > 0:  # position 0 is the end of the text
                kind = set_at[position]
                if not seen[kind]:
                    seen[kind] = True
                    state_after[kind] = -1
                    after[kind, :] = 0
                    present[many] = kind
                    many += 1
                    for member in range(members_at[kind], members_at[kind + 1]):
                        holding[members[member]] = kind
                        holds[members[member]] += 1
                for edge in range(follow_at[position], follow_at[position + 1]):
                    then = follow[edge]
                    after[kind, then >> 6] |= one << np.uint64(then & 63)
            rest >>= one
            position += 1
    for kind in present[:many]:
        for column in members[members_at[kind] : members_at[kind + 1]]:
            if holds[column] > 1:
                if holding[column] >= 0:
                    holding[column] = -1
                    union[column, :] = 0
                for word in range(len(positions)):
                    union[column, word] |= after[kind, word]
    return many


@compiled(types.void(types.int64, _RAGGED, _SETS, _COLUMNS), cache=True, nogil=True)
def _forget(many: int, ragged: Any, sets: Any, columns: Any) -> None:  # pragma: no cover - compiled
    """Undo :func:`_follow`, for the next DFA state."""
    (members, members_at), (_, _, present, seen), (_, _, holds) = ragged, sets, columns
    for kind in present[:many]:
        seen[kind] = False
        for column in members[members_at[kind] : members_at[kind + 1]]:
            holds[column] = 0


@compiled(
    types.Tuple((types.int32[:, ::1], types.boolean[::1]))(
        types.Tuple((_INTS, _RAGGED, _INTS, _RAGGED, types.int64)), types.int64, types.int64
    ),
    cache=True,
    nogil=True,
)
def determinize(automaton: Any, limit: int, most_held: int) -> tuple[Any, Any]:  # pragma: no cover - compiled
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.determinize`."""
    first, following, set_at, ragged, classes = automaton
    one, none = np.uint64(1), np.uint64(0)
    words, kinds = (len(set_at) + 63) // 64, len(ragged[1]) - 1
    room = min(limit + 1, 2 * len(set_at) + 16)
    # Per DFA state its set of NFA positions as bits. The last row is the set to look up.
    subsets = np.zeros((room + 1, words), dtype=np.uint64)
    table = np.full((room, classes), np.int32(DEAD), dtype=np.int32)
    size = 64
    while size < 4 * (limit + 2):
        size *= 2
    numbers = np.full(size, np.int32(-1), dtype=np.int32)
    after, union = np.zeros((kinds, words), dtype=np.uint64), np.zeros((classes, words), dtype=np.uint64)
    state_after = np.empty(kinds, dtype=np.int64)
    holding, holds = np.empty(classes, dtype=np.int64), np.zeros(classes, dtype=np.int64)
    sets = after, state_after, np.empty(kinds, dtype=np.int64), np.zeros(kinds, dtype=np.bool_)
    columns = union, holding, holds
    for position in first:
        subsets[0, position >> 6] |= one << np.uint64(position & 63)
    numbers[slot_of(subsets, 0, numbers)] = 0
    count, at, held = 1, 0, 0
    while at < count <= limit:
        for rest in subsets[at]:
            while rest != none:
                rest &= rest - one
                held += 1
        if held > most_held:
            count = limit + 1
            break
        many = _follow(subsets[at], following, set_at, ragged, sets, columns)
        for column in range(classes):
            if holds[column] == 0:
                continue
            alone = holds[column] == 1
            known = state_after[holding[column]] if alone else np.int64(-1)
            if known < 0:
                if count == room:
                    room = min(limit + 1, 2 * room)
                    more_subsets = np.zeros((room + 1, words), dtype=np.uint64)
                    more_table = np.full((room, classes), np.int32(DEAD), dtype=np.int32)
                    more_subsets[:count], more_table[:count] = subsets[:count], table[:count]
                    subsets, table = more_subsets, more_table
                subsets[count] = after[holding[column]] if alone else union[column]
                slot = slot_of(subsets, count, numbers)
                if numbers[slot] < 0:
                    numbers[slot] = count
                    count += 1
                known = np.int64(numbers[slot])
                if alone:
                    state_after[holding[column]] = known
            table[at, column] = known
            if count > limit:
                break
        _forget(many, ragged, sets, columns)
        at += 1
    count = 0 if count > limit else count
    accepting = np.empty(count, dtype=np.bool_)
    for state in range(count):
        accepting[state] = subsets[state, 0] & one != none
    return table[:count], accepting


@compiled(
    types.Tuple((types.boolean, types.int32[::1]))(_NOTES, _INTS, types.int64, _INTS, _INTS, types.int64),
    cache=True,
    nogil=True,
)
def _collect(
    notes: Any, order: Any, found: int, ends: Any, textless: Any, size: int
) -> tuple[bool, Any]:  # pragma: no cover - compiled
    few, kept = notes
    total = found + len(ends)
    listed = 2 * total <= size
    if found <= len(few):
        if listed:
            ids = np.empty(total, dtype=np.int32)
            for n in range(found):
                ids[n] = order[few[n]]
            ids[found:] = ends
            ids.sort()
            return listed, ids
        _mark(few[:found], kept)
    chosen = np.zeros((size + 7) // 8 * 8, dtype=np.uint8)
    flip = np.uint8(0) if listed else np.uint8(1)
    if listed:
        for end in ends:
            chosen[end] = 1
    else:
        for token in textless:
            chosen[token] = 1
        for end in ends:
            chosen[end] = 0
    # Eight positions at a time: with a small number of allowed or forbidden ids most blocks are skipped. Within a block
    # there are no branches, because the branch predictor would miss half of them.
    blocks = kept.view(np.uint64)
    none = np.uint64(0) if listed else np.uint64(0x0101010101010101)
    for block in range(np.uint64(len(order) // 8)):
        if blocks[block] != none:
            for position in range(8 * block, 8 * block + 8):
                chosen[np.uint32(order[position])] |= kept[position] ^ flip
    for position in range(np.uint64(len(order) // 8 * 8), np.uint64(len(order))):
        chosen[np.uint32(order[position])] |= kept[position] ^ flip
    count = total if listed else size - total
    ids = np.empty(count + 1, dtype=np.int32)
    at = np.uint64(0)
    blocks = chosen.view(np.uint64)
    for block in range(np.uint64(len(blocks))):
        if blocks[block] != 0:
            for token in range(8 * block, 8 * block + 8):
                ids[at] = token
                at += np.uint64(chosen[token])
    return listed, ids[:count]


def collect(notes: Notes, order: Any, found: int, ends: Any, textless: Any, size: int) -> tuple[bool, Any]:
    """See :meth:`logitloom.automata.automaton_kernels.AutomatonKernels.collect`."""
    ids: tuple[bool, Any] = _collect(tuple(notes), order, found, ends, textless, size)
    return ids


_RECORDS: Final = read_only(types.int64, 2)
_BOOLS: Final = read_only(types.boolean)


@compiled(
    types.Tuple((types.boolean, types.int64))(
        *(_INTS, read_only(types.int32, 2)),
        *(_AUTOMATON, types.Tuple((_BYTES, read_only(types.int64), _INTS, _BOOLS, _BOOLS, _RECORDS))),
        *(types.int32[::1], types.int64[:, ::1]),
    ),
    # Without ``nogil``, because other threads write the records while they hold the GIL.
    cache=True,
)
def _step(
    states: Any, tokens: Any, automaton: Any, others: Any, reached: Any, masks: Any
) -> tuple[bool, int]:  # pragma: no cover - compiled
    table, ready, byte_class = automaton
    flat, offsets, ends, accepting, closing, records = others
    count = len(closing)
    buffer_cost = 0
    for row in range(len(states)):
        state = np.int64(states[row])
        if state >= count:
            state -= count + 2
        if not _FINISHED <= state < count:
            return False, 0
        for column in range(tokens.shape[1]):
            token = tokens[row, column]
            if token < 0 or state == _FINISHED:
                continue
            if state < 0:
                return False, 0
            ending = False
            for end in ends:
                ending |= end == token
            if ending:
                if not accepting[state]:
                    return False, 0
                state = np.int64(_FINISHED)
                continue
            if closing[state] or token >= len(offsets) - 1 or offsets[token] == offsets[token + 1]:
                return False, 0
            for at in range(offsets[token], offsets[token + 1]):
                if not ready[state]:
                    return False, 0
                state = np.int64(table[state, byte_class[flat[at]]])
                if state < 0:
                    return False, 0
        # The last two records belong to the finished state, -2, and the dead state, -1.
        record = records[state]
        if record[0] < 0:
            return False, 0
        reached[row] = state
        for i in range(3):
            masks[row, i] = record[i]
        buffer_cost += -1 if record[0] == ALLOWED else 1 if record[0] == DENSE else 3
    return True, buffer_cost


def step(states: Any, tokens: Any, tables: StepTables, reached: Any, masks: Any) -> tuple[bool, int]:
    """See :meth:`logitloom.masks.kernels.MaskKernels.step`."""
    done: tuple[bool, int] = _step(states, tokens, tuple(tables.automaton), tables[1:], reached, masks)
    return done


# The following loops are separate functions, because the compiler vectorises them only then.
@compiled(nogil=True)
def _limit(line: Any, source: Any, keep: Any, forbidden: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(line)):
        value = source[i]
        line[i] = value if keep[i] else forbidden


@compiled(nogil=True)
def _limit_in_place(line: Any, keep: Any, forbidden: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(line)):
        line[i] = line[i] if keep[i] else forbidden


@compiled(nogil=True)
def _copy_and_forbid(line: Any, source: Any, ids: Any, forbidden: Any) -> None:  # pragma: no cover - compiled
    line[:] = source
    for i in ids:
        line[i] = forbidden


def _write_of(kind: Any) -> Any:
    return types.void(kind[:, ::1], read_only(kind, 2), _RECORDS, kind, types.boolean)


@compiled([_write_of(kind) for kind in (types.uint16, types.uint32)], cache=True, nogil=True)
def write(after: Any, before: Any, masks: Any, forbidden: Any, in_place: bool) -> None:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.write`."""
    # Last row first, for the cache: the model wrote the last row last, and the next reader begins with the first row.
    for row in range(len(masks) - 1, -1, -1):
        line, source = after[row], before[row]
        kind, address, length = masks[row, 0], masks[row, 1], masks[row, 2]
        if kind == DENSE:
            keep = numba.carray(bytes_at(address), (length,))
            if in_place:
                _limit_in_place(line, keep, forbidden)
            else:
                _limit(line, source, keep, forbidden)
            continue
        ids = numba.carray(integers_at(address), (length,))
        if kind == ALLOWED:
            saved = np.empty(length, dtype=line.dtype)
            for i in range(length):
                saved[i] = source[ids[i]]
            line[:] = forbidden
            for i in range(length):
                line[ids[i]] = saved[i]
        elif in_place:
            for i in ids:
                line[i] = forbidden
        else:
            _copy_and_forbid(line, source, ids, forbidden)


def _rewrite_of(kind: Any) -> Any:
    return types.void(kind[:, ::1], types.int64, types.int64[:, ::1], _RECORDS, kind)


@compiled([_rewrite_of(kind) for kind in (types.uint16, types.uint32)], cache=True, nogil=True)
def rewrite(after: Any, before: int, written: Any, masks: Any, forbidden: Any) -> None:  # pragma: no cover - compiled
    """See :meth:`logitloom.masks.kernels.MaskKernels.rewrite`."""
    sources = numba.carray(elements_at(before, forbidden), (len(masks), after.shape[1]))
    for row in range(len(masks) - 1, -1, -1):  # last row first, as in write
        line, source = after[row], sources[row]
        kind, address, length = masks[row, 0], masks[row, 1], masks[row, 2]
        known = written[row, 0] == ALLOWED
        if kind == DENSE:
            _limit(line, source, numba.carray(bytes_at(address), (length,)), forbidden)
        else:
            ids = numba.carray(integers_at(address), (length,))
            if kind == FORBIDDEN:
                _copy_and_forbid(line, source, ids, forbidden)
            else:
                if known:
                    for i in numba.carray(integers_at(written[row, 1]), (written[row, 2],)):
                        line[i] = forbidden
                else:
                    line[:] = forbidden
                for i in ids:
                    line[i] = source[i]
        written[row, 0], written[row, 1], written[row, 2] = kind, address, length


# The other functions are called more often, always with the same types of arguments, so they are not wrapped.
marks, product, determinize, paths = map(alike, (marks, product, determinize, paths))


def works() -> bool:
    """Whether compiled code gives the right result for a row with one allowed id."""
    ids = np.array([1], dtype=np.int64)
    before = np.array([[3, 4]], dtype=np.uint32)
    after = np.zeros_like(before)
    write(after, before, np.array([[ALLOWED, ids.ctypes.data, 1]], dtype=np.int64), np.uint32(9), False)
    return bool((after == [[9, 4]]).all())
