"""The sections of a text with tool calls in one format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logitloom_plugins.combinators import Exit, Inner, Section
from logitloom_plugins.tool_formats.call_reader import CallMeaning, Content
from logitloom_plugins.tool_formats.parameters import parameters_of
from logitloom_plugins.tool_formats.tool_format import ToolFormat
from logitloom_plugins.tool_formats.tools import Choice, Tool, call_schema

__all__ = ["call_sections"]

#: Strings that may come next, with the number of the section that each begins.
_Next = list[tuple[str, int]]


def call_sections(
    form: ToolFormat, choice: Choice, *, parallel: bool, reasoning: str | None, style: Mapping[str, Any], owner: str
) -> tuple[Sequence[Section], CallMeaning]:
    """The sections of a text in which tools are called, and what they mean.

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
        made.sections.append(Section(exits=(Exit(reasoning, 1),), may_end=not choice.must))
    made.text(must=choice.must, may=choice.may)
    return made.sections, made.meaning


class _CallSections:
    def __init__(
        self, form: ToolFormat, tools: Sequence[Tool], parallel: bool, style: Mapping[str, Any], owner: str
    ) -> None:
        self.form, self.tools, self.parallel, self.style, self.owner = form, tools, parallel, style, owner
        self.sections: list[Section] = []
        self.meaning = CallMeaning(form.name_key, form.arguments_key)

    def text(self, *, must: bool, may: bool) -> None:
        """Append the free text and all that follows it."""
        form, first = self.form, self._reserve()
        trigger = form.first_trigger
        if not may:
            self.sections[first] = Section(self._inner([("bad_words", {"phrases": (trigger,)})] if trigger else []))
            return
        self.after, self.again = self._reserve(), self._reserve()
        self.meaning.after = self.after
        after_call = self._after_call()
        if form.by_name:
            by_tool = {tool.name: self._named(tool, after_call) for tool in self.tools}
            named = [pair for pairs in by_tool.values() for pair in pairs]
            self.meaning.tools = {string: name for name, pairs in by_tool.items() for string, _ in pairs}
            self.sections[self.again] = self._forced(named)
        else:
            named, value = [], self.again
            first_byte = "[" if form.style == "array" else "{"
            if form.blank:
                value = self._reserve()
                inner = self._inner([("regex", {"pattern": " ?"})])
                self.sections[self.again] = Section(inner, exits=(Exit(first_byte, value),), may_end=False)
            self.sections[value] = self._json(self.tools, after_call, first_byte if form.blank else "", value)
        exits = tuple(Exit(string, section, form.at_start and not must) for string, section in self._begins(named))
        if form.plain:
            plain = self._reserve()
            self.sections[plain] = self._json(self.tools, after_call, form.plain, plain)
            exits += (Exit(form.plain, plain, at_start=True),)
        self.sections[first] = Section(exits=exits, budget=0 if must else None)
        # After a call: more of them, or the end.
        more = self.parallel and form.end and not form.close
        self.sections[self.after] = Section(exits=exits) if more else Section(ends=True)

    def _begins(self, named: _Next) -> _Next:
        """The strings in free text that begin a call. What follows a trigger is forced."""
        form = self.form
        trigger = form.first_trigger
        if not trigger:
            return named
        forced = (form.open + form.head)[len(trigger) :]
        if not forced:
            return [(trigger, self.again)]
        between = self._reserve()
        self.sections[between] = self._forced([(forced, self.again)])
        return [(trigger, between)]

    def _after_call(self) -> _Next:
        """What may come after a call; nothing if the text ends with it."""
        form = self.form
        more = form.separator + ("" if form.plain else form.head)
        next_call: _Next = [(more, self.again)] if self.parallel and more and form.style != "array" else []
        if form.close:
            return self._joined(form.end, [(form.close, self.after), *next_call])
        if form.end:
            return [(form.end, self.after)]
        return next_call

    def _named(self, tool: Tool, after: _Next) -> _Next:
        """The name of a tool, and what follows it up to the first value."""
        form = self.form
        if form.style == "parameters":
            entries = self._parameters(tool, after)
        else:
            value = self._reserve()
            self.sections[value] = self._json([tool], after, "", value)
            entries = [("", value)]
        before, numbered, rest = form.tail.partition("{index}")
        if numbered:
            number = self._reserve()
            inner = self._inner([("regex", {"pattern": "0|[1-9][0-9]{0,3}"})])
            self.sections[number] = Section(inner, exits=self._exits(self._joined(rest, entries)), may_end=False)
            entries = [("", number)]
        return self._joined(tool.name + before, entries)

    def _parameters(self, tool: Tool, after: _Next) -> _Next:
        """The parameters of a tool in their order, those that are not required left out or not."""
        form = self.form
        parameters = parameters_of(tool, form, self.style)
        values = [self._reserve() for _ in parameters]

        def following(i: int, separator: str) -> _Next:
            pairs: _Next = []
            for j in range(i, len(parameters)):
                pairs.append((separator + parameters[j].begin, values[j]))
                if parameters[j].required:
                    return pairs
            return [*pairs, *after]

        for i, parameter in enumerate(parameters):
            pairs = self._joined(parameter.end, following(i + 1, form.parameter_separator))
            self.sections[values[i]] = Section(self._inner(parameter.inner), exits=self._exits(pairs), may_end=False)
            self.meaning.contents[values[i]] = parameter.content
        return following(0, "")

    def _json(self, tools: Sequence[Tool], after: _Next, written: str, number: int) -> Section:
        """A JSON value: the call or calls, or the arguments of one."""
        kind = "arguments" if self.form.by_name else "calls" if self.form.style == "array" else "call"
        self.meaning.contents[number] = Content(kind, written=written)
        options = {**self.style, "schema": call_schema(tools, self.form, parallel=self.parallel)}
        inner = Inner(("json", options), self.owner, written=written)
        return Section(inner, exits=self._exits(after), may_end=not (self.form.end or self.form.close))

    def _joined(self, prefix: str, pairs: _Next) -> _Next:
        """A string and what may come after it. What may come is a section of its own if there are several strings."""
        if len(pairs) == 1 or not prefix:
            return [(prefix + string, section) for string, section in pairs]
        between = self._reserve()
        self.sections[between] = self._forced(pairs)
        return [(prefix, between)]

    def _forced(self, pairs: _Next) -> Section:
        return Section(exits=self._exits(pairs), budget=0)

    def _exits(self, pairs: _Next) -> tuple[Exit, ...]:
        return tuple(Exit(string, section) for string, section in pairs)

    def _inner(self, given: list[Any]) -> Inner:
        return Inner(given, self.owner)

    def _reserve(self) -> int:
        self.sections.append(Section())  # replaced when what it holds is known
        return len(self.sections) - 1
