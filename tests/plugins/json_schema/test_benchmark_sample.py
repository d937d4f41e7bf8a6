"""A part of JSONSchemaBench: at least 95 % of the schemas compile, and no verdict is wrong."""

from __future__ import annotations

from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.structure.compilation import compile_schema
from logitloom_plugins.json_schema.structure.machine import accepts
from logitloom_plugins.json_schema.structure.serialisation import serialise
from tests.plugins.json_schema.schema_data import benchmark


def test_a_sixth_of_the_sample_compiles_and_every_verdict_is_right() -> None:
    rows = benchmark()[2::6]
    compiled, wrong = 0, []
    for row in rows:
        try:
            machine = compile_schema(row["schema"])
        except LogitloomError:
            continue
        compiled += 1
        for test in row["tests"]:
            if accepts(machine, serialise(machine, test["data"])) != test["valid"]:
                wrong.append((row["name"], test))
    assert not wrong
    assert compiled >= 0.95 * len(rows)
