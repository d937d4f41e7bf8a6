"""Constraints: which token may come next; the processor, memory and limits that all constraints share.

:class:`Constraint` is the contract, :class:`ByteAutomaton` the usual way to write one, and
:class:`ConstraintProcessor` the processor of any constraint.
"""

from __future__ import annotations

from logitloom.automata.lift.lift import lift
from logitloom.automata.lift.lifted_automaton import LiftedAutomaton
from logitloom.constraints.constraint_processor import ConstraintProcessor, LimitedProcessor
from logitloom.constraints.longest_tokens import LongestTokens
from logitloom.constraints.memory import ConstraintMemory
from logitloom.constraints.stop_strings import StopStrings
from logitloom.contract import (
    FINISHED,
    UNKNOWN,
    ByteAutomaton,
    CompiledStep,
    Constraint,
    Ended,
    Layers,
    NearEnd,
    Run,
    State,
    TextTokens,
    TokenSet,
    TokenTables,
)

__all__ = [
    "FINISHED",
    "UNKNOWN",
    "ByteAutomaton",
    "CompiledStep",
    "Constraint",
    "ConstraintMemory",
    "ConstraintProcessor",
    "Ended",
    "Layers",
    "LiftedAutomaton",
    "LimitedProcessor",
    "LongestTokens",
    "NearEnd",
    "Run",
    "State",
    "StopStrings",
    "TextTokens",
    "TokenSet",
    "TokenTables",
    "lift",
]
