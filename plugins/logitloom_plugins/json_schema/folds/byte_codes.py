"""Which bytes may come in a state: the moves of states as codes of bytes, made state by state as texts visit them.

Most bytes of a text stand between the quotes of strings. The states there have specialised codes: the code of one byte
is found without the moves for others, and one step reads a run of characters. The codes equal those of the moves.
"""

from __future__ import annotations

from typing import Final

from logitloom_plugins.json_schema.folds.numbering import DEAD, Numbering
from logitloom_plugins.json_schema.grammar.contexts import StringContext, TextContext
from logitloom_plugins.json_schema.grammar.moves import BLANKS, SchemaGrammar, after_number, moves_between
from logitloom_plugins.json_schema.grammar.states import EscapeState, GapState, NumberState, TextState
from logitloom_plugins.json_schema.grammar.string_moves import StringMoves

__all__ = ["ByteCodes", "Codes", "StringCodes"]

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
        codes: Codes = {}
        if isinstance(state, GapState):
            # Each further character of whitespace leaves the codes as they are, except those of whitespace.
            codes.update(self.sparse_row(numbering.number(state.before)) or {})
            for byte in BLANKS:
                codes.pop(byte, None)
            if state.read < self._grammar.whitespace.most:
                more = numbering.number(state._replace(read=state.read + 1))
                codes.update(dict.fromkeys(BLANKS, more))
        elif isinstance(state, NumberState):
            # Most numbers are written digit by digit, and the same bytes may follow the number after each digit.
            following = after_number(state)
            if following is not None:
                codes.update(self.sparse_row(numbering.number(following)) or {})
            for content_state, read in state.numbers.steps(state.content_state):
                codes.update(dict.fromkeys(read, numbering.number(state._replace(content_state=content_state))))
        elif not isinstance(state, TextState):
            if isinstance(state, EscapeState):
                moves = self.strings.moves.moves(state)
            else:
                moves = moves_between(self._grammar, state)
            for move in moves:
                codes.update(dict.fromkeys(move.read, numbering.code(move)))
        self.codes[number] = found = None if isinstance(state, TextState) else codes
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
        state = self._numbering.states[number]
        return self.strings.codes(state) if isinstance(state, TextState) else sparse or {}
