"""The tables of formats that the package brings along, against automata that are made from the patterns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from logitloom_plugins.json_schema.schema.schema_document import FORMATS
from logitloom_plugins.json_schema.values import formats
from logitloom_plugins.json_schema.values.formats import IRREGULAR, compiled_formats, format_automaton, write_tables

COMPILED = compiled_formats()


def test_every_format_has_an_automaton() -> None:
    assert {*COMPILED, "time", "date-time", *IRREGULAR} == FORMATS


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_a_table_is_that_of_the_pattern(name: str) -> None:
    """If this fails, a pattern has changed: write the file again, with :func:`.write_tables`."""
    read, made = format_automaton(name), COMPILED[name]
    assert np.array_equal(read.next, made.next)
    assert np.array_equal(read.byte_class, made.byte_class)
    assert np.array_equal(read.accepting, made.accepting)
    assert read.start == made.start


def test_tables_that_are_written_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(tmp_path / "tables.npz")
    monkeypatch.setattr(formats, "_TABLES", tmp_path / "tables.npz")
    assert format_automaton.__wrapped__("email").fingerprint == COMPILED["email"].fingerprint
