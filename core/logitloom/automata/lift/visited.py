"""The visited states of a byte automaton, with local numbers and a transition table that is filled on demand.

A walk of the vocabulary's trie works on arrays of numbers, while the states of a byte automaton are values and its
transitions a function. This cache maps the values to numbers. It can be discarded at any time, because the numbers are
used within one walk only.

References:
    The lazy DFA of regex-automata (A. Gallant) also keeps its transition table in a cache beside an immutable
    automaton; none of its code is used here.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import Paths
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import Trie
from logitloom.contract import ByteAutomaton, State

__all__ = ["VisitedStates"]

_NONE: Final = -1
_FIRST_ROOM: Final = 64


class VisitedStates:
    """Local numbers of states, and their next states as far as they are computed.

    Several threads may use one object: entries never change, and new entries are written under a lock.

    Args:
        automaton: the automaton of the states.

    Attributes:
        byte_class: ``[256] uint8``, the column of each byte.
        classes: number of columns.
        values: the states by local number.
        table: ``[room, classes] int32``: the next state, -1 for none, and ``-2 - n`` in row ``n`` if it is not computed
            yet. The array is replaced when it grows.
    """

    def __init__(self, automaton: ByteAutomaton) -> None:
        given = automaton.byte_classes()
        self._automaton = automaton
        self.byte_class: NDArray[np.uint8] = np.arange(256, dtype=np.uint8) if given is None else given
        self._column_of: list[int] = self.byte_class.tolist()
        self.classes = max(self._column_of) + 1
        # Transitions are computed with one byte of each class.
        columns, first = np.unique(self.byte_class, return_index=True)
        self._byte_of = dict(zip(columns.tolist(), first.tolist(), strict=True))
        self._lock = threading.RLock()
        self._paths: RunPaths | None = None
        self._numbers: dict[State, int] = {}
        self.values: list[State] = []
        self.table: NDArray[np.int32] = np.empty((0, self.classes), dtype=np.int32)
        self.every_row: NDArray[np.bool_] = np.ones(0, dtype=bool)

    def paths(self, trie: Trie) -> Paths:
        """The runs of all states for a walk of a trie, which is the same in each call."""
        if self._paths is None:
            self._paths = RunPaths(self._automaton, trie)
        return self._paths.of(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.table.nbytes

    def number(self, state: State) -> int:
        """The local number of a state."""
        found = self._numbers.get(state)
        if found is None:
            with self._lock:
                found = self._numbered(state)
        return found

    def _numbered(self, state: State) -> int:
        found = self._numbers.get(state)
        if found is None:
            found = len(self.values)
            if found == len(self.table):
                room = max(_FIRST_ROOM, 2 * found)
                table = np.repeat(-2 - np.arange(room, dtype=np.int32), self.classes).reshape(room, self.classes)
                table[:found] = self.table
                self.every_row = np.ones(room, dtype=bool)
                self.table = table
            self.values.append(state)
            self._numbers[state] = found
        return found

    def step(self, states: NDArray[np.int32], bytes_read: NDArray[np.uint8]) -> NDArray[np.int32]:
        """The next states for arrays of states and bytes, -1 for none."""
        key = states.astype(np.int64) * self.classes + self.byte_class.take(bytes_read)
        found: NDArray[np.int32] = self.table.ravel().take(key)
        unknown = (found < _NONE).nonzero()[0]
        if len(unknown):
            missing = key.take(unknown)
            self._ask(np.unique(missing))
            found[unknown] = self.table.ravel().take(missing)
        return found

    def after(self, state: int, byte: int) -> int:
        """The number of the state after one byte, -1 for none."""
        column = self._column_of[byte]
        reached = int(self.table[state, column])
        if reached < _NONE:
            target = self._automaton.step(self.values[state], byte)
            reached = _NONE if target is None else self.number(target)
            with self._lock:
                self.table[state, column] = reached
        return reached

    def follow(self, state: int, text: bytes) -> int:
        """The number of the state after ``text``, -1 for none."""
        for byte in text:
            state = self.after(state, byte)
            if state == _NONE:
                return _NONE
        return state

    def _ask(self, keys: NDArray[np.int64]) -> None:
        """Compute entries of the table; ``keys`` are their flat indices."""
        step, values, byte_of = self._automaton.step, self.values, self._byte_of
        states, columns = (keys // self.classes).tolist(), (keys % self.classes).tolist()
        # Computed outside the lock, because the automaton is a pure function and may be slow.
        targets = [step(values[state], byte_of[column]) for state, column in zip(states, columns, strict=True)]
        with self._lock:
            # The numbers come first, because numbering may replace the table.
            numbers = [_NONE if target is None else self._numbered(target) for target in targets]
            self.table.ravel()[keys] = numbers
