"""One format of tool calls: a row of data that says how a model writes calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from logitloom.errors import OptionError, UnknownPlugin
from logitloom.registry import available, load_plugin

__all__ = ["STYLES", "ToolFormat", "find_format", "tool_format"]

#: How the arguments of a call are written.
STYLES: Final = ("object", "array", "arguments", "parameters")


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes tool calls.

    A run of calls is ``open``, calls with ``separator`` between them, ``close``. A call is ``call``, the arguments,
    ``end``. In ``call`` stand ``{name}`` for the name of the tool and ``{index}`` for a number of one or more digits.

    Attributes:
        call: what a call begins with.
        style: how the arguments are written. ``object``: a JSON object with the name and the arguments; ``array``: a
            JSON array of these objects, with all calls; ``arguments``: a JSON object of the arguments, the name stands
            in ``call``; ``parameters``: one parameter after the other, the name stands in ``call``.
        end: what ends a call. If it and ``close`` are empty, the text ends with the call.
        open, close: what stands around all calls.
        separator: what stands between two calls. With ``plain`` a further call is written without ``call``.
        parallel: whether a text can have several calls.
        trigger: the beginning of ``open + call`` that is looked for in free text; by default it ends before the first
            blank or line break.
        blank: whether a blank may stand before the JSON value, as tokenizers with a space before each word write it.
        at_start: whether calls are looked for at the start of the text only.
        plain: how a text that is nothing but a call may begin instead; part of the JSON value.
        name_key, arguments_key: the members of the object that hold the name and the arguments. With an empty
            ``name_key`` the name is the key of the arguments.
        members: further members of the object, which may follow: their schemas by name.
        parameter: what a parameter begins with, in the style ``parameters``. ``{key}`` is its name, ``{type}`` its JSON
            type, ``{string}`` is ``true`` for a string and ``false`` otherwise.
        parameter_end: what ends a parameter.
        parameter_separator: what stands between two parameters.
        strings: how a parameter that is a string is written: ``raw`` or ``json``.
        quote: what stands around a raw string.
        trimmed: whether raw strings neither begin nor end with white space, because parsers remove it.
        booleans: the texts of true and false, where a parameter is a boolean.
        nested: whether a parameter may be an array or an object.
        forbid: texts that may not stand in a raw string, beside those that end it.
        json: options of the processor ``json`` for the values.
        models: the models that write it, for the documentation.
        template: texts that all stand in a chat template of this format.

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
    nested: bool = True
    forbid: tuple[str, ...] = ()
    json: Mapping[str, Any] | None = None
    models: str = ""
    template: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """What a call begins with, before the name of the tool."""
        return self.call.partition("{name}")[0]

    @property
    def tail(self) -> str:
        """What stands between the name of the tool and its arguments; empty if ``call`` has no name."""
        return self.call.partition("{name}")[2]

    @property
    def by_name(self) -> bool:
        """Whether the name of the tool stands before the arguments."""
        return "{name}" in self.call

    @property
    def first_trigger(self) -> str:
        """What is looked for in free text; empty if a call begins with the name of its tool."""
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
            names = ", ".join(record.name for record in available("tool_formats"))
            raise OptionError(
                f"Option 'format' of 'tool_call' is {given!r}; give a table, 'auto', or one of: {names}."
            ) from error
    if isinstance(given, ToolFormat):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"Option 'format' of 'tool_call' is {given!r}; give the name of a format, or a table.")
    defaults = {field.name: field.default for field in fields(ToolFormat)}
    for key, value in given.items():
        if key not in defaults:
            raise OptionError(f"The format of 'tool_call' has no entry {key!r}; it has {', '.join(defaults)}.")
        wanted = str if defaults[key] is MISSING else type(defaults[key])
        fits = isinstance(value, Mapping) if key in ("json", "members") else isinstance(value, (wanted, list))
        if not fits or (wanted is not tuple and isinstance(value, list)):
            raise OptionError(
                f"The entry {key!r} of a format of 'tool_call' is {value!r}, which is no {wanted.__name__}."
            )
    entries: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    made = ToolFormat(**{"call": "", **entries})
    _check(made)
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
    if len(form.booleans) != 2:
        raise OptionError(f"The entry 'booleans' of a format of 'tool_call' is {form.booleans!r}; give two texts.")


def find_format(chat_template: str) -> str:
    """The name of the format whose marks stand in a chat template; of several the one with the longest marks.

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
        marks = tool_format(record.name).template
        if marks and all(mark in chat_template for mark in marks):
            found.append((sum(map(len, marks)), record.name))
    if not found:
        raise OptionError(
            "The chat template shows none of the formats of tool calls that are known. Give the option 'format' of "
            "'tool_call'."
        )
    return max(found)[1]
