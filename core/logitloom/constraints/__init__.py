"""Constraints: which token may come next, as one contract for all that restrict or watch a text."""

from __future__ import annotations

from logitloom.constraints.contract import (
    DEAD,
    FINISHED,
    ByteAutomaton,
    Constraint,
    Finished,
    State,
    TokenSet,
    TokenTables,
)
from logitloom.constraints.lift import LiftedAutomaton, lift

__all__ = [
    "DEAD",
    "FINISHED",
    "ByteAutomaton",
    "Constraint",
    "Finished",
    "LiftedAutomaton",
    "State",
    "TokenSet",
    "TokenTables",
    "lift",
]
