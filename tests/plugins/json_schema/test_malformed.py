"""Keywords whose value is of the wrong kind are refused with the place, the value and what is expected."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from logitloom import processors
from logitloom.errors import BudgetExceeded, UnsupportedSchema
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(("keyword", "value", "wanted"), [
    ("type", "text", "one or several of null, boolean, number, integer, string, array, object is expected"),
    ("enum", "red", "a list is expected"),
    ("anyOf", [], "a list of schemas with at least one entry is expected"),
    ("properties", ["a"], "an object is expected"),
    ("minimum", "1", "a number is expected"),
    ("multipleOf", 0, "a number greater than 0 is expected"),
    ("minLength", -1, "an integer, 0 or more is expected"),
    ("pattern", 5, "a regular expression is expected"),
    ("format", {"type": "json_schema"}, "the name of a format is expected"),
    ("prefixItems", {}, "a list of schemas is expected"),
    ("required", [1], "a list of property names is expected"),
    ("uniqueItems", "true", "true or false is expected"),
    ("$ref", ["#"], "the place of a schema is expected"),
    ("dependentRequired", {"a": [1]}, "an object with a list of property names for each property is expected"),
    ("dependentRequired", {"a": "b"}, "an object with a list of property names for each property is expected"),
    ("dependentRequired", {"a": {}}, "an object with a list of property names for each property is expected"),
])  # fmt: skip
def test_a_keyword_of_another_kind_is_refused(keyword: str, value: Any, wanted: str) -> None:
    told = f"The keyword {keyword!r} at # has the value {value!r}, and {wanted}. Correct the schema."
    with pytest.raises(UnsupportedSchema, match=re.escape(told)):
        compile_schema({keyword: value})


@pytest.mark.parametrize(("schema", "told"), [
    ({"minimum": math.inf}, "The schema has the number inf, which JSON does not have. Give a finite number."),
    ({"$ref": "#gone"}, "The reference '#gone' at #/$ref names an anchor that does not exist."),
    (
        {"properties": {"a": {"type": "integer", "required": True}}},
        "The keyword 'required' at #/properties/a has the value True, and a list of property names is expected.",
    ),
    ({"dependentSchemas": {"a": ["b"]}}, "The schema at #/dependentSchemas/a is ['b'], but a schema is an object or a"),
    (
        {"$schema": DRAFT_7, "dependencies": {"a": [["b"]]}},
        "an object with a list of property names, or a schema, for each property is expected. Correct the schema.",
    ),
    ({"properties": {"a": 5}}, "The schema at #/properties/a is 5, but a schema is an object or a boolean."),
    ({"pattern": r"[\1]"}, "is no character"),
    ({"pattern": r"\Aab$"}, r"the escape '\\A' has no meaning in ECMA-262; ^ may be meant. Write the pattern without"),
    ({"pattern": r"ab[\Z]"}, r"the escape '\\Z' has no meaning in ECMA-262; $ may be meant."),
])  # fmt: skip
def test_what_means_nothing_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(UnsupportedSchema, match=re.escape(told)):
        compile_schema(schema)


def test_long_lengths_of_names_are_refused() -> None:
    with pytest.raises(BudgetExceeded, match="A length of 5000 to any number of characters of the names of members"):
        compile_schema({"type": "object", "propertyNames": {"minLength": 5000, "pattern": "^a"}})


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"not": {"minLength": 5, "maxLength": 3}}, ['"abcd"'], ["1"]),
    ({"pattern": r"^\p{ASCII}\p{Alphabetic}$"}, ['"1é"'], ['"é1"', '"11"']),
    ({"pattern": "^a}$"}, ['"a}"'], ['"a"']),
    ({"$schema": DRAFT_7, "dependencies": {"a": "b"}}, ['{"a":1,"b":2}'], ['{"a":1}']),
])  # fmt: skip
def test_rare_forms_mean_what_they_say(schema: Any, good: list[str], bad: list[str]) -> None:
    machine = compile_schema(schema)
    assert [text for text in good if not accepts(machine, text)] == []
    assert [text for text in bad if accepts(machine, text)] == []


def test_a_schema_that_contains_itself_is_refused_with_the_remedy() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = {"anyOf": [{"type": "null"}, schema]}
    with pytest.raises(UnsupportedSchema, match=r"The schema at #/items/anyOf/1 contains itself.*'\$ref': '#'"):
        processors.load(("json", {"schema": schema}))


def test_a_schema_that_stands_in_many_places_is_no_part_of_itself() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(9):
        schema = {"type": "object", "properties": {"a": schema, "b": schema, "c": schema}}
    assert compile_schema(schema).satisfiable
