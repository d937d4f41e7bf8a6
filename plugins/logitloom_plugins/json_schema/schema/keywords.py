"""One formula over atoms for a whole schema, per type of JSON value: the demands of its keywords, combined.

The demands of single keywords are in :mod:`.assertions` and :mod:`.evaluated`; combinations such as ``anyOf`` are here.

A node's formula for strings speaks of strings only: ``("len", 1, None)``, ``("pat", "^a")``, ``("fmt", "date")``,
``("any", texts)``; for numbers of ``int ge gt le lt mult eq``; for arrays of ``item rest contains mini maxi unique``;
for objects of ``prop patp addl names req minp maxp``. Null, true and false are decided at once. Formulas over nodes
(what a property's value must satisfy) have atoms ``("s", number)``.

References:
    JSON Schema: A Media Type for Describing JSON Documents, and Validation, drafts 4 to 2020-12.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from logitloom.automata import Budget
from logitloom.errors import UnsupportedSchema
from logitloom.process_memory import ProcessLock
from logitloom_plugins.json_schema.schema.formula import (
    NAMED,
    Atom,
    Formula,
    Selection,
    atoms,
    conjunction,
    disjunction,
    exactly_one,
    factored,
    is_atom,
    negation,
    operands,
    parts_of,
    substitute,
)
from logitloom_plugins.json_schema.schema.listed_conditions import by_holders, with_selection
from logitloom_plugins.json_schema.schema.schema_document import Document, JSONValue, SchemaNode, escape_pointer

__all__ = [
    "MANY_BRANCHES",
    "TYPES",
    "Assertions",
    "CircularReference",
    "Keywords",
    "StringProblem",
    "are_equal",
    "type_of",
]

#: By type of value, the reader of the keywords for this type only.
Assertions = Mapping[str, Sequence[Callable[["Keywords", SchemaNode], Sequence[Formula]]]]
#: Why the value of ``pattern``, ``patternProperties`` or ``format`` cannot be enforced; ``None`` if it can.
StringProblem = Callable[[str, str, Budget | None], str | None]

#: A value without parts, after its type.
Scalar = tuple[str, JSONValue]

TYPES: Final = ("null", "false", "true", "number", "string", "array", "object")
#: In a schema that has only these keywords, ``type`` alone says which values are valid.
_ONLY_TYPE: Final = frozenset(("type", "title", "description", "default", "examples", "$comment"))
#: Keywords whose values are checked for every type of instance, with the allowed Python types of the value and a
#: description of the value.
_SHAPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "$ref": ((str,), "the place of a schema"),
    "required": ((list,), "a list of property names"),
    "uniqueItems": ((bool, type(None)), "true or false"),
}
#: A schema without these keywords refers to no other schema for the same value.
_SAME_VALUE: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if"))
#: If more branches than this are distinguished by no member, the objects and arrays are visited at compile time.
MANY_BRANCHES: Final = 24
#: Fewer branches are read side by side.
_LEAST_SELECTED: Final = 4
#: The atoms that constrain the value of one member or of one item.
_PLACED: Final = frozenset(("prop", "item"))
#: The most earlier subschemas of a property with which a further subschema is compared.
_MOST_COMPARED: Final = 8
_NAMES: Final = {
    "null": ("null",), "boolean": ("false", "true"), "number": ("number",), "integer": ("number",),
    "string": ("string",), "array": ("array",), "object": ("object",),
}  # fmt: skip


def type_of(value: JSONValue) -> str:
    """The type of a JSON value, one of :data:`TYPES`."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float, Decimal)):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def _exact(value: JSONValue) -> Decimal:
    """The number that a JSON text shows, without binary rounding."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UnsupportedSchema(f"The schema has the number {value}, which JSON does not have. Give a finite number.")
    return value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else value)


#: For types for which a list of values is one atom: the kind of the atom, and a function from a value in the schema to
#: an element of the list.
_FINITE: Final[Mapping[str, tuple[str, Callable[[JSONValue], JSONValue]]]] = {
    "string": ("any", str),
    "number": ("eq", _exact),
}
#: The only value of a type.
_ALONE: Final[Mapping[str, JSONValue]] = {"null": None, "false": False, "true": True}
#: The kinds of the atoms that are lists of values.
LISTS: Final = frozenset(name for name, _ in _FINITE.values())


class CircularReference(UnsupportedSchema):
    """A schema refers to itself for the same value, so the schema says nothing about any value."""


class Keywords:
    """The formulas of a document's nodes.

    Args:
        document: the schema.
        assertions: what reads the keywords of each type of value.
        string_problem: whether a pattern or a format can be enforced.
        formats: ``"assert"``, ``"annotate"`` or ``"auto"`` (as the draft says).
        additional_properties: whether objects with ``properties`` but no ``additionalProperties`` are open.
        repeatable: nodes whose ``uniqueItems`` is left out.
        integers: ``"plain"``, or ``"any"`` (as JSON Schema reads them).

    Attributes:
        problems: keywords that cannot be enforced and are left out: pointers and names, and why.
        has_many_branches: whether more than :data:`MANY_BRANCHES` alternatives are read side by side somewhere.
        lock: held while formulas are computed, because they are remembered here.
    """

    def __init__(
        self,
        document: Document,
        assertions: Assertions,
        string_problem: StringProblem,
        *,
        formats: str = "auto",
        additional_properties: bool = True,
        repeatable: frozenset[int] = frozenset(),
        integers: str = "plain",
    ) -> None:
        self.document = document
        self.integers = integers
        self.formats = formats
        self.additional_properties = additional_properties
        self.repeatable = repeatable
        self.problems: dict[tuple[str, str], str] = {}
        self.has_many_branches = False
        self.lock = ProcessLock()
        self._assertions = assertions
        self._string_problem = string_problem
        self._sound: set[tuple[str, str]] = set()
        self._known: dict[tuple[int, str], Formula] = {}
        self._active: set[tuple[int, str]] = set()
        self._typed: dict[int, tuple[list[JSONValue], dict[str, list[tuple[int, JSONValue]]]]] = {}
        self._before: dict[tuple[object, ...], list[int]] = {}
        self._constants: dict[tuple[object, ...], int] = {}
        self._selections: dict[Formula, Formula] = {}

    def of(self, number: int, kind: str) -> Formula:
        """The demands of a node on values of one of the :data:`TYPES`."""
        key = (number, kind)
        known = self._known.get(key)
        if known is None:
            if key in self._active:
                node = self.document.nodes[number]
                raise CircularReference(
                    f"The schema at #{node.pointer} refers to itself for the same value ($ref in a circle), so "
                    f"it has no meaning. Break the circle with properties or items."
                )
            self._active.add(key)
            try:
                known = self._known[key] = kind in self.kinds(number) and self._formula(number, kind)
            finally:
                self._active.discard(key)
        return known

    def forget_unfinished(self) -> None:
        """Forget which formulas are being computed. Only an interruption leaves such notes behind."""
        self._active.clear()

    def kinds(self, number: int) -> Sequence[str]:
        """The :data:`TYPES` that ``type`` or ``enum`` of a node allow; no value of another type satisfies the node."""
        schema = self.document.nodes[number].schema
        if isinstance(schema, dict) and "$ref" not in schema:
            wanted, values = schema.get("type"), schema.get("enum")
            if isinstance(wanted, str):
                return _NAMES.get(wanted, TYPES)
            if wanted is None and isinstance(values, list):
                return [*self._of_types(values)]
        return TYPES

    def of_nodes(self, formula: Formula, kind: str) -> Formula:
        """A formula over nodes as one over the atoms of a type."""
        return substitute(formula, lambda atom: self.of(atom[1], kind))

    def together(self, formulas: tuple[Formula, ...]) -> tuple[Formula, ...]:
        """The formulas with one number for all equal subschemas."""
        return tuple([substitute(formula, self._as_before) for formula in formulas])

    # --- one node ----------------------------------------------------------------------------------------------

    def _formula(self, number: int, kind: str) -> Formula:
        node = self.document.nodes[number]
        schema = node.schema
        if isinstance(schema, bool):
            return schema
        if not schema:
            return True
        for keyword, (allowed, wanted) in _SHAPES.items():
            if keyword in schema and not isinstance(schema[keyword], allowed):
                raise self.malformed(node, keyword, wanted)
        if "$ref" in schema and node.dialect.ref_hides_siblings:
            return self.of(self.document.references(node)[0], kind)
        types = self._types(node, kind)
        if types is False or schema.keys() <= _ONLY_TYPE:
            return types
        parts = [types, self._values(node, kind)]
        if parts[-1] is False:
            return False
        for assertions in self._assertions.get(kind, ()):
            parts += assertions(self, node)
        return conjunction([*parts, *self._logic(node, kind)])

    def _types(self, node: SchemaNode, kind: str) -> Formula:
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

    def _of_types(self, values: list[JSONValue]) -> dict[str, list[tuple[int, JSONValue]]]:
        """The values of ``enum`` by their type, each with its index."""
        # The list is kept, so that no other list gets the same identity.
        known = self._typed.get(id(values))
        if known is None:
            found: dict[str, list[tuple[int, JSONValue]]] = {}
            for index, value in enumerate(values):
                found.setdefault(type_of(value), []).append((index, value))
            known = self._typed[id(values)] = values, found
        return known[1]

    def _values(self, node: SchemaNode, kind: str) -> Formula:
        schema = node.schema
        if "enum" not in schema and "const" not in schema:
            return True
        parts: list[Formula] = []
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise self.malformed(node, "enum", "a list")
            fitting = self._of_types(schema["enum"]).get(kind, [])
            if kind in _FINITE:
                name, element = _FINITE[kind]
                parts.append((name, frozenset(element(v) for _, v in fitting)) if fitting else False)
            else:
                values = [self._equals(node, v, f"/enum/{i}") for i, v in fitting]
                parts.append(self._branches(node, values, disjunction))
        if "const" in schema and node.dialect.number >= 6:
            value = schema["const"]
            parts.append(self._equals(node, value, "/const") if type_of(value) == kind else False)
        return conjunction(parts)

    def _equals(self, node: SchemaNode, value: JSONValue, relative: str) -> Formula:
        self.document.tracker.check_time()
        kind = type_of(value)
        if kind in ("null", "true", "false"):
            return True
        if kind in _FINITE:
            name, element = _FINITE[kind]
            return (name, frozenset([element(value)]))
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

    def _logic(self, node: SchemaNode, kind: str) -> list[Formula]:
        schema = node.schema
        if _SAME_VALUE.isdisjoint(schema):
            return []
        parts = [self.of(number, kind) for number in self.document.references(node)]

        def inner(keyword: str) -> Formula:
            if keyword not in schema:
                return True
            return self.of(self.document.child(node, schema[keyword], f"/{keyword}"), kind)

        for keyword, joined in (("allOf", conjunction), ("anyOf", disjunction), ("oneOf", exactly_one)):
            if keyword in schema:
                if not isinstance(schema[keyword], list) or not schema[keyword]:
                    raise self.malformed(node, keyword, "a list of schemas with at least one entry")
                children = [self.document.child(node, s, f"/{keyword}/{i}") for i, s in enumerate(schema[keyword])]
                parts.append(self._branches(node, [self.of(child, kind) for child in children], joined))
        if "not" in schema:
            parts.append(negation(inner("not")))
        if "if" in schema and node.dialect.number >= 7 and ("then" in schema or "else" in schema):
            condition = inner("if")
            parts += [disjunction([negation(condition), inner("then")]), *self._otherwise(condition, inner("else"))]
        return parts

    def _otherwise(self, condition: Formula, other: Formula) -> list[Formula]:
        """The parts of "the condition or the other formula".

        In a chain of ``else`` and ``if`` a member often has other values in each condition. What a later condition
        demands then also holds where an earlier condition does, so it is not nested: a long chain is no deep formula.
        """
        case = self._listed_condition(condition)
        if case is None or len(parts_of(other)) < 2:
            return [disjunction([condition, other])]
        apart, rest = list[Formula](), list[Formula]()
        for part in parts_of(other):
            refused = [each[1] for each in operands(part) if not isinstance(each, bool) and each[0] == "!"]
            others = map(self._listed_condition, refused if part[0] == "|" else ())
            (apart if any(each is not None and case.is_apart(each) for each in others) else rest).append(part)
        return [*apart, disjunction([condition, conjunction(rest)])]

    def _listed_condition(self, condition: Formula) -> _ListedCondition | None:
        """The values that a condition lists for one member of an object; ``None`` of any other formula."""
        parts = [] if isinstance(condition, bool) else parts_of(condition)
        required = [part for part in parts if part[0] == "req"]
        listed = [part for part in parts if part[0] == "prop" and not isinstance(part[2], bool) and part[2][0] == "s"]
        names = {part[1] for part in parts if part[0] in NAMED}
        if not listed or len(names) != 1 or len(required) + len(listed) != len(parts):
            return None
        values = self._scalars([part[2][1] for part in listed])
        return None if values is None else _ListedCondition(names.pop(), frozenset(values), bool(required))

    def _branches(
        self, node: SchemaNode, branches: list[Formula], joined: Callable[[list[Formula]], Formula]
    ) -> Formula:
        """Several schemas as one formula, in which their common parts occur once."""
        self.document.tracker.check_time()
        if joined is not conjunction:
            branches = [branch for branch in branches if branch is not False]
        if joined is conjunction or len(branches) < 2:
            return joined(branches)
        lists = [branch for branch in branches if is_atom(branch) and branch[0] in LISTS]
        if len(lists) == len(branches) and len({kind for kind, *_ in lists}) == 1:
            elements = [listed for _, listed in lists]
            every = frozenset[Hashable]().union(*elements)
            if joined is disjunction or len(every) == sum(map(len, elements)):
                return (*[kind for kind, _ in lists[:1]], every)
        branches = list(self.together(tuple(branches)))
        common, rests = factored(tuple(branches))
        selected = self._selected(node, rests, joined)
        if selected is None and len(rests) > MANY_BRANCHES:
            self.has_many_branches = True
        if not common and selected is None:
            return joined(branches)
        found = conjunction([*common, joined(rests) if selected is None else selected])
        names = _declared(joined(branches))
        # Common parts stand before the rest. The atoms of ``order`` keep the names in the order of the schema.
        order = [] if _declared(found) == names else [("prop", name, True) for name in names]
        return conjunction([*order, found])

    def _selected(
        self, node: SchemaNode, branches: list[Formula], joined: Callable[[list[Formula]], Formula]
    ) -> Formula | None:
        """Branches as a selection by the first member or item whose values each branch lists; ``None`` without one."""
        if len(branches) < _LEAST_SELECTED:
            return None
        tags = [*map(_tags, branches)]
        for place in tags[0]:
            if all(place in tag for tag in tags):
                listed = [self._scalars(tag[place]) for tag in tags]
                if all(values is not None for values in listed):
                    return self._by_value(node, branches, joined, place, listed)
        return self._partly_selected(node, branches, tags) if joined is disjunction else None

    def _partly_selected(
        self, node: SchemaNode, branches: list[Formula], tags: list[dict[tuple[str, str | int], list[int]]]
    ) -> Formula | None:
        """Alternatives as several selections, each by a member or item of its own, and the other alternatives.

        ``None`` if no member or item selects alternatives.
        """
        often = Counter([place for tag in tags for place in tag])
        alone: list[Formula] = []
        groups: dict[tuple[str, str | int], list[tuple[Formula, JSONValue]]] = {}
        for branch, tag in zip(branches, tags, strict=True):
            place = max(tag, key=often.__getitem__, default=None)
            listed = self._scalars(tag[place]) if place is not None and often[place] >= _LEAST_SELECTED else None
            if place is None or listed is None:
                alone.append(branch)
            else:
                groups.setdefault(place, []).append((branch, listed))
        selected: list[Formula] = []
        for place, members in groups.items():
            chosen, values = [branch for branch, _ in members], [listed for _, listed in members]
            large = len(members) >= _LEAST_SELECTED
            selection = self._by_value(node, chosen, disjunction, place, values) if large else None
            if selection is None:
                alone += chosen
            else:
                selected.append(selection)
        return disjunction([*selected, *alone]) if selected else None

    def _by_value(
        self,
        node: SchemaNode,
        branches: list[Formula],
        joined: Callable[[list[Formula]], Formula],
        place: tuple[str, str | int],
        listed: JSONValue,
    ) -> Formula | None:
        """The selection of branches by a member or an item; ``listed`` has the values that each branch lists for it.

        The lists stand for all parts of a branch that constrain the member or item.
        """
        groups = by_holders(dict(enumerate(listed)))
        if len(groups) < 2:
            return None
        lists = [*groups.values()]

        bits = self._bits(node, place[1], lists)
        # A branch that forbids the member still does.
        rests = [
            conjunction([part for part in parts_of(branch) if part[:2] != place or part[2] is False])
            for branch in branches
        ]
        cases = [self._branches(node, [rests[index] for index in indices], joined) for indices in groups]
        selection = Selection(place[1], bits, tuple(cases), joined(branches))
        return conjunction([(*place, self._one_of(node, place[1], lists)), selection.formula])

    def _bits(self, node: SchemaNode, member: str | int, lists: Sequence[Sequence[Scalar]]) -> tuple[Formula, ...]:
        """Formulas over nodes: a value in a list satisfies entry ``i`` if bit ``i`` of the number of the list is 1."""
        return tuple(
            [
                self._one_of(node, member, [values for number, values in enumerate(lists) if number >> place & 1])
                for place in range((len(lists) - 1).bit_length())
            ]
        )

    def _one_of(self, node: SchemaNode, member: str | int, lists: Sequence[Sequence[Scalar]]) -> Formula:
        """The formula over nodes of the values in some lists, for a member or item."""
        schema = {"enum": [value for values in lists for _, value in values]}
        return ("s", self.document.made(node, schema, f"/{escape_pointer(str(member))}"))

    def look_for_selection(self, formula: Formula) -> None:
        """Find the selection of a formula about objects, so that :meth:`with_selection` knows it.

        A selection makes nodes. It is looked for in a fixed order, because other processes read numbers of nodes.
        """
        nodes = self.document.nodes
        found = with_selection(formula, self._scalars_of, lambda node, *lists: self._bits(nodes[node], *lists))
        if found is not formula:
            self._selections[formula] = found

    def with_selection(self, formula: Formula) -> Formula:
        """A formula about objects with one selection in place of many conditions on the values of one member."""
        # Most schemas have none, and a long formula takes long to hash.
        return self._selections.get(formula, formula) if self._selections else formula

    def _scalars(self, numbers: list[int]) -> list[Scalar] | None:
        """The values that all nodes allow, with their types; ``None`` if a node allows values that are not listed."""
        found, *others = [self._scalars_of(number) for number in numbers]
        for other in others:
            if found is None or other is None:
                return None
            kept = set(other)
            found = [value for value in found if value in kept]
        return found

    def _scalars_of(self, number: int) -> list[Scalar] | None:
        """The values that a node allows, with their types; ``None`` if some are not listed, or arrays or objects."""
        self.document.tracker.check_time()
        found: list[Scalar] = []
        for kind in self.kinds(number):
            formula = self.of(number, kind)
            if formula is False:
                continue
            if kind in _FINITE and formula is not True and formula[0] == _FINITE[kind][0]:
                found += [(kind, value) for value in sorted(formula[1])]
            elif kind in _ALONE and formula is True:
                found.append((kind, _ALONE[kind]))
            else:
                return None
        return found

    def _as_before(self, atom: Atom) -> Formula:
        """The atom with the first subschema that equals its own, because branches often repeat subschemas."""
        *path, child = atom
        if not isinstance(child, tuple) or child[:1] != ("s",):
            return atom
        nodes, number = self.document.nodes, child[1]
        node = nodes[number]
        before = self._before.setdefault(tuple(path), [])
        for other in before:
            if other == number:
                return atom
            # Equal schemas mean the same if base, draft and scope are equal.
            there = nodes[other]
            if (there.base, there.dialect, there.scope) != (node.base, node.dialect, node.scope):
                continue
            if are_equal(there.schema, node.schema):
                return (*path, ("s", other))
        if len(before) < _MOST_COMPARED:
            before.append(number)
        return atom

    # --- the values of keywords -------------------------------------------------------------------------------

    def refuse(self, node: SchemaNode, keyword: str, reason: str) -> None:
        """Note that a keyword cannot be enforced."""
        self.problems.setdefault((node.pointer + "/" + escape_pointer(keyword), keyword), reason)

    def is_sound(self, node: SchemaNode, keyword: str, text: str) -> bool:
        """Whether a pattern or a format can be enforced; if not, that is noted."""
        if (keyword, text) not in self._sound:
            problem = self._string_problem(keyword, text, self.document.tracker.budget)
            if problem is not None:
                self.refuse(node, keyword, problem.removesuffix("."))
                return False
            self._sound.add((keyword, text))
        return True

    def pattern_properties(self, node: SchemaNode) -> dict[str, JSONValue]:
        """The ``patternProperties`` of a node of which automata can be made."""
        table = self.table(node, "patternProperties")
        return {name: part for name, part in table.items() if self.is_sound(node, "patternProperties", name)}

    def table(self, node: SchemaNode, keyword: str) -> dict[str, JSONValue]:
        """The value of a keyword that must be an object; empty without it."""
        table = node.schema.get(keyword, {})
        if not isinstance(table, dict):
            raise self.malformed(node, keyword, "an object")
        return table

    def malformed(self, node: SchemaNode, keyword: str, wanted: str) -> UnsupportedSchema:
        """The error for a keyword whose value is of the wrong kind."""
        return UnsupportedSchema(
            f"The keyword {keyword!r} at #{node.pointer} has the value {node.schema[keyword]!r:.60}, and "
            f"{wanted} is expected. Correct the schema."
        )

    def constant(self, node: SchemaNode, value: JSONValue, relative: str) -> int:
        """The number of a node that only one value satisfies; equal values below one base URI share the node."""
        schema = {"enum": [value]}
        try:
            key = repr(value), node.base, node.dialect, node.scope
        except RecursionError:
            return self.document.made(node, schema, relative)
        if key not in self._constants:
            self._constants[key] = self.document.made(node, schema, relative)
        return self._constants[key]

    def child(self, node: SchemaNode, schema: JSONValue, relative: str) -> Formula:
        """A subschema as a formula over nodes."""
        if isinstance(schema, bool):
            return schema
        if schema == {}:
            return True
        return ("s", self.document.meant(self.document.child(node, schema, relative)))

    def number(self, node: SchemaNode, keyword: str) -> Decimal | None:
        """The value of a keyword that must be a number; ``None`` without it."""
        value = node.schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise self.malformed(node, keyword, "a number")
        return _exact(value)

    def count(self, node: SchemaNode, keyword: str) -> int | None:
        """The value of a keyword that must be a whole number, 0 or more; ``None`` without it."""
        value = self.number(node, keyword)
        if value is None:
            return None
        if value != int(value) or value < 0:
            raise self.malformed(node, keyword, "an integer, 0 or more")
        return int(value)


def are_equal(one: JSONValue, other: JSONValue) -> bool:
    """Whether two schemas are equal; false, too, if they are nested too deeply to be compared."""
    try:
        # Equality is fast, but does not tell 1 from true.
        return bool(one == other) and repr(one) == repr(other)
    except RecursionError:
        return False


class _ListedCondition(NamedTuple):
    """The values of a member for which a condition holds, and whether the member must be there."""

    member: str
    values: frozenset[tuple[str, JSONValue]]
    required: bool

    def is_apart(self, other: _ListedCondition) -> bool:
        """Whether no object satisfies both conditions."""
        apart = self.member == other.member and self.values.isdisjoint(other.values)
        return apart and (self.required or other.required)


def _tags(branch: Formula) -> dict[tuple[str, str | int], list[int]]:
    """By member or item the numbers of the nodes that all constrain its value in a branch."""
    found: dict[tuple[str, str | int], list[int]] = {}
    for part in parts_of(branch):
        if part[0] in _PLACED and not isinstance(part[2], bool):
            found.setdefault(part[:2], []).append(part[2][1])
    return found


def _declared(formula: Formula) -> list[str]:
    """The names of declared members in a formula over objects, in their order."""
    return list(dict.fromkeys(atom[1] for atom in atoms(formula) if atom[0] == "prop"))
