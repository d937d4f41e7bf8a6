"""Which schemas xgrammar enforces exactly, decided without asking xgrammar, which drops unknown keywords silently.

Only forms are let through whose every combination was found right on JSON-Schema-Test-Suite and on JSONSchemaBench.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Problem", "problems"]

Problem = tuple[str, str, str]
"""Keyword, JSON pointer, reason."""

_ASSERTIONS: Final = frozenset({
    "$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "additionalProperties", "allOf", "anyOf",
    "const", "contains", "dependencies", "dependentRequired", "dependentSchemas", "disallow", "divisibleBy",
    "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "extends", "format", "if", "items", "maxContains",
    "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems",
    "properties", "propertyNames", "required", "then", "type", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems",
})  # fmt: skip
_BY_TYPE: Final[dict[str, frozenset[str]]] = {
    "null": frozenset(),
    "boolean": frozenset(),
    "integer": frozenset(),
    "number": frozenset(),
    "string": frozenset(["minLength", "maxLength"]),
    "array": frozenset(["items", "prefixItems", "minItems", "maxItems"]),
    "object": frozenset(["properties", "required", "additionalProperties"]),
}
_ALONE: Final = ("$ref", "anyOf", "enum", "const")
_DROPPED: Final = "the engine does not enforce it, or not exactly"


def problems(schema: Any) -> list[Problem]:
    """The keywords that the engine would not enforce exactly: keyword, JSON pointer, reason.

    Example:
        >>> problems({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
        [('uniqueItems', '#/uniqueItems', 'the engine does not enforce it, or not exactly')]
    """
    found: dict[tuple[str, str], str] = {}
    for keyword, pointer, reason in _walk(schema):
        found.setdefault((keyword, pointer), reason)
    return [(keyword, pointer, reason) for (keyword, pointer), reason in found.items()]


def _walk(schema: Any) -> Iterator[Problem]:
    waiting: list[tuple[Any, str]] = [(schema, "#")]
    while waiting:
        node, location = waiting.pop()
        if node is True or node == {}:
            continue
        if not isinstance(node, dict):
            yield "false", location, "the engine cannot forbid every value"
            continue
        yield from _of_node(node, location)
        for name in ("properties", "$defs", "definitions"):
            if isinstance(node.get(name), dict):
                waiting += [(part, f"{location}/{name}/{_escaped(key)}") for key, part in node[name].items()]
        for name in ("anyOf", "prefixItems"):
            if isinstance(node.get(name), list):
                waiting += [(part, f"{location}/{name}/{i}") for i, part in enumerate(node[name])]
        for name in ("items", "additionalProperties"):
            # The engine understands false as the value of these keywords.
            if name in node and node[name] is not False:
                waiting.append((node[name], f"{location}/{name}"))


def _of_node(node: dict[str, Any], location: str) -> Iterator[Problem]:
    asserting = [keyword for keyword in node if keyword in _ASSERTIONS]
    if location != "#" and ("$id" in node or isinstance(node.get("id"), str)):
        yield "$id", f"{location}/$id", "the engine resolves references from the whole document only"
    if not asserting:
        return
    alone = [keyword for keyword in _ALONE if keyword in node]
    if alone:
        first = alone[0]
        for keyword in asserting:
            if keyword != first and not (keyword == "type" and first in ("enum", "const") and _typed(node, first)):
                yield keyword, f"{location}/{_escaped(keyword)}", f"the engine ignores it beside {first}"
        yield from _alone(node, first, location)
        return
    kind = node.get("type")
    if not isinstance(kind, str) or kind not in _BY_TYPE:
        if isinstance(kind, list) and asserting == ["type"] and all(k in _BY_TYPE for k in kind):
            return
        for keyword in asserting:
            reason = "the engine takes it only together with one type" if "type" not in node else _DROPPED
            yield keyword, f"{location}/{_escaped(keyword)}", reason
        return
    for keyword in asserting:
        if keyword != "type" and keyword not in _BY_TYPE[kind]:
            yield keyword, f"{location}/{_escaped(keyword)}", _DROPPED
    yield from _combined(node, kind, location)


def _combined(node: dict[str, Any], kind: str, location: str) -> Iterator[Problem]:
    """Keywords that are right alone, but not in every combination."""
    if kind == "object":
        names = node.get("properties", {})
        if not isinstance(names, dict) or not isinstance(node.get("required", []), list):
            yield "properties", f"{location}/properties", "properties must be a table, and required a list"
            return
        if names and node.get("additionalProperties", True) is not False:
            yield (
                "additionalProperties",
                f"{location}/additionalProperties",
                "without false, the engine lets a declared name be written with escapes, and then with any value",
            )
        for name in node.get("required", []):
            if name not in names:
                yield "required", f"{location}/required", f"the engine requires declared names only, not {name!r}"
    if kind == "array" and isinstance(node.get("items"), list):
        yield "items", f"{location}/items", "the engine takes lists of schemas as prefixItems only"


def _alone(node: dict[str, Any], keyword: str, location: str) -> Iterator[Problem]:
    if keyword == "$ref" and not (isinstance(node["$ref"], str) and (node["$ref"] + "/").startswith("#/")):
        yield "$ref", f"{location}/$ref", "the engine follows references by pointers within the document only"
    values = node.get("enum") if keyword == "enum" else [node["const"]] if keyword == "const" else []
    for value in values if isinstance(values, list) else []:
        if isinstance(value, (dict, list, float)):
            yield keyword, f"{location}/{keyword}", "the engine writes lists, objects and fractions in one form only"


def _typed(node: dict[str, Any], keyword: str) -> bool:
    """Whether all listed values have the type of the ``type`` keyword beside them, which then adds nothing."""
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    values = node["enum"] if keyword == "enum" else [node["const"]]
    return isinstance(values, list) and all(_kind(value) in kinds or _more_general(value, kinds) for value in values)


def _more_general(value: Any, kinds: list[Any]) -> bool:
    return _kind(value) == "integer" and "number" in kinds


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
