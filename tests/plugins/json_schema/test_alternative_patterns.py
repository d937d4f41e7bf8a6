"""Alternatives of patterns and formats become one automaton, in which texts that satisfy several of them are alike."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.schema.formula import conjunction, disjunction, negation
from logitloom_plugins.json_schema.values.strings import merged

PATTERNS = ["a", "b$", "^ab", "ba", "^.{0,2}$", "a.b", "^(ab)*$", "bb"]
TEXTS = ["".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)]


def random_schema(dice: random.Random, depth: int) -> dict[str, Any]:
    if not depth or dice.random() < 0.3:
        return {"type": "string", "pattern": dice.choice(PATTERNS)}
    parts = [random_schema(dice, depth - 1) for _ in range(dice.randint(2, 3))]
    kind = dice.choice(["anyOf", "anyOf", "allOf", "oneOf", "not"])
    return {"type": "string", kind: parts[0] if kind == "not" else parts}


def holds(schema: dict[str, Any], text: str) -> bool:
    if "pattern" in schema:
        return re.search(schema["pattern"], text) is not None
    if "not" in schema:
        return not holds(schema["not"], text)
    kind = next(kind for kind in ("anyOf", "allOf", "oneOf") if kind in schema)
    found = sum(holds(part, text) for part in schema[kind])
    return {"anyOf": found > 0, "allOf": found == len(schema[kind]), "oneOf": found == 1}[kind]


@pytest.mark.parametrize("seed", range(30))
def test_texts_are_those_that_satisfy_the_alternatives(seed: int) -> None:
    schema = random_schema(random.Random(seed), 3)
    machine = compile_schema(schema)
    wrong = [text for text in TEXTS if accepts(machine, json.dumps(text)) != holds(schema, text)]
    assert not wrong, f"{schema} is decided wrongly for {wrong[:5]}"


@pytest.mark.parametrize(
    "alternatives",
    [
        [{"pattern": f"x{index}y"} for index in range(40)],
        [
            {"format": name}
            for name in ("date-time", "email", "uri", "ipv4", "ipv6", "uuid", "hostname", "date", "time")
        ],
    ],
    ids=["patterns", "formats"],
)
def test_many_alternatives_are_compiled(alternatives: list[dict[str, str]]) -> None:
    machine = compile_schema({"type": "string", "anyOf": alternatives})
    accepted = {"pattern": ("ax7yb", "x1yx2y"), "format": ("10:00:00Z", "a.b", "1.2.3.4")}[next(iter(alternatives[0]))]
    assert all(accepts(machine, json.dumps(text)) for text in accepted)
    assert not accepts(machine, json.dumps("x y"))


def test_atoms_that_occur_elsewhere_stay() -> None:
    one, two, three = (("pat", each) for each in "abc")
    either = disjunction([one, negation(two)])
    assert merged((either,)) == (("of", either),)
    assert merged((conjunction([three, either]), one)) == (conjunction([three, either]), one)
    assert merged((either, three)) == (("of", either), three)
    assert merged((disjunction([one, ("any", frozenset("x"))]),)) == (disjunction([one, ("any", frozenset("x"))]),)
