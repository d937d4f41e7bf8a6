"""Tools as the usual lists declare them, and the schema of a call."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from logitloom.automata import Budget, BudgetTracker
from logitloom.errors import OptionError
from logitloom_plugins.json_schema.schema.schema_document import Document, SchemaNode, escape_pointer
from logitloom_plugins.schema_sources.inputs import check_strict
from logitloom_plugins.schema_sources.sources import is_plain, schema_of
from logitloom_plugins.tool_formats.tool_format import ToolFormat

__all__ = [
    "Property",
    "Tool",
    "ToolChoice",
    "call_schema",
    "chosen",
    "members_of",
    "plain_tools",
    "property_schemas",
    "tools_of",
    "without_tags",
]


#: What the schema of the arguments is called in the lists of OpenAI, of Anthropic and of MCP.
_PARAMETERS: Final = ("parameters", "input_schema", "inputSchema")
#: Names that are written by mistake for the schema of the arguments.
_ALIKE: Final = ("args", "arguments", "params", "schema")


@dataclass(frozen=True)
class Tool:
    """A function that can be called.

    Attributes:
        name: its name.
        parameters: the JSON Schema of its arguments, an object.
    """

    name: str
    parameters: dict[str, Any]


def tools_of(given: Any) -> list[Tool]:
    """The tools of a list.

    Args:
        given: per tool ``{"type": "function", "function": {"name": ..., "parameters": {...}}}``, or the inner table
            alone, in which ``input_schema`` or ``inputSchema`` may stand for ``parameters``. Without any of these a
            function takes no arguments; with ``strict`` they keep the rules of OpenAI's strict mode. A tool may
            also be a class that the processor ``json`` takes, or a function whose arguments have type hints; the name
            of the class or function is the name of the tool. The list may be JSON text.

    Raises:
        OptionError: naming the entry.
        UnsupportedSchema: if a tool is strict, and its parameters break a rule of that mode.

    Example:
        >>> tools_of([{"type": "function", "function": {"name": "now"}}])[0].name
        'now'
    """
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"The text given as option 'tools' of 'tool_call' is no JSON: {error}.") from error
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise OptionError(f"Option 'tools' of 'tool_call' must be a list of at least one tool, but is {given!r}.")
    tools = []
    for i, entry in enumerate(given):
        if isinstance(entry, type) or inspect.isroutine(entry):
            entry = {"name": entry.__name__, "parameters": schema_of(entry)}
        function = entry.get("function", entry) if isinstance(entry, Mapping) else None
        kind = entry.get("type", "function") if isinstance(entry, Mapping) else None
        # A flat entry may itself be a schema-like table whose type is "function".
        if kind != "function" or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise OptionError(
                f"Tool {i} of 'tool_call' is no function: {entry!r:.100}. Write "
                f"{{'type': 'function', 'function': {{'name': ..., 'parameters': {{...}}}}}}, or give a function of "
                f"Python with type hints."
            )
        parameters = _parameters(function)
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise OptionError(
                f"The parameters of the tool {function['name']!r:.60} must be a JSON Schema of an object, but are "
                f"{parameters!r:.100}. Arguments of a function of Python must have names."
            )
        if not function["name"]:
            raise OptionError(f"Tool {i} of 'tool_call' has an empty name.")
        if function.get("strict"):
            check_strict(dict(parameters), f"The schema of the parameters of the tool {function['name']!r:.60}")
        parameters = {"type": "object", **parameters}
        if parameters.get("properties") == {}:  # a usual way to say that there are no arguments
            parameters.setdefault("additionalProperties", False)
        tools.append(Tool(function["name"], parameters))
    names = [tool.name for tool in tools]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionError(f"Two tools of 'tool_call' have the name {twice[0]!r}. Give each its own.")
    return tools


def _parameters(function: Mapping[str, Any]) -> Any:
    """The schema of the arguments; a function without a schema takes no arguments.

    Raises:
        OptionError: an entry looks like that of the schema, and would be ignored.
    """
    for name in _PARAMETERS:
        if function.get(name) is not None:
            return function[name]
    for name, value in function.items():
        if not isinstance(value, Mapping):
            continue
        near = ["parameters"] if name in _ALIKE else difflib.get_close_matches(str(name), _PARAMETERS, 1, 0.8)
        if near:
            raise OptionError(
                f"The tool {function['name']!r} has the entry {name!r:.60}, which is ignored. Did you mean {near[0]!r}?"
            )
    return {"type": "object", "properties": {}, "additionalProperties": False}


def plain_tools(given: Any) -> Any:
    """The option ``tools`` as plain data: itself if it has tables, lists, texts and numbers only, else its JSON text.

    Example:
        >>> plain_tools([{"name": "now"}])
        [{'name': 'now'}]
    """
    if is_plain(given):
        return given
    return json.dumps([{"name": tool.name, "parameters": tool.parameters} for tool in tools_of(given)])


class ToolChoice(NamedTuple):
    """Which tools may be called.

    Attributes:
        tools: the tools that may be called.
        must: whether there has to be a call.
        may: whether there may be a call.
    """

    tools: list[Tool]
    must: bool
    may: bool = True


def chosen(tools: Sequence[Tool], choice: Any) -> ToolChoice:
    """The tools that a choice leaves.

    Args:
        tools: all of them.
        choice: ``"auto"``, ``"required"``, ``"none"``, a tool's name, or one of the tables of the usual APIs:
            ``{"type": "function", "function": {"name": ...}}``,
            ``{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}}``.

    Raises:
        OptionError: if no tool has that name.

    Example:
        >>> tools = tools_of([{"name": "now"}, {"name": "zip"}])
        >>> allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "zip"}}]}
        >>> found = chosen(tools, {"type": "allowed_tools", "allowed_tools": allowed})
        >>> [tool.name for tool in found.tools], found.must
        (['zip'], True)
    """
    if choice in ("auto", "required", "none"):
        return ToolChoice(list(tools), choice == "required", choice != "none")
    allowed = choice.get("allowed_tools") if isinstance(choice, Mapping) else None
    if isinstance(allowed, Mapping):
        named = [tool for one in allowed.get("tools", ()) for tool in chosen(tools, one).tools]
        return ToolChoice(named, allowed.get("mode", "auto") == "required") if named else chosen(tools, None)
    function = choice.get("function", choice) if isinstance(choice, Mapping) else choice
    name = function.get("name") if isinstance(function, Mapping) else function
    found = [tool for tool in tools if tool.name == name]
    if not found:
        raise OptionError(
            f"Option 'choice' of 'tool_call' is {choice!r:.100}; give 'auto', 'required', 'none' or the name of a "
            f"tool: {', '.join(tool.name for tool in tools)}."
        )
    return ToolChoice(found, True)


def call_schema(tools: Sequence[Tool], form: ToolFormat, *, parallel: bool) -> dict[str, Any]:
    """The JSON Schema of the JSON value of a call.

    Args:
        tools: the tools that may be called; a single tool if the name stands before the value.
        form: the format.
        parallel: whether an array may have several calls.
    """
    if form.by_name:
        return without_tags(_arguments(tools[0], 0, form), form)
    calls = []
    for i, tool in enumerate(tools):
        members = {form.name_key: {"const": tool.name}} if form.name_key else {}
        members[form.arguments_key if form.name_key else tool.name] = _arguments(tool, i, form)
        properties = {**members, **(form.members or {})}
        calls.append(
            {"type": "object", "properties": properties, "required": list(members), "additionalProperties": False}
        )
    call: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if form.style == "array":
        call = {"type": "array", "items": call, "minItems": 1, **({} if parallel else {"maxItems": 1})}
    return without_tags(call, form)


def without_tags(schema: dict[str, Any], form: ToolFormat) -> dict[str, Any]:
    """A schema for the values of another one whose strings contain no tag of a format.

    Example:
        >>> without_tags({"type": "string"}, ToolFormat(call="<call>"))["$defs"]["clean"]["pattern"]
        '^(?![\\\\s\\\\S]*(?:<call>))'
    """
    if not form.unwritten:
        return schema
    texts = "|".join(re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text) for text in form.unwritten)
    itself = {"$ref": _CLEAN}
    clean = {"$id": _CLEAN, "pattern": rf"^(?![\s\S]*(?:{texts}))", "items": itself, "additionalProperties": itself}
    return {"allOf": [schema, itself], "$defs": {"clean": clean}}


def _arguments(tool: Tool, number: int, form: ToolFormat) -> dict[str, Any]:
    """The schema of the arguments, as a document of its own, so that the schema's references stay within it."""
    parameters = _in_order(tool.parameters) if form.sorted else tool.parameters
    if not _refers(parameters) or "$id" in parameters:
        return parameters
    return {"$id": f"urn:logitloom:tool:{number}", **parameters}


def _in_order(schema: Any) -> Any:
    """A schema that names the properties of all objects in the order of their names."""
    if isinstance(schema, list):
        return [_in_order(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, Mapping):
            found[keyword] = {name: _in_order(value[name]) for name in sorted(value)}
        elif keyword in _OF_SCHEMAS and isinstance(value, Mapping):
            found[keyword] = {name: _in_order(one) for name, one in value.items()}
        else:
            found[keyword] = value if keyword in _OF_VALUES else _in_order(value)
    return found


_CLEAN: Final = "urn:logitloom:clean"
#: Keywords whose value is a table of schemas, and keywords whose value is no schema.
_OF_SCHEMAS: Final = frozenset(["$defs", "definitions", "dependentSchemas", "patternProperties"])
_OF_VALUES: Final = frozenset(["const", "default", "enum", "examples", "required"])
#: Keywords of a tool's parameters that hold when parameters are written one by one, or say nothing about values.
_ONE_BY_ONE: Final = frozenset([
    "$anchor", "$comment", "$defs", "$id", "$schema", "additionalProperties", "default", "definitions", "description",
    "examples", "properties", "required", "strict", "title", "type",
])  # fmt: skip


class Property(NamedTuple):
    """A property of a tool's parameters, or a part of one.

    Attributes:
        schema: its schema, as a document of its own.
        known: the schema after its references are followed.
        required: whether the property must be there.
        references: follows the references of the schema; ``None`` if there are none.
        node: the node of ``known`` in the document; ``None`` if there are no references.
    """

    schema: Any
    known: Any
    required: bool
    references: _References | None = None
    node: SchemaNode | None = None

    def part(self, schema: Any, pointer: str) -> Property:
        """A subschema of ``known`` at a relative JSON pointer.

        Raises:
            UnsupportedSchema: if a reference leads to nothing, or out of the schema.
        """
        if self.references is None or self.node is None:
            return Property(schema, schema, False)
        return self.references.property(self.node, schema, pointer)


class _References:
    """The schema that the references in the parameters of a tool lead to."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._base = parameters.get("$id", "urn:logitloom:tool")
        self._whole = {**parameters, "$id": self._base}
        self._document = Document(self._whole, BudgetTracker(Budget(), "the parameters of a tool"))

    @property
    def root(self) -> SchemaNode:
        return self._document.nodes[self._document.root]

    def property(self, parent: SchemaNode, schema: Any, pointer: str) -> Property:
        """The property whose schema stands at a relative JSON pointer."""
        found = self._document.nodes[self._document.child(parent, schema, pointer)]
        node, seen = found, set[int]()
        # Follow the references one after the other. In a circle of references any of the schemas may be the last.
        while isinstance(node.schema, Mapping) and (numbers := self._document.references(node)):
            if numbers[0] in seen:
                break
            seen.add(numbers[0])
            node = self._document.nodes[numbers[0]]
        standing = {"$ref": f"{self._base}#{quote(parent.pointer + pointer)}", "$defs": {"tool": self._whole}}
        return Property(standing, node.schema, False, self, node)


def property_schemas(tool: Tool) -> dict[str, Property]:
    """The parameters of a tool by name, in the order in which they are written.

    Args:
        tool: the tool.

    Raises:
        OptionError: if the schema says more than the schemas of its properties and which are required.
        UnsupportedSchema: if a reference leads to nothing, or out of the schema.

    Example:
        >>> parameters = {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}
        >>> property_schemas(Tool("f", parameters))["a"].known
        {'type': 'string'}
    """
    whole = Property(tool.parameters, tool.parameters, True)
    if _refers(tool.parameters):
        references = _References(tool.parameters)
        whole = Property(tool.parameters, references.root.schema, True, references, references.root)
    return members_of(whole, f"The parameters of the tool {tool.name!r}")


def members_of(given: Property, named: str) -> dict[str, Property]:
    """The properties of an object that is written as one parameter after the other.

    Args:
        given: the object.
        named: the name of the object in messages.

    Raises:
        OptionError: if the schema says more than the schemas of its properties and which are required.
        UnsupportedSchema: if a reference leads to nothing, or out of the schema.
    """
    beyond = sorted(set(given.known) - _ONE_BY_ONE)
    if beyond:
        raise OptionError(
            f"{named} have {', '.join(map(repr, beyond))}, which cannot be enforced in a format that writes one "
            f"parameter after the other. Leave it out, or use a format that writes JSON."
        )
    required = list(given.known.get("required", ()))
    own = given.known.get("properties", {})
    parts = {name: given.part(schema, f"/properties/{escape_pointer(name)}") for name, schema in own.items()}
    parts.update({name: Property({}, {}, True) for name in required if name not in own})
    return {name: part._replace(required=name in required) for name, part in parts.items()}


def _refers(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(key in ("$ref", "$dynamicRef", "$recursiveRef") or _refers(part) for key, part in schema.items())
    return isinstance(schema, (list, tuple)) and any(_refers(part) for part in schema)
