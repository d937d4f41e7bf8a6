"""The tokens of a vocabulary's trie that runs of characters allow.

The tokens that are texts of a run are allowed, so a walk of the trie records their subtrees as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import NO_PATHS, Paths
from logitloom.automata.deterministic.position_runs import HALF, LEVELS
from logitloom.automata.lift.default_paths import levels_of
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, Trie
from logitloom.contract import Run, State
from logitloom.process_memory import ProcessLock

__all__ = ["RunPaths"]

_FIRST_ROOM: Final = 64


class RunPaths:
    """The runs of visited states, in the form in which a walk of a trie uses them.

    Several threads may use one object: each entry is written once.

    Args:
        runs: the runs of a state; ``None`` if they are not known.
        trie: the trie of a vocabulary.
    """

    def __init__(self, runs: Callable[[State], Sequence[Run]] | None, trie: Trie) -> None:
        self._runs, self._trie = runs, trie
        self._lock = ProcessLock()
        self._entered = np.zeros(_FIRST_ROOM, dtype=bool)
        self._stride = LEVELS + 1
        self._room = _FIRST_ROOM
        self._row_of_height = np.minimum(levels_of(trie, LEVELS - 1), LEVELS)
        self._low, self._high, self._marks = self._nothing(self._room)

    def _nothing(self, room: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        every = np.full((room + 1, self._stride), ~np.uint64(0))
        return every, every.copy(), np.full((room + 1, self._stride), 255, dtype=np.uint8)

    def of(self, values: list[State], numbers: list[int] | None = None) -> Paths:
        """The paths of some states. A walk skips no subtree below another state.

        Args:
            values: the states by number. Later calls add states at the end.
            numbers: the numbers of the states; default: all.
        """
        if self._runs is None:
            return NO_PATHS
        with self._lock:
            count = len(values)
            if count > self._room:
                known, room = self._room, 2 * count
                low, high, marks = self._nothing(room)
                low[:known], high[:known], marks[:known] = (
                    part[:known] for part in (self._low, self._high, self._marks)
                )
                self._low, self._high, self._marks = low, high, marks
                self._entered = np.append(self._entered, np.zeros(room - known, dtype=bool))
                # Last: a forked child, or the next call after an interruption, makes room again.
                self._room = room
            wanted = np.arange(count) if numbers is None else np.array(numbers, dtype=np.intp)
            for number in wanted[~self._entered.take(wanted)].tolist():
                self._enter(number, self._runs(values[number]))
                self._entered[number] = True
            return Paths(
                self._low.ravel(),
                self._high.ravel(),
                self._marks.ravel(),
                self._row_of_height,
                self._room,
                self._stride,
            )

    def knows(self, number: int) -> bool:
        """Whether there is nothing more to find out about the runs of a state."""
        return self._runs is None or (number < len(self._entered) and bool(self._entered[number]))

    def reads_on(self, node: int, number: int) -> bool:
        """Whether every token below a node is a text of a run of a state; for one pair of :func:`.reads_on`."""
        trie, level = self._trie, self._row_of_height[self._trie.height[node]]
        return self._runs is not None and not (
            trie.low[node] & self._low[number, level]
            or trie.high[node] & self._high[number, level]
            or trie.marks[node] & self._marks[number, level]
        )

    def _enter(self, number: int, runs: Sequence[Run]) -> None:
        """Enter, for each length, the characters that are not in the largest run of at least this length."""
        sizes = [-1] * LEVELS
        for run in runs:
            size = run.ascii.bit_count() + 64 * (run.words + run.others)
            for level in range(min(run.characters.bit_length(), LEVELS)):
                if size > sizes[level]:
                    sizes[level] = size
                    self._low[number, level] = ~run.ascii & HALF
                    self._high[number, level] = ~(run.ascii >> 64) & HALF
                    self._marks[number, level] = (
                        MALFORMED
                        | (0 if run.words else HIGH_WORD)
                        | (0 if run.others else HIGH_OTHER)
                        | (0 if run.words and run.others else HIGH_PARTIAL)
                    )
