"""The remembered results for the states of one lifted automaton, and its visited states."""

from __future__ import annotations

from typing import Any, Final

from logitloom.automata.lift.visited import VisitedStates
from logitloom.contract import ByteAutomaton, Layers, State, TokenSet
from logitloom.state_memory import StateMemory

__all__ = ["MOST_VISITED_BYTES", "LiftMemory"]

#: Bytes of the table of visited states; they are kept free in the memory.
MOST_VISITED_BYTES: Final = 32 << 20


class LiftMemory(StateMemory):
    """The memory of a lifted automaton.

    Args:
        automaton: the automaton over bytes.

    Attributes:
        sets: token sets by state.
        shared: token sets that several states share, by a key that these states have in common.
        parts: by state the tokens that bounded work finds, and whether they are all.
        within: by state and number of tokens the tokens after which so many complete the text.
        layers: :meth:`.NearEnd.layers` by number of tokens.
        least: bounds on the least number of tokens by state, ``None`` if none was found.
        ends: by state whether a sequence of tokens reaches acceptance.
        was_cut: whether the last walk left states out, so that the next one is not tried with a faster walk.
        written: the last text that was counted, and the fewest tokens for each of its ends.
    """

    def __init__(self, automaton: ByteAutomaton) -> None:
        super().__init__()
        self._most_noted -= MOST_VISITED_BYTES
        self._automaton = automaton
        self.sets: dict[State, TokenSet] = self.table("token sets")
        self.shared: dict[object, TokenSet] = self.table("shared token sets")
        self.parts: dict[State, tuple[TokenSet, bool]] = self.table("parts of token sets")
        self.within: dict[tuple[State, int], TokenSet] = self.table("tokens within limits")
        self.layers: dict[int, tuple[Layers, Layers, Layers | None]] = self.table("layers near limits")
        self.least: dict[State, int | None] = self.table("least tokens")
        self.ends: dict[State, bool] = self.table("ends")
        self._forget_walks()

    def __reduce__(self) -> tuple[Any, ...]:
        return LiftMemory, (self._automaton,)

    def clear(self) -> None:
        """Empty all tables, and drop the visited states."""
        super().clear()
        self._forget_walks()

    def _forget_walks(self) -> None:
        self._visited: VisitedStates | None = None
        self.was_cut = False
        self.written: tuple[bytes, list[int | None]] = (b"", [0])

    @property
    def nbytes(self) -> int:
        """Bytes that are held, estimated; the table of the visited states is part of them."""
        visited = self._visited
        return super().nbytes if visited is None else super().nbytes + visited.nbytes

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
