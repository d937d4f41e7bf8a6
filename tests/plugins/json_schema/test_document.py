"""Documents: drafts inside drafts, and what their references mean."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from logitloom.errors import UnsupportedSchema
from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema

#: As Heroku writes them: every resource names its draft and its legacy identifier, the document names neither.
COMBINED: dict[str, Any] = {
    "definitions": {
        "app": {
            "$schema": "http://json-schema.org/draft-04/hyper-schema",
            "id": "schemata/app",
            "type": "object",
            "definitions": {"dynos": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
            "properties": {
                "dynos": {"$ref": "#/definitions/app/definitions/dynos"},
                "owner": {"$ref": "#/definitions/account"},
            },
        },
        "account": {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "schemata/account",
            "properties": {"apps": {"items": {"$ref": "schemata/app"}, "maxItems": 1}},
        },
    },
    "type": "object",
    "properties": {"app": {"$ref": "#/definitions/app"}},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"app":{"dynos":1}}', True),
        ('{"app":{"dynos":0}}', False),
        ('{"app":{"owner":{"apps":[{"dynos":2}]}}}', True),
        ('{"app":{"owner":{"apps":[{"dynos":-2}]}}}', False),
        ('{"app":{"owner":{"apps":[{},{}]}}}', False),
    ],
)
def test_legacy_identifiers_inside_a_later_draft_change_no_base(text: str, expected: bool) -> None:
    assert accepts(compile_schema(COMBINED), text) == expected


def test_identifiers_of_draft_4_are_the_base_of_references_inside_draft_4() -> None:
    schema = {**COMBINED, "$schema": "http://json-schema.org/draft-04/schema#"}
    with pytest.raises(UnsupportedSchema, match="'#/definitions/app/definitions/dynos' at .* points to nothing"):
        compile_schema(schema)


def test_another_meta_schema_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedSchema, match="The schema at # names the meta-schema 'http://x/y#'"):
        compile_schema({"$schema": "http://x/y#"})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "other.json#/definitions/b"}}},
        {"$id": "https://example.com/folder/one.json", "items": {"$ref": "../other.json"}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "https://example.com/one", "$ref": "other#/x"},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "https://example.com/one",
            "items": {"$ref": "other"},
        },
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/one", "$ref": "other"},
    ],
    ids=str,
)
def test_a_reference_to_another_schema_is_refused_with_what_mends_it(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"at #/\S*\$ref points outside the schema") as raised:
        compile_schema(schema)
    _, _, told = str(raised.value).partition("Put the schema that it names under $defs, with ")
    other = {**ast.literal_eval(told.removesuffix(".")), "definitions": {"b": {}}, "x": {}}
    assert compile_schema({**schema, "$defs": {"other": other}}).satisfiable
