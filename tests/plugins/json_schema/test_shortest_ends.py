"""Completions found through moves alone, and the specialised ones that must be as long."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.completion.position_texts import SPECIALISED, Completions
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.layout import POLICIES, Whitespace

SCHEMAS: dict[str, Any] = {
    "anything": True,
    "literals": {"enum": [None, True, False]},
    "numbers": {"type": "number", "minimum": 12, "exclusiveMaximum": 130, "multipleOf": 0.5},
    "lengths": {"type": "string", "minLength": 2, "maxLength": 3},
    "pattern": {"type": "string", "pattern": "^(ab|c{4})+d$"},
    "above ASCII": {"type": "string", "pattern": "^[éü]{2}x?$"},
    "listed": {"enum": ["abc", "abd", 12, 1.5, [1, {"a": 2}], {"b": []}]},
    "required": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "bc": {"enum": ["xy", "x"]}, "d": {"minLength": 2, "type": "string"}},
        "required": ["bc", "d"],
    },
    "nested": {"type": "object", "properties": {"o": {"type": "object", "required": ["p"]}}, "required": ["o"]},
    "recursive": {
        "type": "object",
        "properties": {"v": {"type": "integer", "minimum": 10}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["v", "next"],
        "additionalProperties": False,
    },
    "alternatives": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "long": {"minItems": 2, "type": "array"}},
             "required": ["k", "long"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"], "additionalProperties": False},
        ]
    },
    "one of two that share optional members": {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "k": {"const": kind},
                    "a": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
                    "c": {"minimum": 10},
                },
                "required": required,
            }
            for kind, required in (("a", ["k", "c"]), ("a", ["k", "a"]), ("bb", []))
        ]
    },
    "dependent": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}},
        "dependentRequired": {"a": ["b"]},
        "additionalProperties": False,
    },
    "conditional": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}},
        "if": {"properties": {"a": {"const": True}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "additionalProperties": False,
    },
    "counted": {"type": "object", "minProperties": 2, "additionalProperties": {"type": "null"}},
    "patterns": {
        "type": "object",
        "patternProperties": {"^x[01]$": {"type": "integer"}},
        "minProperties": 1,
        "additionalProperties": False,
    },
    "counted of several kinds": {
        "type": "object",
        "properties": {"bb": {"type": "null"}, "a": {"type": "integer"}, "cc": {"enum": ["long", 12]}},
        "patternProperties": {"^[01]$": {"type": "boolean"}, "^x?$": {"type": "integer"}},
        "required": ["cc"],
        "minProperties": 4,
        "additionalProperties": False,
    },
    "items": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "minItems": 3, "maxItems": 4},
    "contains": {"type": "array", "contains": {"const": 7}, "items": {"type": "integer"}, "maxItems": 3},
    "many contained": {"type": "array", "contains": {"const": 12}, "items": {"type": "integer"}, "minContains": 3,
                       "minItems": 4},
    "few contained": {"type": "array", "contains": {"const": 1}, "items": {"enum": [1, 10]}, "minContains": 2,
                      "maxContains": 3, "minItems": 5},
}  # fmt: skip


def visited(machine: Machine, dice: random.Random) -> set[Position]:
    """The positions of random walks."""
    found = {Position(machine.start)}
    for _ in range(8):
        reached = Position(machine.start)
        for _ in range(20):
            possible = [byte for byte in machine.codes.every_code(reached.state) if byte < 0x80] or [
                *machine.codes.every_code(reached.state)
            ]
            following = machine.read(reached, bytes([dice.choice(possible)])) if possible else None
            if following is None:
                break
            reached = following
            found.add(reached)
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.long
def test_a_search_through_the_moves_finds_texts_as_long_as_the_specialised_ones(name: str, policy: str) -> None:
    machine = compile_schema(SCHEMAS[name], SchemaOptions(Whitespace(policy, 2), "minimal"))
    general, specialised = Completions(machine, {}), Completions(machine)
    kinds = set()
    for position in sorted(visited(machine, random.Random(f"{name} {policy}")), key=repr)[:25]:
        kinds.add(machine.states[position.state].kind)
        texts = [each.of(position) for each in (general, specialised)]
        for text in texts:
            assert text is not None
            end = machine.read(position, text)
            assert end is not None, (position, texts)
            assert machine.ends(end)
        assert len(texts[0] or b"") == len(texts[1] or b""), texts
    assert kinds


@pytest.mark.parametrize("left_out", SPECIALISED, ids=lambda kind: kind.__name__)
def test_a_type_of_state_needs_no_specialised_completion(left_out: Any) -> None:
    """A kind of state that is new has moves, and with them completions."""
    others = {kind: find for kind, find in SPECIALISED.items() if kind is not left_out}
    machine = compile_schema(SCHEMAS["required"])
    texts = [each.of(Position(machine.start)) for each in (Completions(machine, others), Completions(machine))]
    assert json.loads(texts[0] or b"") == json.loads(texts[1] or b"")
