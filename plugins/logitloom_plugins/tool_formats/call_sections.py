"""The sections of a text with tool calls in one format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from logitloom.errors import OptionError
from logitloom_plugins.combinators import Exit, Section, SharedInners
from logitloom_plugins.tool_formats.call_reader import CallMeaning, Event, SectionContent
from logitloom_plugins.tool_formats.parameters import Way, check_array, mark_of, ways_of
from logitloom_plugins.tool_formats.tool_format import ToolFormat
from logitloom_plugins.tool_formats.tools import Property, Tool, ToolChoice, call_schema, members_of, property_schemas

__all__ = ["call_sections"]

#: Most sections of a text: each item of an array with ``minItems`` or ``maxItems`` takes sections of its own.
_MOST_SECTIONS: Final = 4096


def call_sections(
    form: ToolFormat, choice: ToolChoice, *, parallel: bool, reasoning: str | None, style: Mapping[str, Any], owner: str
) -> tuple[Sequence[Section], CallMeaning]:
    """The sections of a text in which tools are called, and the meaning of each section.

    Args:
        form: the format.
        choice: the tools, and whether there must be a call.
        parallel: whether there may be several calls.
        reasoning: a string before which no calls are looked for; ``None`` to look from the beginning.
        style: options of the processor ``json`` for values that are JSON.
        owner: name of the processor, for messages.

    Raises:
        LogitloomError: if the format cannot write a tool.
    """
    made = _CallSections(form, choice.tools, parallel and form.parallel, style, owner)
    if reasoning:
        made.define(made.reserve(), Section(may_end=not choice.must), [_Next(reasoning, 1)])
    made.text(must=choice.must, may=choice.may)
    return made.sections(), made.meaning


class _Next(NamedTuple):
    """A string that may come next, the number of the section that begins after the string, and the events that the
    string stands for.
    """

    string: str
    section: int
    events: tuple[Event, ...] = ()

    def behind(self, string: str, *events: Event) -> _Next:
        """The same section, but after ``string`` and then this entry's string."""
        return _Next(string + self.string, self.section, events + self.events)


@dataclass
class _GrowingSection:
    """A section whose exits are not made yet.

    Attributes:
        section: the section without its exits.
        next: the strings that may come after the section.
        first: the strings that may come at the section's start only.
    """

    section: Section
    next: list[_Next]
    first: list[_Next]


class _CallSections:
    def __init__(
        self, form: ToolFormat, tools: Sequence[Tool], parallel: bool, style: Mapping[str, Any], owner: str
    ) -> None:
        self.form, self.tools, self.parallel, self.style, self.owner = form, tools, parallel, style, owner
        self.opened: list[_GrowingSection] = []
        self._inners = SharedInners(owner)
        self.meaning = CallMeaning(form.name_key, form.arguments_key)

    def sections(self) -> list[Section]:
        """All sections, by their numbers."""
        found: list[Section] = []
        for number, opened in enumerate(self.opened):  # grows on the way
            following, first = opened.next, opened.first
            if opened.section.budget != 0 and _contain(following + first):
                following, first = self._split(following), self._split(first)
            exits = []
            for exit, (string, section, events) in enumerate(following + first):
                exits.append(Exit(string, section, exit >= len(following)))
                if events:
                    self.meaning.events[number, exit] = events
            found.append(replace(opened.section, exits=tuple(exits)))
        return found

    # --- the text ---------------------------------------------------------------------------------------------------

    def text(self, *, must: bool, may: bool) -> None:
        """Append the section of the free text, and all sections that follow it."""
        form, first = self.form, self.reserve()
        if not may:
            triggers = tuple(way.first_trigger for way in form.ways if way.first_trigger)
            self.define(first, Section(self._inners.of([("bad_words", {"phrases": triggers})] if triggers else [])), [])
            return
        self.after = self.meaning.after = self.reserve()
        anywhere, at_start = list[_Next](), list[_Next]()
        for way in form.ways[:1] if must else form.ways:
            self.form, self.again = way, self.reserve()
            begins = self._begins(self._calls(self._after_call()))
            (at_start if self.form.at_start and not must else anywhere).extend(begins)
        self.form = form
        if form.plain:
            at_start.append(_Next(form.plain, self.reserve()))
            self._json(at_start[-1].section, self.tools, self._after_call(), form.plain)
        self.define(first, Section(budget=0 if must else None), anywhere, at_start)
        # After a call: more of them, or the end. An array has all calls.
        if self.parallel and form.end and not form.close and form.style != "array":
            self.define(self.after, Section(), anywhere, at_start)
        else:
            self.define(self.after, Section(ends=True), [])

    def _calls(self, after: list[_Next]) -> list[_Next]:
        """Make the section ``again``, a call behind the string that begins each; returns the names of the tools."""
        form = self.form
        if form.by_name:
            named = [pair for tool in self.tools for pair in self._named(tool, after)]
            if form.head_after_index is None:
                self._forced(self.again, named)
            else:
                self._number(self.again, self._joined(form.head_after_index, named))
            return named
        value, first_byte = self.again, "[" if form.style == "array" else "{"
        if form.blank:
            value = self.reserve()
            inner = self._inners.of([("regex", {"pattern": " ?"})])
            self.define(self.again, Section(inner, may_end=False), [_Next(first_byte, value)])
        self._json(value, self.tools, after, first_byte if form.blank else "")
        return []

    def _begins(self, named: list[_Next]) -> list[_Next]:
        """The strings in free text that begin a call. The text after a trigger is forced."""
        form = self.form
        trigger = form.first_trigger
        if not trigger:
            return named
        forced = (form.open + form.head)[len(trigger) :]
        return [_Next(trigger, self._forced(self.reserve(), [_Next(forced, self.again)]) if forced else self.again)]

    def _after_call(self) -> list[_Next]:
        """The strings that may come after a call; none if the text ends with the call."""
        form = self.form
        more = form.separator + ("" if form.plain else form.head)
        next_call = [_Next(more, self.again)] if self.parallel and more and form.style != "array" else []
        if form.close:
            return self._joined(form.end, [_Next(form.close, self.after), *next_call])
        if form.end:
            return [_Next(form.end, self.after)]
        return next_call

    def _named(self, tool: Tool, after: list[_Next]) -> list[_Next]:
        """The name of a tool, and the text after the name up to the first value."""
        form = self.form
        form.check_name(tool.name, "The name of a tool", form.names)
        if form.style == "parameters":
            of_tool = f"of the tool {tool.name!r}"
            entries = self._members(property_schemas(tool), after, of_tool, ())
        else:
            value = self.reserve()
            self._json(value, [tool], after, "")
            entries = [_Next("", value)]
        before, numbered, rest = form.tail.partition("{index}")
        if numbered:
            entries = [_Next("", self._number(self.reserve(), self._joined(rest, entries)))]
        return [pair.behind("", Event("call", tool.name)) for pair in self._joined(tool.name + before, entries)]

    def _number(self, number: int, after: list[_Next]) -> int:
        inner = self._inners.of([("regex", {"pattern": self.form.index})])
        return self.define(number, Section(inner, may_end=False), after)

    def _json(self, number: int, tools: Sequence[Tool], after: list[_Next], written: str) -> None:
        """A JSON value: the call or calls, or the arguments of one."""
        kind = "arguments" if self.form.by_name else "calls" if self.form.style == "array" else "call"
        self.meaning.contents[number] = SectionContent(kind, written=written)
        options = {**self.style, "schema": call_schema(tools, self.form, parallel=self.parallel)}
        inner = self._inners.of(("json", options), written=written)
        self.define(number, Section(inner, may_end=not (self.form.end or self.form.close)), after)

    # --- parameters one by one --------------------------------------------------------------------------------------

    def _members(
        self, members: Mapping[str, Property], after: list[_Next], of: str, around: tuple[Any, ...]
    ) -> list[_Next]:
        """Parameters in their order; each optional parameter may be left out.

        Args:
            members: the parameters.
            after: the strings that may come after the parameters.
            of: the owner of the parameters, for messages.
            around: the schemas of the objects and arrays around the parameters.
        """
        form = self.form
        names = sorted(members, key=str.lower) if form.sorted else list(members)
        starts: list[list[_Next]] = [[] for _ in names]

        def following(i: int, separator: str) -> list[_Next]:
            pairs: list[_Next] = []
            for j in range(i, len(names)):
                pairs += [pair.behind(separator) for pair in starts[j]]
                if members[names[j]].required:
                    return pairs
            return [*pairs, *after]

        for i in reversed(range(len(names))):
            subject = f"The parameter {names[i]!r} {of}"
            form.check_name(names[i], f"The name of a parameter {of}", form.keys)
            rest = following(i + 1, form.parameter_separator)
            starts[i] = self._value(members[names[i]], names[i], rest, subject, around)
        return following(0, "")

    def _value(
        self, value: Property, key: str | None, after: list[_Next], subject: str, around: tuple[Any, ...]
    ) -> list[_Next]:
        """A parameter or an item, with the strings before and after its value."""
        form = self.form
        begin, end = (form.item, form.item_end) if key is None else (form.parameter, form.parameter_end)
        end = end.replace("{key}", key or "")
        pairs: list[_Next] = []
        entered: tuple[str, _GrowingSection] | None = None
        for way in reversed(ways_of(value, form, self.style, key=key, subject=subject)):
            raw = way.type == "string" and way.kind == "text"
            mark = begin.replace("{type}", mark_of(form, way.type)).replace("{string}", str(raw).lower())
            mark = mark.replace("{key}", key or "")
            if way.of is not None:
                made = [
                    pair.behind(mark, Event(way.kind, key)) for pair in self._parts(way, end, after, subject, around)
                ]
            else:
                quote = form.quote if raw else ""
                number = self._text(way, self._joined(quote + end, after))
                made = [_Next(mark + quote, number)]
                if way.kind == "json":
                    entered = mark, self.opened[number]
            pairs = made + pairs
        if entered is None:
            return pairs
        # What begins like the JSON value and goes on otherwise comes at the start of the section of the JSON value.
        mark, opened = entered
        others = [pair for pair in pairs if pair.string.startswith(mark) and pair.string != mark]
        opened.first += [_Next(string[len(mark) :], section, events) for string, section, events in others]
        return [pair for pair in pairs if pair not in others]

    def _text(self, way: Way, after: list[_Next]) -> int:
        number = self.define(self.reserve(), Section(self._inners.of(way.inner), may_end=False), after)
        if way.content is not None:
            self.meaning.contents[number] = way.content
        return number

    def _parts(self, way: Way, end: str, after: list[_Next], subject: str, around: tuple[Any, ...]) -> list[_Next]:
        """The members of an object, or the items of an array, and the string that ends the object or array."""
        assert way.of is not None
        known = way.of.known
        if any(known is other for other in around):
            raise OptionError(
                f"{subject} has a schema that refers to itself, and how deep it goes is not known. This format of "
                f"'tool_call' cannot write it: use a format that writes JSON."
            )
        around = (*around, known)
        first, last = self.form.object if way.kind == "object" else self.form.array
        closed = [pair.behind("", Event("end")) for pair in self._joined(last + end, after)]
        if way.kind == "array":
            return [pair.behind(first) for pair in self._items(way.of, closed, subject, around)]
        inside = subject[0].lower() + subject[1:]
        members = members_of(way.of, f"The members of {inside}")
        if not members and known.get("additionalProperties", True) is not False:
            raise OptionError(
                f"{subject} is an object whose members the schema does not name, which this format of 'tool_call' "
                f"cannot write. Name them with 'properties'."
            )
        return [pair.behind(first) for pair in self._members(members, closed, f"in {inside}", around)]

    def _items(self, of: Property, closed: list[_Next], subject: str, around: tuple[Any, ...]) -> list[_Next]:
        """The items of an array, without the string that begins the array."""
        item, least, most = check_array(of, subject)
        subject, separator = f"An item of {subject[0].lower()}{subject[1:]}", self.form.parameter_separator
        if most == 0:
            return closed
        # Without a largest number of items, each further item is followed like the last required item.
        after = [] if most is None else closed
        starts = self._value(item, None, after, subject, around)
        if most is None:
            after += [*closed, *(pair.behind(separator) for pair in starts)]
        for count in reversed(range(1, max(least, 1) if most is None else most)):
            after = [*(closed if count >= least else []), *(pair.behind(separator) for pair in starts)]
            starts = self._value(item, None, after, subject, around)
        return [*(closed if least == 0 else []), *starts]

    # --- sections ---------------------------------------------------------------------------------------------------

    def _joined(self, prefix: str, pairs: list[_Next]) -> list[_Next]:
        """A string, followed by any one of several strings. Several following strings get a section of their own."""
        if not prefix:
            return pairs
        if len(pairs) == 1:
            return [pairs[0].behind(prefix)]
        return [_Next(prefix, self._forced(self.reserve(), pairs))]

    def _split(self, pairs: list[_Next]) -> list[_Next]:
        """The strings; if several begin with one character, that character alone: no string contains another."""
        rests: dict[str, list[_Next]] = {}
        for string, section, events in pairs:
            rests.setdefault(string[0], []).append(_Next(string[1:], section, events))
        found: list[_Next] = []
        for first, rest in rests.items():
            longer = [pair for pair in rest if pair.string]
            found += [pair.behind(first) for pair in rest if not pair.string]
            found += [_Next(first, self._forced(self.reserve(), longer))] if longer else []
        return found

    def _forced(self, number: int, pairs: list[_Next]) -> int:
        return self.define(number, Section(budget=0), pairs)

    def reserve(self) -> int:
        """The number of a new section."""
        if len(self.opened) == _MOST_SECTIONS:
            raise OptionError(
                f"The tools of {self.owner!r} need more than {_MOST_SECTIONS} sections in this format, which writes "
                f"arrays item by item. Lower 'maxItems' and 'minItems', or leave 'maxItems' out."
            )
        self.opened.append(_GrowingSection(Section(), [], []))
        return len(self.opened) - 1

    def define(self, number: int, section: Section, following: list[_Next], first: list[_Next] | None = None) -> int:
        """Say what a section is."""
        self.opened[number] = _GrowingSection(section, following, first or [])
        return number


def _contain(pairs: list[_Next]) -> bool:
    """Whether one of several strings contains another before its last character."""
    strings = {pair.string for pair in pairs}
    return any(one != other and one in other[:-1] for one in strings for other in strings)
