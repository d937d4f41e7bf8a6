"""A real model writes only valid documents, however it is decoded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import first
from tests.plugins.json_schema.decoding_ways import WAYS, shortest_first, written
from tests.plugins.json_schema.schema_data import benchmark

pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

pytestmark = [pytest.mark.extras, pytest.mark.weights]

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 30},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 1, "maxItems": 2},
    },
    "required": ["kind", "age", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("way", first(2, ["several samples", "forced tokens", "beam search", "prompt lookup"]))
@pytest.mark.long
def test_documents_are_complete_and_valid(smollm2: Any, way: str) -> None:
    found = list(written(smollm2, SCHEMA, way, 30))
    assert len(found) == (1 if way in ("prompt lookup", "forced tokens") else 3)
    assert [one for one in found if one.wrong] == []
    assert any(one.complete for one in found)
    if way == "forced tokens":
        assert found[0].forced > 10


@pytest.mark.parametrize("way", first(2, ["beam search", "prompt lookup", "several samples", "forced tokens"]))
@pytest.mark.long
def test_schemas_of_the_benchmark_get_valid_documents(smollm2: Any, way: str) -> None:
    row = shortest_first(benchmark())[40 * list(WAYS).index(way)]
    found = list(written(smollm2, row["schema"], way, 24))
    assert found
    assert [one for one in found if one.wrong] == []
