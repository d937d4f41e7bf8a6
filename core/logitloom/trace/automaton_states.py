"""The states that a constraint's rows were in, as the record keeps them: numbers, and the bytes that may come next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from logitloom.automata.deterministic.edges import label
from logitloom.contract import Constraint, Ended, State

__all__ = ["AutomatonState", "StateNumbers"]

#: Most edges that are kept per state.
_MOST_EDGES: Final = 24


@dataclass(frozen=True, slots=True)
class AutomatonState:
    """One visited state.

    Attributes:
        accepting: whether the text may end there.
        edges: per next state the bytes that lead to it, as ranges of characters, and its number; None for the number
            if the states of the constraint are not numbers.
        more: number of further edges, which are not kept.
    """

    accepting: bool
    edges: tuple[tuple[str, int | None], ...]
    more: int


class StateNumbers:
    """Numbers of one constraint's states: the states themselves if they are numbers, else counted in order of visit.

    Args:
        constraint: it is asked about each state once.
        described: what is known of each visited state, by number; new states are added.
    """

    def __init__(self, constraint: Constraint, described: dict[int, AutomatonState]) -> None:
        self.constraint, self.described = constraint, described
        self._numbered = constraint.states is not None
        self._numbers: dict[State, int] = {}
        vocabulary = constraint.vocabulary
        #: ``[size] int16``: the first byte of each id, -1 for an id without text.
        self._first = np.array([text[0] if text else -1 for text in vocabulary.token_bytes], dtype=np.int16)

    def of(self, states: Iterable[State]) -> list[int]:
        """The number of each state: -1 for the dead state, -2 for the finished one."""
        return [self._number(state) for state in states]

    def _number(self, state: State) -> int:
        if isinstance(state, Ended):
            return int(state.value)
        if not self._numbered:
            number = self._numbers.setdefault(state, len(self._numbers))
        elif isinstance(state, int) and state >= 0:
            number = state
        else:
            return Ended(state).value
        if number not in self.described:
            self.described[number] = self._described(state)
        return number

    def _described(self, state: State) -> AutomatonState:
        edges = self._edges(state)
        kept = tuple((label(values), after) for after, values in list(edges.items())[:_MOST_EDGES])
        return AutomatonState(self.constraint.may_end(state), kept, max(len(edges) - _MOST_EDGES, 0))

    def _edges(self, state: State) -> dict[int | None, list[int]]:
        """The bytes that may come next, by the number of the state after them."""
        automaton = self.constraint.automaton() if self._numbered else None
        found: dict[int | None, list[int]] = {}
        if automaton is None:
            ids = self.constraint.allowed(state).listed(self.constraint.vocab_size)
            values = np.unique(self._first[ids[ids < len(self._first)]]).tolist()
            return {None: [value for value in values if value >= 0]}
        for byte in range(256):
            after = automaton.step(state, byte)
            if after is not None:
                found.setdefault(after if isinstance(after, int) else None, []).append(byte)
        return found
