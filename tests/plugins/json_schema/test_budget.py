"""A budget bounds the processor time and the memory of compiling a schema, whatever the schema is."""

from __future__ import annotations

import random
import time
import tracemalloc
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import Budget, BudgetTracker
from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.cases import examples, first
from tests.plugins.json_schema.test_hostile import HOSTILE

SECONDS = 0.4
#: What one step between two looks at the clock may take, on a machine that does other things as well.
STEP = 1.0

ADVERSARIAL: dict[str, Any] = {
    **HOSTILE,
    "many names": {"properties": {f"name {i}": {"description": "x" * 90, "type": "string"} for i in range(30_000)}},
    "many patterns": {"properties": {f"p{i}": {"pattern": f"^[a-z]{{1,{99 + i}}}x.{{0,{i}}}$"} for i in range(400)}},
    "patterns that must not match": {"allOf": [{"not": {"pattern": f"^.{{{i}}}a.*b{{{i}}}"}} for i in range(40)]},
    "patterns side by side": {"anyOf": [{"type": "string", "pattern": f"a{{{i}}}.*b{{{i},99}}"} for i in range(24)]},
    "patterns of names": {"patternProperties": {f"^.*x{{{i}}}": {"multipleOf": i + 1} for i in range(60)}},
    "multiples": {"allOf": [{"multipleOf": i} for i in (7, 11, 13, 17, 19, 23, 29, 31, 37)]},
    "steps between far bounds": {"minimum": 1e-300, "maximum": 1.23456789e300, "multipleOf": 1e-30},
    "dynamic references": {"$dynamicAnchor": "n", "properties": {f"p{i}": {"$dynamicRef": "#n"} for i in range(2000)}},
    "names that need all others": {
        "dependentSchemas": {f"p{i}": {"required": [f"p{j}" for j in range(60)]} for i in range(60)}
    },
    "alternatives of names": {
        "anyOf": [{"properties": {f"p{i}": {}}} for i in range(24)], "unevaluatedProperties": False
    },
    "objects as values": {"enum": [{f"k{j}": i * j for j in range(20)} for i in range(3000)]},
    "counted items": {"contains": {"enum": list(range(500))}, "minContains": 200, "maxContains": 300},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _known_sets() -> None:
    """What is found once per process is none of a schema's time."""
    compile_schema({"properties": {"a": {"pattern": r"\w"}, "b": {"type": "number"}}})


def check_time(schema: Any) -> None:
    message = ""
    begin = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile_schema(schema, budget=Budget(seconds=SECONDS, states=20_000))
        except LogitloomError as error:
            message = str(error)
    assert time.thread_time() - begin < 1.2 * SECONDS + STEP
    assert len(message) < 500


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.long
def test_adversarial_schemas_end_in_time(name: str) -> None:
    check_time(ADVERSARIAL[name])


def made_up(dice: random.Random, depth: int) -> Any:
    """A schema of many keywords at once, with large counts."""
    if depth == 0:
        return dice.choice([{}, True, {"type": "string"}, {"enum": list(range(dice.randrange(1, 300)))}, {"$ref": "#"}])
    count = dice.choice([2, 5, 12, 40])
    parts = [made_up(dice, dice.randrange(depth)) for _ in range(min(count, 12))]
    names = {f"p{i}": dice.choice(parts) for i in range(count)}
    schema: dict[str, Any] = {}
    for keyword, value in (
        ("properties", names), ("required", list(names)), ("additionalProperties", dice.choice(parts)),
        ("patternProperties", {f"x{{{dice.randrange(9)},{dice.randrange(9, 60)}}}": dice.choice(parts)}),
        ("anyOf", parts), ("allOf", parts[:4]), ("oneOf", parts[:6]), ("not", parts[0]), ("items", parts[1]),
        ("prefixItems", parts), ("minItems", dice.randrange(50)), ("contains", parts[0]), ("uniqueItems", True),
        ("minLength", dice.randrange(10**4)), ("pattern", f"^(?:[a-z]{{1,{count}}} ?){{{count}}}$"),
        ("multipleOf", dice.choice([0.01, 7, 1e9])), ("maximum", 10 ** dice.randrange(30)),
        ("minProperties", dice.randrange(30)), ("dependentRequired", {name: list(names)[:9] for name in names}),
    ):  # fmt: skip
        if dice.random() < 0.25:
            schema[keyword] = value
    return schema


def test_the_clock_is_read_for_every_listed_array(monkeypatch: pytest.MonkeyPatch) -> None:
    read, check = [0], BudgetTracker.check_time

    def counted(tracker: BudgetTracker) -> None:
        read[0] += 1
        check(tracker)

    monkeypatch.setattr(BudgetTracker, "check_time", counted)
    compile_schema({"enum": [[i, i + 1] for i in range(700)]})
    # Once per state, and while its formula, its values and the selection among them are made.
    assert read[0] > 3 * 700


@examples(40)
@given(st.integers(0, 10**9), st.integers(1, 3))
def test_random_schemas_end_in_time(seed: int, depth: int) -> None:
    check_time(made_up(random.Random(seed), depth))


@pytest.mark.parametrize("name", first(1, ["objects as values", "huge enum", "names that need all others"]))
def test_memory_is_bounded(name: str) -> None:
    budget = Budget(table_bytes=16 << 20, seconds=0.5, states=100_000)
    tracemalloc.start()
    try:
        compile_schema(ADVERSARIAL[name], budget=budget)
    except LogitloomError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * budget.table_bytes
