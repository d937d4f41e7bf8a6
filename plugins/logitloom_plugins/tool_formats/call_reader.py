"""The tool calls in an unfinished text so far, read from the sections of the text and their meaning."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from logitloom.errors import GenerationError
from logitloom.generation.partial_values import Partial, Path
from logitloom_plugins.combinators.section_automaton import CombinedAutomaton, SectionConfiguration
from logitloom_plugins.json_text.json_reader import JsonReader

__all__ = ["CallMeaning", "CallReader", "Event", "SectionContent"]


class SectionContent(NamedTuple):
    """The meaning of a section's text.

    Attributes:
        kind: ``call``: a JSON object with name and arguments; ``calls``: an array of these; ``arguments``: a JSON
            object; ``json``: a parameter as JSON; ``text``: a parameter as it is; ``listed``: a parameter that is one
            of ``texts``.
        key: the name of the parameter; ``None`` for the next item of an array.
        written: how the text begins before the section does.
        texts: for ``listed`` the value of each text.
    """

    kind: str
    key: str | None = ""
    written: str = ""
    texts: tuple[tuple[str, Any], ...] = ()


class Event(NamedTuple):
    """The meaning of a complete string.

    Attributes:
        kind: ``call``: a call of the tool ``key`` begins; ``array`` or ``object``: the parameter ``key`` begins, an
            array or an object; ``end``: the innermost call, array or object ends.
        key: a name; ``None`` for the next item of an array.
    """

    kind: str
    key: str | None = None


@dataclass
class CallMeaning:
    """The meaning of the sections of a text with calls.

    Attributes:
        contents: by the number of a section.
        events: by the number of a section and the number of a string that ends it, the events in their order.
        after: the section after a call; ``None`` if there may be no calls.
        name_key, arguments_key: as of :class:`~logitloom_plugins.tool_formats.tool_format.ToolFormat`.
    """

    name_key: str
    arguments_key: str
    contents: dict[int, SectionContent] = field(default_factory=dict)
    events: dict[tuple[int, int], tuple[Event, ...]] = field(default_factory=dict)
    after: int | None = None


class _EndedSection(NamedTuple):
    """A section that has ended: its number, the extent of its text, the string that ended it, and the next section."""

    section: int
    start: int
    end: int
    exit: int
    following: int


class _TextReading(NamedTuple):
    """One reading of the text.

    Attributes:
        configuration: the configuration of the automaton.
        past: the sections that have ended, as a linked list, the last one first.
        ended: the number of ended sections.
        start: the position at which the text of this section begins.
        end: the position at which the string that may end the section begins; -1 if no such string has begun.
    """

    configuration: SectionConfiguration
    past: Any
    ended: int
    start: int
    end: int


class CallReader:
    """Reads a text with calls while it is written.

    The value is the list of calls, each with ``name`` and ``arguments``.

    Args:
        automaton: the automaton over bytes of the text.
        meaning: the meaning of its sections.
    """

    def __init__(self, automaton: CombinedAutomaton, meaning: CallMeaning) -> None:
        self._automaton, self._meaning = automaton, meaning
        self._data = bytearray()
        self._readings = [_TextReading(configuration, None, 0, 0, -1) for configuration in automaton.start()]
        self._read = 0
        self._calls: list[dict[str, Any]] = []
        self._completed: list[Path] = []
        self._value: _Value | None = None
        self._named_calls = 0
        #: Where the arguments, arrays and objects are that are being written, from the outside in.
        self._open: list[Path] = []

    def add(self, text: str) -> Partial:
        """The calls after a further piece of the text.

        Raises:
            GenerationError: if the text is none that the automaton allows.
        """
        for byte in text.encode():
            self._step(byte)
        return self._partial()

    def end(self) -> Partial:
        """The calls after the end of the text."""
        last = next((one for one in self._readings if self._automaton.may_end(one.configuration)), None)
        if last is not None:
            end = len(self._data) if last.end < 0 else last.end
            closing = _EndedSection(last.configuration.section, last.start, end, -1, -1)
            self._readings = [last._replace(past=(last.past, closing), ended=last.ended + 1, start=end)]
        partial = self._partial()
        if last is None:
            return partial
        self._close()
        completed, self._completed = (*partial.completed, *self._completed, ()), []
        return Partial(list(self._calls), None, completed, True)

    # --- readings ---------------------------------------------------------------------------------------------------

    def _step(self, byte: int) -> None:
        at = len(self._data)
        self._data.append(byte)
        found: dict[SectionConfiguration, _TextReading] = {}
        for reading in self._readings:
            for after in self._after(reading, byte, at):
                found.setdefault(after.configuration, after)
        if not found:
            raise GenerationError(
                f"The text is none that 'tool_call' allows: {bytes(self._data[at - 20 : at + 1])!r} goes wrong at byte "
                f"{at}. Read texts that the constraint has kept to its format."
            )
        self._readings = list(found.values())

    def _after(self, reading: _TextReading, byte: int, at: int) -> Iterator[_TextReading]:
        automaton, configuration = self._automaton, reading.configuration
        inside = automaton.inside(configuration, byte)
        if inside is not None:
            yield reading._replace(configuration=inside)
        part = automaton.parts[configuration.section]
        for found, new in automaton.begun(configuration, byte):
            begun = reading.end if configuration.exit >= 0 else at
            if not new:
                yield reading._replace(configuration=found, end=begun)
                continue
            exit = configuration.exit
            if exit < 0:
                ends = [i for i, (text, _) in enumerate(part.exits) if self._data.endswith(text)]
                exit = max(ends, key=lambda i: len(part.exits[i][0]))
                begun = at + 1 - len(part.exits[exit][0])
            following = part.exits[exit][1]
            past = _EndedSection(configuration.section, reading.start, begun, exit, following)
            # The next text may be a string that ends a section only at the section's start.
            end = at + 1 if found.exit >= 0 else -1
            yield _TextReading(found, (reading.past, past), reading.ended + 1, at + 1, end)

    # --- the value --------------------------------------------------------------------------------------------------

    def _partial(self) -> Partial:
        # The common part of all readings is certain: the sections before this one, and the shortest text of this
        # section.
        depth = min(reading.ended for reading in self._readings)
        while len({id(_past(reading, depth)) for reading in self._readings}) > 1:
            depth -= 1
        past, parts = _past(self._readings[0], depth), []
        for _ in range(depth - self._read):
            past, part = past
            parts.append(part)
        self._read = depth
        for part in parts[::-1]:
            self._finish(part)
        calls, path = list(self._calls), self._path()
        section, start, end = min((self._now(reading, depth) for reading in self._readings), key=lambda now: now[2])
        content = self._meaning.contents.get(section)
        if content is not None:
            value = self._follow(content, start, end, final=False)
            calls, path = self._with(content, value)
        completed, self._completed = tuple(self._completed), []
        return Partial(calls, path, completed)

    def _now(self, reading: _TextReading, depth: int) -> tuple[int, int, int]:
        """The section at a given depth of a reading, and the extent of its text so far."""
        if reading.ended == depth:
            return reading.configuration.section, reading.start, reading.end if reading.end >= 0 else len(self._data)
        section, start, end, *_ = _past(reading, depth + 1)[1]
        return section, start, end

    def _path(self) -> Path:
        return self._open[-1] if self._open else ()

    def _finish(self, part: _EndedSection) -> None:
        """A section has ended."""
        content = self._meaning.contents.get(part.section)
        if content is not None and (part.end > part.start or content.kind == "text"):
            value = self._follow(content, part.start, part.end, final=True)
            if content.kind in _STRING:
                self._completed.append(self._at(content.key))
            self._calls = self._with(content, value)[0]
            if content.kind == "arguments":
                self._completed.append((len(self._calls) - 1,))
                self._open.clear()
        self._value = None
        for event in self._meaning.events.get((part.section, part.exit), ()):
            self._happen(event)
        if part.following == self._meaning.after:
            self._close()

    def _happen(self, event: Event) -> None:
        if event.kind == "call":
            self._close()
            self._calls = [*self._calls, {"name": event.key, "arguments": {}}]
            self._completed.append((len(self._calls) - 1, "name"))
            self._open = [(len(self._calls) - 1, "arguments")]
        elif event.kind == "end":
            self._completed.append(self._open.pop())
        else:
            path = self._at(event.key)
            self._calls = _placed(self._calls, path, [] if event.kind == "array" else {})
            self._open.append(path)

    def _at(self, key: str | None) -> Path:
        """Where a part of the innermost array or object is."""
        return (*self._path(), _count(self._calls, self._path()) if key is None else key)

    def _close(self) -> None:
        """The parameters of a call have ended."""
        if self._open:
            self._completed += [(len(self._calls) - 1, "arguments"), (len(self._calls) - 1,)]
        self._open.clear()

    def _follow(self, content: SectionContent, start: int, end: int, *, final: bool) -> Partial:
        if self._value is None:
            self._value = _Value(content, start)
        found = self._value.read(self._data, end, final=final)
        for path in found.completed:
            placed = self._placed(content, path)
            if placed and not self._meaning.name_key:
                self._tell_name(int(placed[0]))
            if placed:  # more calls may follow those of an array
                self._completed.append(placed)
        return found

    def _placed(self, content: SectionContent, path: Path) -> Path:
        """The path in the list of calls of a path in the value of a section."""
        if content.kind == "calls":
            first = len(self._calls)
            return (first + int(path[0]), *self._named(path[1:])) if path else ()
        if content.kind == "call":
            return (len(self._calls), *self._named(path))
        return (*(self._at(content.key) if content.kind in _PARAMETER else self._path()), *path)

    def _named(self, path: Path) -> Path:
        meaning = self._meaning
        if not meaning.name_key:
            return ("arguments", *path[1:]) if path else ()
        names = {meaning.name_key: "name", meaning.arguments_key: "arguments"}
        return (names.get(str(path[0]), path[0]), *path[1:]) if path else ()

    def _with(self, content: SectionContent, value: Partial) -> tuple[list[dict[str, Any]], Path]:
        """The calls with the value of the section that is being read."""
        begun = value.path is not None or value.complete
        if content.kind in ("call", "calls"):
            path = self._placed(content, value.path) if value.path is not None else ()
            objects = (value.value or []) if content.kind == "calls" else [value.value or {}] if begun else []
            calls = [*self._calls, *map(self._call, objects)]
            if calls and calls[-1] and not self._meaning.name_key:
                self._tell_name(len(calls) - 1)
            return calls, path
        if content.kind == "arguments":
            arguments = value.value if begun and value.value is not None else {}
            path = self._placed(content, value.path or ()) if not value.complete else (len(self._calls) - 1,)
            return [*self._calls[:-1], {**self._calls[-1], "arguments": arguments}], path
        location = self._at(content.key)
        path = (*location, *value.path) if value.path is not None else self._path()
        there = value.complete or value.value is not None
        return (_placed(self._calls, location, value.value) if there else self._calls), path

    def _tell_name(self, number: int) -> None:
        """Report the name of a call as complete as soon as it occurs, if names are the keys of the arguments."""
        if number >= self._named_calls:
            self._named_calls = number + 1
            self._completed.append((number, "name"))

    def _call(self, given: Mapping[str, Any]) -> dict[str, Any]:
        meaning = self._meaning
        if not meaning.name_key:
            return {"name": name, "arguments": given[name]} if (name := next(iter(given), "")) else {}
        names = {meaning.name_key: "name", meaning.arguments_key: "arguments"}
        return {names.get(key, key): part for key, part in given.items()}


_STRING: Final = ("text", "listed")
_PARAMETER: Final = (*_STRING, "json")


def _placed(whole: Any, path: Path, value: Any) -> Any:
    """A copy of a value in which one part is replaced, or appended."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(whole, list):
        part = whole[int(key)] if int(key) < len(whole) else None
        return [*whole[: int(key)], _placed(part, rest, value)]
    return {**whole, key: _placed(whole.get(key), rest, value)}


def _past(reading: _TextReading, depth: int) -> Any:
    """The linked list of the first sections of a reading, up to a given number."""
    past = reading.past
    for _ in range(reading.ended - depth):
        past = past[0]
    return past


def _count(whole: Any, path: Path) -> int:
    """The number of items of an array that is part of a value."""
    for key in path:
        whole = whole[key]
    return len(whole)


class _Value:
    """The value of the text of one section."""

    def __init__(self, content: SectionContent, start: int) -> None:
        self.content, self.fed = content, start
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text, self.reader = "", JsonReader()
        if content.kind not in _STRING:
            self.reader.add(content.written)

    def read(self, data: bytearray, end: int, *, final: bool) -> Partial:
        text = self.decoder.decode(bytes(data[self.fed : end]), final)
        self.fed = max(end, self.fed)
        if self.content.kind not in _STRING:
            found = self.reader.add(text)
            if final and not found.complete:
                last = self.reader.end()
                found = Partial(last.value, last.path, found.completed + last.completed, last.complete)
            return found
        self.text += text
        if self.content.kind == "text":
            return Partial(self.text, None if final else (), complete=final)
        value = dict(self.content.texts).get(self.text) if final else None
        return Partial(value, None if final else (), complete=final)
