"""The states that characters above ASCII lead to in an automaton over bytes; each such character has 2 to 4 bytes."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED
from logitloom.automata.patterns.char_sets import category
from logitloom.automata.patterns.utf8 import byte_sequences, high_partition
from logitloom.masks.kernels import KernelFailed

__all__ = ["EVERYTHING", "Kinds", "kinds", "lost_above_ascii", "marks_above_ascii", "states_above_ascii"]

#: All bits of ``Trie.marks``.
EVERYTHING: Final = np.uint8(HIGH_WORD | HIGH_OTHER | HIGH_PARTIAL | MALFORMED)
_VARIOUS: Final = -2
#: The most states that one search visits to find the characters above ASCII that one state cannot read.
_MOST_VISITED: Final = 64


class Kinds(NamedTuple):
    """The byte automaton of all characters above ASCII, in which word characters are distinguished from others.

    Attributes:
        nodes: ``[K, columns] int32``, as in :class:`logitloom.automata.patterns.utf8.Shape`.
        root: ``[columns] int32``.
        column_of: ``[128] uint8``, the column of each byte from 0x80.
        of_group: ``[groups] uint8``, the kind of the characters of each group, as a bit of ``Trie.marks``.
        below: ``[K] uint8``, the kinds of the characters below each node.
    """

    nodes: NDArray[np.int32]
    root: NDArray[np.int32]
    column_of: NDArray[np.uint8]
    of_group: NDArray[np.uint8]
    below: NDArray[np.uint8]


@cache
def kinds() -> Kinds:
    """The :class:`Kinds`, computed once per process."""
    words, others = category("w", 0).high, category("W", 0).high
    partition = high_partition(frozenset([words, others]), BudgetTracker())
    nodes, root = partition.shape(tuple(range(partition.classes)))
    of_group = np.zeros(partition.classes, dtype=np.uint8)
    of_group[list(partition.members[words])] = HIGH_WORD
    of_group[list(partition.members[others])] = HIGH_OTHER
    below = np.zeros(len(nodes) + 1, dtype=np.uint8)
    completing = nodes < -1
    # A character has at most three bytes below a node.
    for _ in range(3):
        kind = np.where(completing, of_group[np.where(completing, -2 - nodes, 0)], below[np.maximum(nodes, -1)])
        below[:-1] = np.bitwise_or.reduce(kind, axis=1)
    return Kinds(nodes.astype(np.int32), root.astype(np.int32), partition.column_of, of_group, below[:-1])


def marks_above_ascii(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8], default: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """Which kinds of characters above ASCII can take another than the default transition.

    Args:
        table: ``[states, classes] int32``, next states, -1 for none.
        byte_class: ``[256] uint8``.
        default: ``[states] int32``, the target of the default transition, -1 for none.

    Returns:
        ``[states] uint8``, bits of ``Trie.marks``. Without compiled kernels a bit may be set needlessly.
    """
    kernels = automaton_kernels()
    if kernels is not None:
        given = np.ascontiguousarray(table), byte_class, default.astype(np.int32, copy=False)
        with suppress(KernelFailed):
            return kernels.marks(*given, tuple(kinds()))
    states = np.arange(len(table))
    same = states_above_ascii(table, byte_class, states)
    return np.where((default >= 0) & (same == default), np.uint8(MALFORMED), EVERYTHING)


def lost_above_ascii(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8], states: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Which kinds of characters above ASCII a state cannot read.

    Args:
        table, byte_class: as above.
        states: ``[n]``, states between characters.

    Returns:
        ``[n] uint8``, bits of ``Trie.marks``. A bit may be set needlessly where many characters cannot be read.
    """
    classes, continuing = byte_class.tobytes(), _columns(byte_class.tobytes(), 0x80, 0xBF)
    within = table[:, continuing]
    # By the number of bytes that are missing, per state whether all texts of so many bytes go on; the last is no state.
    whole = [np.append(np.ones(len(table), dtype=bool), False)]
    for _ in range(3):
        whole.append(np.append(whole[-1][np.maximum(within, -1)].all(axis=1), False))
    leads = table[np.ix_(states, _columns(classes, 0xC2, 0xF4))]
    known: dict[bytes, int] = {}
    found = []
    for state, lead in zip(states.tolist(), leads, strict=True):
        key = lead.tobytes()
        if key not in known:
            known[key] = _lost_kinds(state, table, classes, whole)
        found.append(known[key])
    return np.array(found, dtype=np.uint8)


def _lost_kinds(state: int, table: NDArray[np.int32], classes: bytes, whole: list[NDArray[np.bool_]]) -> int:
    """The bits of :func:`lost_above_ascii` for one state."""
    lost, visited, partial = list[tuple[int, int]](), 0, 0
    for sequence in _above_ascii():
        pending = [(state, 0, 0)]
        while pending:
            at, place, code = pending.pop()
            first, last = sequence[place]
            left = len(sequence) - place - 1
            row = table[at].tolist()
            visited += 1
            if visited > _MOST_VISITED:
                return int(EVERYTHING)
            for byte in range(first, last + 1):
                point = code << 6 | byte & (0x3F if place else 0x7F >> len(sequence))
                target = row[classes[byte]]
                if target < 0:
                    lost.append((point << 6 * left, (point + 1 << 6 * left) - 1))
                    partial |= HIGH_PARTIAL if left else 0
                elif left and not whole[left][target]:
                    pending.append((target, place + 1, point))
    if not lost:
        return MALFORMED
    low, high = np.array(lost).T
    edges = _word_edges()
    first_edge, last_edge = (edges.searchsorted(points, side="right") for points in (low, high))
    same = first_edge == last_edge
    words, others = bool((~same | (first_edge & 1 == 1)).any()), bool((~same | (first_edge & 1 == 0)).any())
    return MALFORMED | partial | HIGH_WORD * words | HIGH_OTHER * others


@cache
def _above_ascii() -> tuple[tuple[tuple[int, int], ...], ...]:
    """The encodings of all characters above ASCII, as :func:`.byte_sequences`."""
    return tuple(byte_sequences(0x80, 0x10FFFF))


@cache
def _word_edges() -> NDArray[np.int64]:
    """For each range of word characters above ASCII, the first code point, and the first code point after the range."""
    ranges = np.array(category("w", 0).high.ranges, dtype=np.int64)
    return np.column_stack([ranges[:, 0], ranges[:, 1] + 1]).ravel()


def states_above_ascii(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8], reached: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """Per state, the value that all targets of characters above ASCII share; -1 for no target, -2 for differing values.

    Args:
        table, byte_class: as above.
        reached: ``[states]``, the value of each state.
    """
    classes, end = byte_class.tobytes(), np.array([-1])

    def after(reached: NDArray[Any], low: int, high: int) -> NDArray[Any]:
        known = np.concatenate((reached, end))
        return _same(known.take(table.take(_columns(classes, low, high), axis=1)))

    one = after(reached, 0x80, 0xBF)
    two = after(one, 0x80, 0xBF)
    three = after(two, 0x80, 0xBF)
    # Lead bytes, each with its legal continuations: no overlong forms, no surrogates, nothing above U+10FFFF.
    leads = [
        after(one, 0xC2, 0xDF),
        after(after(one, 0xA0, 0xBF), 0xE0, 0xE0),
        after(two, 0xE1, 0xEC),
        after(after(one, 0x80, 0x9F), 0xED, 0xED),
        after(two, 0xEE, 0xEF),
        after(after(two, 0x90, 0xBF), 0xF0, 0xF0),
        after(three, 0xF1, 0xF3),
        after(after(two, 0x80, 0x8F), 0xF4, 0xF4),
    ]
    return _same(np.stack(leads, axis=1))


@lru_cache(maxsize=512)
def _columns(byte_class: bytes, low: int, high: int) -> NDArray[np.uint8]:
    """The table columns of a range of bytes."""
    return np.unique(np.frombuffer(byte_class, dtype=np.uint8)[low : high + 1])


def _same(each: NDArray[Any]) -> NDArray[Any]:
    return np.where((each == each[:, :1]).all(axis=1), each[:, 0], _VARIOUS)
