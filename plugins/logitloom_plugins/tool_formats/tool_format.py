"""One format of tool calls: a row of data that says how a model writes calls."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from logitloom.errors import OptionError, UnknownPlugin
from logitloom.host.options import check
from logitloom.host.registry import available, load_plugin

__all__ = ["NESTED", "STYLES", "ToolFormat", "find_format", "tool_format"]

#: How the arguments of a call are written.
STYLES: Final = ("object", "array", "arguments", "parameters")
#: How a parameter that is an array or an object is written.
NESTED: Final = ("json", "none", "parameters")
#: A tag, or the part of a tag before a name.
_TAG: Final = re.compile(r"</?[^<>\s]{2,}>?|\[[A-Z_]+\]")


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes tool calls.

    A run of calls is ``open``, calls with ``separator`` between them, ``close``. A call is ``call``, the arguments,
    ``end``. In ``call`` stand ``{name}`` for the name of the tool and ``{index}`` for what the entry ``index``
    describes.

    Attributes:
        call: what a call begins with.
        style: how the arguments are written. ``object``: a JSON object with the name and the arguments; ``array``: a
            JSON array of these objects, with all calls; ``arguments``: a JSON object of the arguments, the name stands
            in ``call``; ``parameters``: one parameter after the other, the name stands in ``call``.
        end: what ends a call. If it and ``close`` are empty, the text ends with the call.
        open, close: what stands around all calls.
        separator: what stands between two calls. With ``plain`` a further call is written without ``call``.
        parallel: whether a text can have several calls.
        index: a pattern of what stands at ``{index}``; by default a number of one to four digits.
        trigger: the beginning of ``open + call`` that is looked for in free text; by default it ends before the first
            blank or line break.
        blank: whether a blank may stand before the JSON value, as tokenizers with a space before each word write it.
        at_start: whether calls are looked for at the start of the text only.
        plain: how a text that is nothing but a call may begin instead; part of the JSON value.
        name_key, arguments_key: the members of the object that hold the name and the arguments. With an empty
            ``name_key`` the name is the key of the arguments.
        members: further members of the object, which may follow: their schemas by name.
        parameter: what a parameter begins with, in the style ``parameters``. ``{key}`` is its name, ``{type}`` its
            type, ``{string}`` is ``true`` for a string and ``false`` otherwise.
        parameter_end: what ends a parameter.
        parameter_separator: what stands between two parameters.
        strings: how a parameter that is a string is written: ``raw`` or ``json``.
        quote: what stands around a raw string. With ``strings = "json"`` a string that needs no escapes may be written
            between these instead.
        trimmed: whether raw strings neither begin nor end with white space, because parsers remove it.
        booleans: the texts of true and false, where a parameter is a boolean.
        words: which of ``True``, ``False`` and ``None`` may be written for a parameter that is a boolean or null,
            beside ``booleans`` and ``null``. Templates that print values as Python does write these words.
        types: what ``{type}`` says for each of the JSON types ``string``, ``number``, ``boolean``, ``null``, ``array``
            and ``object``; by default their names.
        sorted: whether parameters come in the order of their names, without regard to case, instead of the schema's. In
            JSON it holds for the members of all objects, by code points.
        nested: how a parameter that is an array or an object is written: ``json``; ``none``: such a parameter is
            refused; ``parameters``: the members of an object as parameters are, the items of an array one by one.
        object, array: with the nesting ``parameters`` the strings around the members of an object, and around the items
            of an array.
        item, item_end: with the nesting ``parameters`` the strings around an item; ``parameter_separator`` stands
            between two.
        tags: texts that may not stand in strings; by default what stands in angle brackets in the other entries.
        forbid: further texts that may not stand in strings.
        unlike: a pattern of raw strings in which parsers would read something else; they are not written.
        names, keys: patterns of the names of tools and of parameters that parsers read; tools with others are refused.
        json: options of the processor ``json`` for the values.
        models: the models that write this format, for the documentation.
        template: texts that all stand in a chat template of this format; of a list of texts, at least one.
        without: texts of which none stands in a chat template of this format.
        variants: further ways to write a call: tables of the entries that differ. Variants are allowed where the text
            may also go on without a call.

    Example:
        >>> ToolFormat(call="<call>", end="</call>").first_trigger
        '<call>'
        >>> ToolFormat(call="<tool_call>\\n<function={name}>", style="parameters", parameter="{key}=").first_trigger
        '<tool_call>'
    """

    call: str
    style: str = "object"
    end: str = ""
    open: str = ""
    close: str = ""
    separator: str = ""
    parallel: bool = True
    index: str = "0|[1-9][0-9]{0,3}"
    trigger: str = ""
    blank: bool = False
    at_start: bool = False
    plain: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    members: Mapping[str, Any] | None = None
    parameter: str = ""
    parameter_end: str = ""
    parameter_separator: str = ""
    strings: str = "raw"
    quote: str = ""
    trimmed: bool = False
    booleans: tuple[str, str] = ("true", "false")
    words: tuple[str, ...] = ()
    types: Mapping[str, str] | None = None
    sorted: bool = False
    nested: str = "json"
    object: tuple[str, str] = ("", "")
    array: tuple[str, str] = ("", "")
    item: str = ""
    item_end: str = ""
    tags: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    unlike: str = ""
    names: str = ""
    keys: str = ""
    json: Mapping[str, Any] | None = None
    models: str = ""
    template: tuple[str | tuple[str, ...], ...] = ()
    without: tuple[str, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def ways(self) -> tuple[ToolFormat, ...]:
        """The format, and one format for each of its variants; what one may not write, none may.

        Example:
            >>> [form.call for form in ToolFormat(call="<call>", variants=({"call": "CALL "},)).ways]
            ['<call>', 'CALL ']
        """
        forms = (self, *(replace(self, variants=(), **entries) for entries in self.variants))
        unwritten = tuple({text for form in forms for text in form.unwritten})
        return tuple(replace(form, forbid=unwritten) for form in forms) if self.variants else forms

    @property
    def head(self) -> str:
        """The beginning of a call, before the name of the tool or the number of the call."""
        return self.call.partition("{name}")[0].partition("{index}")[0]

    @property
    def head_after_index(self) -> str | None:
        """The text between the number of the call and the name of the tool; ``None`` if no number stands there."""
        _, index, after = self.call.partition("{name}")[0].partition("{index}")
        return after if index else None

    @property
    def tail(self) -> str:
        """The text between the name of the tool and its arguments; empty if ``call`` has no name."""
        return self.call.partition("{name}")[2]

    @cached_property
    def unwritten(self) -> tuple[str, ...]:
        """The texts that strings may not contain, because parsers would end a value there: tags, and ``forbid``.

        Example:
            >>> ToolFormat(call="<call>", end="</call>").unwritten
            ('</call>', '<call>')
        """
        entries = (self.open, self.call, self.end, self.close, self.trigger, self.parameter, self.parameter_end,
                   self.item, self.item_end, self.quote)  # fmt: skip
        parts = [part for entry in entries for part in re.split(r"\{(?:name|index|key|type|string)\}", entry)]
        found = [tag for part in parts for tag in _TAG.findall(part)]
        return tuple(sorted({*(self.tags or found), *self.forbid}))

    def check_name(self, name: str, what: str, pattern: str) -> None:
        """Check that parsers read a name.

        Args:
            name: the name.
            what: the subject of the message.
            pattern: ``names`` or ``keys``.

        Raises:
            OptionError: if they do not.
        """
        if pattern and not re.fullmatch(pattern, name):
            raise OptionError(
                f"{what} is {name!r}, but parsers of this format of 'tool_call' read names that match {pattern!r} "
                f"only. Rename it, or use a format that writes JSON."
            )

    @property
    def tells_strings(self) -> bool:
        """Whether the strings around a raw string tell it from other values."""
        return bool(self.quote) or "{type}" in self.parameter or "{string}" in self.parameter

    @property
    def by_name(self) -> bool:
        """Whether the name of the tool stands before the arguments."""
        return "{name}" in self.call

    @property
    def writes_json(self) -> bool:
        """Whether calls hold texts in JSON that can be laid out in several ways: strings, arrays or objects.

        Example:
            >>> ToolFormat(call="<call>", end="</call>").writes_json, tool_format("minimax_m3").writes_json
            (True, False)
        """
        return any(way.style != "parameters" or "json" in (way.nested, way.strings) for way in self.ways)

    @property
    def first_trigger(self) -> str:
        """The string that is looked for in free text; empty if a call begins with the name of its tool."""
        begin = self.open + self.head
        return self.trigger or begin[: len(begin) - len(begin.lstrip())] + (begin.split() or [""])[0]


def tool_format(given: Any) -> ToolFormat:
    """The format of a name or of a table.

    Args:
        given: the name of a plug-in of the group ``logitloom.tool_formats``, or a table with the attributes of
            :class:`ToolFormat`.

    Raises:
        OptionError: naming the entry of the table, or the names that there are.

    Example:
        >>> tool_format("hermes").end, tool_format({"call": "CALL ", "end": ";"}).name_key
        ('\\n</tool_call>', 'name')
    """
    if isinstance(given, str):
        try:
            given = load_plugin("tool_formats", given)
        except UnknownPlugin as error:
            near = difflib.get_close_matches(given, [record.name for record in available("tool_formats")], 3)
            hint = (
                f"Did you mean {' or '.join(map(repr, near))}?"
                if near
                else ("'logitloom plugins --kind tool_formats' lists the names.")
            )
            raise OptionError(
                f"Option 'format' of 'tool_call' is {given!r:.80}; give the name of a format, a table, or 'auto'. "
                f"{hint}"
            ) from error
    if isinstance(given, ToolFormat):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"Option 'format' of 'tool_call' is {given!r:.80}; give the name of a format, or a table.")
    entries = check(ToolFormat, given, "a format of 'tool_call'")
    variants = [check(ToolFormat, one, "a variant of a format of 'tool_call'") for one in entries.get("variants", ())]
    if any("variants" in one for one in variants):
        raise OptionError("A variant of a format of 'tool_call' has variants. Put all of them into one list.")
    made = ToolFormat(**{"call": "", **entries, "variants": tuple(variants)})
    for form in made.ways:
        _check(form)
    return made


def _check(form: ToolFormat) -> None:
    begin = form.open + form.head
    if form.style not in STYLES:
        raise OptionError(f"The style of a format of 'tool_call' is {form.style!r}; it is one of {', '.join(STYLES)}.")
    if not (form.open + form.call + form.plain):
        raise OptionError("A format of 'tool_call' needs the entry 'call': what a call begins with.")
    if form.by_name != (form.style in ("arguments", "parameters")):
        raise OptionError(
            f"The entry 'call' of a format of 'tool_call' is {form.call!r} and its style {form.style!r}: with the "
            f"styles 'arguments' and 'parameters' it has '{{name}}' in it, with the others it has not."
        )
    if form.style == "parameters" and "{key}" not in form.parameter:
        raise OptionError("A format of 'tool_call' with the style 'parameters' needs '{key}' in its entry 'parameter'.")
    if not begin.startswith(form.trigger):
        raise OptionError(f"The trigger {form.trigger!r} of a format of 'tool_call' does not begin {begin!r}.")
    if form.strings not in ("raw", "json"):
        raise OptionError(f"The entry 'strings' of a format of 'tool_call' is {form.strings!r}; give 'raw' or 'json'.")
    for entry in ("unlike", "names", "keys", "index"):
        try:
            re.compile(getattr(form, entry))
        except re.error as error:
            raise OptionError(
                f"The entry {entry!r} of a format of 'tool_call' is {getattr(form, entry)!r}, which is no pattern: "
                f"{error}."
            ) from error
    if not {*form.words} <= {"True", "False", "None"}:
        raise OptionError(
            f"The entry 'words' of a format of 'tool_call' is {form.words!r}; give some of True, False and None."
        )
    if form.nested not in NESTED:
        raise OptionError(
            f"The entry 'nested' of a format of 'tool_call' is {form.nested!r}; it is one of {', '.join(NESTED)}."
        )
    closed = form.object[1] + form.parameter_end and form.array[1] + form.item_end
    if form.nested == "parameters" and not (closed and form.parameter_separator + form.array[0] + form.item):
        raise OptionError(
            "A format of 'tool_call' that nests parameters needs entries that tell where an array, an object and an "
            "item begin and end: 'object' or 'parameter_end', 'array' or 'item_end', and 'item' or "
            "'parameter_separator'."
        )


def find_format(chat_template: str) -> str:
    """The name of the format whose marks (``template``) stand in a chat template; of several the one with the longest.

    Args:
        chat_template: the template of a tokenizer, as ``tokenizer.chat_template`` has it.

    Raises:
        OptionError: if no format is recognised.

    Example:
        >>> find_format('Answer with <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>')
        'hermes'
    """
    found = []
    for record in available("tool_formats"):
        form = tool_format(record.name)
        marks = [_longest(mark, chat_template) for mark in form.template]
        if marks and all(marks) and not _longest(form.without, chat_template):
            found.append((sum(marks), record.name))
    if not found:
        raise OptionError(
            "The chat template shows none of the formats of tool calls that are known. Give the option 'format' of "
            "'tool_call'."
        )
    return max(found)[1]


def _longest(texts: str | tuple[str, ...], chat_template: str) -> int:
    """The length of the longest of some texts that stand in a chat template; 0 if none does."""
    given = (texts,) if isinstance(texts, str) else texts
    return max((len(text) for text in given if text in chat_template), default=0)
