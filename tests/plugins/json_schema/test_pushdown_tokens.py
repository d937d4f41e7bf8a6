"""The tokens that a row allows are exactly those that can be taken."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logitloom_plugins.json_schema.compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.pushdown_tokens import PushdownTokens
from logitloom_plugins.json_schema.whitespace import Whitespace
from tests.core.automata.vocabularies import mixed

SCHEMAS: list[Any] = [
    True,
    {"type": "string", "maxLength": 4},
    {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {
        "properties": {"name": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "foo": {"pattern": "^[ab]+$"}},
        "required": ["name"],
        "type": "object",
    },
    {
        "oneOf": [
            {"properties": {"a": {"type": "string"}}},
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        ]
    },
    {"type": "array", "contains": {"const": "é"}, "items": {"minLength": 1}, "maxItems": 3},
]


@pytest.mark.parametrize("policy", ["compact", "flexible"])
@pytest.mark.parametrize("place", range(len(SCHEMAS)))
def test_a_row_allows_what_can_be_taken_and_nothing_else(place: int, policy: str) -> None:
    vocabulary = mixed()
    machine = compile_schema(SCHEMAS[place], SchemaOptions(Whitespace(policy, 2)))
    tokens = PushdownTokens(machine, vocabulary, vocabulary.size + 3)
    rnd = random.Random(place)
    checked = 0
    for _ in range(6):
        reached = tokens.start
        for _ in range(25):
            allowed = tokens.mask(reached)
            takes = [tokens.advance(reached, token) != -1 for token in range(vocabulary.size + 3)]
            assert allowed.tolist() == takes, machine.states[tokens._configurations[reached][0]]
            assert allowed.any()
            checked += 1
            ids = tokens.row(reached).tolist()
            assert ids == allowed.nonzero()[0].tolist()
            reached = tokens.advance(reached, rnd.choice(ids))
            if reached == -2:
                break
    assert checked > 12
