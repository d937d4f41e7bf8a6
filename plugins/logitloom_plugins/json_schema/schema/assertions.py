"""The demand of each single keyword of numbers, strings, arrays and objects, as a formula over atoms.

References:
    JSON Schema: A Media Type for Describing JSON Documents, and Validation, drafts 4 to 2020-12.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Final

from logitloom_plugins.json_schema.schema.formula import Atom, Formula, conjunction, disjunction, negation, parts_of
from logitloom_plugins.json_schema.schema.keywords import CircularReference, Keywords
from logitloom_plugins.json_schema.schema.schema_document import JSONValue, SchemaNode, escape_pointer

__all__ = ["MOST_UNIQUE", "array_formulas", "finite", "number_formulas", "object_formulas", "string_formulas"]

MOST_UNIQUE: Final = 20
#: More characters than a text ever has; numbers of characters fit into 64 bits.
_MOST_COUNTED: Final = 1 << 40
#: The most characters of a text of a format, for formats that bound the length.
_MOST_CHARACTERS: Final = {"hostname": 253}


def number_formulas(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    """The demands of a node on numbers, as parts of a conjunction over ``ge gt le lt mult``."""
    parts: list[Formula] = []
    for keyword, strict, atom in (("minimum", "exclusiveMinimum", "g"), ("maximum", "exclusiveMaximum", "l")):
        bound = keywords.number(node, keyword)
        is_flag = node.dialect.number == 4
        if bound is not None:
            parts.append((atom + ("t" if is_flag and node.schema.get(strict) is True else "e"), bound))
        bound = None if is_flag else keywords.number(node, strict)
        if bound is not None:
            parts.append((atom + "t", bound))
    factor = keywords.number(node, "multipleOf")
    if factor is not None:
        if factor <= 0:
            raise keywords.malformed(node, "multipleOf", "a number greater than 0")
        parts.append(("mult", Fraction(factor)))
    return parts


def string_formulas(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    """The demands of a node on strings, as parts of a conjunction over ``len pat fmt``."""
    schema = node.schema
    parts: list[Formula] = []
    least, most = keywords.count(node, "minLength"), keywords.count(node, "maxLength")
    if least or most is not None:
        parts.append(("len", min(least or 0, _MOST_COUNTED), None if most is None else min(most, _MOST_COUNTED)))
    if "pattern" in schema:
        if not isinstance(schema["pattern"], str):
            raise keywords.malformed(node, "pattern", "a regular expression")
        if keywords.is_sound(node, "pattern", schema["pattern"]):
            parts.append(("pat", schema["pattern"]))
    name = schema.get("format", "")
    if not isinstance(name, str):
        raise keywords.malformed(node, "format", "the name of a format")
    is_asserted = name in node.dialect.asserted(keywords.formats)
    if is_asserted and keywords.is_sound(node, "format", name):
        parts.append(("fmt", name))
        if name in _MOST_CHARACTERS:
            parts.append(("len", 0, _MOST_CHARACTERS[name]))
    return parts


def array_formulas(keywords: Keywords, node: SchemaNode) -> list[Atom]:
    """The demands of a node on arrays, as parts of a conjunction over ``item rest contains mini maxi unique``."""
    schema, modern = node.schema, node.dialect.number >= 9
    parts: list[Atom] = []
    prefix = schema.get("prefixItems") if modern else None
    rest = schema.get("items")
    named = ("/prefixItems", "/items")
    if isinstance(rest, list):
        prefix, rest, named = rest, schema.get("additionalItems"), ("/items", "/additionalItems")
    if prefix is not None and not isinstance(prefix, list):
        raise keywords.malformed(node, "prefixItems", "a list of schemas")
    count = len(prefix or ())
    parts += [("item", i, keywords.child(node, part, f"{named[0]}/{i}")) for i, part in enumerate(prefix or ())]
    if rest is not None:
        parts.append(("rest", count, keywords.child(node, rest, named[1])))
    least, most = keywords.count(node, "minItems"), keywords.count(node, "maxItems")
    if least:
        parts.append(("mini", least))
    if most is not None:
        parts.append(("maxi", most))
    if "contains" in schema and node.dialect.number >= 6:
        later = node.dialect.number >= 8
        low = keywords.count(node, "minContains") if later else None
        high = keywords.count(node, "maxContains") if later else None
        low = 1 if low is None else low
        if low or high is not None:
            parts.append(("contains", keywords.child(node, schema["contains"], "/contains"), low, high))
    if schema.get("uniqueItems") and (most is None or most > 1):
        parts += _unique(keywords, node, prefix or [], rest, named)
    return [part for part in parts if not (part[0] in ("item", "rest") and part[2] is True)]


def _unique(
    keywords: Keywords, node: SchemaNode, prefix: list[JSONValue], rest: JSONValue, named: tuple[str, str]
) -> list[Atom]:
    """``uniqueItems``. If items have few possible values: each value comes at most once."""
    children = [keywords.child(node, part, f"{named[0]}/{i}") for i, part in enumerate(prefix)]
    children.append(True if rest is None else keywords.child(node, rest, named[1]))
    values: dict[str, JSONValue] = {}
    for child in children:
        found = finite(keywords, child)
        values.update((json.dumps(value), value) for value in found or ())
        if found is None or len(values) > MOST_UNIQUE:
            number = keywords.document.number(node)
            return [] if number in keywords.repeatable else [("unique", number)]
    constants = [("s", keywords.constant(node, value, "/uniqueItems")) for value in values.values()]
    # The bound on the number of items follows from the other parts, but deriving it takes long.
    return [("maxi", len(values)), *[("contains", constant, 0, 1) for constant in constants]]


def finite(keywords: Keywords, formula: Formula) -> list[JSONValue] | None:
    """All values that satisfy a formula over nodes, if that is easily seen; scalars only."""
    values: list[JSONValue] = []
    for kind, value in (("null", None), ("false", False), ("true", True)):
        if keywords.of_nodes(formula, kind) is not False:
            values.append(value)
    for kind in ("array", "object"):
        try:
            if keywords.of_nodes(formula, kind) is not False:
                return None
        except CircularReference:
            # Items may be such arrays or objects themselves.
            return None
    texts = keywords.of_nodes(formula, "string")
    if texts is not False:
        listed = [part[1] for part in parts_of(texts) if part[0] == "any"]
        if not listed:
            return None
        values += sorted(frozenset.intersection(*listed))
    numbers = keywords.of_nodes(formula, "number")
    if numbers is not False:
        if numbers is True or numbers[0] != "eq":
            return None
        values += [int(value) if value == int(value) else float(value) for value in sorted(numbers[1])]
    return values


def _names(keywords: Keywords, node: SchemaNode, keyword: str) -> list[str]:
    names = node.schema[keyword]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise keywords.malformed(node, keyword, "a list of property names")
    return names


def object_formulas(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    """The demands of a node on objects, as parts of a conjunction over ``prop patp addl names req minp maxp``."""
    schema, dialect = node.schema, node.dialect
    parts: list[Formula] = []
    properties = keywords.table(node, "properties")
    patterns = keywords.pattern_properties(node)
    for name, part in properties.items():
        parts.append(("prop", name, keywords.child(node, part, f"/properties/{escape_pointer(name)}")))
    for name, part in patterns.items():
        parts.append(("patp", name, keywords.child(node, part, f"/patternProperties/{escape_pointer(name)}")))
    additional = schema.get("additionalProperties")
    if additional is None and properties and not keywords.additional_properties:
        additional = False
    if additional is not None:
        child = keywords.child(node, additional, "/additionalProperties")
        if child is not True:
            parts.append(("addl", frozenset(properties), frozenset(patterns), child))
    if "required" in schema:
        parts += [("req", name) for name in _names(keywords, node, "required")]
    if "propertyNames" in schema and dialect.number >= 6:
        child = keywords.child(node, schema["propertyNames"], "/propertyNames")
        if child is not True:
            parts.append(("names", child))
    least, most = keywords.count(node, "minProperties"), keywords.count(node, "maxProperties")
    if least:
        parts.append(("minp", least))
    if most is not None:
        parts.append(("maxp", most))
    return parts + _dependencies(keywords, node)


def _dependencies(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    schema = node.schema
    parts: list[Formula] = []
    modern = node.dialect.number >= 8
    for keyword in ("dependentRequired", "dependentSchemas") if modern else ("dependencies",):
        for name, wanted in keywords.table(node, keyword).items():
            if isinstance(wanted, str) and not modern:
                wanted = [wanted]
            named = isinstance(wanted, list) and keyword != "dependentSchemas"
            if keyword == "dependentRequired" or named:
                if not named or not all(isinstance(other, str) for other in wanted):
                    or_schema = "" if modern else ", or a schema,"
                    raise keywords.malformed(
                        node, keyword, f"an object with a list of property names{or_schema} for each property"
                    )
                consequence = conjunction([("req", other) for other in wanted])
            else:
                relative = f"/{keyword}/{escape_pointer(name)}"
                consequence = keywords.of(keywords.document.child(node, schema[keyword][name], relative), "object")
            parts.append(disjunction([negation(("req", name)), consequence]))
    return parts
