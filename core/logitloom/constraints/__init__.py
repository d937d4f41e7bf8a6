"""Constraints: which token may come next, as one contract for all that restrict or watch a text.

:class:`Constraint` is the contract, :class:`ByteAutomaton` the usual way to write one, and
:class:`ConstraintProcessor` the processor of any constraint.
"""

from __future__ import annotations

from logitloom.constraints.contract import (
    DEAD,
    FINISHED,
    ByteAutomaton,
    CompiledStep,
    Constraint,
    Finished,
    State,
    TokenSet,
    TokenTables,
)
from logitloom.constraints.lift import LiftedAutomaton, lift
from logitloom.constraints.longest_tokens import LongestTokens
from logitloom.constraints.memory import DENSE_FINISHED, ConstraintMemory
from logitloom.constraints.processor import ConstraintProcessor

__all__ = [
    "DEAD",
    "DENSE_FINISHED",
    "FINISHED",
    "ByteAutomaton",
    "CompiledStep",
    "Constraint",
    "ConstraintMemory",
    "ConstraintProcessor",
    "Finished",
    "LiftedAutomaton",
    "LongestTokens",
    "State",
    "TokenSet",
    "TokenTables",
    "lift",
]
