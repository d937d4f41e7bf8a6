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
from logitloom_plugins.json_schema.schema.formula import Atom, conjunction, disjunction, negation, parts_of
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


def lengths(least: int, most: int | None) -> Atom:
    return ("len", least, most)


@pytest.mark.parametrize(
    ("alternatives", "is_taken_out"),
    [
        ([[("pat", "^a"), lengths(0, 5)], [("any", frozenset(("b", "cc")))]], True),
        ([[("pat", "^a"), lengths(0, 5)], [("pat", "b$"), lengths(0, 5)]], True),
        ([[("fmt", "ipv4"), lengths(0, 20)], [("fmt", "date")], [("fmt", "uuid"), ("any", frozenset("a"))]], True),
        ([[("pat", "^a"), lengths(0, 5)], [("any", frozenset(("b", "cccccc")))]], False),
        ([[("pat", "^a"), lengths(0, 5)], [("pat", "b$")]], False),
        ([[("pat", "^a"), lengths(0, 5)], [("pat", "b$"), lengths(0, 6)]], True),
        ([[("pat", "^a"), lengths(1, 5)], [("pat", "b$"), lengths(2, 5)]], True),
        ([[("fmt", "uri"), lengths(0, 2048)], [lengths(0, 0)]], True),
        ([[("pat", "^a"), lengths(0, 5)], [("pat", "b$"), lengths(3, None)]], False),
        ([[("fmt", "ipv4"), lengths(0, 20)], [("fmt", "uuid")]], False),
        ([[("fmt", "ipv4"), lengths(0, 20)], [("fmt", "uri")]], False),
    ],
)
def test_a_bound_that_all_alternatives_keep_is_counted_beside_them(
    alternatives: list[list[Atom]], is_taken_out: bool
) -> None:
    (found,) = merged((disjunction([conjunction(each) for each in alternatives]),))
    assert any(part[0] == "len" for part in parts_of(found)) == is_taken_out


@pytest.mark.parametrize(("keyword", "most"), [("anyOf", 9), ("oneOf", 1)])
@pytest.mark.parametrize(
    "alternatives",
    [
        [{"format": "hostname"}, {"format": "ipv4"}, {"format": "ipv6"}, {"format": "uuid"}, {"format": "date"}],
        [{"format": "hostname"}, {"pattern": "^h*$"}],
        [{"pattern": "^a", "maxLength": 3}, {"enum": ["b", "bbb"]}],
        [{"pattern": "^a", "minLength": 2, "maxLength": 3}, {"maxLength": 1}, {"pattern": "bb", "maxLength": 2}],
        [{"pattern": "^a", "minLength": 2, "maxLength": 3}, {"pattern": "b", "minLength": 3, "maxLength": 3}],
        [{"format": "uri", "maxLength": 300}, {"maxLength": 0}],
        [{"pattern": "^a", "maxLength": 3}, {"enum": ["b", "bbbb"]}, {"pattern": "ba$", "maxLength": 3}],
    ],
)
def test_texts_of_bounded_alternatives_are_those_of_each_alone(
    alternatives: list[dict[str, Any]], keyword: str, most: int
) -> None:
    machine = compile_schema({"type": "string", keyword: alternatives})
    alone = [compile_schema({"type": "string", **each}) for each in alternatives]
    long = "h" * 60 + ("." + "h" * 60) * 3
    texts = [*TEXTS, "::1", "1.2.3.4", "1.2.3.4.5", "2020-02-29", *[long + "." + "h" * more for more in (7, 8, 9, 10)]]
    for text in map(json.dumps, texts):
        assert accepts(machine, text) == (1 <= sum(accepts(each, text) for each in alone) <= most), text
