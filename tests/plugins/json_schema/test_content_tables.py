"""Tables for walks inside string values: what they say of many states and lengths is what each says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom.automata import Budget
from logitloom.automata.budget import Meter
from logitloom_plugins.json_schema.schema.formula import substitute
from logitloom_plugins.json_schema.structure.compilation import compile_schema
from logitloom_plugins.json_schema.structure.string_states import ValueSite
from logitloom_plugins.json_schema.tokens.content_tables import ContentTables, _as_long_as
from logitloom_plugins.json_schema.values.strings import FREE_FOREVER, Content, content_of


def contents() -> list[Content]:
    meter = Meter(Budget(), "a test")
    formulas: list[tuple[Any, ...]] = [
        (("len", 0, 5),),
        (("&", (("pat", "^[a-zé]+$"), ("len", 2, 6))),),
        (("&", (("pat", "b"), ("len", 3, None))),),
        (("&", (("fmt", "date"), ("len", 10, 10))),),
        (("&", (("any", frozenset({"ab", "abc", "日本"})), ("len", 1, 2))),),
        (True, ("len", 0, 3)),
        (("|", (("len", 0, 2), ("len", 5, 7))),),
    ]
    return [content_of(formula, lambda holds, f=formula: _truth(f, holds), meter) for formula in formulas]


def _truth(formulas: tuple[Any, ...], holds: Any) -> Any:
    must, *extras = [substitute(formula, holds) is True for formula in formulas]
    return tuple(extras) if must else None


@pytest.mark.parametrize("content", contents())
def test_what_lives_and_has_room_is_what_each_state_says(content: Content) -> None:
    counts = content.lengths
    living, rooms = content.living(0, counts), content.rooms(0, counts)
    assert living.shape == rooms.shape == (counts, content.labelled.states)
    for count in range(counts):
        for state in range(content.labelled.states):
            assert living[count, state] == content.alive(state, count)
    np.testing.assert_array_equal(content.living(1, counts - 1), living[1:])
    np.testing.assert_array_equal(content.rooms(1, counts - 1), rooms[1:])
    # More than the last number is as much as the last.
    start = content.labelled.start
    assert content.alive(start, content.counted(counts + 3)) == living[-1, start]


def test_how_long_something_goes_on() -> None:
    living = np.array([True, True, False, True, True])
    assert _as_long_as(living, False).tolist() == [1, 0, 2, 1, 0]
    assert _as_long_as(living, True)[:2].tolist() == [1, 0]
    assert (_as_long_as(living, True)[2:] >= FREE_FOREVER).all()
    assert _as_long_as(~living, True).tolist() == [0, 1, 0, 0, -1]


def test_tables_of_strings_with_many_lengths_begin_where_the_string_is() -> None:
    machine = compile_schema({"type": "string", "pattern": "^(ab|cd)*$", "minLength": 2, "maxLength": 60_000})
    machine.row(machine.start)
    site = next(state[1] for state in machine.states if state[0] == "text")
    assert isinstance(site, ValueSite)
    tables = ContentTables(machine, 20)
    places = (site.start, site.content.labelled.walk(b"a"))
    for count in (0, 1, 30_000, 59_990, 60_000):
        state = site.text(places[count % 2], count)
        assert tables.covers(state)
        table, number = tables.find(state)
        _, _, living, room, _ = table.counting
        assert living[number]
        assert len(living) == len(room)
        assert len(living) <= 22 * site.content.labelled.states
