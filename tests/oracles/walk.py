"""A constraint walked token by token as the host does it, with end-of-sequence and the two special states."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata import TokenAutomaton
from logitloom.constraints import Constraint, ConstraintMemory, TokenSet

__all__ = ["Walk", "walked"]


class Walk:
    """States after tokens of any kind; whatever else is asked for comes from the constraint."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.memory = ConstraintMemory(constraint)
        self.start: Any = constraint.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self.constraint, "inner", self.constraint), name)

    def advance(self, state: Any, token: int) -> Any:
        return self.memory.advance(state, token)

    def advance_many(self, states: ArrayLike, tokens: ArrayLike) -> NDArray[np.int32]:
        columns = np.asarray(tokens).reshape(len(np.asarray(states)), -1).tolist()
        reached = self.memory.reach(np.asarray(states).tolist(), columns)
        return np.array([node.state for node in reached], dtype=np.int32)

    def row_kind(self, state: Any) -> TokenSet:
        row = self.memory.mask(self.memory.node(state))
        return TokenSet(row.allowed, row.ids.astype(np.int32))

    def row(self, state: Any) -> NDArray[np.int32]:
        return self.row_kind(state).listed(self.constraint.vocab_size)

    def mask(self, state: Any) -> NDArray[np.bool_]:
        return self.row_kind(state).mask(self.constraint.vocab_size)

    def forced_tokens(self, state: Any) -> list[int]:
        return self.memory.forced(self.memory.node(state))


def walked(*arguments: Any, **options: Any) -> Walk:
    """A walk over a token automaton made of the arguments."""
    return Walk(TokenAutomaton(*arguments, **options))
