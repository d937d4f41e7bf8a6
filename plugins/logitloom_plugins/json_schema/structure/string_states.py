"""States inside strings: how the content is written in JSON.

A character stands for itself (not quotes, backslashes and control characters), or is escaped: by a letter or as
``\\uXXXX``, above U+FFFF as two of these. Lone surrogates are never written. The content automaton reads
decoded characters, so lengths and patterns see through every escape.
"""

from __future__ import annotations

import bisect
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.values.moore_machine import LEADING, UNESCAPED
from logitloom_plugins.json_schema.values.strings import FREE_FOREVER, Content

__all__ = ["DIGITS", "STRING_KINDS", "NameContext", "StringContext", "StringStates", "TextContext"]

#: First members of states inside strings.
STRING_KINDS: Final = frozenset(("text", "escape", "hex", "low"))

#: ``[256]`` codes, or those of the few bytes that may come.
Codes = NDArray[np.int32] | dict[int, int]

DEAD: Final = -1
_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
#: What the letters stand for, as bytes.
_WRITTEN: Final = np.array([ord(character) for character in _SHORT.values()])
#: Automata of strings of so many states are small.
_SMALL: Final = 32
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
_HEX: Final = "0123456789abcdef"
#: After a backslash and ``u``.
DIGITS: Final = frozenset((_HEX + _HEX.upper()).encode())
_MARKS: Final = [ord('"'), ord("\\")]


class StringContext:
    """A kind of string in its place: its content, and where to go at its end."""

    #: Whether what is written must be remembered, because a name must not come twice.
    tracks = False
    #: Whether a backslash may stand wherever a character may; ``None``: to be asked in each state.
    escapes: bool | None = None
    #: What it is made from.
    key: tuple[Any, ...] = ()

    def __init__(self, machine: Any, content: Content) -> None:
        self.machine = machine
        self.content = content
        self.start = content.automaton.start
        self._texts: dict[tuple[int, int], int] = {}

    def alive(self, state: int, count: int) -> bool:
        """Whether a string that has got here can be completed."""
        return self.content.alive(state, count)

    def text(self, state: int, count: int) -> int:
        """The machine's state for having got here, or ``DEAD``."""
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

    def alive(self, state: int, count: int) -> bool:
        """Whether a string that has got here can be completed."""
        if not self.content.counts and state == self.start:
            # Other states were made to live; the start is there in any case.
            return bool(self.content.found)
        return self.content.alive(state, count)

    @cached_property
    def unbounded(self) -> TextContext:
        """The same without bounds on the length."""
        return TextContext(self.machine, Content(self.content.automaton))

    def end(self, state: int, count: int) -> int:
        """The end of the value, with its answer."""
        label = self.content.ends(state, count)
        return DEAD if label is None else int(self.machine.pop(label))


class NameContext(StringContext):
    """The name of a member, in an open object."""

    def __init__(self, machine: Any, frame: Any, mask: int) -> None:
        super().__init__(machine, Content(frame.plan.keys.automaton))
        self.frame = frame
        self.mask = mask
        self.below = frame.plan.keys.below
        self.tracks = frame.tracked
        keys = frame.plan.keys
        self.bit = keys.bit
        #: States from this one on have read the beginning of a name that the schema mentions.
        self.outside = keys.base
        self._other = ("other", ())
        self._any_name = False
        #: Whether names are told from one another by their text alone.
        self.plain = not keys.patterns and not keys.demands
        self.others = True
        if self.plain:
            # Any other name may be written with every escape; names of plain characters with none.
            self.others = any(mask & self.bit[label] for label in keys.others)
            self.escapes = True if self.others else False if keys.plain_names else None
            self._any_name = self.others and keys.plain_names

    def alive(self, state: int, count: int) -> bool:
        """Whether the name can become one that may come next."""
        return state >= 0 and bool(self.below[state] & self.mask)

    def living(self) -> NDArray[np.bool_]:
        """``[states]``: where :meth:`alive` holds."""
        mask = self.mask
        return np.array([bits & mask != 0 for bits in self.below], dtype=bool)

    def free(self, state: int) -> bool:
        """Whether any characters may come here, at the beginning of a character."""
        return self._any_name and bool(self.content.automaton.boundaries[state])

    def in_tree(self, state: int) -> bool:
        """Whether the beginning of a name that the schema mentions has been read, and names are told by their text."""
        return self.plain and state >= self.outside

    def listed(self, state: int) -> bool:
        """Whether the name can only become one that the schema mentions, told by its text."""
        return self.in_tree(state) and not self.others

    def escaped_from(self, state: int) -> int:
        """Where to read an escaped character from: no name that the schema mentions has any, as a rule."""
        keys = self.frame.plan.keys
        return int(keys.in_tree(state)[0]) if self.in_tree(state) and keys.plain_names else state

    def other_end(self) -> int:
        """The state after a name that the schema does not mention."""
        return int(self.machine.after_key(self.frame, self._other))

    def end(self, state: int, count: int) -> int:
        """The state before the colon."""
        label = self.content.automaton.outputs[state]
        if label is None or not self.bit[label] & self.mask:
            return DEAD
        if self.tracks and (label[0] == "other" or label[1] not in self.frame.plan.index):
            return int(self.machine.named(self.frame, label))
        return int(self.machine.after_key(self.frame, label))


class StringStates:
    """The rows of states inside strings.

    States are ``("text", context, state, count)`` between characters and inside them, ``("escape", ...)`` after a
    backslash, ``("hex", ..., digits)`` after ``\\u``, ``("low", ..., high, written)`` after a high surrogate.
    """

    def __init__(self, machine: Any, escapes: str) -> None:
        self.machine = machine
        self.escapes = escapes
        self._plain: list[bool] = UNESCAPED[escapes == "ascii"].tolist()
        self._points: dict[tuple[StringContext, int, int], tuple[list[int], list[int]]] = {}

    def free(self, state: Any) -> int:
        """How many bytes of any text without special characters may come here: what a walk need not look at."""
        _, context, place, count = state
        if self.escapes == "ascii":
            return 0
        if isinstance(context, NameContext):
            # Behind the beginnings of all names that are mentioned, one is like another.
            return FREE_FOREVER if place < context.outside and context.free(place) else 0
        return int(context.content.free_from(place, count))

    def far(self, state: Any, more: int) -> Any:
        """Of a state where bounds on the length cannot matter for some characters: the one without; else ``None``."""
        if state[0] != "text" or not isinstance(state[1], TextContext) or not state[1].content.is_far(state[3], more):
            return None
        return ("text", state[1].unbounded, state[2], 0)

    def narrow(self, state: Any) -> bool:
        """Whether few bytes may come: in escapes, in names of which only listed ones are allowed, in short lists."""
        if state[0] != "text":
            return True
        _, context, place, _ = state
        return (
            context.listed(place)
            if isinstance(context, NameContext) and context.plain
            else context.content.automaton.narrow[place]
        )

    def fill(self, row: Codes, state: Any) -> None:
        """Fill in what may come in a state."""
        if state[0] == "text":
            self._text(row, *state[1:])
        elif state[0] == "escape":
            self._escape(row, *state[1:])
        elif state[0] == "hex":
            self._hex(row, *state[1:])
        else:
            self._low(row, *state[1:])

    def code(self, number: int, byte: int) -> int:
        """What one byte leads to in a text."""
        _, context, place, count = self.machine.states[number]
        if not self._plain[byte] or (isinstance(context, NameContext) and context.in_tree(place)):
            return int(self.machine.row(number)[byte])
        content = context.content
        automaton = content.automaton
        target = int(automaton.next[place, automaton.byte_class[byte]])
        if target < 0:
            return DEAD
        return int(context.text(target, content.counted(count + automaton.boundaries[place])))

    def escape(self, context: StringContext, place: int, count: int) -> int:
        """The state after a backslash between two characters, or ``DEAD``."""
        if not self._some_escape(context, place, count):
            return DEAD
        return int(self.machine.number(("escape", context, place, count)))

    def is_small(self, state: Any) -> bool:
        """Whether the automaton of a string has so few states that their rows are best made together."""
        return state[0] == "text" and isinstance(state[1], TextContext) and state[1].content.automaton.states <= _SMALL

    def rows_beside(self, state: Any) -> tuple[list[int], NDArray[np.int32]]:
        """The rows of a state in a small automaton, and of the others after as many characters: numbers and rows."""
        _, context, _, count = state
        content = context.content
        automaton = content.automaton
        columns = automaton.columns(self.escapes == "ascii")
        every = range(automaton.states)
        here = [context.text(place, count) for place in every]
        here[state[2]] = self.machine.number(state)
        following = content.counted(count + 1)
        after = [context.text(place, following) for place in every] if following != count else here
        table = automaton.next.take(columns.classes, axis=1)
        boundaries = np.frombuffer(automaton.boundaries, dtype=bool)
        # A character counts from its first byte on.
        codes = np.where(
            boundaries[:, None],
            np.array([*after, DEAD], dtype=np.int32)[table],
            np.array([*here, DEAD], dtype=np.int32)[table],
        )
        rows = np.append(np.full((len(codes), 1), DEAD, dtype=np.int32), codes, axis=1).take(columns.of_byte, axis=1)
        some = (codes != DEAD).any(axis=1).tolist()
        kept = [place for place in every if here[place] != DEAD and not automaton.narrow[place]]
        for place in kept:
            if automaton.boundaries[place]:
                self._ends(rows[place], context, place, count, some[place])
        return [here[place] for place in kept], rows[kept]

    def _text(self, row: Codes, context: StringContext, place: int, count: int) -> None:
        if isinstance(context, NameContext) and context.in_tree(place):
            some = self._in_name(row, context, place)
        else:
            some = self._characters(row, context, place, count)
        if context.content.automaton.boundaries[place]:
            self._ends(row, context, place, count, some)

    def _ends(self, row: Codes, context: StringContext, place: int, count: int, some: bool) -> None:
        """The closing quote, and the backslash; ``some`` characters may stand for themselves."""
        row[ord('"')] = context.end(place, count)
        # Whatever may be written may also be escaped; only where nothing else may, the special ones are asked.
        known = (
            context.escapes if isinstance(context, NameContext) else True if some and self.escapes == "any" else None
        )
        if self._some_escape(context, place, count) if known is None else known:
            if isinstance(context, NameContext):
                place = context.escaped_from(place)
            row[ord("\\")] = self.machine.number(("escape", context, place, count))

    def _in_name(self, row: Codes, context: NameContext, place: int) -> bool:
        """The characters after the beginning of a name that the schema mentions: as after any other, but for a few."""
        outside, children = context.frame.plan.keys.in_tree(place)
        plain = self._plain
        number = self.machine.number
        if not isinstance(row, dict):
            row[:] = self.machine.row(number(("text", context, outside, 0)))
            row[_MARKS] = DEAD
        for byte, target in children.items():
            if plain[byte]:
                code = context.text(target, 0)
                if code != DEAD:
                    row[byte] = code
        return True

    def _characters(self, row: Codes, context: StringContext, place: int, count: int) -> bool:
        """The characters that stand for themselves; returns whether there are any."""
        content = context.content
        automaton = content.automaton
        # A character counts from its first byte on.
        following = content.counted(count + automaton.boundaries[place])
        columns = automaton.columns(self.escapes == "ascii")
        targets = automaton.next[place].take(columns.classes).tolist()
        text_of = {target: context.text(target, following) for target in dict.fromkeys(targets) if target >= 0}
        if isinstance(row, dict):
            for i, target in enumerate(targets):
                if target >= 0:
                    row.update(dict.fromkeys(columns.members(i), text_of[target]))
        else:
            codes = [DEAD, *[text_of.get(target, DEAD) for target in targets]]
            row[:] = np.array(codes, dtype=np.int32).take(columns.of_byte)
        return max(text_of.values(), default=DEAD) != DEAD

    def _some_escape(self, context: StringContext, place: int, count: int) -> bool:
        """Whether a backslash may come between two characters."""
        return self._may_begin(
            context, place, count, (*_BEGIN[self.escapes, isinstance(context, NameContext)], *_MARKS)
        )

    def _may_begin(self, context: StringContext, place: int, count: int, begins: tuple[int, ...]) -> bool:
        """Whether a character that begins with one of some bytes may come."""
        content = context.content
        automaton = content.automaton
        following = content.counted(count + 1)
        # After a lead byte a string can be completed if it can after some character that begins with it.
        reached = set(automaton.next[place].take(automaton.columns_of(begins)).tolist())
        return any(context.alive(target, following) for target in reached if target >= 0)

    def _range(self, context: StringContext, place: int, count: int, low: int, high: int) -> bool:
        """Whether some character of a range may be written as ``\\uXXXX``."""
        points = self._points.get((context, place, count))
        if points is None:
            points = self._points[context, place, count] = self._find_points(context, place, count)
        firsts, lasts = points
        at = bisect.bisect_right(firsts, high) - 1
        return at >= 0 and lasts[at] >= low

    def _find_points(self, context: StringContext, place: int, count: int) -> tuple[list[int], list[int]]:
        """Ranges of characters that may be written as ``\\uXXXX`` here: where they begin, and where they end."""
        content = context.content
        allowed = _POINTS[self.escapes, isinstance(context, NameContext)]
        if isinstance(context, TextContext) and content.reads_any(place, count):
            return [low for low, _ in allowed], [high for _, high in allowed]
        following = content.counted(count + 1)
        found = [
            (max(low, first), min(high, last))
            for first, last, target in content.automaton.intervals(place)
            if context.alive(target, following)
            for low, high in allowed
            if low <= last and high >= first
        ]
        return [low for low, _ in found], [high for _, high in found]

    def _some(self, context: StringContext, place: int, count: int) -> bool:
        """Whether any character may be written as ``\\uXXXX``; asked more often than which."""
        return self._may_begin(context, place, count, _BEGIN[self.escapes, isinstance(context, NameContext)])

    def _character(self, context: StringContext, place: int, count: int, point: int) -> int:
        """The state after one character, or ``DEAD``."""
        content = context.content
        following = content.counted(count + 1)
        for target in content.reach(place, point, point):
            found = context.text(target, following)
            if found != DEAD:
                return found
        return DEAD

    def _escape(self, row: Codes, context: StringContext, place: int, count: int) -> None:
        content = context.content
        automaton = content.automaton
        following = content.counted(count + 1)
        targets = automaton.next[place].take(automaton.byte_class[_WRITTEN]).tolist()
        for letter, target in zip(_SHORT, targets, strict=True):
            if target >= 0 and (letter != "/" or (self.escapes == "any" and not isinstance(context, NameContext))):
                row[ord(letter)] = context.text(target, following)
        if self._some(context, place, count):
            row[ord("u")] = self.machine.number(("hex", context, place, count, ""))

    def _hex(self, row: Codes, context: StringContext, place: int, count: int, digits: str) -> None:
        for digit in _HEX:
            text = digits + digit
            low = int(text.ljust(4, "0"), 16)
            high = int(text.ljust(4, "f"), 16)
            code = DEAD
            if len(text) == 4:
                if 0xD800 <= low < 0xDC00:
                    first = 0x10000 + ((low - 0xD800) << 10)
                    if self._range(context, place, count, first, first + 0x3FF):
                        code = self.machine.number(("low", context, place, count, low, ""))
                elif self._range(context, place, count, low, low):
                    code = self._character(context, place, count, low)
            else:
                alive = self._range(context, place, count, low, high)
                if not alive and low <= 0xDBFF and high >= 0xD800:
                    first = 0x10000 + ((max(low, 0xD800) - 0xD800) << 10)
                    last = 0x10000 + ((min(high, 0xDBFF) - 0xD800) << 10) + 0x3FF
                    alive = self._range(context, place, count, first, last)
                if alive:
                    code = self.machine.number(("hex", context, place, count, text))
            if code != DEAD:
                row[ord(digit)] = row[ord(digit.upper())] = code

    def _low(self, row: Codes, context: StringContext, place: int, count: int, high: int, written: str) -> None:
        number = self.machine.number
        if len(written) < 2:
            row[ord("\\u"[len(written)])] = number(("low", context, place, count, high, written + "\\u"[len(written)]))
            return
        base = 0x10000 + ((high - 0xD800) << 10)
        for digit in _HEX:
            text = written[2:] + digit
            low = max(int(text.ljust(4, "0"), 16), 0xDC00)
            last = min(int(text.ljust(4, "f"), 16), 0xDFFF)
            if low > last:
                continue
            code = DEAD
            if len(text) == 4:
                code = self._character(context, place, count, base + low - 0xDC00)
            elif self._range(context, place, count, base + low - 0xDC00, base + last - 0xDC00):
                code = number(("low", context, place, count, high, "\\u" + text))
            if code != DEAD:
                row[ord(digit)] = row[ord(digit.upper())] = code
