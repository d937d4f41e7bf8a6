"""From the keywords of a schema to formulas over atoms, one formula per type of JSON value.

A node's formula for strings speaks of strings only: ``("len", 1, None)``, ``("pat", "^a")``, ``("fmt", "date")``,
``("seq", "text")``; for numbers of ``int ge gt le lt mult eq``; for arrays of ``item rest contains mini maxi unique``;
for objects of ``prop patp addl names req minp maxp``. Null, true and false are decided at once. Formulas over nodes
(what a property's value must satisfy) have atoms ``("s", number)``.

References:
    JSON Schema: A Media Type for Describing JSON Documents, and Validation, drafts 4 to 2020-12.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.schema.container_keywords import array_formulas, object_formulas
from logitloom_plugins.json_schema.schema.formula import (
    Formula,
    atoms,
    conjunction,
    disjunction,
    exactly_one,
    factored,
    negation,
    substitute,
)
from logitloom_plugins.json_schema.schema.keyword_reader import KeywordReader, exact
from logitloom_plugins.json_schema.schema.references import Node, escape_pointer

__all__ = ["TYPES", "Keywords", "are_equal"]

TYPES: Final = ("null", "false", "true", "number", "string", "array", "object")
#: Subschemas of one property that a further one is compared with.
_MOST_COMPARED: Final = 8
_NAMES: Final = {
    "null": ("null",), "boolean": ("false", "true"), "number": ("number",), "integer": ("number",),
    "string": ("string",), "array": ("array",), "object": ("object",),
}  # fmt: skip


def type_of(value: Any) -> str:
    """The type of a JSON value, one of :data:`TYPES`."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float, Decimal)):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


class Keywords(KeywordReader):
    """The formulas of a document's nodes."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._known: dict[tuple[int, str], Formula] = {}
        self._active: set[tuple[int, str]] = set()
        self._before: dict[tuple[Any, ...], list[int]] = {}

    def of(self, number: int, kind: str) -> Formula:
        """What a node demands of values of one of the :data:`TYPES`."""
        key = (number, kind)
        known = self._known.get(key)
        if known is None:
            if key in self._active:
                node = self.document.nodes[number]
                raise UnsupportedSchema(
                    f"The schema at {node.pointer or '#'} refers to itself for the same value ($ref in a circle), so "
                    f"it has no meaning. Break the circle with properties or items."
                )
            self._active.add(key)
            known = self._known[key] = self._formula(number, kind)
            self._active.discard(key)
        return known

    def together(self, formulas: tuple[Formula, ...]) -> tuple[Formula, ...]:
        """The same formulas, in which subschemas that are alike are one."""
        return tuple([substitute(formula, self._as_before) for formula in formulas])

    # --- one node ----------------------------------------------------------------------------------------------

    def _formula(self, number: int, kind: str) -> Formula:
        node = self.document.nodes[number]
        schema = node.schema
        if isinstance(schema, bool):
            return schema
        if not schema:
            return True
        if "$ref" in schema and isinstance(schema["$ref"], str) and node.dialect.ref_hides_siblings:
            return self.of(self.document.resolve(node, schema["$ref"]), kind)
        parts: list[Formula] = [self._types(node, kind)]
        if parts[0] is False:
            return False
        parts.append(self._values(node, kind))
        if parts[-1] is False:
            return False
        if kind == "number":
            parts += self._number(node)
        elif kind == "string":
            parts += self._string(node)
        elif kind == "array":
            parts += array_formulas(self, node)
        elif kind == "object":
            parts += object_formulas(self, node)
        parts += self._logic(node, kind)
        return conjunction(parts)

    def _types(self, node: Node, kind: str) -> Formula:
        wanted = node.schema.get("type")
        if wanted is None:
            return True
        names = wanted if isinstance(wanted, list) else [wanted]
        fitting = False
        for name in names:
            if not isinstance(name, str) or name not in _NAMES:
                raise self.malformed(node, "type", f"one or several of {', '.join(_NAMES)}")
            fitting = fitting or kind in _NAMES[name]
        if kind == "number" and fitting and "number" not in names:
            return ("int", node.dialect.number == 4)
        return fitting

    def _values(self, node: Node, kind: str) -> Formula:
        schema = node.schema
        parts: list[Formula] = []
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise self.malformed(node, "enum", "a list")
            fitting = [(i, v) for i, v in enumerate(schema["enum"]) if type_of(v) == kind]
            if kind == "string":
                parts.append(("any", frozenset(v for _, v in fitting)) if fitting else False)
            else:
                parts.append(disjunction([self._equals(node, v, f"/enum/{i}") for i, v in fitting]))
        if "const" in schema and node.dialect.number >= 6:
            value = schema["const"]
            parts.append(self._equals(node, value, "/const") if type_of(value) == kind else False)
        return conjunction(parts)

    def _equals(self, node: Node, value: Any, relative: str) -> Formula:
        kind = type_of(value)
        if kind in ("null", "true", "false"):
            return True
        if kind == "string":
            return ("any", frozenset([value]))
        if kind == "number":
            return ("eq", exact(value))
        if kind == "array":
            items = [("s", self.constant(node, v, f"{relative}/{i}")) for i, v in enumerate(value)]
            return conjunction(
                [
                    *[("item", i, item) for i, item in enumerate(items)],
                    ("rest", len(items), False),
                    ("mini", len(items)) if items else True,
                ]
            )
        names = tuple(value)
        return conjunction(
            [
                *[
                    ("prop", name, ("s", self.constant(node, v, f"{relative}/{escape_pointer(name)}")))
                    for name, v in value.items()
                ],
                *[("req", name) for name in names],
                ("addl", frozenset(names), frozenset(), False),
            ]
        )

    def _logic(self, node: Node, kind: str) -> list[Formula]:
        schema, dialect = node.schema, node.dialect
        parts: list[Formula] = []

        def inner(value: Any, relative: str) -> Formula:
            return self.of(self.document.child(node, value, relative), kind)

        def listed(keyword: str) -> list[Formula]:
            if not isinstance(schema[keyword], list) or not schema[keyword]:
                raise self.malformed(node, keyword, "a list of schemas with at least one entry")
            return [inner(part, f"/{keyword}/{i}") for i, part in enumerate(schema[keyword])]

        def branches(keyword: str, joined: Callable[[list[Formula]], Formula]) -> Formula:
            parts = [part for part in listed(keyword) if part is not False]
            if len(parts) < 2:
                return joined(parts)
            parts = list(self.together(tuple(parts)))
            common, rests = factored(tuple(parts))
            found = conjunction([*common, joined(rests)])
            names = _declared(joined(parts))
            # What the branches have in common stands before the rest. The order of the names stays that of the schema.
            order = [] if _declared(found) == names else [("prop", name, True) for name in names]
            return conjunction([*order, found])

        if isinstance(schema.get("$ref"), str):
            parts.append(self.of(self.document.resolve(node, schema["$ref"]), kind))
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if isinstance(schema.get(keyword), str) and dialect.number >= 8:
                parts.append(self.of(self.document.resolve_dynamic(node, keyword), kind))
        if "allOf" in schema:
            parts.append(conjunction(listed("allOf")))
        if "anyOf" in schema:
            parts.append(branches("anyOf", disjunction))
        if "oneOf" in schema:
            parts.append(branches("oneOf", exactly_one))
        if "not" in schema:
            parts.append(negation(inner(schema["not"], "/not")))
        if "if" in schema and dialect.number >= 7 and ("then" in schema or "else" in schema):
            condition = inner(schema["if"], "/if")
            then = inner(schema["then"], "/then") if "then" in schema else True
            other = inner(schema["else"], "/else") if "else" in schema else True
            parts.append(disjunction([negation(condition), then]))
            parts.append(disjunction([condition, other]))
        return parts

    def _as_before(self, atom: Any) -> Formula:
        """An atom with the first of the subschemas that are alike: branches often repeat what is common to all."""
        *place, child = atom
        if not isinstance(child, tuple) or child[:1] != ("s",):
            return atom
        nodes, number = self.document.nodes, child[1]
        node = nodes[number]
        before = self._before.setdefault(tuple(place), [])
        for other in before:
            if other == number:
                return atom
            # Equal schemas mean the same where they are resolved and read alike.
            there = nodes[other]
            if (there.base, there.dialect, there.scope) != (node.base, node.dialect, node.scope):
                continue
            if are_equal(there.schema, node.schema):
                return (*place, ("s", other))
        if len(before) < _MOST_COMPARED:
            before.append(number)
        return atom

    # --- numbers and strings -----------------------------------------------------------------------------------

    def _number(self, node: Node) -> list[Formula]:
        schema = node.schema
        parts: list[Formula] = []
        for keyword, strict, atom in (("minimum", "exclusiveMinimum", "g"), ("maximum", "exclusiveMaximum", "l")):
            if node.dialect.number == 4:
                bound = self._bound(node, keyword)
                if bound is not None:
                    parts.append((atom + ("t" if schema.get(strict) is True else "e"), bound))
                continue
            for name, end in ((keyword, "e"), (strict, "t")):
                bound = self._bound(node, name)
                if bound is not None:
                    parts.append((atom + end, bound))
        factor = self._bound(node, "multipleOf")
        if factor is not None:
            if factor <= 0:
                raise self.malformed(node, "multipleOf", "a number greater than 0")
            parts.append(("mult", Fraction(factor)))
        return parts

    def _string(self, node: Node) -> list[Formula]:
        schema = node.schema
        parts: list[Formula] = []
        least, most = self.count(node, "minLength"), self.count(node, "maxLength")
        if least or most is not None:
            parts.append(("len", least or 0, most))
        if "pattern" in schema:
            if not isinstance(schema["pattern"], str):
                raise self.malformed(node, "pattern", "a regular expression")
            if self.is_sound(node, "pattern", schema["pattern"]):
                parts.append(("pat", schema["pattern"]))
        name = schema.get("format")
        if isinstance(name, str) and self.asserts_format(node):
            if name in self.strings.formats:
                parts.append(("fmt", name))
                if name in self.strings.format_lengths:
                    parts.append(("len", 1, self.strings.format_lengths[name]))
            elif name in self.strings.irregular_formats:
                self.refuse(
                    node, "format", f"the format {name!r} is not regular ({self.strings.irregular_formats[name]})"
                )
        return parts

    def asserts_format(self, node: Node) -> bool:
        """Whether ``format`` is enforced at a node."""
        return self.formats == "assert" or (self.formats == "auto" and node.dialect.asserts_format)


def are_equal(one: Any, other: Any) -> bool:
    """Whether two schemas are the same; false also where they are nested too deeply to be compared."""
    try:
        # Equality is quick to see, but does not tell 1 from true.
        return bool(one == other) and repr(one) == repr(other)
    except RecursionError:
        return False


def _declared(formula: Formula) -> list[str]:
    """The names of declared members in a formula over objects, in their order."""
    return list(dict.fromkeys(atom[1] for atom in atoms(formula) if atom[0] == "prop"))
