"""Anchors and word boundaries as sets of contexts.

Whether ``^``, ``$``, ``\\A``, ``\\Z``, ``\\b`` or ``\\B`` holds between two characters depends only on the kind of the
character before and on the kind of the character (or end of text) after. A pair of kinds is a context. There are 30
contexts, so an anchor is a bit set of contexts. Consecutive anchors are the intersection of their sets, and
alternatives are the union.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from logitloom.automata.patterns import char_sets
from logitloom.automata.patterns.char_sets import CharSet

__all__ = [
    "AFTER",
    "ALL_CONTEXTS",
    "BEGIN",
    "END",
    "KINDS",
    "LAST_NEWLINE",
    "boundary_contexts",
    "context_bit",
    "kind_sets",
]

# Kinds of a character: a word character in ASCII, one above ASCII, a newline, any other.
ASCII_WORD, HIGH_WORD, NEWLINE, OTHER = range(4)
KINDS: Final = 4
BEGIN: Final = 4  # as the kind before: nothing, the text begins here
END: Final = 4  # as the kind after: nothing, the text ends here
LAST_NEWLINE: Final = 5  # as the kind after: a newline, and then the text ends
AFTER: Final = 6


def context_bit(before: int, after: int) -> int:
    """The bit of a pair: ``before`` is a kind or ``BEGIN``; ``after`` a kind, ``END`` or ``LAST_NEWLINE``."""
    return 1 << (before * AFTER + after)


ALL_CONTEXTS: Final = (1 << ((KINDS + 1) * AFTER)) - 1

# Python before 3.14 lets \B fail on the empty text.
_NON_BOUNDARY_IN_EMPTY_TEXT: Final = re.fullmatch(r"\B", "") is not None


@cache
def kind_sets() -> tuple[CharSet, ...]:
    """The characters of each kind, indexed by kind."""
    word = char_sets.category("w", 0)
    ascii_word = CharSet(word.ascii, char_sets.HIGH_NONE)
    high_word = CharSet(0, word.high)
    rest = char_sets.negate(CharSet(word.ascii | char_sets.NEWLINE.ascii, word.high))
    return ascii_word, high_word, char_sets.NEWLINE, rest


@cache
def _contexts(anchor: str, multiline: bool, ascii_only: bool) -> int:
    word = {ASCII_WORD} if ascii_only else {ASCII_WORD, HIGH_WORD}
    result = 0
    for before in range(KINDS + 1):
        for after in range(AFTER):
            if anchor == "AT_BEGINNING_STRING" or (anchor == "AT_BEGINNING" and not multiline):
                holds = before == BEGIN
            elif anchor == "AT_BEGINNING":
                holds = before in (BEGIN, NEWLINE)
            elif anchor == "AT_END_STRING":
                holds = after == END
            elif anchor == "AT_END":
                holds = after in (END, LAST_NEWLINE) or (multiline and after == NEWLINE)
            else:
                # END and BEGIN have the same number, which is not a word kind.
                differs = (before in word) != (after in word)
                holds = differs if anchor == "AT_BOUNDARY" else not differs
                if before == BEGIN and after == END:
                    holds = anchor == "AT_NON_BOUNDARY" and _NON_BOUNDARY_IN_EMPTY_TEXT
            if holds:
                result |= context_bit(before, after)
    return result


def boundary_contexts(anchor: str, flags: int) -> int:
    """The contexts in which an anchor holds.

    Args:
        anchor: the name in the standard library's parser, e.g. ``"AT_BOUNDARY"``.
        flags: flags of ``re``; only ``MULTILINE`` and ``ASCII`` matter.
    """
    return _contexts(anchor, bool(flags & re.MULTILINE), bool(flags & re.ASCII))
