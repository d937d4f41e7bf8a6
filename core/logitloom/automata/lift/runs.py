"""Runs of characters that an automaton reads whatever their order, and what they allow in a vocabulary's trie.

A state of ``.{0,200}`` reads every text of up to 200 characters without a line feed. The tokens that are such texts are
allowed, so a walk of the trie records their subtrees as a whole.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import NO_PATHS, Paths
from logitloom.automata.deterministic.alphabet import Alphabet
from logitloom.automata.deterministic.subsets import SubsetAutomaton
from logitloom.automata.lift.row_walk import levels_of
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, Trie
from logitloom.contract import ByteAutomaton, Run, State

__all__ = ["PositionRuns", "RunPaths"]

#: Runs of up to ``2 ** 7`` characters are distinguished. Tokens with more characters are read one by one.
_LEVELS: Final = 8
_HALF: Final = (1 << 64) - 1
_FIRST_ROOM: Final = 64


class PositionRuns:
    """The runs of each position of a pattern, 1, 2, 4, ... characters long.

    Args:
        subsets: the automaton over classes of characters.
        letters: its classes.
    """

    def __init__(self, subsets: SubsetAutomaton[Any], letters: Alphabet) -> None:
        sets, at, there = subsets.runs
        word, other = letters.high.kinds
        kinds_of = []
        for chars in sets:
            kinds_of.append(0)
            if chars.high.ranges:
                missing = np.ones(letters.high.classes + 1, dtype=bool)
                missing[[c - letters.ascii_classes for c in letters.members[chars] if c >= letters.ascii_classes]] = (
                    False
                )
                kinds_of[-1] = (not (missing & word).any()) + 2 * (not (missing & other).any())
        #: By length and position: the ASCII characters, 0-63 and 64-127, and whether there are word characters (1) and
        #: others (2) above ASCII.
        self._low = np.empty((_LEVELS, len(at)), dtype=np.uint64)
        self._high = np.empty_like(self._low)
        self._kinds = np.empty((_LEVELS, len(at)), dtype=np.uint8)
        parts: tuple[NDArray[Any], ...] = (self._low, self._high, self._kinds)
        of_set: tuple[list[int], ...] = (
            [chars.ascii & _HALF for chars in sets],
            [chars.ascii >> 64 for chars in sets],
            kinds_of,
        )
        for part, values in zip(parts, of_set, strict=True):
            np.array(values, dtype=part.dtype).take(at, out=part[0])
        for level in range(_LEVELS - 1):
            for part in parts:
                np.bitwise_and(part[level], part[level].take(there), out=part[level + 1])
            there = there.take(there)
        sizes = np.bitwise_count(self._low).astype(np.int16) + np.bitwise_count(self._high)
        self._sizes = sizes + 64 * np.bitwise_count(self._kinds).astype(np.int16)

    def of(self, positions: list[int]) -> list[Run]:
        """For each length the largest run of the given positions."""
        if not positions:
            return []
        best = np.array(positions)[self._sizes[:, positions].argmax(axis=1)]
        level = np.arange(_LEVELS)
        found = [part[level, best].tolist() for part in (self._low, self._high, self._kinds)]
        return [
            Run(1 << n, high << 64 | low, bool(kinds & 1), bool(kinds & 2))
            for n, (low, high, kinds) in enumerate(zip(*found, strict=True))
            if low or high or kinds
        ]


class RunPaths:
    """The runs of visited states, in the form in which a walk of a trie uses them.

    Several threads may use one object: an entry changes once, from nothing known to what is known.

    Args:
        automaton: the automaton of the states.
        trie: the trie of a vocabulary.
    """

    def __init__(self, automaton: ByteAutomaton, trie: Trie) -> None:
        self._runs = automaton.runs
        self._knows = type(automaton).runs is not ByteAutomaton.runs
        self._lock = threading.RLock()
        self._numbered = 0
        self._stride = _LEVELS + 1
        self._room = _FIRST_ROOM
        self._row_of_height = np.minimum(levels_of(trie, _LEVELS - 1), _LEVELS)
        self._low, self._high, self._marks = self._nothing(self._room)

    def _nothing(self, room: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        every = np.full((room + 1, self._stride), ~np.uint64(0))
        return every, every.copy(), np.full((room + 1, self._stride), 255, dtype=np.uint8)

    def of(self, values: list[State]) -> Paths:
        """The paths of all states.

        Args:
            values: the states by number. Later calls add states at the end.
        """
        if not self._knows:
            return NO_PATHS
        with self._lock:
            count = len(values)
            if count > self._room:
                known, self._room = self._numbered, 2 * count
                low, high, marks = self._nothing(self._room)
                low[:known], high[:known], marks[:known] = self._low[:known], self._high[:known], self._marks[:known]
                self._low, self._high, self._marks = low, high, marks
            for number in range(self._numbered, count):
                self._enter(number, values[number])
            self._numbered = count
            return Paths(
                self._low.ravel(),
                self._high.ravel(),
                self._marks.ravel(),
                self._row_of_height,
                self._room,
                self._stride,
            )

    def _enter(self, number: int, state: State) -> None:
        """Enter, for each length, the characters that are not in the largest run of at least this length."""
        sizes = [-1] * _LEVELS
        for run in self._runs(state):
            size = run.ascii.bit_count() + 64 * (run.words + run.others)
            for level in range(min(run.characters.bit_length(), _LEVELS)):
                if size > sizes[level]:
                    sizes[level] = size
                    self._low[number, level] = ~run.ascii & _HALF
                    self._high[number, level] = ~(run.ascii >> 64) & _HALF
                    self._marks[number, level] = (
                        MALFORMED
                        | (0 if run.words else HIGH_WORD)
                        | (0 if run.others else HIGH_OTHER)
                        | (0 if run.words and run.others else HIGH_PARTIAL)
                    )
