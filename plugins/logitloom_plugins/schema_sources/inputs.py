"""Schemas as APIs wrap them, OpenAI's strict mode, and the known keywords with the warning about others.

References:
    OpenAI, API reference, ``response_format``; guide "Structured model outputs", supported schemas.
"""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from logitloom.display.warning import warn
from logitloom.errors import OptionError, UnsupportedSchema
from logitloom_plugins.json_schema.schema.schema_document import FORMATS, escape_pointer, subschemas
from logitloom_plugins.schema_sources.narrowing import FORMATS_OF_CLASSES, narrowed_format

__all__ = ["check_keywords", "check_strict", "closed", "every_subschema", "json_values", "unwrapped"]

#: The keywords of drafts 4 to 2020-12.
_KEYWORDS: Final = frozenset([
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef",
    "$ref", "$schema", "$vocabulary", "additionalItems", "additionalProperties", "allOf", "anyOf", "const",
    "contains", "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "dependencies",
    "dependentRequired", "dependentSchemas", "deprecated", "description", "else", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "id", "if", "items", "maxContains", "maxItems", "maxLength",
    "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
    "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly",
    "required", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly",
])  # fmt: skip
#: Annotations of OpenAPI and of common generators of schemas.
_ANNOTATIONS: Final = frozenset(["discriminator", "example", "externalDocs", "nullable", "propertyOrdering", "xml"])
#: Formats with a meaning here or in schemas that pydantic makes.
_FORMATS: Final = FORMATS | FORMATS_OF_CLASSES
#: What stands in OpenAI's wrapper.
_WRAPPER: Final = frozenset(["description", "name", "schema", "strict", "type"])
#: The Python types of JSON values; ``Decimal`` because some readers of JSON return numbers as ``Decimal``.
_JSON_TYPES: Final = frozenset((str, int, float, bool, type(None), Decimal))
#: The most unknown keywords of a schema that are compared with the known keywords.
_MOST_LOOKED_UP: Final = 100
#: Keywords that OpenAI's strict mode does not take.
_NOT_STRICT: Final = ("allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "then")


def unwrapped(given: Mapping[str, Any], read: Callable[[Any], Any]) -> Any:
    """The schema of a ``response_format``, of its inner table, or the given schema if it is neither.

    Args:
        given: ``{"type": "json_object"}``, ``{"type": "json_schema", "json_schema": {"name", "strict", "schema"}}``,
            the same without the inner table, ``{"name", "strict", "schema"}``, or a schema.
        read: what makes a JSON Schema of the value of ``schema``, which may be a Python class.

    Raises:
        OptionError: if it is another ``response_format``, or lacks the schema.
        UnsupportedSchema: if it says ``strict`` and the schema breaks a rule of that mode.

    Example:
        >>> unwrapped({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}}, lambda s: s)
        {'type': 'null'}
    """
    kind = given.get("type")
    if kind == "json_object":
        return read(given["schema"]) if isinstance(given.get("schema"), Mapping) else {"type": "object"}
    if kind == "text" or kind == "structural_tag":
        remedy = "Leave out 'json'" if kind == "text" else "Use the processor 'structural_tag'"
        raise OptionError(
            f"The response_format given as a schema has the type {kind!r}, which is no JSON value. {remedy}."
        )
    if kind == "json_schema":
        table = given.get("json_schema", given)
    elif "type" not in given and isinstance(given.get("name"), str) and "schema" in given and set(given) <= _WRAPPER:
        table = given
    else:
        return given
    where = "json_schema/" if table is not given else ""
    if not isinstance(table, Mapping) or table.get("schema") is None or isinstance(table["schema"], str):
        raise OptionError(
            f"The response_format given as a schema has no JSON Schema at {where}schema: {given!r:.200}. Write "
            f"{{'type': 'json_schema', 'json_schema': {{'name': ..., 'schema': {{...}}}}}}."
        )
    strict = table.get("strict")
    if strict not in (None, True, False):
        raise OptionError(f"{where}strict of a response_format is {strict!r:.60}. Give true or false.")
    schema = read(table["schema"])
    if strict:
        check_strict(schema, f"The schema of the response_format {table.get('name', '')!r:.60}")
    return schema


def json_values(given: dict[str, Any]) -> dict[str, Any]:
    """A schema with values of JSON in place of Python's objects: values for members of enums, lists for tuples.

    A schema without such objects is returned itself.

    Raises:
        UnsupportedSchema: if the schema holds a value that JSON does not have; the message names the place.

    Example:
        >>> json_values({"enum": ("a", "b")})
        {'enum': ['a', 'b']}
    """
    waiting, seen = [given], set[int]()
    while waiting:
        part: Any = waiting.pop()
        if type(part) in (dict, list):
            if id(part) not in seen:
                seen.add(id(part))
                waiting += part.values() if isinstance(part, dict) else part
                if isinstance(part, dict) and not {*map(type, part)} <= {str}:
                    break
        elif type(part) not in _JSON_TYPES:
            break
    else:
        return given
    converted: dict[str, Any] = _converted(given, "#", {})
    return converted


def _converted(value: Any, place: str, known: dict[int, Any]) -> Any:
    """A value converted to the types of JSON; an object that occurs several times is converted once."""
    if isinstance(value, Enum):
        value = value.value
    if type(value) in _JSON_TYPES:
        return value
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, (str, int, float)):
        return str.__str__(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)
    if isinstance(value, dict):
        found = known[id(value)] = {}
        for key, part in value.items():
            name = _converted(key, place, known) if isinstance(key, str) else key
            if not isinstance(name, str):
                raise _no_key(name, place)
            found[name] = _converted(part, f"{place}/{escape_pointer(name)}", known)
        return found
    if not isinstance(value, (list, tuple)):
        raise UnsupportedSchema(
            f"The schema has {value!r:.60} at {place:.200}, which is no value of JSON. Write a text, number, list or "
            f"table there, or remove it."
        )
    listed = known[id(value)] = []
    listed += [_converted(part, f"{place}/{index}", known) for index, part in enumerate(value)]
    return listed


def _no_key(key: Any, place: str) -> UnsupportedSchema:
    return UnsupportedSchema(
        f"The schema has the key {key!r:.60} at {place:.200}, and keys of JSON objects are texts. Write it as one, or "
        f"remove it."
    )


def closed(schema: Any) -> Any:
    """A schema of a class whose objects have no members beside their properties, unless the schema allows others.

    Libraries drop or refuse members that a class does not have, so writing them is of no use.

    Example:
        >>> closed({"properties": {"a": {}}})
        {'properties': {'a': {}}, 'additionalProperties': False}
    """
    schema = copy.deepcopy(schema)
    for _, part in every_subschema(schema):
        # Examples may hold values of Python, which a library passes on unchanged.
        part.pop("examples", None)
        if "properties" in part and "unevaluatedProperties" not in part:
            part.setdefault("additionalProperties", False)
        narrowed_format(part)
    _let_items_repeat(schema)
    return schema


def _let_items_repeat(schema: dict[str, Any]) -> None:
    """Remove ``uniqueItems``, in place, where it cannot be enforced and a library drops repeated items.

    This is the case in a property of a class of a union, unless each other class of the union has the same property,
    or an earlier property tells the classes apart.
    """
    definitions = schema.get("$defs", {})
    for _, part in every_subschema(schema):
        listed = [each for keyword in ("anyOf", "oneOf") for each in part.get(keyword, ()) if isinstance(each, dict)]
        named = [definitions.get(str(each.get("$ref")).removeprefix("#/$defs/"), each) for each in listed]
        ways = [each for each in named if isinstance(each, dict)]
        objects = [each for each in ways if each.get("type") == "object"]
        for one, name in [(each, name) for each in objects for name in each.get("properties", ())]:
            held = one["properties"][name]
            if isinstance(held, dict) and any(
                other.get("properties", {}).get(name) != held and not _told_apart(one, other, name) for other in objects
            ):
                for array in (held, *held.get("anyOf", ())):
                    if isinstance(array, dict) and not array.get("minItems"):
                        array.pop("uniqueItems", None)


def _told_apart(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    """Whether a value of one class is known not to be one of another class when a property begins."""
    for before in itertools.takewhile(lambda each: each != name, one["properties"]):
        held, beside = one["properties"][before], other.get("properties", {}).get(before)
        if before not in one.get("required", ()) or not isinstance(held, dict) or not isinstance(beside, dict):
            continue
        if "const" in held and beside.get("const", held["const"]) != held["const"]:
            return True
    return False


def check_strict(schema: Any, what: str) -> None:
    """Check the rules of OpenAI's strict mode.

    The root is an object and no ``anyOf``; each object requires all its properties and has ``additionalProperties:
    false``; ``allOf``, ``not``, ``if``, ``dependentRequired`` and ``dependentSchemas`` do not occur, and no unknown
    keyword does. OpenAI's limits on sizes are not checked.

    Args:
        schema: a JSON Schema.
        what: the subject of messages.

    Raises:
        UnsupportedSchema: naming the place, the value and the remedy.
    """
    remedy = "Change that, or leave out strict."
    if not isinstance(schema, dict) or schema.get("type") != "object" or "anyOf" in schema:
        raise UnsupportedSchema(
            f"{what} is strict, but its root is {schema!r:.80}. There the root has the type 'object' and no anyOf. "
            f"{remedy}"
        )
    check_keywords(schema, error=True)
    for pointer, part in every_subschema(schema):
        for keyword in _NOT_STRICT:
            if keyword in part:
                raise UnsupportedSchema(f"{what} is strict, but has {keyword!r} at {pointer}/{keyword}. {remedy}")
        kinds = part.get("type", ())
        if "properties" not in part and "object" not in ([kinds] if isinstance(kinds, str) else kinds):
            continue
        required = part.get("required", [])
        missing = [name for name in part.get("properties", {}) if name not in required]
        if missing:
            raise UnsupportedSchema(
                f"{what} is strict, but at {pointer}/required the property {missing[0]!r} is missing: strict mode "
                f"requires all. Add it, and give an optional property a type with 'null', or leave out strict."
            )
        if part.get("additionalProperties") is not False:
            raise UnsupportedSchema(
                f"{what} is strict, but at {pointer}/additionalProperties stands "
                f"{part.get('additionalProperties', 'nothing')!r:.60}: strict mode demands false. {remedy}"
            )


def check_keywords(schema: Any, *, error: bool) -> None:
    """Report keywords that no draft of JSON Schema has, each with the most similar known keyword.

    Values without effect are reported, too: formats that look like a known format, and ``nullable`` of OpenAPI 3.0,
    which JSON Schema does not have.

    Args:
        schema: a JSON Schema.
        error: whether each unknown keyword is an error. If not, one warning names those that look like a known
            keyword; others are annotations. Keywords that begin with ``x-`` are never reported.

    Raises:
        UnsupportedSchema: naming the keywords and their places; also for a key that is no text.

    Example:
        >>> check_keywords({"propertes": {}}, error=True)
        Traceback (most recent call last):
        logitloom.errors.UnsupportedSchema: The schema has the unknown keyword 'propertes' at #/propertes (did you mean
        'properties'?). Correct or remove it.
    """
    unknown, useless, looked_up = list[tuple[str, str, str]](), list[tuple[str, str, str]](), dict[str, str]()

    def meant(word: str, known: Iterable[str]) -> str:
        if word not in looked_up and len(looked_up) < _MOST_LOOKED_UP:
            near = difflib.get_close_matches(word[:40], known, n=1, cutoff=0.8)
            looked_up[word] = f" (did you mean {near[0]!r}?)" if near else ""
        return looked_up.get(word, "")

    for pointer, part in every_subschema(schema):
        for keyword in part:
            if keyword in _KEYWORDS or keyword in _ANNOTATIONS or str(keyword).startswith("x-"):
                continue
            if not isinstance(keyword, str):
                raise _no_key(keyword, pointer)
            if meant(keyword, _KEYWORDS) or error:
                unknown.append((keyword, f"{pointer}/{keyword}", meant(keyword, _KEYWORDS)))
        name, kinds = part.get("format"), part.get("type", "$ref" if "$ref" in part else "null")
        if isinstance(name, str) and name not in _FORMATS and meant(name.lower(), FORMATS):
            useless.append((f"format: {name}", f"{pointer}/format", meant(name.lower(), FORMATS)))
        if part.get("nullable") is True and "null" not in ([kinds] if isinstance(kinds, str) else kinds):
            useless.append(("nullable", f"{pointer}/nullable", " (add the type 'null')"))
    _report(unknown, "unknown keyword", error)
    _report(useless, "keyword without effect", error)


def _report(found: list[tuple[str, str, str]], subject: str, error: bool) -> None:
    """Report keywords, each with its place and a remark."""
    if not found:
        return
    shown = ", ".join(f"{keyword!r:.60} at {place:.200}{meant}" for keyword, place, meant in found[:8])
    several = f"{subject.replace('keyword', 'keywords')} {shown}" if len(found) > 1 else f"{subject} {shown}"
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    remedy = "Correct or remove " + ("them." if len(found) > 1 else "it.")
    if not error:
        effect = "They restrict" if len(found) > 1 else "It restricts"
        warn(
            f"The schema has the {several}{more}. {effect} nothing. {remedy}",
        )
        return
    refusal = UnsupportedSchema(f"The schema has the {several}{more}. {remedy}")
    refusal.problems = tuple((keyword, place, f"{subject}{meant}") for keyword, place, meant in found)
    raise refusal


def every_subschema(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The subschemas that are objects, each with its place; the root first."""
    stack, seen = [("#", schema)], set[int]()
    while stack:
        pointer, part = stack.pop()
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            yield pointer, part
            stack += [(pointer + relative, below) for relative, below in [*subschemas(part)][::-1]]
