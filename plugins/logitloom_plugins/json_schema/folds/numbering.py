"""The memory of the states that texts visit: a number for each state, and for each way to enter or leave a value."""

from __future__ import annotations

from typing import Final, NamedTuple

from logitloom.automata import BudgetTracker
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    EndsName,
    Enters,
    EscapeState,
    Move,
    Opened,
    Reads,
    Return,
    Stack,
    State,
    TextState,
    laid_out,
)

__all__ = ["DEAD", "NO_NAMES", "STATE_BYTES", "NameEnd", "Numbering", "Operation", "Pop", "Push"]

#: Bytes of memory that a state takes with its codes, estimated.
STATE_BYTES: Final = 1 << 10
#: The code of a byte that must not come.
DEAD: Final = -1
NO_NAMES: Final[frozenset[str]] = frozenset()


class Push(NamedTuple):
    """A value begins: push a return and go to the state with a number."""

    back: Return
    target: int


class Pop(NamedTuple):
    """A value ends: pop a return and go to its state for a truth vector, in the layout that the value has decided."""

    truth: TruthVector
    layout: str


class NameEnd(NamedTuple):
    """A name that must not come twice in its object ends: if it is new, go to the state with a number."""

    target: int


Operation = Push | Pop | NameEnd


class Numbering:
    """The numbers of the visited states, and codes of moves.

    The code of a move is the number of the next state, or, below ``DEAD``, stands for an operation on the stack.

    Args:
        tracker: the budget of the compilation.

    Attributes:
        states: by number.
        operations: by ``-2 - code``.
        tracked: states inside names that must not come twice, so that the text of the name must be remembered.
        scarce: tracked states inside names of which only finitely many can still be written.
        opening: states in which an array whose items must all be different has just begun.
        pushed: the stack after each push, so that equal stacks are seldom different objects.
    """

    def __init__(self, tracker: BudgetTracker) -> None:
        self._tracker = tracker
        self.states: list[State] = []
        self._number: dict[State, int] = {}
        self.tracked: set[int] = set()
        self.scarce: set[int] = set()
        self.opening: set[int] = set()
        self.operations: list[Operation] = []
        self._operation: dict[Operation, int] = {}
        self.pushed: dict[tuple[Return, Stack], Linked[Opened]] = {}
        self._after: dict[Return, dict[tuple[TruthVector, str], int]] = {}

    def number(self, state: State) -> int:
        """The number of a state."""
        known = self._number.get(state)
        if known is None:
            # Each state has its place before its number is known: an interruption in between leaves a place unused.
            known = len(self.states)
            self.states.append(state)
            if isinstance(state, TextState | EscapeState):
                if state.context.tracks:
                    self.tracked.add(known)
                    if state.context.scarce:
                        self.scarce.add(known)
            elif isinstance(state, ArrayState) and _has_begun(state) and state.frame.plan.distinct:
                self.opening.add(known)
            self._number[state] = known
            if known % 256 == 255:
                self._tracker.check_states(known)
                self._tracker.check_bytes(known * STATE_BYTES, "its states")
        return known

    def code(self, move: Move) -> int:
        """The code of a move."""
        if isinstance(move, Reads):
            return self.number(move.target)
        if isinstance(move, Enters):
            target = self.number(move.target)
            # Some walks visit all states by number; so the states after the value have numbers, too.
            for state in move.back.states.values():
                self.number(state)
            return self._code_of(Push(move.back, target))
        if isinstance(move, EndsName):
            return self._code_of(NameEnd(self.number(move.target)))
        return self._code_of(Pop(move.truth, move.layout))

    def _code_of(self, operation: Operation) -> int:
        known = self._operation.get(operation)
        if known is None:
            known = -2 - len(self.operations)
            self.operations.append(operation)
            self._operation[operation] = known
        return known

    def after(self, back: Return, truth: TruthVector, layout: str = "") -> int:
        """The number of the state after a value with a truth vector, in the layout that the value may have decided."""
        targets = self._after.get(back)
        if targets is None:
            targets = self._after[back] = {}
        known = targets.get((truth, layout))
        if known is None:
            state = back.states[truth]
            known = targets[truth, layout] = self.number(laid_out(state, layout) if layout else state)
        return known


def _has_begun(state: ArrayState) -> bool:
    """Whether a bracket has just been read."""
    return state.phase == "open" and (state.layout.name == FLEXIBLE or not state.layout.read)
