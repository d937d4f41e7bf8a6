"""Alternatives of objects: their members come in the order of the schema."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom_plugins.json_schema.folds.machine import accepts
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("required", [[], ["name"], ["name", "arguments"]])
def test_branches_with_a_member_in_common_keep_the_order_of_the_names(keyword: str, required: list[str]) -> None:
    def call(name: str) -> dict[str, Any]:
        members = {"name": {"const": name}, "arguments": {"type": "object"}}
        return {"type": "object", "properties": members, "required": required}

    machine = compile_schema({keyword: [call("now"), call("later")]})
    assert accepts(machine, '{"name": "now", "arguments": {}}')
    assert not accepts(machine, '{"arguments": {}, "name": "now"}')
    assert not accepts(machine, '{"name": "never", "arguments": {}}')
