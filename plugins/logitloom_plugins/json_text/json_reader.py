"""JSON texts that are being written, read piece by piece.

Streams of ``json`` use the reader for whole texts; streams of ``tool_call`` use it for the sections that are JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from logitloom.errors import GenerationError
from logitloom.generation import Partial

__all__ = ["JsonReader"]

_CHARACTERS: Final = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(r"[-+0-9.eE]+")
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HEX: Final = re.compile("[0-9a-fA-F]{0,4}")
_LITERALS: Final[dict[str, Any]] = {"t": True, "f": False, "n": None}
_SPELLED: Final = {"t": "true", "f": "false", "n": "null"}
_NOTHING: Final = object()


class _Open:
    """An array or object that is being written.

    ``key`` is the name of the member that is being written; ``_NOTHING`` between members.
    """

    __slots__ = ("container", "key")

    def __init__(self, container: Any) -> None:
        self.container, self.key = container, _NOTHING

    def snapshot(self, inner: Any) -> Any:
        copy = self.container.copy()
        if inner is not _NOTHING:
            self._put(copy, inner)
        return copy

    def put(self, value: Any) -> None:
        self._put(self.container, value)
        self.key = _NOTHING

    def _put(self, container: Any, value: Any) -> None:
        if isinstance(container, list):
            container.append(value)
        else:
            container[self.key] = value


class JsonReader:
    """Reads a JSON text while it is written.

    A part that is complete is the same object in all later values; parts that are open are copies, which stay as they
    are when the text goes on.

    Example:
        >>> reader = JsonReader()
        >>> reader.add('{"name": "Ad').value, reader.add('a", "age": 3')
        ({'name': 'Ad'}, Partial(value={'name': 'Ada'}, path=('age',), completed=(('name',),), complete=False))
        >>> reader.add("6}")
        Partial(value={'name': 'Ada', 'age': 36}, path=None, completed=(('age',), ()), complete=True)

    References:
        T. Bray (ed.), "The JavaScript Object Notation (JSON) Data Interchange Format", RFC 8259, 2017.
    """

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._string: list[str] | None = None
        self._is_key = False
        #: What may come: "value", "value]" (or the end of an array), "key", "key}", ":", ",", "end".
        self._next = "value"
        self._rest, self._read = "", 0
        self._begun = False
        self._value: Any = None
        self._completed: list[tuple[str | int, ...]] = []

    def add(self, text: str) -> Partial:
        """The value after a further piece of the text.

        Raises:
            GenerationError: if the text is no prefix of a JSON text; names the character.
        """
        text = self._rest + text
        offset = self._consume(text)
        self._rest, self._read = text[offset:], self._read + offset
        return self._partial()

    def end(self) -> Partial:
        """The value after the end of the text, which completes a number that stands alone.

        Raises:
            GenerationError: if the text ends in a number that is none.
        """
        if not self._stack and _NUMBER.fullmatch(self._rest):
            self._done(self._number(self._rest, 0, self._rest))
            self._rest = ""
        return self._partial()

    def _partial(self) -> Partial:
        completed, self._completed = tuple(self._completed), []
        if self._next == "end":
            return Partial(self._value, None, completed, True)
        inner: Any = _NOTHING
        if self._string is not None and not self._is_key:
            inner = "".join(self._string)
        for one in reversed(self._stack):
            inner = one.snapshot(inner)
        path = self._path() if self._begun else None
        return Partial(None if inner is _NOTHING else inner, path, completed)

    def _path(self) -> tuple[str | int, ...]:
        return tuple([self._step(one) for one in self._stack if one.key is not _NOTHING])

    def _step(self, one: _Open) -> str | int:
        key: Any = len(one.container) if isinstance(one.container, list) else one.key
        return key  # type: ignore[no-any-return]

    def _done(self, value: Any) -> None:
        """A value is complete."""
        self._completed.append(self._path())
        if self._stack:
            self._stack[-1].put(value)
            self._next = ","
        else:
            self._value, self._next = value, "end"

    # --- the text ---------------------------------------------------------------------------------------------------

    def _consume(self, text: str) -> int:
        """Read as much of a text as is certain; how much."""
        offset = 0
        while offset < len(text):
            after = self._in_string(text, offset) if self._string is not None else self._between(text, offset)
            if after == offset:
                break
            offset = after
        return offset

    def _in_string(self, text: str, offset: int) -> int:
        assert self._string is not None
        found = _CHARACTERS.match(text, offset)
        assert found is not None
        if found.end() > offset:
            self._string.append(found.group())
            return found.end()
        if text[offset] == '"':
            value, self._string = "".join(self._string), None
            if self._is_key:
                self._stack[-1].key, self._next = value, ":"
            else:
                self._done(value)
            return offset + 1
        if text[offset] != "\\":
            raise self._error(text, offset)
        return self._escape(text, offset)

    def _escape(self, text: str, offset: int) -> int:
        assert self._string is not None
        if offset + 1 == len(text):
            return offset
        kind = text[offset + 1]
        if kind in _ESCAPES:
            self._string.append(_ESCAPES[kind])
            return offset + 2
        unit = self._unit(text, offset)
        if unit is None:
            return offset
        after = offset + 6
        follows = text[after : after + 2]
        if 0xD800 <= unit < 0xDC00 and "\\u".startswith(follows):
            # The second half of a pair may follow.
            low = self._unit(text, after) if len(follows) == 2 else None
            if low is None:
                return offset
            if 0xDC00 <= low < 0xE000:
                unit, after = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), after + 6
        self._string.append(chr(unit))
        return after

    def _unit(self, text: str, offset: int) -> int | None:
        """The number of an escape with four digits; ``None`` if digits are still missing."""
        found = _HEX.match(text, offset + 2) if text[offset + 1] == "u" else None
        if found is None or (len(found.group()) < 4 and found.end() < len(text)):
            raise self._error(text, offset)
        return int(found.group(), 16) if len(found.group()) == 4 else None

    def _between(self, text: str, offset: int) -> int:
        blank = _BLANK.match(text, offset)
        assert blank is not None
        if blank.end() > offset:
            return blank.end()
        byte, awaited = text[offset], self._next
        if awaited in ("value", "value]"):
            if byte == "]" and awaited == "value]":
                return self._close(offset)
            return self._begin(text, offset)
        if byte == '"' and awaited in ("key", "key}"):
            self._string, self._is_key = [], True
            return offset + 1
        if byte == ":" and awaited == ":":
            self._next = "value"
            return offset + 1
        if awaited == "," and byte == ",":
            is_array = isinstance(self._stack[-1].container, list)
            self._next = "value" if is_array else "key"
            self._stack[-1].key = None if is_array else _NOTHING
            return offset + 1
        if byte == "}" and (awaited == "key}" or (awaited == "," and isinstance(self._stack[-1].container, dict))):
            return self._close(offset)
        if byte == "]" and awaited == "," and isinstance(self._stack[-1].container, list):
            return self._close(offset)
        raise self._error(text, offset)

    def _close(self, offset: int) -> int:
        self._done(self._stack.pop().container)
        return offset + 1

    def _begin(self, text: str, offset: int) -> int:
        """A value begins."""
        byte = text[offset]
        self._begun = True
        if self._next == "value]":
            self._stack[-1].key = None
            self._next = "value"
        if byte == '"':
            self._string, self._is_key = [], False
            return offset + 1
        if byte in "[{":
            self._stack.append(_Open([] if byte == "[" else {}))
            self._next = "value]" if byte == "[" else "key}"
            return offset + 1
        if byte in _SPELLED:
            word = _SPELLED[byte]
            if text.startswith(word, offset):
                self._done(_LITERALS[byte])
                return offset + len(word)
            if word.startswith(text[offset:]):
                return offset
        number = _NUMBER.match(text, offset) if byte in "-0123456789" else None
        if number is None:
            raise self._error(text, offset)
        if number.end() == len(text):
            return offset
        self._done(self._number(text, offset, number.group()))
        return number.end()

    def _number(self, text: str, offset: int, digits: str) -> Any:
        try:
            return json.loads(digits)
        except json.JSONDecodeError:
            raise self._error(text, offset) from None
        except ValueError:  # Python reads integers of so many digits only as floats
            return float(digits)

    def _error(self, text: str, offset: int) -> GenerationError:
        return GenerationError(
            f"The text is no JSON: {text[offset : offset + 20]!r} at character {self._read + offset} cannot stand "
            f"there. Read texts that a constraint such as 'json' has kept to JSON."
        )
