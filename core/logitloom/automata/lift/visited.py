"""The visited states of a byte automaton, with local numbers and a transition table that is filled on demand.

A walk of the vocabulary's trie works on arrays of numbers, while the states of a byte automaton are values and its
transitions a function. This cache maps the values to numbers. The cache can be discarded at any time, because the
numbers are used within one walk only.

References:
    The lazy DFA of regex-automata (A. Gallant) also keeps its transition table in a cache beside an immutable
    automaton; none of its code is used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct, in_order_of_appearance
from logitloom.automata.automaton_kernels import Paths
from logitloom.automata.lift.above_ascii import EVERYTHING, states_above_ascii
from logitloom.automata.lift.level_walk import WalkTable
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import HIGH_PARTIAL, MALFORMED, Trie
from logitloom.contract import ByteAutomaton, State
from logitloom.masks.kernels import ByteTable
from logitloom.process_memory import ProcessLock

__all__ = ["Account", "BoundedStates", "TooMuchWork", "VisitedStates", "WatchedStates"]

_NONE: Final = -1
_FIRST_ROOM: Final = 64
#: Units of work for all transitions of a state, besides one for each ``_BYTES_OF_A_UNIT`` bytes of the state.
_OF_A_STATE: Final = 20
_BYTES_OF_A_UNIT: Final = 4
#: The number of trie nodes that count as one unit of work where a walk examines each node.
_NODES_OF_A_UNIT: Final = 100
#: A walk looks for subtrees that are allowed as a whole if more tokens than this are below the nodes of its pairs.
_MANY: Final = 8192
#: Loops on characters above ASCII are found only if at most this number of states are within the characters.
_FEW_WITHIN: Final = 16


class TooMuchWork(Exception):
    """The transitions of a walk would take more work than it may take."""


class Account:
    """The work that one mask has taken, and the limit of this work.

    Args:
        most: the most work.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, work: int, most: int | None = None) -> bool:
        """Take some work, unless more than ``most`` would be taken then, by default all of the account."""
        if self.taken + work > (self.most if most is None else most):
            return False
        self.taken += work
        return True


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
    """

    least_tokens = _MANY
    knows_loops = True

    def __init__(self, automaton: ByteAutomaton) -> None:
        given = automaton.byte_classes()
        self._automaton = automaton
        self.byte_class: NDArray[np.uint8] = np.arange(256, dtype=np.uint8) if given is None else given
        self._column_of: list[int] = self.byte_class.tolist()
        self.classes = max(self._column_of) + 1
        # Transitions are computed with one byte of each class.
        columns, first = np.unique(self.byte_class, return_index=True)
        self._byte_of = np.zeros(self.classes, dtype=np.uint8)
        self._byte_of[columns] = first
        self._lock = ProcessLock()
        self._paths: RunPaths | None = None
        self._numbers: dict[State, int] = {}
        self.values: list[State] = []
        self.table: NDArray[np.int32] = np.empty((0, self.classes), dtype=np.int32)
        self.every_row: NDArray[np.bool_] = np.ones(0, dtype=bool)
        self.work = 0
        self._costs: dict[int, int] = {}
        self._loops: dict[int, tuple[np.uint64, np.uint64, int]] = {}

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """The runs of some states, or of all, for walks of a trie. All calls must have the same trie."""
        if self._paths is None:
            knows = type(self._automaton).runs is not ByteAutomaton.runs
            self._paths = RunPaths(self._automaton.runs if knows else None, trie)
        return self._paths.of(self.values, None if states is None else distinct(states, len(self.values)).tolist())

    def reads_on(self, trie: Trie, node: int, state: int) -> bool:
        """See :meth:`.WalkTable.reads_on`."""
        if self._paths is None or not self._paths.knows(state):
            self.paths(trie, np.array([state]))
        return self._paths is not None and self._paths.reads_on(node, state)

    def stays(self, trie: Trie, nodes: NDArray[Any], states: NDArray[Any]) -> NDArray[np.bool_]:
        """See :meth:`.WalkTable.stays`. Loops are looked for at states with many tokens below their nodes."""
        below = np.bincount(states, weights=trie.last.take(nodes) - trie.own.take(nodes))
        known = np.zeros(len(nodes), dtype=bool)
        for state in (below > _MANY).nonzero()[0].tolist():
            at = (states == state).nonzero()[0]
            low, high, marks = self._leaving(state)
            left = (trie.low.take(nodes.take(at)) & low) | (trie.high.take(nodes.take(at)) & high)
            known[at] = (left == 0) & (trie.marks.take(nodes.take(at)) & marks == 0)
        return known

    def _leaving(self, state: int) -> tuple[np.uint64, np.uint64, int]:
        """What may lead from a state to another one, as bits of ``Trie.low``, ``Trie.high`` and ``Trie.marks``."""
        known = self._loops.get(state)
        if known is None:
            leaves = self.step(np.full(128, state), np.arange(128, dtype=np.uint8)) != state
            low, high = np.packbits(leaves, bitorder="little").view("<u8")
            loops = np.count_nonzero(leaves) < 64 and self._loops_above_ascii(state)
            self._loops[state] = known = low, high, int(MALFORMED | HIGH_PARTIAL if loops else EVERYTHING)
        return known

    def _loops_above_ascii(self, state: int) -> bool:
        """Whether every character above ASCII leads from a state back to it."""
        read, asked = np.arange(0xC2, 0xF5, dtype=np.uint8), np.array([state])
        within = asked[:0]
        # Such a character has at most three more bytes.
        for _ in range(4):
            reached = self.step(asked.repeat(len(read)), np.tile(read, len(asked)))
            read = np.arange(0x80, 0xC0, dtype=np.uint8)
            asked = distinct(reached[(reached >= 0) & (reached != state)], len(self.values))
            within = distinct(np.concatenate([within, asked]), len(self.values))
            if len(within) > _FEW_WITHIN:
                return False
        numbers = np.full(len(self.values) + 1, _NONE)
        numbers[np.append(state, within)] = np.arange(len(within) + 1)
        table = numbers.take(np.maximum(self.table[np.append(state, within)], _NONE))
        return int(states_above_ascii(table, self.byte_class, np.arange(len(table)))[0]) == 0

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

    def step(self, states: NDArray[Any], read: NDArray[np.uint8], most: int | None = None) -> NDArray[np.int32]:
        """The next states for arrays of states and bytes, -1 for none.

        Args:
            states, read: ``[n]`` each.
            most: the largest :attr:`work`; unlimited by default.

        Raises:
            TooMuchWork: if the transitions would take more than ``most``.
        """
        key = states.astype(np.int64) * self.classes + self.byte_class.take(read)
        found: NDArray[np.int32] = self.table.ravel().take(key)
        unknown = (found < _NONE).nonzero()[0]
        if len(unknown):
            missing = key.take(unknown)
            self._ask(distinct(missing, self.table.size), most)
            found[unknown] = np.maximum(self.table.ravel().take(missing), _NONE)
        return found

    def cost(self, state: int) -> int:
        """The work of all transitions of a state."""
        told = self._automaton.work(self.values[state])
        return _OF_A_STATE + _size(self.values[state]) // _BYTES_OF_A_UNIT if told is None else told

    def _begin(self, states: Iterable[int], most: int | None = None) -> None:
        """Count the work of the transitions of some states, of each state once.

        Raises:
            TooMuchWork: if the work would be more than ``most``.
        """
        begun = {state: self.cost(state) for state in states if state not in self._costs}
        work = self.work + sum(begun.values())
        if most is not None and work > most:
            raise TooMuchWork
        self._costs |= begun
        self.work = work

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
            self._begin([state])
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

    def _ask(self, keys: NDArray[np.int64], most: int | None) -> None:
        """Compute entries of the table, as :meth:`step`; ``keys`` are their flat indices, each once."""
        asked, columns = np.divmod(keys, self.classes)
        states = distinct(asked, len(self.values))
        self._begin(states.tolist(), most)
        # Computed outside the lock, because the automaton is a pure function and may be slow.
        values = [self.values[state] for state in states.tolist()]
        targets, index = self._automaton.steps(values, states.searchsorted(asked), self._byte_of.take(columns))
        with self._lock:
            # The numbers come first, because numbering may replace the table.
            numbers = np.array([*map(self._numbered, targets), _NONE])  # index -1
            self.table.ravel()[keys] = numbers.take(index)


class _StatesOfAWalk(WalkTable):
    """The visited states as the table of one walk; each answer about a state comes from the visited states.

    Args:
        visited: the visited states.

    Attributes:
        visited: the visited states.
    """

    reads_single = True

    def __init__(self, visited: VisitedStates) -> None:
        self.visited = visited

    def after(self, state: int, byte: int) -> int:
        """See :meth:`VisitedStates.after`."""
        return self.visited.after(state, byte)

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte."""
        return self.visited.columns

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """See :meth:`VisitedStates.paths`."""
        return self.visited.paths(trie, states)

    def reads_on(self, trie: Trie, node: int, state: int) -> bool:
        """See :meth:`.WalkTable.reads_on`."""
        return self.visited.reads_on(trie, node, state)

    @property
    def knows_loops(self) -> bool:
        """Whether :meth:`stays` may be true."""
        return True

    def stays(self, trie: Trie, nodes: NDArray[Any], states: NDArray[Any]) -> NDArray[np.bool_]:
        """See :meth:`VisitedStates.stays`."""
        return self.visited.stays(trie, nodes, states)


class WatchedStates(_StatesOfAWalk):
    """The visited states for one walk, which is given up if the walk takes too much work.

    Args:
        visited: the visited states.
        most_work: the most work of the transitions that the walk reads.
    """

    def __init__(self, visited: VisitedStates, most_work: int) -> None:
        super().__init__(visited)
        self._most_work = most_work
        #: The largest work of the visited states with what the walk adds.
        self._most = visited.work + most_work
        self._read: set[int] = set()
        self._notes_read = visited.work > 0
        self._remembered = 0

    @property
    def least_tokens(self) -> int:  # type: ignore[override]
        """Subtrees below few tokens are looked for, too, where reading them would come near the bound."""
        return 0 if self.visited.work > self._most_work // 4 else _MANY

    @property
    def automaton(self) -> ByteTable:
        """The table of the visited states."""
        return self.visited.automaton

    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """See :meth:`VisitedStates.step`."""
        return self.visited.step(states, read, self._most)

    #: See :meth:`.WalkTable.computed`.
    computed = step

    def row(self, state: int) -> Sequence[int]:
        """See :meth:`VisitedStates.row`."""
        self._read.add(state)
        return self.visited.row(state)

    def reads(self, states: NDArray[Any]) -> None:
        """See :meth:`.WalkTable.reads`."""
        if self._notes_read:
            more = {*distinct(states, len(self.visited.values)).tolist()} - self._read
            self._read |= more
            self._remembered += self.visited.work_of(more)
            if self._remembered > self._most_work:
                raise TooMuchWork

    @property
    def is_within(self) -> bool:
        """Whether the transitions that the walk has read take less work than the bound, remembered ones included."""
        visited = self.visited
        # If nothing was remembered when the walk began, the walk itself has read all transitions that are remembered
        # now.
        return visited.work <= self._most_work or (self._notes_read and visited.work_of(self._read) <= self._most_work)


class BoundedStates(_StatesOfAWalk):
    """Visited states for one walk that leaves out the transitions above a bound.

    The walk counts the states in the order in which it reads them, whether or not their transitions are remembered. So
    the same transitions are left out in every process. The first bytes of tokens are always read.

    Args:
        visited: the visited states.
        account: of the work of the walk, and perhaps of other work.
        most: how much of the account may be taken when the walk reads a further state; by default all of it.

    Attributes:
        was_cut: whether transitions were left out.
    """

    #: Subtrees are looked for everywhere, in the last levels of the trie too, so no walk reads fewer states.
    least_tokens = 0

    def __init__(self, visited: VisitedStates, account: Account, most: int | None = None) -> None:
        super().__init__(visited)
        self._account, self._most = account, most
        self._begun = False
        self.was_cut = False
        #: By number whether a state was read (1), or is left out (2).
        self._noted: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self._nothing: Sequence[int] = [_NONE] * visited.classes

    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """See :meth:`VisitedStates.step`; -1 too for states that are left out."""
        noted = self._notes().take(states)
        if not noted.all():
            self._note(states[noted == 0])
            noted = self._noted.take(states)
        if not self.was_cut:
            return self.visited.step(states, read)
        found: NDArray[np.int32] = np.full(len(states), _NONE, dtype=np.int32)
        kept = (noted == 1).nonzero()[0]
        found[kept] = self.visited.step(states.take(kept), read.take(kept))
        return found

    def row(self, state: int) -> Sequence[int]:
        """See :meth:`VisitedStates.row`; none has a next state if the state is left out."""
        if not self._notes()[state]:
            self._note_one(state)
            self._begun = True
        return self.visited.row(state) if self._noted[state] == 1 else self._nothing

    def visits(self, nodes: int) -> bool:
        """Whether the walk may go on to so many nodes, which count as work near a limit on tokens."""
        may = self._account.take(nodes // _NODES_OF_A_UNIT, self._most)
        self.was_cut |= not may
        return may

    def asks(self, state: State) -> bool:
        """Whether the walk may ask about the distances of a state, which counts as work where a state is large."""
        may = self._account.take(_size(state) // _BYTES_OF_A_UNIT, self._most)
        self.was_cut |= not may
        return may

    def _notes(self) -> NDArray[np.uint8]:
        more = len(self.visited.table) - len(self._noted)
        if more > 0:
            self._noted = np.append(self._noted, np.zeros(more, dtype=np.uint8))
        return self._noted

    def _note(self, states: NDArray[Any]) -> None:
        """Read some states, as far as the account allows it."""
        for state in in_order_of_appearance(states, len(self._noted)).tolist():
            self._note_one(state)
        self._begun = True

    def _note_one(self, state: int) -> None:
        account, cost = self._account, self.visited.cost(state)
        if account.take(cost, self._most):
            self._noted[state] = 1
        elif not self._begun:
            self._noted[state], account.taken = 1, account.taken + cost
        else:
            self._noted[state], self.was_cut = 2, True


def _size(state: State) -> int:
    """Bytes of a state that is packed as bytes, or of the parts of a tuple; 0 of other states."""
    if type(state) is bytes:
        return len(state)
    return sum(map(_size, state)) if isinstance(state, tuple) else 0
