"""Many conditions on the values of one member: verdicts, completions, and the number of questions about the member."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import Machine, accepts
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.tokens.formula_bounds import AnyDemands

NAMES = ("x", "y", "z", "kind")
#: What a condition may ask for, and what that means.
THENS: tuple[tuple[Any, Callable[[dict[str, Any]], bool]], ...] = (
    ({"required": ["x"]}, lambda value: "x" in value),
    ({"not": {"required": ["y"]}}, lambda value: "y" not in value),
    ({"properties": {"z": {"const": 1}}}, lambda value: value.get("z", 1) == 1),
    ({"maxProperties": 2}, lambda value: len(value) <= 2),
    ({"properties": {"kind": {"enum": ["k1", "k2", 7]}}}, lambda value: value.get("kind", 7) in ("k1", "k2", 7)),
    (False, lambda value: False),
    ({"anyOf": [{"required": ["y"]}, {"required": ["z"]}]}, lambda value: "y" in value or "z" in value),
)


def conditions(draw: random.Random) -> tuple[list[Any], Callable[[dict[str, Any]], bool]]:
    """Conditions on ``kind``, and whether an object satisfies all of them."""
    cases = []
    for number in range(30):
        values = draw.choice([[f"k{number}"], [f"k{number}", "k1"], [number, f"k{number}"], [None, f"k{number}"]])
        required, then = draw.random() < 0.7, draw.choice(THENS if draw.random() < 0.2 else THENS[:4])
        cases.append((values, required, then))
    schemas = [
        {"if": {"properties": {"kind": {"enum": values}}, **({"required": ["kind"]} if required else {})}, "then": then}
        for values, required, (then, _) in cases
    ]

    def holds(value: dict[str, Any]) -> bool:
        there = "kind" in value
        met = [value["kind"] in values if there else not required for values, required, _ in cases]
        return all(says(value) for is_met, (_, _, (_, says)) in zip(met, cases, strict=True) if is_met)

    return schemas, holds


def some_objects(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Objects with members in any order."""
    kinds = [*[f"k{number}" for number in range(32)], *range(0, 32, 5), None, "other", 1.5]
    return [
        {name: draw.choice(kinds) if name == "kind" else draw.randint(0, 2) for name in draw.sample(NAMES, count)}
        for count in draw.choices(range(4), k=count)
    ]


def read_with_selection(schema: dict[str, Any]) -> Machine:
    machine = compile_schema(schema)
    formula = machine.values.of_type(machine.root, "object")[0]
    assert machine.values.with_selection(formula) is not formula
    return machine


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_are_those_of_one_condition_after_the_other(seed: int) -> None:
    draw = random.Random(seed)
    asked, holds = conditions(draw)
    machine = read_with_selection({"type": "object", "allOf": asked})
    values = some_objects(draw, 300)
    assert {holds(value) for value in values} == {False, True}
    # Names that formulas mention come in their order.
    (frame,) = [machine.values.opened("object", machine.values.of_type(machine.root, "object"), frozenset([()]))]
    assert isinstance(frame, objects.ObjectFrame)
    place = {name: number for number, name in enumerate(frame.plan.names)}
    for value in values:
        ordered = dict(sorted(value.items(), key=lambda each: place.get(each[0], len(place))))
        assert accepts(machine, json.dumps(ordered)) == holds(ordered), ordered


@pytest.mark.parametrize("seed", range(4))
def test_completions_satisfy_all_conditions(seed: int) -> None:
    draw = random.Random(seed)
    asked, holds = conditions(draw)
    automaton = SchemaAutomaton(read_with_selection({"type": "object", "allOf": asked}))
    for _ in range(8):
        state, written = automaton.start(), b""
        for _ in range(12):
            rest = automaton.completion(state)
            assert rest is not None
            assert holds(json.loads(written + rest)), written + rest
            more = rest[: draw.randint(1, 3)]
            if draw.random() < 0.5:
                more = draw.choice([b'"kind":"k3"', b'"kind":', b'"kind":"k1",', b'"x":1', b'"z":', b',"y":'])
            following = automaton.read(state, more)
            if following is not None:
                state, written = following, written + more


def questions_about_kind(machine: Machine) -> int:
    frame = machine.values.opened("object", machine.values.of_type(machine.root, "object"), frozenset([()]))
    assert isinstance(frame, objects.ObjectFrame)
    member = objects.member(machine.values, frame, ("name", "kind"))
    assert member is not None
    return len(member.demand.extras)


def test_the_number_of_questions_is_that_of_the_bits() -> None:
    for asked in (
        [{"if": {"properties": {"kind": {"const": f"k{i}"}}}, "then": {"required": [f"value{i}"]}} for i in range(200)],
        [{"not": {"properties": {"kind": {"const": f"k{i}"}, "x": {"const": i}}}} for i in range(200)],
    ):
        machine = read_with_selection({"type": "object", "properties": {"kind": True}, "allOf": asked})
        assert questions_about_kind(machine) == 8


def test_a_long_chain_of_conditions_is_one_selection() -> None:
    schema: dict[str, Any] = {"required": ["end"]}
    for i in reversed(range(100)):
        condition = {"properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]}
        schema = {"if": condition, "then": {"required": [f"t{i}"]}, "else": schema}
    machine = read_with_selection({"type": "object", **schema})
    assert questions_about_kind(machine) == 7
    assert accepts(machine, '{"kind":"k7","t7":1}')
    assert accepts(machine, '{"kind":"other","end":1}')
    assert accepts(machine, '{"end":1}')
    assert not accepts(machine, '{"kind":"k7","t8":1,"end":1}')
    assert not accepts(machine, '{"kind":"other","t7":1}')


def test_a_bound_asks_of_the_value_that_selects_the_bits_alone() -> None:
    """The alternatives as a whole ask about each value of ``kind``, but matter only while there is no ``kind``."""
    kinds = [
        {
            "type": "object",
            "properties": {"kind": {"const": f"k{i}"}, f"v{i}": {"type": "integer"}},
            "required": ["kind"],
        }
        for i in range(200)
    ]
    for schema in ({"anyOf": kinds}, {"oneOf": [{**each, "minProperties": 1 + i % 3} for i, each in enumerate(kinds)]}):
        values = compile_schema(schema).values
        frame = values.opened("object", values.of_type(values.root, "object"), frozenset([()]))
        assert isinstance(frame, objects.ObjectFrame)
        assert len(AnyDemands(frame).of(("name", "kind")).extras) == 8


def test_the_end_of_an_object_does_not_depend_on_members_that_were_looked_at() -> None:
    """After ``y`` one alternative is left, before it all of them."""
    alternatives = [{"properties": {"kind": {"const": i}, "y": {"const": i}}} for i in range(9)]
    declared = {"y": {"enum": ["q", *range(9)]}, "kind": {"enum": [*range(9)]}}
    machine = compile_schema({"type": "object", "properties": declared, "anyOf": alternatives})
    values = machine.values
    frame = values.opened("object", values.of_type(machine.root, "object"), frozenset([()]))
    assert isinstance(frame, objects.ObjectFrame)
    ends = {}
    for label, member in objects.next_members(values, frame):
        for truth in sorted(values.answers(member.demand)):
            ends[label, truth] = member.may_end(truth)
    assert values.end(frame) == ()
    assert sorted(is_end for (label, _), is_end in ends.items() if label == ("name", "y")) == [False, *[True] * 9]
    assert accepts(machine, "{}")
    assert not accepts(machine, '{"y":"q"}')
