"""Documents: drafts inside drafts, and what their references mean."""

from __future__ import annotations

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
