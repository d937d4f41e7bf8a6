"""The place of an error in the text of a grammar: line, column, the line itself and a caret below it."""

from __future__ import annotations

from logitloom.errors import UnsupportedGrammar

__all__ = ["refusal", "refusal_at"]

_WIDEST = 100


def refusal(text: str, offset: int, reason: str) -> UnsupportedGrammar:
    """The error for a character of a grammar.

    Args:
        text: the whole grammar.
        offset: of the character, ``0 <= offset <= len(text)``.
        reason: a full sentence, or several.

    Example:
        >>> print(refusal('root ::= "a" )', 13, "A bracket is closed that was never opened."))
        Line 1, column 14 of the grammar: A bracket is closed that was never opened.
            root ::= "a" )
                         ^
    """
    line = text.count("\n", 0, offset) + 1
    return refusal_at(text, line, offset - (text.rfind("\n", 0, offset) + 1) + 1, reason)


def refusal_at(text: str, line: int, column: int, reason: str) -> UnsupportedGrammar:
    """The error for a line and column, both from 1. Without such a line only the reason is said."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return UnsupportedGrammar(reason, line, column)
    shown = lines[line - 1].rstrip("\r").expandtabs(1)
    begin = max(0, column - 1 - _WIDEST // 2)
    part = shown[begin : begin + _WIDEST]
    return UnsupportedGrammar(
        f"Line {line}, column {column} of the grammar: {reason}\n    {part}\n    {' ' * (column - 1 - begin)}^",
        line,
        column,
    )
