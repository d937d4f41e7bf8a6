"""The states that texts have visited, and which bytes may come in each: the transition table of a schema's automaton.

A state has a number. A code stands for a move of a state: the number of the next state, or an operation on the stack.
Rows of codes by byte are made from the moves, state by state as texts visit them.

Most bytes of a text stand between the quotes of strings. The states inside strings have specialised codes: the code of
one byte is found without the moves for other bytes, and one step reads a run of characters. The codes equal those of
the moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from logitloom.automata import BudgetTracker
from logitloom_plugins.json_schema.grammar.contexts import StringContext, TextContext
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.moves import BLANKS, SchemaGrammar, after_number, moves_between
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    EndsName,
    Enters,
    EscapeState,
    GapState,
    Move,
    NumberState,
    Opened,
    Reads,
    Return,
    Stack,
    State,
    TextState,
    laid_out,
)
from logitloom_plugins.json_schema.grammar.string_moves import StringMoves

__all__ = [
    "DEAD",
    "NO_NAMES",
    "STATE_BYTES",
    "ByteCodes",
    "Codes",
    "NameEnd",
    "Numbering",
    "Operation",
    "Pop",
    "Push",
    "StringCodes",
]


#: Bytes of memory that a state takes with its codes, estimated.
STATE_BYTES: Final = 1 << 10
#: The code of a byte that must not come.
DEAD: Final = -1
NO_NAMES: Final[frozenset[str]] = frozenset()
_IN_STRINGS: Final = (TextState, EscapeState)


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
            if isinstance(state, _IN_STRINGS):
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


#: By byte the code of a move.
Codes = dict[int, int]

_MISSING: Final[Codes] = {}
_QUOTE, _BACKSLASH = b'"\\'


class StringCodes:
    """The codes of states between the characters of strings, and the numbers of states inside strings.

    Args:
        numbering: the numbers of the states.
        moves: the moves inside strings.
    """

    def __init__(self, numbering: Numbering, moves: StringMoves) -> None:
        self._numbering = numbering
        self.moves = moves
        self._texts: dict[StringContext, dict[tuple[int, int], int]] = {}

    def text(self, context: StringContext, content_state: int, count: int) -> int:
        """The number of the state in a string, or ``DEAD`` if the string cannot be completed."""
        numbers = self._texts.get(context)
        if numbers is None:
            numbers = self._texts[context] = {}
        known = numbers.get((content_state, count))
        if known is None:
            alive = context.alive(content_state, count)
            known = self._numbering.number(TextState(context, content_state, count)) if alive else DEAD
            numbers[content_state, count] = known
        return known

    def end(self, context: StringContext, content_state: int, count: int) -> int:
        """The code of the quote that ends a string, or ``DEAD``."""
        move = self.moves.end(context, content_state, count)
        return DEAD if move is None else self._numbering.code(move)

    def escape(self, context: StringContext, content_state: int, count: int) -> int:
        """The code of a backslash between two characters, or ``DEAD``."""
        state = self.moves.escape(context, content_state, count)
        return DEAD if state is None else self._numbering.number(state)

    def codes(self, state: TextState) -> Codes:
        """The codes of all bytes."""
        context, content_state, count, _ = state
        # A character counts from its first byte on.
        following = context.content.counted(count + context.content.automaton.boundaries[content_state])
        steps = self.moves.steps(context, content_state)
        found = {byte: self.text(context, target, following) for byte, target in steps.items()}
        found |= {byte: self.code(state, byte) for byte in (_QUOTE, _BACKSLASH)}
        return {byte: code for byte, code in found.items() if code != DEAD}

    def code(self, state: TextState, byte: int) -> int:
        """The code of one byte."""
        context, content_state, count, _ = state
        content = context.content
        automaton = content.automaton
        if self.moves.plain[byte]:
            target = int(automaton.next[content_state, automaton.byte_class[byte]])
            if target < 0:
                return DEAD
            return self.text(context, target, content.counted(count + automaton.boundaries[content_state]))
        if not automaton.boundaries[content_state]:
            return DEAD
        if byte == _QUOTE:
            return self.end(context, content_state, count)
        return self.escape(context, content_state, count) if byte == _BACKSLASH else DEAD

    def run(self, number: int, state: TextState, text: bytes, at: int) -> tuple[int, int]:
        """Read the characters from a position in a text on that stand for themselves.

        Returns:
            The number of the state after them, or ``DEAD``, and the position in the text.
        """
        context, content_state, count, _ = state
        content, plain, end = context.content, self.moves.plain, at
        while end < len(text) and plain[text[end]]:
            end += 1
        if end == at:
            return number, at
        if content_state == context.start and isinstance(context, TextContext) and content.free and text.isascii():
            # Every character leads back to this state of the content.
            count += end - at
        else:
            automaton = content.automaton
            following, byte_class, boundaries = automaton.next, automaton.byte_class, automaton.boundaries
            for byte in text[at:end]:
                count += boundaries[content_state]
                content_state = int(following[content_state, byte_class[byte]])
                if content_state < 0:
                    return DEAD, end
        # If the last state can be completed, so can the states on the way to it: one question is enough.
        return self.text(context, content_state, content.counted(count) if content.counts else 0), end


class ByteCodes:
    """The codes of the states of one grammar.

    Args:
        grammar: which moves states have.
        numbering: the numbers of the states.

    Attributes:
        strings: the codes between the characters of strings.
        codes: results of :meth:`sparse_row`, by the number of the state.
    """

    def __init__(self, grammar: SchemaGrammar, numbering: Numbering) -> None:
        self._grammar = grammar
        self._numbering = numbering
        self.strings = StringCodes(numbering, StringMoves(grammar.escapes))
        self.codes: dict[int, Codes | None] = {}

    def sparse_row(self, number: int) -> Codes | None:
        """By byte the codes of a state that allows a small number of bytes; ``None`` in strings, between escapes."""
        sparse = self.codes.get(number, _MISSING)
        if sparse is not _MISSING:
            return sparse
        numbering = self._numbering
        state = numbering.states[number]
        if isinstance(state, TextState):
            self.codes[number] = None
            return None
        found: Codes = {}
        if isinstance(state, GapState):
            # Each further character of whitespace leaves the codes as they are, except those of whitespace.
            found.update(self.sparse_row(numbering.number(state.before)) or {})
            for byte in BLANKS:
                found.pop(byte, None)
            if state.read < self._grammar.whitespace.most:
                more = numbering.number(state._replace(read=state.read + 1))
                found.update(dict.fromkeys(BLANKS, more))
        elif isinstance(state, NumberState):
            # Most numbers are written digit by digit, and the same bytes may follow the number after each digit.
            following = after_number(state)
            if following is not None:
                found.update(self.sparse_row(numbering.number(following)) or {})
            for content_state, read in state.numbers.automaton.steps(state.content_state):
                target = NumberState(state.numbers, content_state, state.back)
                found.update(dict.fromkeys(read, numbering.number(target)))
        else:
            moves: Iterator[Move]
            if isinstance(state, EscapeState):
                moves = self.strings.moves.in_escape(state)
            else:
                moves = moves_between(self._grammar, state)
            for move in moves:
                code = numbering.code(move)
                for byte in move.read:
                    found[byte] = code
        self.codes[number] = found
        return found

    def code(self, number: int, byte: int) -> int:
        """The code of one byte in a state."""
        sparse = self.sparse_row(number)
        if sparse is not None:
            return sparse.get(byte, DEAD)
        state = self._numbering.states[number]
        return self.strings.code(state, byte) if isinstance(state, TextState) else DEAD

    def every_code(self, number: int) -> Codes:
        """By byte the codes of a state."""
        sparse = self.sparse_row(number)
        if sparse is not None:
            return sparse
        state = self._numbering.states[number]
        assert isinstance(state, TextState)
        return self.strings.codes(state)
