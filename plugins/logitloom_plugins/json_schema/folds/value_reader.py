"""Reading the values of a text byte by byte, where items of an array must be different.

Only texts that a machine allows are read, so the reader does not check their syntax again. A value that has ended is
known by its *canonical text*, which is the same for all texts of equal values: ``1.0`` and ``1`` are ``1e0``.

References:
    JSON Schema 2020-12, Core, section 4.2.2 "Instance Equality".
"""

from __future__ import annotations

import json
import re
from bisect import insort
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.values.numbers import number_of

__all__ = [
    "BACKSLASH",
    "BLANKS",
    "COMMA",
    "NUMBER",
    "OUTSIDE",
    "QUOTE",
    "Container",
    "Entry",
    "ItemPosition",
    "ItemReader",
    "Recurring",
    "characters_of",
    "goes_on",
]

QUOTE, BACKSLASH, COMMA, _COLON = b'"\\,:'
BLANKS: Final = b" \n\t\r"
#: The characters of numbers.
NUMBER: Final = b"0123456789-+.eE"
_LITERALS: Final = (b"null", b"false", b"true")
#: The bytes of an escape with a letter, of an escape with digits, and of two escapes that write a pair of surrogates.
_ESCAPE, _ONE_UNIT, _TWO_UNITS = 2, 6, 12
#: The most items and members that are remembered as tuples.
_MOST_LISTED: Final = 1 << 18

#: The complete escape of one character.
_COMPLETE: Final = re.compile(rb"\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u]")


#: An entry of an array is the canonical text of an item. An entry of an object is a pair of a name and the canonical
#: text of its value. The type depends on the kind of the container, so ``Any``.
Entry = Any


class Container(NamedTuple):
    """An open array or object.

    Attributes:
        kind: ``array``, ``object``, or ``distinct`` for an array whose items must all be different.
        done: the items so far, or the members as pairs of a name and a value; ``None`` if there are none.
        name: of a member whose value has not ended.
        candidates: the values that the container can still become so that an item around it equals an earlier item.
    """

    kind: str
    done: Linked[Entry] | None = None
    name: bytes | None = None
    candidates: frozenset[bytes] = frozenset()


class Recurring(NamedTuple):
    """The values with which an earlier item can recur, by type.

    Attributes:
        strings: the characters of strings as UTF-8, in ascending order.
        numbers: how many numbers.
        literals, arrays, objects: canonical texts.
    """

    strings: list[bytes]
    numbers: int
    literals: frozenset[bytes]
    arrays: frozenset[bytes]
    objects: frozenset[bytes]

    @property
    def some(self) -> bool:
        """Whether there is any."""
        return bool(self.strings or self.numbers or self.literals or self.arrays or self.objects)

    @property
    def size(self) -> int:
        """About how much memory they take."""
        return len(self.strings) + len(self.arrays) + len(self.objects) + 1


class ItemPosition(NamedTuple):
    """How far the values of a text have been read, within arrays of different items.

    Attributes:
        frame: the open arrays and objects, the innermost last; ``None`` outside of such arrays.
        phase: what may come next: ``open`` (a first item or member, or the end), ``value``, ``name``, ``colon``,
            ``next`` (a comma or the end).
        text: what has been read of a string (its quote, and characters as UTF-8), a number or a literal.
        escape: the part of an escape in the string that has been read.
    """

    frame: Linked[Container] | None
    phase: str = "open"
    text: bytes = b""
    escape: bytes = b""


#: The position outside of arrays of different items, where no value is remembered.
OUTSIDE: Final = ItemPosition(None)


class ItemReader:
    """The values that texts have written.

    Attributes:
        values: by canonical text the type and the content of a value. The content is the characters of a string as
            UTF-8, the items of an array, or the members of an object.
        digits: the most digits after the point of any number that was read.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, tuple[str, Entry]] = {}
        self.digits = 0
        #: By name the values of members, and by the place and the canonical text of an item or member the arrays and
        #: objects that have it. The place of an item is its index; the place of a member is its name.
        self._members: dict[bytes, dict[bytes, bytes]] = {}
        self._having: dict[tuple[bytes | int, bytes], set[bytes]] = {}
        self._listed: dict[Linked[Entry], tuple[Entry, ...]] = {}
        self._listed_size = 0
        #: Results of :meth:`recurring`: by the items of an outermost array, or by another container.
        self._recurring: dict[Linked[Entry] | Container | None, Recurring] = {}
        self._recurring_size = 0

    def begin(self) -> ItemPosition:
        """The position after the bracket that begins an outermost array."""
        return ItemPosition(Linked(Container("distinct"), None))

    def learn(self, position: ItemPosition) -> None:
        """Read the values that another reader has read before a position."""
        frame = position.frame
        while frame is not None:
            kind, done, *_ = frame.entry
            for entry in self.listed(done):
                text = entry[1] if kind == "object" else entry
                reached: ItemPosition | None = ItemPosition(Linked(Container("array"), None))
                for byte in text + b"," if text not in self.values else b"":
                    assert reached is not None
                    reached = self.step(reached, byte, False)
            frame = frame.before

    def step(self, position: ItemPosition, byte: int, distinct: bool) -> ItemPosition | None:
        """The position after one more byte; ``None`` if a name, or an item that must be different, comes twice.

        Args:
            position: within an array of different items.
            byte: the byte.
            distinct: whether the byte begins another array of different items.
        """
        frame, phase, text, _ = position
        assert frame is not None
        if text:
            if text[0] == QUOTE:
                return self._in_string(position, byte)
            if text[0] not in NUMBER:
                text += bytes([byte])
                if text in _LITERALS:
                    return self._ended(frame, text, "literal", text)
                return ItemPosition(frame, phase, text)
            if byte in NUMBER:
                return ItemPosition(frame, phase, text + bytes([byte]))
            after = self._number_ended(frame, text)
            if after is None or after.frame is None:
                return after
            frame, phase = after.frame, after.phase
        if byte in BLANKS:
            return ItemPosition(frame, phase)
        is_object = frame.entry.kind == "object"
        if byte == COMMA:
            return ItemPosition(frame, "name" if is_object else "value")
        if byte == _COLON:
            return ItemPosition(frame, "value")
        if byte in b"]}":
            return self._closed(frame)
        if byte in b"[{":
            recurring = self.recurring(frame.entry)
            kind, candidates = ("object", recurring.objects) if byte == ord("{") else ("array", recurring.arrays)
            return ItemPosition(Linked(Container("distinct" if distinct else kind, None, None, candidates), frame))
        return ItemPosition(frame, "name" if is_object and phase == "open" else phase, bytes([byte]))

    def _in_string(self, position: ItemPosition, byte: int) -> ItemPosition | None:
        frame, phase, text, escape = position
        assert frame is not None
        if escape:
            escape += bytes([byte])
            character = _escaped(escape)
            if character is None:
                return ItemPosition(frame, phase, text, escape)
            return ItemPosition(frame, phase, text + character)
        if byte == BACKSLASH:
            return ItemPosition(frame, phase, text, bytes([byte]))
        if byte != QUOTE:
            return ItemPosition(frame, phase, text + bytes([byte]))
        if phase != "name":
            return self._ended(frame, _quoted(text[1:]), "string", text[1:])
        name = text[1:]
        # Readers of JSON keep only the last of several members with one name, so a second one would change the value.
        if any(name == other for other, _ in self.listed(frame.entry.done)):
            return None
        left = frame.entry.candidates.intersection(self._members.get(name, ()))
        return ItemPosition(Linked(frame.entry._replace(name=name, candidates=left), frame.before), "colon")

    def _number_ended(self, frame: Linked[Container], text: bytes) -> ItemPosition | None:
        negative, digits, exponent = number_of(text)
        if not isinstance(exponent, bytes):
            self.digits = max(self.digits, -exponent)
            exponent = b"%d" % exponent
        return self._ended(frame, b"-" * negative + (digits or b"0") + b"e" + exponent, "number", None)

    def _ended(self, frame: Linked[Container], text: bytes, kind: str, content: Entry) -> ItemPosition | None:
        """The position after a value with some canonical text."""
        if text not in self.values:
            self.values[text] = kind, content
            self._note(text, kind, content)
        container, done, name, candidates = frame.entry
        if container == "distinct" and text in self.listed(done):
            return None
        following: Linked[Entry] = Linked((name, text) if container == "object" else text, done)
        place = following.length - 1 if name is None else name
        left = candidates.intersection(self._having.get((place, text), ()))
        return ItemPosition(Linked(Container(container, following, None, left), frame.before), "next")

    def _note(self, text: bytes, kind: str, content: Entry) -> None:
        """Note which members or items a new value has."""
        if kind == "object":
            for name, value in content:
                self._members.setdefault(name, {})[text] = value
                self._having.setdefault((name, value), set()).add(text)
        elif kind == "array":
            for index, item in enumerate(content):
                self._having.setdefault((index, item), set()).add(text)

    def names(self, candidates: frozenset[bytes]) -> Iterable[bytes]:
        """The names of members that some objects have."""
        if len(candidates) < len(self._members):
            return [name for whole in candidates for name, _ in self.values[whole][1]]
        return [name for name, having in self._members.items() if not candidates.isdisjoint(having)]

    def recurring(self, container: Container) -> Recurring:
        """The values of the next item, or of the member whose name was read, with which an earlier item can recur."""
        kind, done, name, candidates = container
        is_plain = kind == "distinct" and not candidates
        key: Linked[Entry] | Container | None = done if is_plain else container
        known = self._recurring.get(key)
        if known is None:
            before = self._recurring.get(done.before) if is_plain and done is not None else None
            if before is not None and done is not None:
                known = self._and_another(before, done.entry)
            elif is_plain:
                known = self._by_type(set(self.listed(done)))
            else:
                known = self._by_type(self._next_values(kind, done, name, candidates))
            self._recurring[key] = known
            self._recurring_size += known.size
            while self._recurring_size > _MOST_LISTED and len(self._recurring) > 1:
                # The oldest entry is dropped first, because the next entry is made from a recent one.
                self._recurring_size -= self._recurring.pop(next(iter(self._recurring))).size
        return known

    def _next_values(
        self, kind: str, done: Linked[Entry] | None, name: bytes | None, candidates: frozenset[bytes]
    ) -> set[bytes]:
        if name is not None:
            having = self._members.get(name, {})
            return {having[whole] for whole in candidates}
        wholes = [self.values[whole][1] for whole in candidates]
        count = 0 if done is None else done.length
        return {
            *[items[count] for items in wholes if len(items) > count],
            *(self.listed(done) if kind == "distinct" else ()),
        }

    def _by_type(self, texts: set[bytes]) -> Recurring:
        of_type: dict[str, list[bytes]] = {}
        for text in texts:
            of_type.setdefault(self.values[text][0], []).append(text)
        literals, arrays, objects = (frozenset(of_type.get(kind, ())) for kind in ("literal", "array", "object"))
        strings = sorted([self.values[text][1] for text in of_type.get("string", ())])
        return Recurring(strings, len(of_type.get("number", ())), literals, arrays, objects)

    def _and_another(self, before: Recurring, text: bytes) -> Recurring:
        """Recurring values after one more item with a canonical text, which is different from all earlier items."""
        kind, content = self.values[text]
        if kind == "number":
            return before._replace(numbers=before.numbers + 1)
        if kind == "string":
            strings = before.strings.copy()
            insort(strings, content)
            return before._replace(strings=strings)
        field = f"{kind}s"
        return before._replace(**{field: getattr(before, field) | {text}})

    def _closed(self, frame: Linked[Container]) -> ItemPosition | None:
        if frame.before is None:
            return OUTSIDE
        entries = self.listed(frame.entry.done)
        if frame.entry.kind == "object":
            text = b"{" + b",".join(sorted(_quoted(name) + b":" + value for name, value in entries)) + b"}"
            return self._ended(frame.before, text, "object", frozenset(entries))
        return self._ended(frame.before, b"[" + b",".join(entries) + b"]", "array", entries)

    def listed(self, done: Linked[Entry] | None) -> tuple[Entry, ...]:
        """Some items, or some members as pairs of a name and a value, as a tuple."""
        if done is None:
            return ()
        known = self._listed.get(done)
        if known is None:
            found: list[Entry] = []
            at: Linked[Entry] | None = done
            before = None
            while at is not None and before is None:
                found.append(at.entry)
                at = at.before
                before = self._listed.get(at) if at is not None else None
            if self._listed_size > _MOST_LISTED:
                self._listed.clear()
                self._listed_size = 0
            known = self._listed[done] = (*(before or ()), *reversed(found))
            self._listed_size += len(known) + 1
        return known


def _quoted(content: bytes) -> bytes:
    return json.dumps(content.decode("utf-8", "surrogatepass")).encode()


def goes_on(position: ItemPosition, content: bytes) -> bool:
    """Whether the escape that has been begun at a position can write the next character of a string.

    Args:
        position: a position inside a string whose beginning has been read.
        content: the characters of the whole string as UTF-8.
    """
    rest = content[len(position.text) - 1 :]
    if len(position.escape) < _ESCAPE:
        return bool(rest)
    units = rest.decode("utf-8", "surrogatepass")[:1].encode("utf-16-be", "surrogatepass")
    written = b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))
    return written.startswith(position.escape.lower())


def characters_of(written: bytes) -> bytes:
    """The characters, as UTF-8, of the beginning of a name, as it is written after its quote.

    An escape at the end that is not complete is left as it is.
    """
    return _COMPLETE.sub(lambda escape: _escaped(escape[0]) or b"", written) if b"\\" in written else written


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
