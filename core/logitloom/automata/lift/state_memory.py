"""What is remembered about the states of one lifted automaton.

The memory is bounded. Dropping it changes speed, never a result.
"""

from __future__ import annotations

from typing import Final

from logitloom.automata.lift.visited import VisitedStates
from logitloom.contract import ByteAutomaton, State, TokenSet

__all__ = ["StateMemory"]

#: Bytes that one memory holds besides the table of visited states, estimated; and bytes of an entry.
_CAPACITY: Final = 64 << 20
_ENTRY: Final = 256


class StateMemory:
    """One bounded memory for all that a constraint computes from states. Several threads may use one object.

    Args:
        automaton: the automaton over bytes.

    Attributes:
        sets: token sets by state.
        shared: token sets that several states have, by what these states have in common.
        parts: by state the tokens that bounded work finds, and whether they are all.
        successors: the state after a token by state and token, ``None`` if the token is not allowed.
        least: bounds on the least number of tokens by state, ``None`` if none was found.
        ends: by state whether a sequence of tokens reaches acceptance.
        was_cut: whether the last walk was cut. The next one then begins with nothing remembered, as it would end.
        written: the last text that was counted, and the fewest tokens for each of its ends.
    """

    def __init__(self, automaton: ByteAutomaton) -> None:
        self._automaton = automaton
        self.clear()

    def clear(self) -> None:
        """Drop everything. Other threads may use the memory meanwhile."""
        self._visited: VisitedStates | None = None
        self.sets: dict[State, TokenSet] = {}
        self.shared: dict[object, TokenSet] = {}
        self.parts: dict[State, tuple[TokenSet, bool]] = {}
        self.successors: dict[tuple[State, int], State | None] = {}
        self.least: dict[State, int | None] = {}
        self.ends: dict[State, bool] = {}
        self.was_cut = False
        self.written: tuple[bytes, list[int | None]] = (b"", [0])
        #: Bytes of the token sets, and of all that is remembered.
        self.set_bytes = self._bytes = 0

    @property
    def visited(self) -> VisitedStates:
        """The visited states with their transitions, for walks of a trie."""
        visited = self._visited
        if visited is None:
            visited = self._visited = VisitedStates(self._automaton)
        return visited

    @visited.setter
    def visited(self, visited: VisitedStates) -> None:
        self._visited = visited

    def note(self, entries: int = 1) -> None:
        """Note before they are added that some entries come; everything is dropped if the memory is full."""
        self._bytes += _ENTRY * entries
        if self._bytes > _CAPACITY:
            self.clear()

    def keep(self, state: State, found: TokenSet) -> TokenSet:
        """Remember the token set of a state, and return it."""
        if found.ids.flags.writeable:  # not shared with a set that was added before
            found.ids.setflags(write=False)
            if self._bytes + found.ids.nbytes > _CAPACITY:
                self.clear()
            self.set_bytes += found.ids.nbytes
            self._bytes += found.ids.nbytes
        self.note()
        self.sets[state] = found
        return found
