"""The automata of times of day and of dates with times, against patterns and against arithmetic on minutes."""

from __future__ import annotations

import random
import re

from logitloom.automata import compile_pattern, concatenation
from logitloom.automata.deterministic.minimize import minimize
from logitloom_plugins.json_schema.values.formats import format_automaton
from logitloom_plugins.json_schema.values.times_of_day import times_of_day

USUAL = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)
DAY = 24 * 60


def written(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def test_second_60_comes_where_it_is_one_minute_to_midnight_in_utc() -> None:
    times, rng = times_of_day(), random.Random(3)
    for local in range(DAY):
        fraction = rng.choice(("", ".0", ".125"))
        asked = [rng.randrange(DAY) for _ in range(6)] + [DAY - 1 - local, (local + 1) % DAY]
        for offset in asked:
            for sign in (1, -1):
                text = f"{written(local)}:60{fraction}{'+' if sign > 0 else '-'}{written(offset)}"
                assert times.fullmatch(text) == ((local - sign * offset) % DAY == DAY - 1), text
        assert times.fullmatch(f"{written(local)}:60{fraction}Z") == (local == DAY - 1)


def test_changed_times_are_judged_as_the_pattern_of_times_without_second_60() -> None:
    times, rng = times_of_day(), random.Random(4)
    alphabet = "0123456789:.+-zZtT"
    for _ in range(20_000):
        text = f"{written(rng.randrange(DAY))}:{rng.randrange(60):02}"
        text += rng.choice(("", f".{rng.randrange(1000)}")) + rng.choice(("Z", "z", f"+{written(rng.randrange(DAY))}"))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(("", rng.choice(alphabet))) + text[at + rng.randrange(2) :]
        if ":60" not in text:
            assert times.fullmatch(text) == (USUAL.fullmatch(text) is not None), text


def test_a_date_with_a_time_is_the_concatenation_of_both() -> None:
    both = concatenation(format_automaton("date"), compile_pattern("[tT]"), format_automaton("time"))
    assert minimize(format_automaton("date-time")).fingerprint == both.fingerprint


def test_the_automata_of_times_have_no_state_too_many() -> None:
    for name in ("time", "date-time"):
        assert minimize(format_automaton(name)).states == format_automaton(name).states
