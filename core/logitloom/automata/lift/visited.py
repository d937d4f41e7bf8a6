"""The visited states of a byte automaton, with local numbers and a transition table that is filled on demand.

A walk of the vocabulary's trie works on arrays of numbers, while the states of a byte automaton are values and its
transitions a function. This cache maps the values to numbers. The cache can be discarded at any time, because the
numbers are used within one walk only.

References:
    The lazy DFA of regex-automata (A. Gallant) also keeps its transition table in a cache beside an immutable
    automaton; none of its code is used here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct
from logitloom.automata.automaton_kernels import Paths
from logitloom.automata.lift.level_walk import WalkTable
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import Trie
from logitloom.contract import ByteAutomaton, State
from logitloom.masks.kernels import ByteTable

__all__ = ["BoundedStates", "TooMuchWork", "VisitedStates"]

_NONE: Final = -1
_FIRST_ROOM: Final = 64
#: Units of work for all transitions of a state, besides one for each ``_BYTES_OF_A_UNIT`` bytes of the state.
_OF_A_STATE: Final = 20
_BYTES_OF_A_UNIT: Final = 32


#: Walks look for subtrees that are allowed as a whole where more tokens than this are below their nodes.
_MANY: Final = 8192


class TooMuchWork(Exception):
    """The transitions of a walk would take more work than it may take."""


class VisitedStates(WalkTable):
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
        work: the work of the transitions that were computed, in units that are equal in every process. A state counts
            once, with its first transition.
        was_cut: whether transitions that would take too much work were left out.
    """

    least_tokens = _MANY

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
        self.work = 0
        self.was_cut = False
        self._costs: dict[int, int] = {}

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """The runs of some states, or of all, for walks of a trie. All calls must have the same trie."""
        if self._paths is None:
            knows = type(self._automaton).runs is not ByteAutomaton.runs
            self._paths = RunPaths(self._automaton.runs if knows else None, trie)
        return self._paths.of(self.values, None if states is None else distinct(states, len(self.values)).tolist())

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

    def step(
        self, states: NDArray[Any], read: NDArray[np.uint8], most: int | None = None, cut: bool = False
    ) -> NDArray[np.int32]:
        """The next states for arrays of states and bytes, -1 for none.

        Args:
            states, read: ``[n]`` each.
            most: the largest :attr:`work`; unlimited by default.
            cut: whether transitions of states that would take more work have no next state, and are not remembered.

        Raises:
            TooMuchWork: if the transitions would take more than ``most``, without ``cut``.
        """
        key = states.astype(np.int64) * self.classes + self.byte_class.take(read)
        found: NDArray[np.int32] = self.table.ravel().take(key)
        unknown = (found < _NONE).nonzero()[0]
        if len(unknown):
            missing = key.take(unknown)
            asked = distinct(missing, self.table.size)
            if most is not None:
                asked = self._within(asked, most, cut)
            self._ask(asked)
            found[unknown] = np.maximum(self.table.ravel().take(missing), _NONE)
        return found

    def _within(self, keys: NDArray[np.int64], most: int, cut: bool) -> NDArray[np.int64]:
        """The first of some entries of the table, which ascend: as many as may be computed."""
        states = keys // self.classes
        room = most - self.work
        for state in distinct(states, len(self.values)).tolist():
            if state not in self._costs:
                room -= self._cost(state)
            if room < 0:
                if not cut:
                    raise TooMuchWork
                self.was_cut = True
                return keys[: np.searchsorted(states, state)]
        return keys

    def _cost(self, state: int) -> int:
        """The work of the transitions of a state."""
        return _OF_A_STATE + _size(self.values[state]) // _BYTES_OF_A_UNIT

    def _begin(self, state: int) -> None:
        if state not in self._costs:
            self._costs[state] = cost = self._cost(state)
            self.work += cost

    def work_of(self, states: set[int]) -> int:
        """The work of the transitions from some states that were computed."""
        return sum([self._costs.get(state, 0) for state in states])

    @property
    def automaton(self) -> ByteTable:
        """The table, in which entries below -1 are not computed yet."""
        return ByteTable(self.table, self.every_row, self.byte_class)

    def row(self, state: int) -> Sequence[int]:
        """One row of the table, in which entries below -1 are not computed yet."""
        row: Sequence[int] = self.table[state].data
        return row

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte."""
        return self._column_of

    def after(self, state: int, byte: int) -> int:
        """The number of the state after one byte, -1 for none."""
        column = self._column_of[byte]
        reached = int(self.table[state, column])
        if reached < _NONE:
            self._begin(state)
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
        for state in {*states}:
            self._begin(state)
        # Computed outside the lock, because the automaton is a pure function and may be slow.
        targets = [step(values[state], byte_of[column]) for state, column in zip(states, columns, strict=True)]
        with self._lock:
            # The numbers come first, because numbering may replace the table.
            numbers = [_NONE if target is None else self._numbered(target) for target in targets]
            self.table.ravel()[keys] = numbers


class BoundedStates(WalkTable):
    """Visited states for one walk, which may take a bounded amount of work.

    Args:
        visited: the visited states.
        most_work: the most work of the transitions that the walk reads.
        cut: whether transitions above the bound are left out. The first bytes of tokens are always read.

    Attributes:
        visited: the visited states.
    """

    def __init__(self, visited: VisitedStates, most_work: int, cut: bool = False) -> None:
        self.visited = visited
        self._most_work, self._cut = most_work, cut
        #: The largest work of the visited states with what the walk adds.
        self._most = visited.work + most_work
        self._begun = not cut
        self._read: set[int] = set()
        self._notes_read = visited.work > 0

    @property
    def least_tokens(self) -> int:  # type: ignore[override]
        """Subtrees below few tokens are looked for, too, where reading them would come near the bound."""
        return 0 if self._cut or self.visited.work > self._most_work // 4 else _MANY

    @property
    def reads_single(self) -> bool:  # type: ignore[override]
        """The last levels of a trie have a node or two each. Where transitions are left out, arrays tell which."""
        return not self._cut

    @property
    def automaton(self) -> ByteTable:
        """The table of the visited states."""
        return self.visited.automaton

    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """See :meth:`VisitedStates.step`."""
        most, self._begun = self._most if self._begun else None, True
        return self.visited.step(states, read, most, self._cut)

    def after(self, state: int, byte: int) -> int:
        """See :meth:`VisitedStates.after`."""
        return self.visited.after(state, byte)

    def row(self, state: int) -> Sequence[int]:
        """See :meth:`VisitedStates.row`."""
        self._read.add(state)
        return self.visited.row(state)

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte."""
        return self.visited.columns

    def computed(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """See :meth:`.WalkTable.computed`."""
        return self.visited.step(states, read, self._most)

    def reads(self, states: NDArray[Any]) -> None:
        """See :meth:`.WalkTable.reads`."""
        if self._notes_read:
            self._read.update(distinct(states, len(self.visited.values)).tolist())

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """See :meth:`VisitedStates.paths`."""
        return self.visited.paths(trie, states)

    @property
    def is_within(self) -> bool:
        """Whether the transitions that the walk has read take less work than the bound, remembered ones included."""
        visited = self.visited
        # A walk that began with nothing remembered has read all that is remembered.
        return visited.work <= self._most_work or (self._notes_read and visited.work_of(self._read) <= self._most_work)


def _size(state: State) -> int:
    """Bytes of a state that is packed as bytes, or of the parts of a tuple; 0 of other states."""
    if type(state) is bytes:
        return len(state)
    return sum(map(_size, state)) if isinstance(state, tuple) else 0
