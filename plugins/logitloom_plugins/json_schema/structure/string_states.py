"""States inside strings: how the content of a string is written in JSON.

A character stands for itself (not quotes, backslashes and control characters), or is escaped: by a letter or as
``\\uXXXX``, above U+FFFF as two of these. Lone surrogates are never written. The content automaton reads decoded
characters, so that lengths and patterns hold for every way to write a text.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.structure.names import Name
from logitloom_plugins.json_schema.values.moore_machine import LEADING, UNESCAPED, MooreMachine
from logitloom_plugins.json_schema.values.strings import Content

__all__ = ["DEAD", "DIGITS", "STRING_KINDS", "NameContext", "StringContext", "StringStates", "TextContext"]

#: First members of states inside strings.
STRING_KINDS: Final = frozenset(("text", "escape"))

Codes = dict[int, int]

DEAD: Final = -1
_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX: Final = "0123456789abcdef"
#: The bytes that the letters stand for.
_WRITTEN: Final = np.array([ord(character) for character in _SHORT.values()])
_NO_CHOICE: Final = [(0, 0x1F)]
_NOT_PRINTABLE: Final = [(0, 0x1F), (0x7F, 0xD7FF), (0xE000, 0x10FFFF)]
#: Code points that may be written with digits, by how characters may be written and whether the string is a name, in
#: which only what must be is escaped.
_POINTS: Final = {
    ("any", False): [(0, 0xD7FF), (0xE000, 0x10FFFF)],
    ("any", True): _NOT_PRINTABLE,
    ("ascii", False): _NOT_PRINTABLE,
    ("ascii", True): _NOT_PRINTABLE,
    ("minimal", False): _NO_CHOICE,
    ("minimal", True): _NO_CHOICE,
}
#: The bytes with which these begin.
_BEGIN: Final = {
    kind: tuple(
        byte for low, high in ranges for byte in (*range(low, min(high, 0x7F) + 1), *(LEADING if high >= 0x80 else ()))
    )
    for kind, ranges in _POINTS.items()
}
_PLAIN: Final = tuple((plain.tolist(), frozenset(plain.nonzero()[0].tolist())) for plain in UNESCAPED)
#: After a backslash and ``u``.
DIGITS: Final = frozenset((_HEX + _HEX.upper()).encode())
#: What goes on with an escape after so many of its characters, but for the letters that end it.
_MARKS: Final = ("", "u", *[_HEX] * 4, "\\", "u", *[_HEX] * 4)
_QUOTE, _BACKSLASH = b'"\\'


class StringContext(Name):
    """The strings that may come at one position of a text: their content, and the state after the closing quote.

    The name's parts are what the context is made from.
    """

    #: Whether what is written must be remembered, because a name must not come twice.
    tracks = False
    #: Whether a backslash may stand wherever a character may; ``None``: that depends on the state.
    escapes: bool | None = None
    #: Whether the string is a name that the schema mentions; such names are told from one another by their text alone.
    is_listed = False

    def __init__(self, parts: tuple[Any, ...], machine: Any, content: Content) -> None:
        self.machine = machine
        self.content = content
        self.start = content.automaton.start
        self._texts: dict[tuple[int, int], int] = {}

    def alive(self, state: int, count: int) -> bool:
        """Whether a string whose content has got to a state, with some characters, can be completed."""
        if not self.content.counts and state == self.start:
            # All other states of the automaton lead to an end; the start is there in any case.
            return bool(self.content.found)
        return self.content.alive(state, count)

    def text(self, state: int, count: int) -> int:
        """The machine's state for such a string, or ``DEAD``."""
        known = self._texts.get((state, count))
        if known is None:
            known = int(self.machine.number(("text", self, state, count))) if self.alive(state, count) else DEAD
            self._texts[state, count] = known
        return known

    def end(self, state: int, count: int) -> int:
        """The code for the closing quote, or ``DEAD``."""
        raise NotImplementedError


class TextContext(StringContext):
    """A string value."""

    @cached_property
    def unbounded(self) -> TextContext:
        """The same without bounds on the length."""
        return TextContext(("unbounded", *self.parts), self.machine, Content(self.content.automaton))

    def end(self, state: int, count: int) -> int:
        """The code of the end of the value, with its truth vector."""
        label = self.content.ends(state, count)
        return DEAD if label is None else int(self.machine.pop(label))


class NameContext(StringContext):
    """The names of members that may come next in an open object.

    Attributes:
        used: the layout of the text, or 0.
        mask: the keys that may come, as bits of the key automaton's labels.
        below: per state of the key automaton the keys that it can become.
        plain: whether names are told from one another by their text alone, without patterns.
        outside: states from this one on have read the beginning of a name that the schema mentions.
        others: whether names that the schema does not mention may come.
        is_free: whether any characters may come between two characters.
    """

    def __init__(self, parts: tuple[Any, ...], machine: Any, mask: int) -> None:
        frame, self.used = parts[1], (*parts, 0)[2]
        keys = frame.plan.keys
        super().__init__(parts, machine, Content(keys.automaton))
        self.frame = frame
        self.keys = keys
        self.mask = mask
        self.below = keys.below
        self.tracks = bool(frame.tracked)
        self.plain = not keys.is_slow
        self.outside = keys.base if self.plain else len(keys.below)
        self.others = any(mask & keys.bit[label] for label in keys.others)
        if self.plain:
            # Any other name may be written with every escape; mentioned names of plain characters need none.
            self.escapes = True if self.others else False if keys.plain_names else None
        self.is_listed = self.plain and not self.others
        self.is_free = self.plain and self.others and keys.plain_names

    def alive(self, state: int, count: int) -> bool:
        """Whether the name can become one that may come next."""
        return state >= 0 and bool(self.below[state] & self.mask)

    @cached_property
    def scarce(self) -> bool:
        """Whether a name must not come twice, and only finitely many go on from some state."""
        if not self.tracks or (self.plain and self.others):
            return False
        left = self.keys.left(self.mask)
        return bool(((left > 0) & (left < np.inf)).any())

    def living(self) -> NDArray[np.bool_]:
        """``[states]``: where :meth:`alive` holds."""
        mask = self.mask
        return np.array([bits & mask != 0 for bits in self.below], dtype=bool)

    def end(self, state: int, count: int) -> int:
        """The state before the colon."""
        label = self.content.automaton.outputs[state]
        if label is None or not self.keys.bit[label] & self.mask:
            return DEAD
        if self.tracks and not self.frame.plan.declares(label):
            return int(self.machine.named(self.frame, label, self.used))
        return int(self.machine.number(("colon", self.frame, label, self.used)))


class StringStates:
    """The codes of states inside strings.

    States are ``("text", context, state, count)`` between characters and inside them, and ``("escape", context, state,
    count, written)`` within an escape of which some was written, digits in lower case.
    """

    def __init__(self, machine: Any, escapes: str) -> None:
        self.machine = machine
        self.escapes = escapes
        #: Per byte whether it stands for itself, or is part of a character that does; and which bytes do.
        self.plain, self._every = _PLAIN[escapes == "ascii"]
        self._steps: dict[tuple[MooreMachine, bool], dict[int, Codes]] = {}

    def sparse_row(self, state: Any) -> Codes | None:
        """The codes of the bytes that may come within an escape; ``None`` between escapes."""
        return None if state[0] == "text" else self._escape(*state[1:])

    def steps_of(self, context: StringContext) -> dict[int, Codes]:
        """Results of :meth:`steps` for a content, by state; all of them for names that are listed."""
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

    def steps(self, context: StringContext, content_state: int) -> Codes:
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

    def codes(self, state: Any) -> Codes:
        """The codes of a state between escapes."""
        _, context, content_state, count = state
        # A character counts from its first byte on.
        following = context.content.counted(count + context.content.automaton.boundaries[content_state])
        found = {byte: context.text(target, following) for byte, target in self.steps(context, content_state).items()}
        found |= {byte: self.code(state, byte) for byte in (_QUOTE, _BACKSLASH)}
        return {byte: code for byte, code in found.items() if code != DEAD}

    def code(self, state: Any, byte: int) -> int:
        """The code of one byte in a text."""
        _, context, content_state, count = state
        content = context.content
        automaton = content.automaton
        if self.plain[byte]:
            target = int(automaton.next[content_state, automaton.byte_class[byte]])
            return (
                context.text(target, content.counted(count + automaton.boundaries[content_state]))
                if target >= 0
                else DEAD
            )
        if not automaton.boundaries[content_state]:
            return DEAD
        if byte == _QUOTE:
            return int(context.end(content_state, count))
        return self.escape(context, content_state, count) if byte == _BACKSLASH else DEAD

    def run(self, number: int, text: bytes, at: int) -> tuple[int, int]:
        """Read the characters from a position in a text on that stand for themselves.

        Returns:
            The machine's state after them, or ``DEAD``, and the position in the text.
        """
        _, context, content_state, count = self.machine.states[number]
        content, plain, end = context.content, self.plain, at
        while end < len(text) and plain[text[end]]:
            end += 1
        if end == at:
            return number, at
        if content_state == context.start and isinstance(context, TextContext) and content.free and text.isascii():
            # Every character leads back here.
            count += end - at
        else:
            automaton = content.automaton
            following, byte_class, boundaries = automaton.next, automaton.byte_class, automaton.boundaries
            for byte in text[at:end]:
                count += boundaries[content_state]
                content_state = int(following[content_state, byte_class[byte]])
                if content_state < 0:
                    return DEAD, end
        # What can be completed could be completed before, so one question is enough.
        return context.text(content_state, content.counted(count) if content.counts else 0), end

    def escape(self, context: StringContext, content_state: int, count: int) -> int:
        """The state after a backslash between two characters, or ``DEAD``."""
        some = context.escapes
        if some is None:
            some = self._may_begin(context, content_state, count, (*self._begins(context), _QUOTE, _BACKSLASH))
        if not some:
            return DEAD
        if isinstance(context, NameContext) and content_state >= context.outside and context.keys.plain_names:
            # No name that the schema mentions needs an escape.
            content_state = context.keys.in_tree(content_state)[0]
        return int(self.machine.number(("escape", context, content_state, count, "\\")))

    # --- characters that are escaped ---------------------------------------------------------------------------

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
        # After a lead byte a string can be completed if it can after some character that begins with it.
        reached = set(automaton.next[content_state].take(automaton.columns_of(begins)).tolist())
        return any(context.alive(target, following) for target in reached if target >= 0)

    def _may_write(self, context: StringContext, content_state: int, count: int, ranges: list[tuple[int, int]]) -> bool:
        """Whether some character of some ranges may be written with digits."""
        automaton, following = context.content.automaton, context.content.counted(count + 1)
        return any(
            context.alive(target, following)
            for low, high in ranges
            for first, last in _POINTS[self.escapes, isinstance(context, NameContext)]
            if low <= last and high >= first
            for target in automaton.after_characters(content_state, max(low, first), min(high, last))
        )

    def _escape(self, context: StringContext, content_state: int, count: int, written: str) -> Codes:
        """The codes within an escape."""
        automaton, following = context.content.automaton, context.content.counted(count + 1)

        codes = {}
        if len(written) == 1:
            targets = automaton.next[content_state].take(automaton.byte_class[_WRITTEN]).tolist()
            for letter, target in zip(_SHORT, targets, strict=True):
                if target >= 0 and (letter != "/" or (self.escapes == "any" and not isinstance(context, NameContext))):
                    codes[ord(letter)] = context.text(target, following)
        for mark in _MARKS[len(written)]:
            text = written + mark
            if len(text) == 2:
                ranges = []
                is_possible = self._may_begin(context, content_state, count, self._begins(context))
            else:
                ranges = _characters(text)
                is_possible = self._may_write(context, content_state, count, ranges)
            if is_possible:
                # One character is written, unless a second unit must come.
                is_whole = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
                if is_whole:
                    code = context.text(automaton.walk(chr(ranges[0][0]).encode(), content_state), following)
                else:
                    code = self.machine.number(("escape", context, content_state, count, text))
                codes |= {ord(mark): code} if mark in "\\u" else {ord(mark): code, ord(mark.upper()): code}
        return {byte: code for byte, code in codes.items() if code != DEAD}


def _characters(written: str) -> list[tuple[int, int]]:
    """The ranges of characters that an escape writes of which some has been written, the ``u`` included.

    The first of two UTF-16 units writes a range of characters, of which its pair writes one.
    """
    unit = written[8:] if len(written) > 6 else written[2:]
    low, last = int(unit.ljust(4, "0"), 16), int(unit.ljust(4, "f"), 16)
    if len(written) > 6:
        base, low, last = 0x10000 + ((int(written[2:6], 16) - 0xD800) << 10), max(low, 0xDC00), min(last, 0xDFFF)
        return [(base + low - 0xDC00, base + last - 0xDC00)] if low <= last else []
    first, final = max(low, 0xD800), min(last, 0xDBFF)
    pairs = [(0x10000 + ((first - 0xD800) << 10), 0x10000 + ((final - 0xD800) << 10) + 0x3FF)]
    return [(low, last), *pairs] if first <= final else [(low, last)]
