"""Numbers in the forms in which programs print very large and very small ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from logitloom_plugins.json_schema.structure.compilation import compile_schema
from logitloom_plugins.json_schema.structure.machine import accepts

SCHEMAS: list[dict[str, Any]] = [
    {"minimum": 0},
    {"maximum": 10},
    {"exclusiveMinimum": 0},
    {"exclusiveMaximum": 0},
    {"minimum": -5, "maximum": 1000},
    {"type": "integer"},
    {"type": "integer", "maximum": -3},
]


def holds(schema: dict[str, Any], text: str) -> bool:
    value = Decimal(text)
    # Whole numbers are written without digits after the point.
    if schema.get("type") == "integer" and ("." in text or value != value.to_integral_value()):
        return False
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and (value > schema["exclusiveMinimum"] if "exclusiveMinimum" in schema else True)
        and (value < schema["exclusiveMaximum"] if "exclusiveMaximum" in schema else True)
    )


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("mantissa", ["1", "-7", "2.5", "-1.25"])
def test_every_exponent_that_is_printed_is_read(schema: dict[str, Any], mantissa: str) -> None:
    machine = compile_schema({"type": "number", **schema})
    for exponent in [*range(0, 330), 999, 1000, 3070]:
        for sign, least in (("+", 16), ("-", 5)):
            for digits in (f"{exponent}", f"{exponent:02}", f"{exponent:04}"):
                text = f"{mantissa}e{sign}{digits}"
                expected = least <= exponent <= 307 and holds(schema, text)
                assert accepts(machine, text) == expected, text
