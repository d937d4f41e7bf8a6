"""Characters after which every text goes on, because every state that is reachable from a state can read them.

In ``.*word.*`` every text without a line feed goes on, although letters of the word leave the default path. Where fewer
characters can end such runs than leave the default path, a walk skips more subtrees of the vocabulary's trie.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import AsciiClasses
from logitloom.automata.deterministic.utf8_expansion import Utf8Expansion
from logitloom.automata.lift.above_ascii import EVERYTHING, lost_above_ascii
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED

__all__ = ["lost_by_bytes", "lost_by_characters", "with_endless_runs"]

#: The largest table over characters, and the most rounds, of a search for the characters that end runs.
_MOST_ENTRIES: Final = 1 << 12
_MOST_ROUNDS: Final = 16
#: The most states between characters, and the largest table over bytes, of such a search.
_MOST_BETWEEN: Final = 64
_MOST_BYTE_ENTRIES: Final = 1 << 17
#: The first bytes of characters in UTF-8, and the continuation bytes.
_BEGINNING: Final = (*range(0x80), *range(0xC2, 0xF5))
_CONTINUING: Final = tuple(range(0x80, 0xC0))

_ZERO: Final = np.uint64(0)
_EACH: Final = np.uint64(1) << np.arange(_MOST_BETWEEN, dtype=np.uint64)

#: ``low``, ``high`` and ``marks`` of :class:`.Paths`, level by level.
Found = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]


def with_endless_runs(found: Found, lost: NDArray[np.uint64] | None) -> Found:
    """The paths; an entry has the characters that end runs if they are fewer than those that leave the default path.

    Args:
        found: low, high and marks of :class:`.Paths`, level by level.
        lost: ``[states, 3]``, low, high and marks of the characters that end runs; ``None`` if they are not known.
    """
    if lost is None:
        return found
    stride = len(lost) + 1
    low, high = found[0].reshape(-1, stride).copy(), found[1].reshape(-1, stride).copy()
    marks = found[2].reshape(-1, stride).copy()
    size = np.bitwise_count(low).astype(np.int64) + np.bitwise_count(high) + np.bitwise_count(marks)
    better = np.bitwise_count(lost).sum(axis=1, dtype=np.int64) < size[:, :-1]
    low[:, :-1] = np.where(better, lost[:, 0], low[:, :-1])
    high[:, :-1] = np.where(better, lost[:, 1], high[:, :-1])
    marks[:, :-1] = np.where(better, lost[:, 2].astype(np.uint8), marks[:, :-1])
    return low.ravel(), high.ravel(), marks.ravel()


def lost_by_characters(made_of: Utf8Expansion, ascii_part: AsciiClasses) -> NDArray[np.uint64] | None:
    """The characters that end runs from each state of an automaton over characters.

    Args:
        made_of: the automaton over characters from which a byte automaton was expanded.
        ascii_part: its ASCII classes.
    """
    source = made_of.characters
    if not made_of.high.classes or source.size > _MOST_ENTRIES:
        return None
    dead = source < 0
    high_dead = np.append(dead[:, made_of.split :], np.ones((len(source), 1), dtype=bool), axis=1)
    word, other = made_of.high.kinds
    by_word, by_other = (high_dead & word).any(axis=1), (high_dead & other).any(axis=1)
    marks = np.where(by_word, HIGH_WORD, 0) | np.where(by_other, HIGH_OTHER, 0) | MALFORMED
    marks = np.where(by_word | by_other, marks | HIGH_PARTIAL, marks)
    return _rounds(_own(dead[:, ascii_part.columns], marks, ascii_part), source)


def _rounds(own: NDArray[np.uint64], source: NDArray[np.integer[Any]]) -> NDArray[np.uint64] | None:
    """What each state, or any state reachable from it, cannot read; ``None`` if the search takes too many rounds.

    Args:
        own: ``[states, 3]``, what each state itself cannot read.
        source: ``[states, columns]``, the next states; the last number or -1 for none.
    """
    # The last row is for the dead state, which adds nothing.
    lost = np.append(own, np.zeros((1, 3), dtype=np.uint64), axis=0)
    for _ in range(_MOST_ROUNDS):
        reached: NDArray[np.uint64] = lost[:-1] | np.bitwise_or.reduce(lost[source], axis=1)
        if np.array_equal(reached, lost[:-1]):
            return reached
        lost[:-1] = reached
    return None


def lost_by_bytes(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8], given: NDArray[np.uint8], ascii_part: AsciiClasses
) -> NDArray[np.uint64] | None:
    """The characters that end runs from each state of an automaton over bytes.

    Args:
        table: ``[states, classes] int32``, next states; negative for none, and below -1 for what ends a run otherwise.
        byte_class: ``[256] uint8``.
        given: ``[states]``: the kinds of characters that can leave the default transition, as bits of ``Trie.marks``.
        ascii_part: the ASCII classes.
    """
    if table.size > _MOST_BYTE_ENTRIES:
        return None
    beginning, continuing = (np.unique(byte_class[list(read)]) for read in (_BEGINNING, _CONTINUING))
    begins = table[:, beginning]
    # A state that reads nothing counts as a state between characters.
    between = (begins != -1).any(axis=1) | (table == -1).all(axis=1)
    at, inner = between.nonzero()[0], (~between).nonzero()[0]
    few = len(at) <= _MOST_BETWEEN
    targets = table[np.ix_(at, ascii_part.columns)]
    if not few and targets.size > _MOST_ENTRIES:
        return None
    found: NDArray[np.uint64] | None
    marks = given[at] & lost_above_ascii(table, byte_class, at) if few else given[at]
    own = _own(targets < 0, marks, ascii_part)
    if few:
        within = np.maximum(table[np.ix_(inner, continuing)], -1)
        found = _with_all_reached(own, _reached_between(at, inner, np.maximum(begins[at], -1), within))
    else:
        # Characters above ASCII that cannot leave the default transition lead where an ASCII character leads.
        place = np.full(len(table) + 1, len(at))
        place[at] = np.arange(len(at))
        found = _rounds(own, place[np.maximum(targets, -1)])
    if found is None:
        return None
    lost = np.full((len(table), 3), ~_ZERO)
    lost[:, 2] = EVERYTHING
    lost[at] = found
    return lost


def _reached_between(
    at: NDArray[np.intp], inner: NDArray[np.intp], begins: NDArray[np.int32], within: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """``[states, states]``: which states between characters whole characters lead to, each state itself included.

    Args:
        at: the states between characters.
        inner: the other states.
        begins: ``[states between characters, columns]``, the next states by first bytes of characters, -1 for none.
        within: ``[other states, columns]``, the next states by later bytes of characters, -1 for none.
    """
    # Per state the states between characters that a character leads to, as bits; a last one for the dead state.
    leads = np.zeros(len(at) + len(inner) + 1, dtype=np.uint64)
    leads[at] = _EACH[: len(at)]
    # A character has at most three bytes after the first.
    for _ in range(3):
        leads[inner] = np.bitwise_or.reduce(leads[within], axis=1)
    after = np.bitwise_or.reduce(leads[begins], axis=1)
    reached: NDArray[np.bool_] = (after[:, None] & _EACH[: len(at)]).astype(bool) | np.eye(len(at), dtype=bool)
    while True:
        further = reached.astype(np.float32) @ reached.astype(np.float32) > 0
        if np.array_equal(further, reached):
            return reached
        reached = further


def _with_all_reached(own: NDArray[np.uint64], reached: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """``[states, 3]``: the characters that a state, or any state that is reachable from it, cannot read."""
    lost: NDArray[np.uint64] = np.bitwise_or.reduce(np.where(reached[:, :, None], own[None], _ZERO), axis=1)
    return lost


def _own(dead: NDArray[np.bool_], marks: NDArray[np.integer[Any]], ascii_part: AsciiClasses) -> NDArray[np.uint64]:
    """``[states, 3]``: what each state itself cannot read, from the ASCII classes and the kinds of other characters."""
    bits = [np.bitwise_or.reduce(np.where(dead, part, _ZERO), axis=1) for part in ascii_part.bits]
    own: NDArray[np.uint64] = np.stack([*bits, marks.astype(np.uint64)], axis=1)
    return own
