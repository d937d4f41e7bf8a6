"""Parameters that are written one by one: what kind of text each is, and which processors rule it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logitloom.errors import OptionError
from logitloom_plugins.tool_formats.call_reader import Content
from logitloom_plugins.tool_formats.tool_format import ToolFormat
from logitloom_plugins.tool_formats.tools import Tool, property_schemas

__all__ = ["Parameter", "parameters_of"]

#: JSON type of a Python value, as the entry ``{type}`` writes it.
_TYPES: Final = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null", list: "array"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool in one format.

    Attributes:
        begin: what it begins with, quotes of a string included.
        end: what it ends with, quotes of a string included.
        required: whether it must be there.
        inner: the processors that rule its value.
        content: what its text means.
    """

    begin: str
    end: str
    required: bool
    inner: list[Any]
    content: Content


def parameters_of(tool: Tool, form: ToolFormat, style: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a tool, in the order in which they are written.

    Args:
        tool: the tool.
        form: a format with the style ``parameters``.
        style: options of the processor ``json`` for values that are JSON.

    Raises:
        OptionError: if the format cannot write a parameter.
        UnsupportedSchema: if a reference leads to nothing, or out of the schema.
    """
    found = []
    for key, (schema, known, required) in property_schemas(tool).items():
        types = _types(known)
        raw = form.strings == "raw" and "string" in types
        quote = form.quote if raw else ""
        if not form.nested and types & {"array", "object"}:
            raise OptionError(
                f"The parameter {key!r} of the tool {tool.name!r} may be an array or an object, which this format of "
                f"'tool_call' cannot write. Give it the type of a string, number or boolean."
            )
        kind = "string" if raw else sorted(types)[0].replace("integer", "number")
        begin = form.parameter.replace("{type}", kind).replace("{string}", str(raw).lower()).replace("{key}", key)
        end = form.parameter_end.replace("{key}", key)
        inner = _text(known, form, key, tool.name) if raw else _value(schema, known, types, form, style)
        found.append(Parameter(begin + quote, quote + end, required, inner, _content(key, known, raw, types, form)))
    return found


def _content(key: str, known: Any, raw: bool, types: set[str], form: ToolFormat) -> Content:
    listed = _listed(known)
    if raw and (listed is None or all(isinstance(value, str) for value in listed)):
        return Content("text", key)
    if raw:
        texts = [(value if isinstance(value, str) else json.dumps(value), value) for value in listed or ()]
        return Content("listed", key, texts=tuple(texts))
    if types == {"boolean"} and form.booleans != ("true", "false"):
        return Content("listed", key, texts=tuple(zip(form.booleans, (True, False), strict=True)))
    return Content("json", key)


def _value(schema: Any, known: Any, types: set[str], form: ToolFormat, style: Mapping[str, Any]) -> list[Any]:
    """Processors for a parameter that is written as JSON."""
    if types == {"boolean"} and form.booleans != ("true", "false"):
        values = _listed(known) or [False, True]
        return [("choice", {"choices": tuple(form.booleans[not value] for value in values)})]
    inner: list[Any] = [("json", {**style, "schema": schema})]
    if types == {"integer"}:
        # 9.0 is an integer to JSON Schema, and not to those who read parameters.
        inner.append(("regex", {"pattern": "-?[0-9]+"}))
    return inner


def _text(schema: Any, form: ToolFormat, key: str, tool: str) -> list[Any]:
    """Processors for a parameter that is written as a text without escapes."""
    ends = [form.quote or form.parameter_end, *form.forbid]
    if not form.quote:
        ends += [form.parameter.partition("{key}")[0], form.end, form.close, form.first_trigger]
    banned = tuple(dict.fromkeys(text for end in ends if (text := end.replace("{key}", key).strip())))
    listed = _listed(schema)
    if listed is not None:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in listed]
        wrong = next((text for text in texts if any(end in text for end in banned)), None)
        if wrong is not None:
            raise OptionError(
                f"The parameter {key!r} of the tool {tool!r} may be {wrong!r}, which contains a text that ends it in "
                f"this format of 'tool_call'. Leave that value out."
            )
        return [("choice", {"choices": tuple(texts)})]
    inner: list[Any] = [("bad_words", {"phrases": banned})]
    if form.trimmed:
        inner.append(("regex", {"pattern": r"(?:\S(?:[\s\S]*\S)?)?"}))
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        if least or most != "":
            inner.append(("regex", {"pattern": rf"[\s\S]{{{least},{most}}}"}))
        if "pattern" in schema:
            inner.append(("regex", {"pattern": _searched(schema["pattern"])}))
    return inner


def _searched(pattern: str) -> str:
    """A pattern for whole texts that match where ``pattern`` is found somewhere (as JSON Schema has it)."""
    anchored = re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    begin, end = ("" if pattern.startswith("^") else r"[\s\S]*"), ("" if anchored else r"[\s\S]*")
    return f"(?a){begin}(?:{pattern.removeprefix('^')[: -1 if anchored else None]}){end}"


def _listed(schema: Any) -> Sequence[Any] | None:
    """The values of ``enum`` or ``const``."""
    if not isinstance(schema, Mapping):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _types(schema: Any) -> set[str]:
    """The JSON types that the values of a schema may have, as far as its type, enum, const and alternatives tell."""
    every = {"string", "number", "boolean", "null", "array", "object"}
    if not isinstance(schema, Mapping):
        return every
    listed = _listed(schema)
    if listed is not None:
        return {_TYPES.get(type(value), "object") for value in listed}
    if "type" in schema:
        given = schema["type"]
        return {given} if isinstance(given, str) else set(given)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return set().union(*map(_types, schema[keyword]))
    return every
