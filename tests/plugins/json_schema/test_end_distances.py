"""The distances to the ends of texts, against texts that are read character by character."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma
from logitloom_plugins.json_schema.values.end_distances import FREE_FOREVER, EndDistances
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

LETTERS = "aé🙂-"
LIMIT = 40


def reached(automaton: MooreMachine) -> list[set[int]]:
    """By state between characters the distances to its ends, up to twice the limit."""
    following = [
        {target for letter in LETTERS if (target := automaton.walk(letter.encode(), state)) >= 0}
        for state in range(automaton.states)
    ]
    found: list[set[int]] = [set() for _ in following]
    here = {state for state in range(automaton.states) if automaton.accepting[state]}
    for distance in range(2 * LIMIT):
        for state in here:
            found[state].add(distance)
        here = {state for state, targets in enumerate(following) if targets & here}
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?:[aé🙂-]{4})*(?:a|-)?$", "^a{3,7}-$", "^(?:aa|---)*é$", "^(?:(?:aa)*|(?:---)*)$", "^[aé]*$",
        "^a{5}(?:-{3})*🙂{2}$", "^(?:a{10})*$",
    ],
)  # fmt: skip
@pytest.mark.parametrize("or_more", [False, True])
@pytest.mark.long
def test_distances_are_those_of_texts(pattern: str, or_more: bool) -> None:
    automaton = MooreMachine.of(compile_ecma(pattern), ())
    distances = EndDistances(automaton, LIMIT, or_more)
    wanted = reached(automaton)
    for state in range(automaton.states):
        if not automaton.boundaries[state]:
            continue
        ends = wanted[state]
        if or_more:
            ends = set(range(max(ends, default=-1) + 1))
        assert [bool(distances.at(k, state)) for k in range(LIMIT + 1)] == [k in ends for k in range(LIMIT + 1)]
        assert distances.nearest[state] == min(ends, default=FREE_FOREVER)
        for least in range(LIMIT + 1):
            for most in range(-1, LIMIT + 1):
                between = any(least <= k <= most for k in ends)
                assert distances.between(least, most, state) == between, (state, least, most)


def test_arrays_are_answered_as_single_numbers_are() -> None:
    distances = EndDistances(MooreMachine.of(compile_ecma("^(?:abc)*d?$"), ()), 1000, False)
    counts, states = np.arange(1001)[:, None], np.arange(3)
    answers = distances.at(counts, states)
    assert [distances.at(k, state) for k in range(0, 1001, 37) for state in range(3)] == answers[::37].ravel().tolist()


def test_a_bound_of_many_characters_takes_few_rows() -> None:
    distances = EndDistances(MooreMachine.of(compile_ecma("^(?:[0-9a-f]{6},)*$"), ()), 10**12, False)
    start = 0
    assert distances.at(7 * 10**11, start)
    assert not distances.at(7 * 10**11 + 1, start)
    assert distances.between(10**12 - 6, 10**12, start)
