"""Random schemas against the jsonschema package: every verdict, and every text that can be generated."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest

from logitloom.automata import Budget
from logitloom.errors import BudgetExceeded, UnsupportedSchema
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.members import Member
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from tests.plugins.json_schema.random_texts import random_text
from tests.plugins.json_schema.serialisation import serialise

jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

pytestmark = pytest.mark.extras

NAMES = ["a", "b", "ab", "é", "x-1"]


def value(rnd: random.Random, depth: int = 2) -> Any:
    kinds = ["null", "bool", "int", "float", "str"] + (["list", "dict"] * 2 if depth else [])
    kind = rnd.choice(kinds)
    if kind == "null":
        return None
    if kind == "bool":
        return rnd.random() < 0.5
    if kind == "int":
        return rnd.choice([0, 1, 2, 3, 5, 10, -1, 100])
    if kind == "float":
        return rnd.choice([0.5, 1.5, -2.25, 1.0, 7.0])
    if kind == "str":
        return rnd.choice(["", "a", "ab", "abc", "b1", "é", "😀x", 'q"\\', "\n", "aab"])
    if kind == "list":
        return [value(rnd, depth - 1) for _ in range(rnd.randint(0, 3))]
    return {name: value(rnd, depth - 1) for name in rnd.sample(NAMES, rnd.randint(0, 3))}


def schema(rnd: random.Random, depth: int = 2) -> Any:
    if rnd.random() < 0.08:
        return rnd.random() < 0.7
    result: dict[str, Any] = {}
    if rnd.random() < 0.6:
        kinds = ["null", "boolean", "integer", "number", "string", "array", "object"]
        result["type"] = rnd.choice(kinds) if rnd.random() < 0.7 else rnd.sample(kinds, 2)
    for _ in range(rnd.randint(0, 2)):
        keyword = rnd.choice(SIMPLE if depth == 0 else SIMPLE + NESTED)
        result[keyword] = KEYWORDS[keyword](rnd, depth - 1)
    return result


KEYWORDS: dict[str, Any] = {
    "minimum": lambda r, d: r.choice([0, 1, 1.5, -3]),
    "maximum": lambda r, d: r.choice([0, 1, 2.5, 10]),
    "exclusiveMinimum": lambda r, d: r.choice([0, 1]),
    "multipleOf": lambda r, d: r.choice([1, 2, 0.5, 3]),
    "minLength": lambda r, d: r.randint(0, 3),
    "maxLength": lambda r, d: r.randint(0, 3),
    "pattern": lambda r, d: r.choice(["^a", "b$", "^[a-c]+$", "[0-9]", "^.{2}$"]),
    "enum": lambda r, d: [value(r, 1) for _ in range(r.randint(1, 3))],
    "const": lambda r, d: value(r, 1),
    "minItems": lambda r, d: r.randint(0, 2),
    "maxItems": lambda r, d: r.randint(0, 3),
    "uniqueItems": lambda r, d: r.random() < 0.9,
    "required": lambda r, d: r.sample(NAMES, r.randint(1, 2)),
    "minProperties": lambda r, d: r.randint(0, 2),
    "maxProperties": lambda r, d: r.randint(0, 3),
    "dependentRequired": lambda r, d: {r.choice(NAMES): [r.choice(NAMES)]},
    "properties": lambda r, d: {n: schema(r, d) for n in r.sample(NAMES, r.randint(1, 3))},
    "patternProperties": lambda r, d: {r.choice(["^a", "b$", "-"]): schema(r, d)},
    "additionalProperties": lambda r, d: schema(r, d),
    "propertyNames": lambda r, d: {r.choice(["minLength", "maxLength"]): r.randint(1, 2)},
    "items": lambda r, d: schema(r, d),
    "prefixItems": lambda r, d: [schema(r, d) for _ in range(r.randint(1, 2))],
    "contains": lambda r, d: schema(r, d),
    "not": lambda r, d: schema(r, d),
    "anyOf": lambda r, d: [schema(r, d) for _ in range(r.randint(1, 3))],
    "oneOf": lambda r, d: [schema(r, d) for _ in range(r.randint(1, 3))],
    "allOf": lambda r, d: [schema(r, d) for _ in range(r.randint(1, 2))],
    "if": lambda r, d: schema(r, d),
    "then": lambda r, d: schema(r, d),
    "else": lambda r, d: schema(r, d),
    "dependentSchemas": lambda r, d: {r.choice(NAMES): schema(r, d)},
    "unevaluatedProperties": lambda r, d: r.random() < 0.3,
    "unevaluatedItems": lambda r, d: r.random() < 0.3,
}
NESTED = [
    "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains", "not", "anyOf",
    "oneOf",
    "allOf", "if", "then", "else", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
]  # fmt: skip
SIMPLE = [keyword for keyword in KEYWORDS if keyword not in NESTED]


@pytest.mark.parametrize("seed", range(12))
def test_verdicts_and_generated_texts_agree_with_jsonschema(seed: int) -> None:
    rnd = random.Random(seed)
    judged = 0
    for _ in range(25):
        given = schema(rnd)
        judge = jsonschema.Draft202012Validator(given)
        samples = [value(rnd) for _ in range(12)]
        try:
            whitespace = Whitespace(rnd.choice(["compact", "one_space"]))
            options = SchemaOptions(whitespace, formats="annotate", integers="any")
            machine = compile_schema(given, options, Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        if not machine.satisfiable:
            assert not any(judge.is_valid(sample) for sample in samples), given
            continue
        for sample in samples:
            text = serialise(machine, sample)
            assert json.loads(text) == sample
            assert accepts(machine, text) == judge.is_valid(sample), (given, text)
            judged += 1
        for _ in range(6):
            text = random_text(machine, rnd)
            # The package computes with floats.
            if text is not None and not re.search(rb"[0-9]{16}", text):
                assert judge.is_valid(json.loads(text)), (given, text)
                assert accepts(machine, text)
    assert judged > 50


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("seed", range(4))
def test_verdicts_of_branches_that_repeat_what_is_common(keyword: str, seed: int) -> None:
    rnd = random.Random(seed)
    judged = [0, 0]
    for _ in range(25):
        common = {name: schema(rnd, 1) for name in rnd.sample(NAMES, 2)}
        # Equal in Python, and not in JSON.
        own = [{"const": 1}, {"const": True}, {"enum": [1.0]}, {"enum": [0, False]}, {"type": "string"}]
        branches = [
            {"properties": {**copy.deepcopy(common), "x-1": own_one}, "required": rnd.sample(NAMES, 1)}
            for own_one in rnd.sample(own, 3)
        ]
        given = {"type": "object", keyword: branches}
        judge = jsonschema.Draft202012Validator(given)
        try:
            options = SchemaOptions(formats="annotate", integers="any")
            machine = compile_schema(given, options, Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        for _ in range(12):
            sample = {name: value(rnd, 1) for name in rnd.sample(NAMES, rnd.randint(1, 4))}
            sample["x-1"] = rnd.choice([1, True, 1.0, 0, False, "a"])
            verdict = judge.is_valid(sample)
            judged[verdict] += 1
            if machine.satisfiable or verdict:
                assert accepts(machine, serialise(machine, sample)) == verdict, (given, sample)
    assert min(judged) > 20


def test_a_contradiction_that_equal_subschemas_make_is_found() -> None:
    """Beside branches equal subschemas become one, and what had two numbers contradicts itself."""
    never = [{"properties": {"a": {"type": "integer"}}}, {"not": {"properties": {"a": {"type": "integer"}}}}]
    branches = [{"properties": {"x": {"minProperties": 1}}}, {"properties": {"x": {"maxProperties": 2}}}]
    whole = {"properties": {"x": {"allOf": never}}, "oneOf": branches}
    machine = compile_schema(whole)
    for text in ('{"x": {}}', '{"x": {"a": 1}}', '{"x": {"a": ""}}', '{"x": 1}', '{"x": [1]}'):
        assert not accepts(machine, text)


@pytest.mark.parametrize("seed", range(8))
def test_texts_with_plain_integers_are_valid(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(25):
        given = schema(rnd)
        judge = jsonschema.Draft202012Validator(given)
        try:
            machine = compile_schema(given, SchemaOptions(formats="annotate"), Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        for _ in range(6 if machine.satisfiable else 0):
            text = random_text(machine, rnd)
            if text is not None and not re.search(rb"[0-9]{16}", text):
                assert judge.is_valid(json.loads(text)), (given, text)


TAGS: list[Any] = ["a", "b", "ab", "é", 1, 2, 0.5, None, True, False]


def tagged(rnd: random.Random, depth: int = 1) -> dict[str, Any]:
    """An object with a member that lists its values, among members of any kind, declared before or after it."""
    listed = rnd.sample(TAGS, rnd.randint(1, 2))
    tag: Any = {"const": listed[0]} if len(listed) == 1 and rnd.random() < 0.7 else {"enum": listed}
    properties = {name: schema(rnd, 0) for name in rnd.sample(NAMES, rnd.randint(0, 2))}
    items = [*properties.items(), ("tag", tag)]
    if depth and rnd.random() < 0.3:
        items.append(("in", {"oneOf": [tagged(rnd, 0) for _ in range(5)]}))
    if rnd.random() < 0.5:
        rnd.shuffle(items)
    given: dict[str, Any] = {"type": "object", "properties": dict(items)}
    if rnd.random() < 0.7:
        given["required"] = ["tag", *rnd.sample(NAMES, rnd.randint(0, 1))]
    if rnd.random() < 0.5:
        given["additionalProperties"] = False
    if rnd.random() < 0.3:
        # A second list for the same member, or a member that must not come.
        other = {"enum": rnd.sample(TAGS, 5)} if rnd.random() < 0.8 else False
        given["allOf"] = [{"properties": {"tag": other}}]
    return given


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.long
def test_verdicts_of_alternatives_that_a_member_tells_apart(keyword: str, seed: int) -> None:
    rnd = random.Random(seed)
    judged = [0, 0]
    for _ in range(12):
        branches = [tagged(rnd) for _ in range(rnd.randint(4, 9))]
        given = {keyword: branches} if rnd.random() < 0.8 else {"not": {keyword: branches}, "type": "object"}
        judge = jsonschema.Draft202012Validator(given)
        try:
            options = SchemaOptions(formats="annotate", integers="any")
            machine = compile_schema(given, options, Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        for _ in range(20):
            sample = {name: value(rnd, 1) for name in rnd.sample(NAMES, rnd.randint(0, 3))}
            if rnd.random() < 0.9:
                sample["tag"] = rnd.choice([*TAGS, "c", 3])
            if rnd.random() < 0.3:
                sample["in"] = {"tag": rnd.choice(TAGS)}
            verdict = judge.is_valid(sample)
            judged[verdict] += 1
            if machine.satisfiable or verdict:
                assert accepts(machine, serialise(machine, sample)) == verdict, (given, sample)
        for _ in range(4 if machine.satisfiable else 0):
            text = random_text(machine, rnd)
            if text is not None and not re.search(rb"[0-9]{16}", text):
                assert judge.is_valid(json.loads(text)), (given, text)
    assert min(judged) > 15


def untagged(rnd: random.Random, every: list[str]) -> dict[str, Any]:
    """An object that some of its members tell from others."""
    named = rnd.sample(every, rnd.randint(1, 4))
    kinds = [True, {"type": "integer"}, {"type": "string"}, {"enum": [1, "a", None]}, {"type": ["integer", "null"]}]
    given: dict[str, Any] = {"type": "object", "properties": {name: rnd.choice(kinds) for name in named}}
    if rnd.random() < 0.8:
        given["required"] = rnd.sample(named, rnd.randint(1, len(named)))
    if rnd.random() < 0.2:
        given["patternProperties"] = {rnd.choice(["^a", "1$"]): rnd.choice([True, False, {"type": "integer"}])}
    if rnd.random() < 0.6:
        given["additionalProperties"] = rnd.choice([False, False, False, {"type": "integer"}])
    if rnd.random() < 0.1:
        given["minProperties"] = rnd.randint(1, 3)
    return given


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "not"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_verdicts_of_many_alternatives_without_a_tag(keyword: str, seed: int) -> None:
    rnd = random.Random(seed)
    every = [f"{letter}{number}" for letter in "abcd" for number in range(5)]
    judged = [0, 0]
    for _ in range(6):
        branches = [untagged(rnd, every) for _ in range(rnd.randint(8, 16))]
        given: dict[str, Any] = {keyword: branches}
        if keyword == "not":
            given = {"type": "object", "not": {"oneOf": branches}, "anyOf": [untagged(rnd, every) for _ in range(9)]}
        elif rnd.random() < 0.5:
            given["properties"] = untagged(rnd, every)["properties"]
            if rnd.random() < 0.4:
                given = {**given, "type": "object", "additionalProperties": False}
                given["properties"] |= {name: True for branch in branches for name in branch["properties"]}
        judge = jsonschema.Draft202012Validator(given)
        try:
            machine = compile_schema(given, SchemaOptions(integers="any"), Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        for _ in range(40):
            branch = rnd.choice(given.get("anyOf", branches))["properties"]
            names = [*rnd.sample([*branch], rnd.randint(0, len(branch))), *rnd.sample(every, rnd.randint(0, 1))]
            sample = {name: rnd.choice([1, 2, "a", "b", None]) for name in names}
            verdict = judge.is_valid(sample)
            judged[verdict] += 1
            assert (machine.satisfiable and accepts(machine, serialise(machine, sample))) == verdict, (given, sample)
        for _ in range(6 if machine.satisfiable else 0):
            text = random_text(machine, rnd)
            if text is not None and not re.search(rb"[0-9]{16}", text):
                assert judge.is_valid(json.loads(text)), (given, text)
    assert min(judged) > 15


def test_a_member_that_excludes_all_but_one_alternative_is_searched_for() -> None:
    whole = {"type": "integer"}
    given = {"type": "object", "required": ["a", "c"], "additionalProperties": False}
    given["properties"] = {"a": whole, "b": whole, "c": whole}
    closed = [
        {"properties": {"a": whole, "c": whole, f"d{at}": whole}, "additionalProperties": False} for at in range(9)
    ]
    machine = compile_schema({**given, "oneOf": [*closed, {"required": ["c"]}]})
    assert machine.satisfiable
    assert accepts(machine, '{"a":1,"b":1,"c":1}')
    assert not accepts(machine, '{"a":1,"c":1}')


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_of_lists_of_objects(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(10):
        names = rnd.sample(NAMES, 3)
        listed = [
            {name: rnd.choice([*TAGS, [1], {"a": 1}]) for name in names[: rnd.randint(2, 3)]}
            for _ in range(rnd.randint(4, 12))
        ]
        machine = compile_schema({"enum": [*listed, 7]}, SchemaOptions(integers="any"))
        judge = jsonschema.Draft202012Validator({"enum": [*listed, 7]})
        others = [{name: rnd.choice(TAGS) for name in names[: rnd.randint(2, 3)]} for _ in range(20)]
        for sample in [*listed, *others]:
            assert accepts(machine, serialise(machine, sample)) == judge.is_valid(sample), (listed, sample)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long
def test_objects_that_may_be_closed_after_a_member_are_seen_without_their_frames(
    keyword: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rnd, seen, may_end_after = random.Random(seed), [0, 0], Satisfiability.may_end_after

    def compared(values: Satisfiability, member: Member[Satisfiability, Any]) -> bool:
        for truth in values.answers(member.demand):
            frame = member.after(values, truth)
            if member.demand.extras:
                may_end = frame is not None and values.end(frame) is not None
                assert member.may_end(truth) == may_end, given
                seen[may_end] += 1
        return may_end_after(values, member)

    monkeypatch.setattr(Satisfiability, "may_end_after", compared)
    every = [f"{letter}{number}" for letter in "abcd" for number in range(5)]
    for _ in range(12):
        branches = [tagged(rnd) if rnd.random() < 0.3 else untagged(rnd, every) for _ in range(rnd.randint(4, 12))]
        given: dict[str, Any] = {keyword: branches}
        if rnd.random() < 0.3:
            given = {"type": "object", "not": {keyword: branches}, "anyOf": [untagged(rnd, every) for _ in range(9)]}
        try:
            machine = compile_schema(given, SchemaOptions(formats="annotate"), Budget(states=20_000, seconds=5.0))
        except (BudgetExceeded, UnsupportedSchema):
            continue
        for _ in range(4 if machine.satisfiable else 0):
            random_text(machine, rnd)
    assert min(seen) > 20
