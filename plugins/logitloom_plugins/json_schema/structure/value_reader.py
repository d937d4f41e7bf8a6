"""Reading the values of a text byte by byte, so that equal ones get the same number.

Only texts of a machine are read, so what may come where is not asked again. What has been read of a value is a place,
which is small whatever has come before: open arrays and objects are numbers, and so are the items and members so far.

References:
    JSON Schema 2020-12, Core, section 4.2.2 "Instance Equality".
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from logitloom_plugins.json_schema.structure.names import ChainNumbers

__all__ = [
    "BACKSLASH",
    "BLANKS",
    "COMMA",
    "NUMBER",
    "OUTSIDE",
    "QUOTE",
    "Frame",
    "Place",
    "Position",
    "Value",
    "ValueReader",
    "goes_on",
    "number_of",
]

QUOTE, BACKSLASH, COMMA, _COLON = b'"\\,:'
BLANKS: Final = b" \n\t\r"
#: What numbers are made of.
NUMBER: Final = b"0123456789-+.eE"
_LITERALS: Final = (b"null", b"false", b"true")
#: Bytes of an escape: of most characters, with digits, and of a pair of surrogates.
_ESCAPE, _ONE_UNIT, _TWO_UNITS = 2, 6, 12
#: Digits of an exponent that is worked out.
_MOST_DIGITS: Final = 1000
#: Items and members that are listed again and again.
_MOST_LISTED: Final = 1 << 18

#: The type, and what makes values of it different: the UTF-8 of a string, the digits of a number, the text of a
#: literal, the numbers of items, or the set of members as pairs of a name and a number.
Value = tuple[str, Any]


class Place(NamedTuple):
    """How far the values of a text have been read, within arrays of different items.

    Attributes:
        frame: the number of the innermost open array or object; 0 outside of such arrays.
        phase: what may come next: ``open`` (a first item or member, or the end), ``value``, ``name``, ``colon``,
            ``next`` (a comma or the end).
        text: what has been read of a string (its quote, and characters as UTF-8), a number or a literal.
        escape: what has been read of an escape in it.
    """

    frame: int
    phase: str = "open"
    text: bytes = b""
    escape: bytes = b""


#: Where there is nothing to remember.
OUTSIDE: Final = Place(0)


class Position(NamedTuple):
    """How far a text has been read: the state, what is remembered, what is written of a tracked name, and items.

    States and stacks are numbers of a machine; 0 is the empty stack.
    """

    state: int
    stack: int = 0
    written: bytes = b""
    items: Place = OUTSIDE


class Frame(NamedTuple):
    """An open array or object.

    Attributes:
        above: the number of the one around it.
        kind: ``array``, ``object``, or ``distinct`` for an array whose items must all be different.
        done: the number of its items or members so far.
        name: of a member whose value has not ended.
    """

    above: int
    kind: str
    done: int = 0
    name: bytes | None = None


class ValueReader:
    """The values that texts have written.

    Attributes:
        values: by number.
        digits: most digits after the point of a number among them.
    """

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.digits = 0
        self._value_number: dict[Value, int] = {}
        self._frames: list[Frame] = [Frame(0, "")]
        self._frame_number: dict[Frame, int] = {}
        # Items or members, each with the number of those before it.
        self._lists: list[tuple[int, Any]] = [(0, None)]
        self._list_number: dict[tuple[int, Any], int] = {}
        # By a member, or an item with its place.
        self._having: dict[tuple[Any, int], set[int]] = {}
        self._listed: dict[int, tuple[Any, ...]] = {}
        self._listed_size = 0
        self._texts: dict[int, bytes] = {}
        self._list_names: ChainNumbers[Any] = ChainNumbers(
            lambda done: self._lists[done][0],
            lambda done: self._entry_name(self._lists[done][1]),
            lambda done, name: self._longer(done, self._entry_of(name)),
        )
        #: Names of open arrays and objects.
        self.open_names: ChainNumbers[Any] = ChainNumbers(
            lambda frame: self._frames[frame].above,
            lambda frame: self._frame_name(self._frames[frame]),
            lambda above, name: self._frame(Frame(above, name[0], self._list_names.number(name[1]), name[2])),
        )

    # --- names -------------------------------------------------------------------------------------------------

    def text(self, number: int) -> bytes:
        """The JSON text that stands for all texts of a value."""
        texts, later = self._texts, [number]
        while number not in texts:
            kind, content = self.values[later[-1]]
            parts = content if kind == "array" else [part for _, part in content] if kind == "object" else ()
            missing = [part for part in parts if part not in texts]
            if missing:
                later += missing
                continue
            if kind == "string":
                text = _quoted(content)
            elif kind == "number":
                negative, digits, exponent = content
                shown = exponent if isinstance(exponent, bytes) else b"%d" % exponent
                text = b"-" * negative + digits + b"e" + shown if digits else b"0"
            elif kind == "array":
                text = b"[" + b",".join([texts[part] for part in content]) + b"]"
            elif kind == "object":
                text = b"{" + b",".join(sorted(_quoted(name) + b":" + texts[part] for name, part in content)) + b"}"
            else:
                text = content
            texts[later.pop()] = text
        return texts[number]

    def _value_of(self, text: bytes) -> int:
        """The number of the value that a text writes."""
        place: Place | None = Place(self._frame(Frame(0, "array")))
        for byte in text + b",":
            assert place is not None
            place = self.step(place, byte, False)
        assert place is not None
        number: int = self.listed(self._frames[place.frame].done)[-1]
        return number

    def _frame_name(self, frame: Frame) -> tuple[str, Any, bytes | None]:
        return frame.kind, self._list_names.chain(frame.done), frame.name

    def _entry_name(self, entry: Any) -> Any:
        return (entry[0], self.text(entry[1])) if isinstance(entry, tuple) else self.text(entry)

    def _entry_of(self, name: Any) -> Any:
        return (name[0], self._value_of(name[1])) if isinstance(name, tuple) else self._value_of(name)

    # --- reading -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How much is remembered."""
        return len(self.values) + len(self._frames) + len(self._lists)

    def begin(self) -> Place:
        """The place after the bracket that begins an outermost array."""
        return Place(self._frame(Frame(0, "distinct")))

    def step(self, place: Place, byte: int, distinct: bool) -> Place | None:
        """The place after one more byte; ``None`` if an item that must not, or a name, comes twice.

        Args:
            place: within an array of different items.
            byte: the byte.
            distinct: whether it begins another.
        """
        frame, phase, text, _ = place
        if text:
            if text[0] == QUOTE:
                return self._in_string(place, byte)
            if text[0] not in NUMBER:
                text += bytes([byte])
                return self._ended(frame, ("literal", text)) if text in _LITERALS else Place(frame, phase, text)
            if byte in NUMBER:
                return Place(frame, phase, text + bytes([byte]))
            after = self._ended(frame, ("number", number_of(text)))
            if after is None:
                return None
            frame, phase = after.frame, after.phase
        if byte in BLANKS:
            return Place(frame, phase)
        is_object = self._frames[frame].kind == "object"
        if byte == COMMA:
            return Place(frame, "name" if is_object else "value")
        if byte == _COLON:
            return Place(frame, "value")
        if byte in b"]}":
            return self._closed(frame)
        if byte in b"[{":
            kind = "object" if byte == ord("{") else "distinct" if distinct else "array"
            return Place(self._frame(Frame(frame, kind)))
        return Place(frame, "name" if is_object and phase == "open" else phase, bytes([byte]))

    def _in_string(self, place: Place, byte: int) -> Place | None:
        frame, phase, text, escape = place
        if escape:
            escape += bytes([byte])
            character = _escaped(escape)
            return Place(frame, phase, text, escape) if character is None else Place(frame, phase, text + character)
        if byte == BACKSLASH:
            return Place(frame, phase, text, bytes([byte]))
        if byte != QUOTE:
            return Place(frame, phase, text + bytes([byte]))
        if phase != "name":
            return self._ended(frame, ("string", text[1:]))
        open_object = self._frames[frame]
        name = text[1:]
        # Readers of JSON keep only the last member of a name, so with another the value would change in the end.
        if any(name == other for other, _ in self.listed(open_object.done)):
            return None
        return Place(self._frame(open_object._replace(name=name)), "colon")

    def _ended(self, frame: int, value: Value) -> Place | None:
        """The place after a value."""
        number = self._value_number.get(value)
        if number is None:
            number = self._value_number[value] = len(self.values)
            self.values.append(value)
            for part in value[1] if value[0] == "object" else enumerate(value[1]) if value[0] == "array" else ():
                self._having.setdefault(part, set()).add(number)
            if value[0] == "number" and not isinstance(value[1][2], bytes):
                self.digits = max(self.digits, -value[1][2])
        above, kind, done, name = self._frames[frame]
        if kind == "distinct" and number in self.listed(done):
            return None
        following = self._longer(done, (name, number) if kind == "object" else number)
        return Place(self._frame(Frame(above, kind, following)), "next")

    def _longer(self, done: int, entry: Any) -> int:
        following = self._list_number.get((done, entry))
        if following is None:
            following = self._list_number[done, entry] = len(self._lists)
            self._lists.append((done, entry))
        return following

    def _closed(self, frame: int) -> Place | None:
        above, kind, done, _ = self._frames[frame]
        if not above:
            return OUTSIDE
        entries = self.listed(done)
        return self._ended(above, ("object", frozenset(entries)) if kind == "object" else ("array", entries))

    def _frame(self, frame: Frame) -> int:
        known = self._frame_number.get(frame)
        if known is None:
            known = self._frame_number[frame] = len(self._frames)
            self._frames.append(frame)
        return known

    def frame(self, number: int) -> Frame:
        """An open array or object."""
        return self._frames[number]

    def before(self, number: int) -> int:
        """The same open array or object one item, member or name ago."""
        frame = self._frames[number]
        if frame.name is not None:
            return self._frame(frame._replace(name=None))
        return self._frame(frame._replace(done=self._lists[frame.done][0]))

    def having(self, frame: Frame) -> set[int]:
        """The values with the last item at the same place, or with the last member."""
        entries = self.listed(frame.done)
        return self._having.get(entries[-1] if frame.kind == "object" else (len(entries) - 1, entries[-1]), set())

    def listed(self, done: int) -> tuple[Any, ...]:
        """The numbers of some items, or some members as pairs of a name and a number."""
        known = self._listed.get(done)
        if known is None:
            found = []
            at, before = done, None
            while at and before is None:
                at, entry = self._lists[at]
                found.append(entry)
                before = self._listed.get(at)
            if self._listed_size > _MOST_LISTED:
                self._listed.clear()
                self._listed_size = 0
            known = self._listed[done] = (*(before or ()), *reversed(found))
            self._listed_size += len(known) + 1
        return known


def _quoted(content: bytes) -> bytes:
    return json.dumps(content.decode("utf-8", "surrogatepass")).encode()


def goes_on(place: Place, content: bytes) -> bool:
    """Whether an escape may write what comes next in a string of which the beginning has been read."""
    rest = content[len(place.text) - 1 :]
    if len(place.escape) < _ESCAPE:
        return bool(rest)
    units = rest.decode("utf-8", "surrogatepass")[:1].encode("utf-16-be", "surrogatepass")
    written = b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))
    return written.startswith(place.escape.lower())


def _escaped(escape: bytes) -> bytes | None:
    """The character that an escape writes, as UTF-8; ``None`` if it is not complete."""
    if len(escape) == _ESCAPE:
        complete = escape[1] != ord("u")
    elif len(escape) == _ONE_UNIT:
        complete = not 0xD800 <= int(escape[2:], 16) < 0xDC00
    else:
        complete = len(escape) == _TWO_UNITS
    if not complete:
        return None
    character: str = json.loads(b'"' + escape + b'"')
    return character.encode("utf-8", "surrogatepass")


def number_of(text: bytes) -> tuple[bool, bytes, int | bytes]:
    """Whether a number is negative, its digits without zeros at both ends, and the power of ten of the last of them."""
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.lstrip(b"-").partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    kept = digits.rstrip(b"0")
    if not kept:
        return False, b"", 0
    negative = text.startswith(b"-")
    if len(exponent) > _MOST_DIGITS:
        return negative, kept, exponent
    return negative, kept, int(exponent or b"0") - len(fraction) + len(digits) - len(kept)
