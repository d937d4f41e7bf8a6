"""The default whitespace: what ``json.dumps`` writes in its usual forms, alike in a whole text."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.layout import Whitespace

FORMS: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 4}]
VALUES: list[Any] = [
    1, "a, b: [", [], {}, [1], [1, 2], [[1], [2, [3, {}]], []], {"a": 1}, {"a": [], "b": {}},
    {"a": {"b": [1, {"c": "{:,"}]}, "d": [[]]}, [{"x": 1, "y": 2}, {"x": 3, "y": [4, 5]}], [[[1, 2]]],
]  # fmt: skip
TREE: Any = {
    "type": "object",
    "properties": {"n": {"enum": ["x", "yz", None]}, "below": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
    "required": ["below"],
    "additionalProperties": False,
}


def anything() -> SchemaAutomaton:
    return SchemaAutomaton(compile_schema(True, SchemaOptions(Whitespace("json_dumps"), "minimal")))


@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_each_form_of_json_dumps_is_accepted(value: Any) -> None:
    machine = anything().machine
    for form in FORMS:
        assert accepts(machine, json.dumps(value, **form)), form


@pytest.mark.parametrize(
    "text",
    ['{"a":1, "b":2}', '{"a": 1,"b": 2}', "[1,2, 3]", "[ 1]", "[1 ]", '{ "a":1}', '{"a" :1}', "[\n1]", "[\n   1\n]",
     "[\n  1]", "[\n  1,\n    2\n]", "[\n  1\n ]", '{\n  "a":1\n}', "[[1,2], 3]", "[[1, 2],3]", " 1", "1 ", "[  1]",
     "[\t1]", "[\n\n1]"],
)  # fmt: skip
def test_mixed_and_other_whitespace_is_not_accepted(text: str) -> None:
    json.loads(text)
    assert not accepts(anything().machine, text)
    assert accepts(compile_schema(True, SchemaOptions(Whitespace("flexible"))), text) or text != text.strip()


def test_every_text_is_one_that_json_dumps_writes() -> None:
    schema = SchemaAutomaton(compile_schema(TREE, SchemaOptions(Whitespace("json_dumps"), "minimal")))
    dice = random.Random(3)
    forms = set()
    for _ in range(60):
        state, text = schema.start(), b""
        for _ in range(dice.randrange(200)):
            steps = [(byte, after) for byte in range(128) if (after := schema.step(state, byte)) is not None]
            if not steps:
                break
            byte, state = dice.choice(steps)
            text += bytes([byte])
        rest = schema.completion(state)
        assert rest is not None
        value = json.loads(text + rest)
        found = [at for at, form in enumerate(FORMS) if (text + rest).decode() == json.dumps(value, **form)]
        assert found, text + rest
        forms.update(found if len(found) == 1 else [])
    assert forms == {0, 1, 2, 3}


def test_the_form_of_a_text_goes_with_its_state() -> None:
    schema = anything()
    for begun, comma, space in ((b"[[1,2]", b",3", b", 3"), (b"[[1, 2]", b", 3", b",3")):
        state = pickle.loads(pickle.dumps(schema.read(schema.start(), begun)))
        other = anything()
        assert other.read(state, comma) is not None
        assert other.read(state, space) is None
