"""The moves inside strings: how the content of a string is written in JSON.

A character stands for itself (not quotes, backslashes and control characters), or is escaped: by a letter or as
``\\uXXXX``, above U+FFFF as two of these. Lone surrogates are never written. The content automaton reads decoded
characters, so that lengths and patterns hold for every way to write a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from logitloom_plugins.json_schema.grammar.contexts import NameContext, StringContext, TextContext
from logitloom_plugins.json_schema.grammar.states import (
    ColonState,
    EndsName,
    EscapeState,
    Leaves,
    Move,
    Reads,
    TextState,
)
from logitloom_plugins.json_schema.values.moore_machine import LEADING, UNESCAPED, MooreMachine

__all__ = ["DIGITS", "StringMoves"]

_SHORT: Final = {'"': '"', "/": "/", "\\": "\\", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX: Final = "0123456789abcdef"
#: The characters that the letters write.
_WRITTEN: Final = np.array([ord(character) for character in _SHORT.values()])
_NO_CHOICE: Final = [(0, 0x1F)]
_NOT_PRINTABLE: Final = [(0, 0x1F), (0x7F, 0xD7FF), (0xE000, 0x10FFFF)]
#: Code points that may be written with digits, by the rule of escapes and by whether the string is a name. In names
#: only characters that need an escape are escaped.
_POINTS: Final = {
    ("any", False): [(0, 0xD7FF), (0xE000, 0x10FFFF)],
    ("any", True): _NOT_PRINTABLE,
    ("ascii", False): _NOT_PRINTABLE,
    ("ascii", True): _NOT_PRINTABLE,
    ("minimal", False): _NO_CHOICE,
    ("minimal", True): _NO_CHOICE,
}
#: The first bytes of these code points.
_BEGIN: Final = {
    kind: tuple(
        byte for low, high in ranges for byte in (*range(low, min(high, 0x7F) + 1), *(LEADING if high >= 0x80 else ()))
    )
    for kind, ranges in _POINTS.items()
}
_PLAIN: Final = tuple((plain.tolist(), frozenset(plain.nonzero()[0].tolist())) for plain in UNESCAPED)
#: The bytes that may follow a backslash and ``u``.
DIGITS: Final = frozenset((_HEX + _HEX.upper()).encode())
#: By the number of characters of an escape the characters that may follow, without the letters that end an escape.
_MARKS: Final = ("", "u", *[_HEX] * 4, "\\", "u", *[_HEX] * 4)
_QUOTE, _BACKSLASH = b'"\\'


class StringMoves:
    """The moves of states inside strings.

    Args:
        escapes: how characters may be written: ``any``, ``minimal`` or ``ascii``.

    Attributes:
        plain: per byte whether it stands for itself, or is part of a character that does.
    """

    def __init__(self, escapes: str) -> None:
        self.escapes = escapes
        self.plain, self._every = _PLAIN[escapes == "ascii"]
        self._steps: dict[tuple[MooreMachine, bool], dict[int, dict[int, int]]] = {}

    def moves(self, state: TextState | EscapeState) -> Iterator[Move]:
        """The moves of a state inside a string."""
        return self._of_text(state) if isinstance(state, TextState) else self.in_escape(state)

    # --- between escapes -------------------------------------------------------------------------------------------

    def steps_of(self, context: StringContext) -> dict[int, dict[int, int]]:
        """The results of :meth:`steps` that are known for a content, by state; for listed names, all results."""
        key = context.content.automaton, context.is_listed
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = {}
            if isinstance(context, NameContext) and context.is_listed:
                for state, children in enumerate(context.keys.tree.children, context.outside):
                    if not self._every.issuperset(children):
                        children = {byte: target for byte, target in children.items() if self.plain[byte]}
                    known[state] = children
        return known

    def steps(self, context: StringContext, content_state: int) -> dict[int, int]:
        """The next states of a content by the bytes that stand for themselves."""
        known = self.steps_of(context)
        found = known.get(content_state)
        if found is None:
            automaton = context.content.automaton
            columns = automaton.columns(self.escapes == "ascii")
            targets = automaton.next[content_state].take(columns.classes).tolist()
            found = {byte: target for i, target in enumerate(targets) if target >= 0 for byte in columns.bytes_of[i]}
            known[content_state] = found
        return found

    def _of_text(self, state: TextState) -> Iterator[Move]:
        context, content_state, count, _ = state
        # A character counts from its first byte on.
        between = context.content.automaton.boundaries[content_state]
        following = context.content.counted(count + between)
        by_target: dict[int, bytearray] = {}
        for byte, target in self.steps(context, content_state).items():
            by_target.setdefault(target, bytearray()).append(byte)
        for target, read in by_target.items():
            if context.alive(target, following):
                yield Reads(bytes(read), TextState(context, target, following))
        if between:
            end = self.end(context, content_state, count)
            escape = self.escape(context, content_state, count)
            yield from () if end is None else (end,)
            yield from () if escape is None else (Reads(b"\\", escape),)

    def end(self, context: StringContext, content_state: int, count: int) -> Move | None:
        """The move over the quote that ends a string between two characters; ``None`` if no string ends there."""
        if not isinstance(context, NameContext):
            truth = context.content.ends(content_state, count)
            return None if truth is None else Leaves(b'"', truth)
        label = context.content.automaton.outputs[content_state]
        if label is None or not context.keys.bit[label] & context.mask:
            return None
        target = ColonState(context.frame, label, context.layout)
        if context.tracks and not context.frame.plan.declares(label):
            return EndsName(b'"', target)
        return Reads(b'"', target)

    def escape(self, context: StringContext, content_state: int, count: int) -> EscapeState | None:
        """The state after a backslash between two characters; ``None`` if none may come."""
        some = context.escapes
        if some is None:
            some = self._may_begin(context, content_state, count, (*self._begins(context), _QUOTE, _BACKSLASH))
        if not some:
            return None
        if isinstance(context, NameContext) and content_state >= context.outside and context.keys.plain_names:
            # No name that the schema mentions needs an escape.
            content_state = context.keys.in_tree(content_state)[0]
        return EscapeState(context, content_state, count, "\\")

    # --- characters that are escaped -------------------------------------------------------------------------------

    def _begins(self, context: StringContext) -> tuple[int, ...]:
        """The first bytes of the characters that may be written with digits."""
        return _BEGIN[self.escapes, isinstance(context, NameContext)]

    def _may_begin(self, context: StringContext, content_state: int, count: int, begins: tuple[int, ...]) -> bool:
        """Whether a character that begins with one of some bytes may come."""
        content = context.content
        automaton = content.automaton
        if not content.counts and isinstance(context, TextContext):
            return bool(automaton.reads(begins)[content_state])
        following = content.counted(count + 1)
        # After a lead byte a string can be completed if it can be completed after a character with this lead byte.
        reached = set(automaton.next[content_state].take(automaton.columns_of(begins)).tolist())
        return any(context.alive(target, following) for target in reached if target >= 0)

    def _may_write(self, context: StringContext, content_state: int, count: int, ranges: list[tuple[int, int]]) -> bool:
        """Whether some character of some ranges may be written with digits."""
        automaton, following = context.content.automaton, context.content.counted(count + 1)
        few = automaton.few_characters(content_state)
        if few is not None:
            within = ranges, _POINTS[self.escapes, isinstance(context, NameContext)]
            return any(
                context.alive(target, following)
                for code, target in few
                if all(any(low <= code <= high for low, high in each) for each in within)
            )
        return any(
            context.alive(target, following)
            for low, high in ranges
            for first, last in _POINTS[self.escapes, isinstance(context, NameContext)]
            if low <= last and high >= first
            for target in automaton.after_characters(content_state, max(low, first), min(high, last))
        )

    def in_escape(self, state: EscapeState) -> Iterator[Reads]:
        """The moves within an escape, in the order of the bytes that they read."""
        context, content_state, count, written, _ = state
        automaton, following = context.content.automaton, context.content.counted(count + 1)
        if len(written) == 1:
            targets = automaton.next[content_state].take(automaton.byte_class[_WRITTEN]).tolist()
            for letter, target in zip(_SHORT, targets, strict=True):
                may_come = letter != "/" or (self.escapes == "any" and not isinstance(context, NameContext))
                if target >= 0 and may_come and context.alive(target, following):
                    yield Reads(letter.encode(), TextState(context, target, following))
        for mark in _MARKS[len(written)]:
            text = written + mark
            ranges = _characters(text) if len(text) > 2 else []
            if len(text) == 2:
                is_possible = self._may_begin(context, content_state, count, self._begins(context))
            else:
                is_possible = self._may_write(context, content_state, count, ranges)
            if not is_possible:
                continue
            read = mark.encode() if mark in "\\u" else (mark + mark.upper()).encode()
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                # One character is written, unless a second unit must come.
                target = automaton.walk(chr(ranges[0][0]).encode(), content_state)
                if context.alive(target, following):
                    yield Reads(read, TextState(context, target, following))
            else:
                yield Reads(read, state._replace(written=text))


def _characters(written: str) -> list[tuple[int, int]]:
    """The ranges of characters that an escape can still write, from the characters of the escape up to now.

    The characters of the escape include the ``u``. The first of two UTF-16 units stands for a range of characters. The
    second unit chooses one character of this range.
    """
    unit = written[8:] if len(written) > 6 else written[2:]
    low, last = int(unit.ljust(4, "0"), 16), int(unit.ljust(4, "f"), 16)
    if len(written) > 6:
        base, low, last = 0x10000 + ((int(written[2:6], 16) - 0xD800) << 10), max(low, 0xDC00), min(last, 0xDFFF)
        return [(base + low - 0xDC00, base + last - 0xDC00)] if low <= last else []
    first, final = max(low, 0xD800), min(last, 0xDBFF)
    pairs = [(0x10000 + ((first - 0xD800) << 10), 0x10000 + ((final - 0xD800) << 10) + 0x3FF)]
    return [(low, last), *pairs] if first <= final else [(low, last)]
