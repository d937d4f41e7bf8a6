"""Parameters that are written one by one: the ways in which each can be written, and the processors for its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from logitloom.errors import OptionError
from logitloom_plugins.tool_formats.call_reader import SectionContent
from logitloom_plugins.tool_formats.text_language import ANY_STRING, language_of, restrictions
from logitloom_plugins.tool_formats.tool_format import ToolFormat
from logitloom_plugins.tool_formats.tools import Property, without_tags

__all__ = ["Way", "check_array", "mark_of", "ways_of"]

#: JSON type of a Python value.
_TYPES: Final = {
    str: "string", bool: "boolean", int: "number", float: "number", type(None): "null", list: "array", dict: "object"
}  # fmt: skip
_WORDS: Final = {"True": True, "False": False, "None": None}
_CONTAINERS: Final = frozenset({"array", "object"})
_EVERY: Final = frozenset({"string", "number", "boolean", "null"}) | _CONTAINERS
#: Keywords that may stand beside the alternatives of a value of which some are arrays or objects.
_ANNOTATIONS: Final = frozenset(
    ["$anchor", "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description"]
) | {"examples", "title"}
#: Keywords of an array whose items are written one by one.
_OF_ARRAYS: Final = _ANNOTATIONS | {"items", "maxItems", "minItems", "type"}


@dataclass(frozen=True)
class Way:
    """A way in which a value is written.

    Attributes:
        kind: ``text``: without quotes and escapes; ``json``: as JSON; ``array``, ``object``: part by part.
        type: the JSON type.
        inner: the processors for the text; none for arrays and objects.
        content: the kind of value that the text writes.
        of: the array or object.
    """

    kind: str
    type: str
    inner: Any = None
    content: SectionContent | None = None
    of: Property | None = None


def ways_of(value: Property, form: ToolFormat, style: Mapping[str, Any], *, key: str | None, subject: str) -> list[Way]:
    """The ways in which a value is written.

    Args:
        value: the value.
        form: a format with the style ``parameters``.
        style: options of the processor ``json`` for values that are JSON.
        key: the name of the parameter; ``None`` for an item of an array.
        subject: the subject of messages about the value, such as "The parameter 'x' of the tool 'f'".

    Raises:
        OptionError: if the format cannot write it.
        UnsupportedSchema: if a reference leads to nothing, or out of the schema.
    """
    alternatives = list(_alternatives(value))
    types = frozenset[str]().union(*(_types(one.known) for one in alternatives))
    if form.nested == "none" and types & _CONTAINERS and any(_named_types(one.known) for one in alternatives):
        raise OptionError(
            f"{subject} may be an array or an object, which this format of 'tool_call' cannot write. Give it the type "
            f"of a string, number or boolean."
        )
    if form.nested != "json" and types == _EVERY:
        types -= _CONTAINERS  # how deep they go is not known
    found: list[Way] = []
    rest = types
    if form.strings == "raw" and "string" in types:
        found += _texts(alternatives, value, form, key, subject, whole=types != {"string"} and not form.tells_strings)
        rest = types - {"string"} if form.tells_strings else types & _CONTAINERS
    elif form.quote and "string" in types:
        found, rest = _texts(alternatives, value, form, key, subject, whole=False), types
    if form.nested == "parameters" and rest & _CONTAINERS:
        found += _containers(value, alternatives, found, form, subject)
        rest -= _CONTAINERS
    elif form.strings == "raw" and not form.tells_strings and found:
        rest = frozenset()
    by_mark: dict[str, set[str]] = {}
    for one in sorted(rest):
        by_mark.setdefault(mark_of(form, one) if "{type}" in form.parameter else "", set()).add(one)
    return found + [_json(value, frozenset(group), group == types, form, style, key) for group in by_mark.values()]


def mark_of(form: ToolFormat, type: str) -> str:
    """The text of ``{type}`` for a JSON type."""
    return (form.types or {}).get(type, type)


def _json(
    value: Property, types: frozenset[str], whole: bool, form: ToolFormat, style: Mapping[str, Any], key: str | None
) -> Way:
    """A value that is written as JSON, of some of its possible types."""
    listed = _listed(value.known)
    kind = sorted(types)[0]
    if types <= {"boolean", "null"} and (form.words or (types == {"boolean"} and form.booleans != ("true", "false"))):
        texts = dict(zip((*form.booleans, "null"), (True, False, None), strict=True))
        texts |= {word: _WORDS[word] for word in form.words}
        values = [True, False, None] if listed is None else listed
        texts = {text: one for text, one in texts.items() if one in values and _TYPES[type(one)] in types}
        content = SectionContent("listed", key, texts=tuple(texts.items()))
        return Way("text", kind, [("choice", {"choices": tuple(texts)})], content)
    schema = value.schema
    if not whole and listed is not None:
        schema = {"enum": [one for one in listed if _TYPES.get(type(one)) in types]}
    elif not whole:
        schema = {"allOf": [schema], "type": sorted(types)}
    if types & {"string", "array", "object"}:
        schema = without_tags(schema, form)
    options = {**style, "schema": schema}
    if types == {"number"} and all(_named_types(one.known) == {"integer"} for one in _alternatives(value)):
        # 9.0 is an integer to JSON Schema, and not to those who read parameters.
        options["integers"] = "plain"
    return Way("json", kind, [("json", options)], SectionContent("json", key))


def _containers(
    value: Property, alternatives: Sequence[Property], texts: list[Way], form: ToolFormat, subject: str
) -> list[Way]:
    """The arrays and objects among the alternatives of a value."""
    found = []
    for one in alternatives:
        if not isinstance(one.known, Mapping) or not _named_types(one.known) & _CONTAINERS:
            continue
        if _listed(one.known) is not None:
            raise OptionError(
                f"{subject} is an array or object of 'enum' or 'const', which this format of 'tool_call' does not "
                f"write. Describe it with 'properties' or 'items'."
            )
        for kind in sorted(_named_types(one.known) & _CONTAINERS):
            found.append(Way(kind, kind, of=one))
    beyond = sorted(set(value.known) - _ANNOTATIONS - {"anyOf", "oneOf"})
    if beyond and alternatives != [value]:
        raise OptionError(
            f"{subject} has {', '.join(map(repr, beyond))} beside alternatives, which cannot be enforced in a format "
            f"that writes one parameter after the other. Put it into each alternative."
        )
    marked = "{type}" in form.parameter
    told = marked or bool(form.object[0] and form.array[0])
    if (texts and not form.tells_strings) or (len({way.kind for way in found}) > 1 and not told):
        raise OptionError(
            f"{subject} may have several types, which this format of 'tool_call' does not tell apart. Give it one type."
        )
    if "oneOf" in value.known:
        for one, other in combinations([way.of for way in found if way.of is not None], 2):
            if not _apart(one, other):
                raise OptionError(
                    f"{subject} has alternatives of 'oneOf' that may hold at the same time. Write 'anyOf', or give "
                    f"each of them a required property with a 'const' of its own."
                )
    return found


def _apart(one: Property, other: Property) -> bool:
    """Whether no value satisfies both schemas, as far as their types and constants tell."""
    if not _types(one.known) & _types(other.known):
        return True
    for name in set(one.known.get("required", ())) & set(other.known.get("required", ())):
        values = [_listed(schema.known.get("properties", {}).get(name)) for schema in (one, other)]
        if None not in values and not any(left == right for left in values[0] or () for right in values[1] or ()):
            return True
    return False


def check_array(of: Property, subject: str) -> tuple[Property, int, int | None]:
    """The items of an array whose items are written one by one, and the least and largest number of items.

    Raises:
        OptionError: if its schema has further keywords.
    """
    beyond = sorted(set(of.known) - _OF_ARRAYS)
    if beyond:
        raise OptionError(
            f"{subject} has {', '.join(map(repr, beyond))}, which cannot be enforced in a format that writes one item "
            f"after the other. Leave it out, or use a format that writes JSON."
        )
    least, most = of.known.get("minItems", 0), of.known.get("maxItems")
    if most is not None and most < least:
        raise OptionError(
            f"{subject} has at least {least} items and at most {most}. Correct 'minItems' and 'maxItems'."
        )
    items = of.part(of.known["items"], "/items") if "items" in of.known else Property({}, {}, False)
    return items, least, most


def _texts(
    alternatives: Sequence[Property], value: Property, form: ToolFormat, key: str | None, subject: str, *, whole: bool
) -> list[Way]:
    """The ways to write the strings among the alternatives; with ``whole`` all other values, too, as one text."""
    if whole:
        return [_text(value, None, form, key, subject)]
    ways = []
    for one in [one for one in alternatives if "string" in _types(one.known)]:
        strings = [each for each in _listed(one.known) or () if isinstance(each, str)]
        if form.strings == "json":
            strings = [each for each in strings if not any(end in each for end in _banned(form, key))]
        if strings or _listed(one.known) is None:
            ways.append(_text(one, strings, form, key, subject))
    return ways


def _banned(form: ToolFormat, key: str | None) -> tuple[str, ...]:
    """What stands in no text without escapes."""
    end = form.quote or (form.item_end if key is None else form.parameter_end).replace("{key}", key or "")
    escaped = ("\\", *map(chr, range(32))) if form.strings == "json" else ()
    return tuple(dict.fromkeys([*([end.strip()] if end.strip() else []), *escaped, *form.unwritten]))


def _text(value: Property, strings: list[str] | None, form: ToolFormat, key: str | None, subject: str) -> Way:
    """A text without escapes; of a schema with a list the given strings, or else all of its values."""
    banned = _banned(form, key)
    listed = _listed(value.known)
    if listed is not None:
        values = [*listed] if strings is None else strings
        texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
        for one in texts:
            why = "contains a text that ends it" if any(end in one for end in banned) else ""
            if one in values and form.unlike and re.fullmatch(form.unlike, one):
                why = "parsers take for something else"
            if why:
                raise OptionError(
                    f"{subject} may be {one!r}, which {why} in this format of 'tool_call'. Leave that value out."
                )
        content = SectionContent("text", key)
        if not all(isinstance(one, str) for one in values):
            content = SectionContent("listed", key, texts=tuple(zip(texts, values, strict=True)))
        return Way("text", "string", [("choice", {"choices": tuple(texts)})], content)
    known = value.known if isinstance(value.known, Mapping) else {}
    restricts = {keyword: each for keyword, each in known.items() if keyword not in _ANNOTATIONS}
    language = ANY_STRING
    # Most strings have no further keywords.
    if not restricts.keys() <= {"type"}:
        asked = restricts if value.references is None else value.schema
        language = language_of(json.dumps(asked), strings is not None or known.get("type") == "string")
    # Bans speak of bytes; the pattern of the length leaves whole characters.
    inner: list[Any] = [("bad_words", {"phrases": banned}), *restrictions(form, language)]
    return Way("text", "string", inner, SectionContent("text", key))


def _listed(schema: Any) -> Sequence[Any] | None:
    """The values of ``enum`` or ``const``."""
    if not isinstance(schema, Mapping):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _alternatives(value: Property) -> Iterator[Property]:
    """The alternatives of a value, with nested alternatives expanded; the value itself if there are none."""
    for keyword in ("anyOf", "oneOf"):
        if isinstance(value.known, Mapping) and "type" not in value.known and keyword in value.known:
            for i, schema in enumerate(value.known[keyword]):
                yield from _alternatives(value.part(schema, f"/{keyword}/{i}"))
            return
    yield value


def _named_types(schema: Any) -> frozenset[str]:
    """The types that a schema names itself, or the types of the values that the schema lists."""
    if not isinstance(schema, Mapping):
        return frozenset()
    listed = _listed(schema)
    if listed is not None:
        return frozenset(_TYPES.get(type(value), "object") for value in listed)
    given = schema.get("type", ())
    return frozenset([given] if isinstance(given, str) else given)


def _types(schema: Any) -> frozenset[str]:
    """The JSON types that the values of a schema may have, as far as its type, enum and const tell."""
    named = _named_types(schema)
    return frozenset("number" if one == "integer" else one for one in named) or _EVERY
