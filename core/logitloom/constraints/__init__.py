"""Constraints: which token may come next, as one contract for all that restrict or watch a text.

:class:`Constraint` is the contract, :class:`ByteAutomaton` the usual way to write one, and
:class:`ConstraintProcessor` the processor of any constraint.
"""

from __future__ import annotations

from logitloom.constraints.contract import (
    DEAD,
    FINISHED,
    UNKNOWN,
    ByteAutomaton,
    CompiledStep,
    Constraint,
    Finished,
    State,
    TokenSet,
    TokenTables,
)
from logitloom.constraints.finish_within import FinishWithin
from logitloom.constraints.lift import LiftedAutomaton, lift
from logitloom.constraints.longest_tokens import LongestTokens
from logitloom.constraints.memory import DENSE_FINISHED, ConstraintMemory
from logitloom.constraints.processor import ConstraintProcessor

__all__ = [
    "DEAD",
    "DENSE_FINISHED",
    "FINISHED",
    "UNKNOWN",
    "ByteAutomaton",
    "CompiledStep",
    "Constraint",
    "ConstraintMemory",
    "ConstraintProcessor",
    "FinishWithin",
    "Finished",
    "LiftedAutomaton",
    "LongestTokens",
    "State",
    "TokenSet",
    "TokenTables",
    "lift",
]
