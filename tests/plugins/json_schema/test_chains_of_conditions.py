"""Chains of ``else`` and ``if`` on the values of one member: verdicts, and the size of the formula."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.schema.formula import parts_of

THENS = ("t0", "t1", "t2")
KINDS = (None, "a", "b", "c", "d", "x", 1, True)
#: The values of each condition: apart, overlapping, the same, and values that Python compares as equal.
CASES = ([["a"], ["b"], ["c"]], [["a", "b"], ["b", "c"], ["d"]], [["a"], ["a"], ["b"]], [[1], [True], ["1"]])


def chain(cases: list[list[Any]], required: tuple[bool, ...], last: dict[str, Any], late: bool) -> dict[str, Any]:
    """An object with one condition per case; ``last`` is the last ``else``, ``late`` says where ``kind`` stands."""
    schema = last
    for values, then, must in reversed([*zip(cases, THENS, required, strict=True)]):
        condition = {"properties": {"kind": {"enum": values}}, **({"required": ["kind"]} if must else {})}
        schema = {"if": condition, "then": {"required": [then]}, "else": schema}
    names = [*THENS, "end", "kind"] if late else ["kind", *THENS, "end"]
    return {"type": "object", "properties": dict.fromkeys(names, True), **schema}


def is_valid(cases: list[list[Any]], required: tuple[bool, ...], last: dict[str, Any], value: dict[str, Any]) -> bool:
    """What the chain says, one condition after the other."""
    for values, then, must in zip(cases, THENS, required, strict=True):
        kind = value.get("kind")
        if any(type(kind) is type(each) and kind == each for each in values) if "kind" in value else not must:
            return then in value
    if "not" in last:
        return "end" not in value
    return "end" in value if last else True


@pytest.mark.parametrize(
    "last", [{"required": ["end"]}, {}, {"not": {"required": ["end"]}}], ids=["end", "any", "none"]
)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("cases", CASES)
@pytest.mark.long
def test_verdicts_are_those_of_one_condition_after_the_other(
    cases: list[list[Any]], late: bool, last: dict[str, Any]
) -> None:
    for required in itertools.product([False, True], repeat=3):
        machine = compile_schema(chain(cases, required, last, late))
        for kind, there in itertools.product(KINDS, itertools.product([False, True], repeat=4)):
            members = {name: 0 for name, is_there in zip([*THENS, "end"], there, strict=True) if is_there}
            own = {} if kind is None else {"kind": kind}
            value = {**members, **own} if late else {**own, **members}
            assert accepts(machine, json.dumps(value)) == is_valid(cases, required, last, value), (required, value)


def test_a_long_chain_is_as_long_as_its_conditions() -> None:
    schema: dict[str, Any] = {"required": ["end"]}
    for i in reversed(range(60)):
        condition = {"properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]}
        schema = {"if": condition, "then": {"required": [f"t{i}"]}, "else": schema}
    machine = compile_schema({"type": "object", **schema})
    (formula,) = machine.values.of_type(machine.root, "object")
    *conditions, last = [part for part in parts_of(formula) if part[0] == "|"]
    assert [len(part[1]) for part in conditions] == [2] * 60
    assert len(last[1]) == 61
