"""A lower bound on the number of different values that satisfy a formula.

``uniqueItems`` with ``minItems`` is satisfiable if there are at least ``minItems`` different values for the items.
"""

from __future__ import annotations

from typing import Final, Protocol

from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine
from logitloom_plugins.json_schema.values.numbers import number_of

__all__ = ["values_of"]


_DEEPEST: Final = 6
_MOST_COUNTED: Final = 1 << 12
#: The largest number of prefixes of numbers that are visited.
_MOST_BEGINNINGS: Final = 1 << 12


class CountedValues(Protocol):
    """Says which values exist, and opens objects and arrays."""

    def possible(self, demand: ValueConstraint) -> bool:
        """Whether any value satisfies a constraint."""

    def of_type(self, demand: ValueConstraint, kind: str) -> tuple[Formula, ...]:
        """The formulas of a constraint over the atoms of values of one type."""

    def content(self, formulas: tuple[Formula, ...]) -> Content:
        """The content of the strings that satisfy formulas."""

    def number(self, formulas: tuple[Formula, ...]) -> MooreMachine:
        """The automaton of the numbers that satisfy formulas."""

    def opened(
        self, kind: str, formulas: tuple[Formula, ...], wanted: frozenset[TruthVector]
    ) -> ObjectFrame | ArrayFrame:
        """The frame of an object or array that has just been opened."""

    def lives(self, frame: ObjectFrame | ArrayFrame) -> bool:
        """Whether an object or array can be completed."""


def values_of(values: CountedValues, must: Formula, enough: int, depth: int = 0) -> int:
    """A lower bound on the number of different values that satisfy a formula over nodes, at most ``enough``.

    Unless the formula is ``True``, the count also stops at 4096.
    """
    if must is True:
        return enough
    enough = min(enough, _MOST_COUNTED)
    demand = ValueConstraint(must)
    if depth > _DEEPEST:
        return int(values.possible(demand))
    found = sum(bool(values.of_type(demand, kind)) for kind in ("null", "false", "true"))
    for kind in ("string", "number", "object", "array"):
        formulas = values.of_type(demand, kind)
        if not formulas or found >= enough:
            continue
        if kind == "string":
            found += _strings(values.content(formulas), enough - found)
        elif kind == "number":
            found += _numbers(values.number(formulas), enough - found)
        else:
            frame = values.opened(kind, formulas, frozenset([()]))
            if not values.lives(frame):
                continue
            if frame.soft is not True:
                found += 1
            elif isinstance(frame, ObjectFrame):
                found += _objects(values, frame, enough - found, depth)
            else:
                found += _arrays(values, frame, enough - found, depth)
    return min(found, enough)


def _strings(content: Content, enough: int) -> int:
    """Count prefixes of which none is a prefix of another, and complete strings that are shorter.

    Each prefix is completable, and completions of different prefixes are different strings.
    """
    automaton = content.automaton
    begun = [(automaton.start, 0)] if content.found else []
    found = 0
    while begun and found + len(begun) < enough:
        state, count = begun.pop(0)
        found += bool(automaton.boundaries[state]) and content.ends(state, count) is not None
        following = content.counted(count + automaton.boundaries[state])
        targets = automaton.next[state].take(automaton.byte_class).tolist()
        begun += [(target, following) for target in targets if target >= 0 and content.alive(target, following)]
    return min(found + len(begun), enough)


def _numbers(automaton: MooreMachine, enough: int) -> int:
    found: set[tuple[bool, bytes, int | bytes]] = set()
    pending = [(automaton.start, b"")]
    for count, (state, text) in enumerate(pending):
        if automaton.outputs[state] is not None:
            found.add(number_of(text))
        if len(found) >= enough or count > _MOST_BEGINNINGS:
            break
        row = automaton.row(state)
        pending += [(int(row[byte]), text + bytes([byte])) for byte in (row >= 0).nonzero()[0].tolist()]
    return len(found)


def _objects(values: CountedValues, frame: ObjectFrame, enough: int, depth: int) -> int:
    """Multiply the counts of the members' values, which vary independently unless the number of members is bounded."""
    plan = frame.plan
    if plan.counts:
        return 1
    found = 1
    for index, name in enumerate(plan.names):
        more = values_of(values, plan.hard_child(("name", name)), enough, depth + 1)
        found *= max(more, 1) if index in plan.required else more + 1
    for key in plan.keys.others:
        more = values_of(values, plan.hard_child(key), enough, depth + 1)
        # A label that patterns distinguish may stand for a single name, so it counts as one member.
        found = enough if more and key == ("other", ()) else found * (more + 1)
    return min(found, enough)


def _arrays(values: CountedValues, frame: ArrayFrame, enough: int, depth: int) -> int:
    plan = frame.plan
    if plan.items:
        return 1
    item = plan.hard_item(0)
    if plan.most == 0 or not values.possible(ValueConstraint(item)):
        return 1
    if plan.most is None and not plan.distinct:
        return enough
    first = values_of(values, item, enough, depth + 1)
    if plan.least <= 1:
        return min(first + (plan.least == 0), enough)
    return 1 if plan.distinct else first
