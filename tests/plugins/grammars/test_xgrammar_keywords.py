"""The independent check of schemas for xgrammar: what it lets through, the engine judges rightly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logitloom.errors import UnsupportedSchema
from logitloom.host.registry import load_plugin
from logitloom_plugins.grammars.xgrammar_keywords import problems
from tests.plugins.json_schema.peers import XGrammar
from tests.plugins.json_schema.schema_data import benchmark, suite


def judged() -> Any:
    for _, group in suite():
        yield group["schema"], group["tests"]
    for entry in benchmark():
        yield entry["schema"], entry["tests"]


def plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e17:
        return int(value)
    if isinstance(value, list):
        return [plain(part) for part in value]
    return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.extras
def test_no_schema_that_is_let_through_is_judged_wrongly() -> None:
    engine = XGrammar()
    taken, wrong = 0, []
    for schema, tests in judged():
        if problems(schema):
            continue
        compiled = engine.compiled(schema)
        if compiled is None:
            continue
        taken += 1
        for test in tests:
            # Whole numbers are written without a fraction, which is the one form that the engine has for them.
            text = json.dumps(plain(test["data"]), separators=(",", ":"), ensure_ascii=False)
            if engine.accepts(compiled, text) != test["valid"]:
                wrong.append((schema, text, test["valid"]))
    assert not wrong
    assert taken > 100


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "string", "pattern": "a"}, [("pattern", "#/pattern")]),
        ({"type": "array", "items": {"format": "date"}}, [("format", "#/items/format")]),
        ({"type": "object", "properties": {"a/b": False}, "additionalProperties": False},
         [("false", "#/properties/a~1b")]),
        ({"type": "object", "properties": {"a": {}}}, [("additionalProperties", "#/additionalProperties")]),
        ({"type": "object", "required": ["a"]}, [("required", "#/required")]),
        ({"$ref": "#/$defs/a", "type": "string", "$defs": {"a": {}}}, [("type", "#/type")]),
        ({"anyOf": [{"const": 1.5}, {"enum": [[1]]}]}, [("enum", "#/anyOf/1/enum"), ("const", "#/anyOf/0/const")]),
        ({"minLength": 2}, [("minLength", "#/minLength")]),
        ({"type": ["string", "null"], "maxLength": 2}, [("type", "#/type"), ("maxLength", "#/maxLength")]),
        ({"enum": ["a", 1], "type": "string"}, [("type", "#/type")]),
        (False, [("false", "#")]),
    ],
)  # fmt: skip
def test_what_is_not_enforced_is_listed_with_its_pointer(schema: Any, found: list[tuple[str, str]]) -> None:
    assert [problem[:2] for problem in problems(schema)] == found


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"title": "x", "x-more": {"pattern": 1}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], "additionalProperties": False},
        {"enum": ["a", "b"], "type": "string"},
        {"type": ["string", "null"]},
    ],
)
def test_what_is_enforced_is_let_through(schema: Any) -> None:
    assert problems(schema) == []


@pytest.mark.extras
def test_the_engine_would_have_accepted_what_the_check_refuses() -> None:
    schema = {"type": "object", "properties": {"ab": {"type": "integer"}}}
    engine = XGrammar()
    # The name is "ab", written with an escape, and its value is no integer.
    assert engine.accepts(engine.compiled(schema), '{"\\u0061b":"x"}')
    assert problems(schema)


@pytest.mark.extras
def test_a_refusal_is_an_error_or_one_warning() -> None:
    pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    from logitloom_plugins.grammars.xgrammar import XGrammar as Engine

    schema = {"type": "string", "pattern": "a", "format": "date"}
    with pytest.raises(UnsupportedSchema, match=r"pattern at #/pattern .*; format at #/format"):
        Engine().json_schema(schema)
    with pytest.warns(UserWarning, match="pattern at #/pattern") as warned:
        Engine().json_schema(schema, strict=False, formats=False)
    assert len(warned) == 1
    assert "format" not in str(warned[0].message)


@pytest.mark.extras
def test_a_refusal_of_many_keywords_is_a_short_message_that_carries_all_of_them() -> None:
    schema = {"properties": {"x" * 500 + str(n): {"type": "string", "format": "email"} for n in range(300)}}
    pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    with pytest.raises(UnsupportedSchema, match=r"and \d+ more\.") as refusal:
        load_plugin("grammars", "xgrammar")().json_schema(schema)
    assert len(str(refusal.value)) < 500
    assert len(refusal.value.problems) >= 300
