"""Where a schema that no value satisfies contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

from logitloom.automata import BudgetTracker
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.schema.schema_document import Document, JSONValue, escape_pointer

__all__ = ["contradiction"]


def contradiction(machine: Machine) -> tuple[str, bool]:
    """The innermost subschema that a schema demands and that no value satisfies, of those found within the budget.

    Args:
        machine: of a schema that no value satisfies.

    Returns:
        The place of the subschema, and whether the subschema demands itself within each of its values.
    """
    machine.keywords.forget_unfinished()
    values = Satisfiability(machine.keywords, BudgetTracker(machine.budget, "the schema"))
    document = machine.keywords.document
    inner, seen = [("", document.root)], set[int]()
    while fresh := [each for each in inner if each[1] not in seen]:
        place, number = fresh[0]
        seen.add(number)
        try:
            inner = [
                choice
                for choices in _demanded(document, number)
                if not any(values.possible(ValueConstraint(("s", number))) for _, number in choices)
                for choice in choices
            ]
        except BudgetExceeded:
            return f"#{place}", False
    return f"#{place}", bool(inner)


def _demanded(document: Document, number: int) -> Iterator[list[tuple[str, int]]]:
    """What a subschema demands of a value, of its required members and of its first items.

    Yields:
        Subschemas of which one must hold, each with its place and its number.
    """
    node = document.nodes[number]
    if not isinstance(node.schema, dict):
        return
    for reference in document.references(node):
        yield [(document.nodes[reference].pointer, reference)]

    def held(parts: dict[str, JSONValue]) -> list[tuple[str, int]]:
        return [(node.pointer + place, document.child(node, part, place)) for place, part in parts.items()]

    for keyword in ("anyOf", "oneOf"):
        if keyword in node.schema:
            yield held({f"/{keyword}/{index}": part for index, part in enumerate(node.schema[keyword])})
    least, first = node.schema.get("minItems", 0), node.schema.get("prefixItems", [])
    single = {f"/allOf/{index}": part for index, part in enumerate(node.schema.get("allOf", []))}
    single |= {f"/prefixItems/{index}": part for index, part in enumerate(first[: int(least)])}
    if least > len(first) and isinstance(node.schema.get("items"), dict):
        single["/items"] = node.schema["items"]
    required, properties = {*node.schema.get("required", [])}, node.schema.get("properties", {})
    single |= {f"/properties/{escape_pointer(name)}": part for name, part in properties.items() if name in required}
    yield from ([each] for each in held(single))
