"""``unevaluatedProperties`` and ``unevaluatedItems``: their demands on a value.

Which properties and items are evaluated depends on the branches of ``anyOf``, ``oneOf`` and ``if`` that a value
satisfies. Each combination of branches is a case: its condition, as a formula over nodes, and the members or items that
it evaluates.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logitloom_plugins.json_schema.schema.formula import Formula, conjunction, disjunction, negation
from logitloom_plugins.json_schema.schema.keywords import Keywords
from logitloom_plugins.json_schema.schema.schema_document import JSONValue, SchemaNode, escape_pointer

__all__ = ["evaluated_items", "evaluated_properties"]

_MOST_CASES: Final = 512


class _Case(NamedTuple):
    """A combination of branches, and the members or items that it evaluates.

    Attributes:
        condition: a formula over nodes.
        everything: whether all properties or items are evaluated.
        names, patterns: the names and patterns of the evaluated properties.
        prefix: how many items at the beginning are evaluated.
        contained: a formula over nodes; items that satisfy the formula are evaluated.
    """

    condition: Formula = True
    everything: bool = False
    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    prefix: int = 0
    contained: Formula = False

    def joined(self, other: _Case) -> _Case:
        return _Case(
            conjunction([self.condition, other.condition]),
            self.everything or other.everything,
            self.names | other.names,
            self.patterns | other.patterns,
            max(self.prefix, other.prefix),
            disjunction([self.contained, other.contained]),
        )


def evaluated_properties(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    """The demand of ``unevaluatedProperties`` on the properties that no other keyword of the node has evaluated."""
    return _evaluated(keywords, node, "Properties")


def evaluated_items(keywords: Keywords, node: SchemaNode) -> list[Formula]:
    """The demand of ``unevaluatedItems`` on the items that no other keyword of the node has evaluated."""
    return _evaluated(keywords, node, "Items")


def _evaluated(keywords: Keywords, node: SchemaNode, about: str) -> list[Formula]:
    keyword = f"unevaluated{about}"
    if keyword not in node.schema or node.dialect.number < 8:
        return []
    rest = keywords.child(node, node.schema[keyword], f"/{keyword}")

    def demand(case: _Case) -> Formula:
        if case.everything or rest is True:
            return True
        if about == "Properties":
            return ("addl", case.names, case.patterns, rest)
        return ("rest", case.prefix, disjunction([case.contained, rest]))

    kind = "object" if about == "Properties" else "array"
    cases = _cases(keywords, node, about, True)
    return [disjunction([conjunction([keywords.of_nodes(case.condition, kind), demand(case)]) for case in cases])]


def _cases(keywords: Keywords, node: SchemaNode, about: str, top: bool = False, depth: int = 0) -> list[_Case]:
    schema = node.schema
    if isinstance(schema, bool) or depth > 32:
        return [_Case()]
    document = keywords.document
    own = _own_case(keywords, node, about, top)
    cases = [own]

    def of(number: int) -> list[_Case]:
        return _cases(keywords, document.nodes[number], about, False, depth + 1)

    def taken(part: JSONValue, relative: str) -> tuple[Formula, list[_Case]]:
        number = document.child(node, part, relative)
        chosen: Formula = ("s", number)
        return chosen, [c._replace(condition=conjunction([chosen, c.condition])) for c in of(number)]

    def cross(alternatives: list[_Case]) -> None:
        nonlocal cases
        if len(cases) * len(alternatives) > _MOST_CASES:
            keywords.refuse(node, f"unevaluated{about}", "too many combinations of branches decide what is evaluated")
            return
        cases = [a.joined(b) for a in cases for b in alternatives]

    for number in document.references(node):
        cross(of(number))
    for i, part in enumerate(schema.get("allOf", ())):
        cross(of(document.child(node, part, f"/allOf/{i}")))
    for keyword in ("anyOf", "oneOf"):
        for i, part in enumerate(schema.get(keyword, ())):
            chosen, inside = taken(part, f"/{keyword}/{i}")
            if inside == [_Case(chosen)]:
                continue
            cross([*inside, _Case(negation(chosen))])
    if "if" in schema:
        chosen, inside = taken(schema["if"], "/if")
        yes, no = inside, [_Case(negation(chosen))]
        if "then" in schema:
            then = taken(schema["then"], "/then")[1]
            yes = [a.joined(b) for a in inside for b in then]
        if "else" in schema:
            no = [no[0].joined(b) for b in taken(schema["else"], "/else")[1]]
        cross([*yes, *no])
    if about == "Properties":
        for name, part in schema.get("dependentSchemas", {}).items():
            _, inside = taken(part, f"/dependentSchemas/{escape_pointer(name)}")
            present: Formula = ("s", document.made(node, {"type": "object", "required": [name]}, "/dependentSchemas"))
            inside = [c._replace(condition=conjunction([present, c.condition])) for c in inside]
            cross([*inside, _Case(negation(present))])
    return cases


def _own_case(keywords: Keywords, node: SchemaNode, about: str, top: bool) -> _Case:
    schema = node.schema
    if about == "Properties":
        everything = "additionalProperties" in schema or (not top and "unevaluatedProperties" in schema)
        return _Case(
            True, everything, frozenset(schema.get("properties", ())), frozenset(keywords.pattern_properties(node))
        )
    items, prefix = schema.get("items"), schema.get("prefixItems", ())
    if node.dialect.number < 9 and isinstance(items, list):
        items, prefix = schema.get("additionalItems"), items
    contained: Formula = False
    if "contains" in schema and node.dialect.number >= 9:
        contained = keywords.child(node, schema["contains"], "/contains")
    everything = items is not None or (not top and "unevaluatedItems" in schema)
    return _Case(True, everything, prefix=len(prefix), contained=contained)
