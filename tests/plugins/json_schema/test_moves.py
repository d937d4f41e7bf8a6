"""The moves of states, and the specialised codes of bytes that must equal them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.layout import Layout, Whitespace
from logitloom_plugins.json_schema.grammar.moves import moves_between
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    EscapeState,
    GapState,
    LiteralState,
    NumberState,
    TextState,
)

SCHEMAS: list[tuple[Any, SchemaOptions]] = [
    (True, SchemaOptions()),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "é": {"enum": ["x", None]}}, "required": ["a"]},
        SchemaOptions(whitespace=Whitespace("json_dumps")),
    ),
    (
        {"type": "array", "items": {"type": "string", "pattern": "^a?\\u00e9*$", "maxLength": 3}, "uniqueItems": True},
        SchemaOptions(whitespace=Whitespace("flexible", 2), escapes="ascii"),
    ),
    (
        {"patternProperties": {"^[xy]+$": {"type": "number"}}, "additionalProperties": False, "minProperties": 2},
        SchemaOptions(whitespace=Whitespace("one_space"), escapes="minimal"),
    ),
    ({"anyOf": [{"type": "number", "multipleOf": 0.5}, {"type": "array", "contains": {"const": 1}}]}, SchemaOptions()),
]


def visited(schema: Any, options: SchemaOptions) -> Machine:
    """The machine of a schema, after random walks."""
    machine, rnd = compile_schema(schema, options), random.Random(5)
    for _ in range(60):
        reached = Position(machine.start)
        for _ in range(25):
            possible = [*machine.codes.every_code(reached.state)]
            following = machine.read(reached, bytes([rnd.choice(possible)])) if possible else None
            if following is None:
                break
            reached = following
    return machine


@pytest.mark.parametrize(("schema", "options"), SCHEMAS)
def test_the_codes_of_bytes_are_those_of_the_moves(schema: Any, options: SchemaOptions) -> None:
    machine = visited(schema, options)
    kinds = set()
    for number, state in enumerate(machine.states[:600]):
        kinds.add(state.kind)
        if isinstance(state, TextState | EscapeState):
            moves = [*machine.codes.strings.moves.moves(state)]
        else:
            moves = [*moves_between(machine.grammar, state)]
        told = {byte: machine.numbering.code(move) for move in moves for byte in move.read}
        assert machine.codes.every_code(number) == told, state
        assert {byte: machine.codes.code(number, byte) for byte in range(256)} == dict.fromkeys(range(256), -1) | told
    assert {"value", "text", "done"} <= kinds


def test_states_of_different_kinds_are_never_equal() -> None:
    machine = compile_schema({"type": "array", "items": {"type": "integer"}})
    frame = machine.values.opened("array", machine.values.of_type(machine.root, "array"), frozenset([()]))
    assert isinstance(frame, ArrayFrame)
    state = ArrayState(frame, "open", Layout("flexible"))
    gap, literal = GapState(state, 1), LiteralState(b"ull", state)
    number = next(found for found in visited(True, SchemaOptions()).states if isinstance(found, NumberState))
    assert len({state, gap, literal, number}) == 4
    assert (state.kind, gap.kind, literal.kind, number.kind) == ("array", "gap", "literal", "number")
    assert tuple(gap) == (state, 1, "gap")
    assert gap != (state, 1)
    assert gap != gap._replace(read=2)
