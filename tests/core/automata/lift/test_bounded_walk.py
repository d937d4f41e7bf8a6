"""Walks whose work is bounded: sets that are sound, equal in every process, and have a way to the end."""

from __future__ import annotations

import random
import re
from unittest import mock

import numpy as np
import pytest

from logitloom import Vocabulary
from logitloom.automata import LazyDfa
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift import lifted_automaton as module
from logitloom.automata.lift.visited import VisitedStates, WatchedStates
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.constraints import LiftedAutomaton, lift
from logitloom.masks.kernels import load_kernels
from tests.cases import EXHAUSTIVE
from tests.core.automata.lift.test_runs import vocabulary

MANY_STATES = [
    r"(?:.*[a-f].{60})*",
    r"(?:(?:[a-e]|[f-j ]{1,2}|[k-z]{2}|\w)*[ac-f].{6,9})*",
    r"(?:(?:[a-m ][n-z ]|[n-z][a-m]|[A-Z])*[a-f][^q]{0,60}[a-z].{90}z)*",
    r"(?i)(?:(?:[aeiou ]+[^aeiou]{1,3}|[^aeiou]+[aeiou ]{1,2})*[a-f]\b.{6}z)*",
]
WORDS = vocabulary()
MODES = ["numpy", *(["kernels"] if load_kernels() is not None else [])]


def lifted(pattern: str) -> LiftedAutomaton:
    tracker = BudgetTracker()
    return lift(LazyDfa(*_subsets(parse_pattern(pattern, 0, tracker), pattern, 0, tracker)), WORDS)


def walk(constraint: LiftedAutomaton, seed: int, steps: int = 6) -> list[object]:
    """States of a random text."""
    rng, states = random.Random(seed), [constraint.start()]
    for _ in range(steps):
        ids = constraint.allowed(states[-1]).listed(WORDS.size).tolist()
        if not ids:
            break
        reached = constraint.advance(states[-1], rng.choice(ids))
        assert reached is not None
        states.append(reached)
    return states


def masks(constraint: LiftedAutomaton, states: list[object], mode: str) -> list[list[int]]:
    found = load_kernels() if mode == "kernels" else None
    with mock.patch.object(module, "automaton_kernels", return_value=found):
        return [constraint.allowed(state).listed(WORDS.size).tolist() for state in states]  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("work", [1, 60, pytest.param(600, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("pattern", MANY_STATES)
def test_bounded_masks_are_sound_and_do_not_depend_on_what_is_remembered(pattern: str, work: int) -> None:
    exact, used = lifted(pattern), lifted(pattern)
    states = [state for seed in range(2) for state in walk(exact, seed)]
    whole = masks(exact, states, "numpy")
    with mock.patch.object(module, "_MOST_WORK", work):
        expected = [masks(lifted(pattern), [state], "numpy")[0] for state in states]
        for mode in MODES:
            assert masks(used, states, mode) == expected
            assert masks(lifted(pattern), states[::-1], mode)[::-1] == expected
    assert all(set(small) <= set(large) for small, large in zip(expected, whole, strict=True))
    if work == 1:
        assert expected != whole


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pattern", MANY_STATES)
def test_masks_below_a_bound_are_whole(pattern: str, mode: str) -> None:
    constraint = lifted(pattern)
    states = walk(constraint, 1)
    alive = [
        [t for t, text in enumerate(WORDS.token_bytes) if text and constraint.advance(state, t) is not None]
        for state in states
    ]
    with mock.patch.object(module, "_MOST_WORK", 1 << 30):
        assert masks(lifted(pattern), states, mode) == alive


def test_a_walk_with_nothing_remembered_counts_the_states_that_it_read_together_and_one_by_one() -> None:
    automaton = lifted("[ab]{3}").automaton()
    visited = VisitedStates(automaton)
    table = WatchedStates(visited, 30)
    first = np.array([visited.number(automaton.start())])
    table.reads(first)
    reached = int(table.step(first, np.array([ord("a")], dtype=np.uint8))[0])
    table.row(reached)
    table.after(reached, ord("b"))
    assert visited.work > 30
    assert not table.is_within


@pytest.mark.parametrize("pattern", MANY_STATES)
def test_the_tokens_of_a_shortest_completion_stay_allowed(pattern: str) -> None:
    constraint = lifted(pattern)
    with mock.patch.object(module, "_MOST_WORK", 1):
        for state in walk(constraint, 2):
            text = b""
            while not constraint.may_end(state):
                rest = constraint.automaton().completion(state)
                assert rest is not None
                ids = masks(constraint, [state], "numpy")[0]
                beginning = [t for t, word in enumerate(WORDS.token_bytes) if word and rest.startswith(word)]
                assert set(beginning) <= set(ids)
                state = constraint.advance(state, max(beginning, key=lambda t: len(WORDS.token_bytes[t])))
                text += rest[:1]
                assert len(text) < 300


@pytest.mark.parametrize("pattern", MANY_STATES)
@pytest.mark.long
def test_texts_of_bounded_masks_match(pattern: str) -> None:
    with mock.patch.object(module, "_MOST_WORK", 40):
        for seed in range(4):
            constraint, rng, text = lifted(pattern), random.Random(seed), b""
            state = constraint.start()
            for _ in range(10):
                token = rng.choice(constraint.allowed(state).listed(WORDS.size).tolist())
                text += WORDS.token_bytes[token]
                reached = constraint.advance(state, token)
                assert reached is not None
                state = reached
            completion = constraint.automaton().completion(state)
            assert completion is not None
            assert re.fullmatch(pattern, (text + completion).decode())


def bounds(constraint: LiftedAutomaton, state: object) -> dict[int, int]:
    """Per allowed id the bound for the fewest tokens after it."""
    ids, least = constraint.least_after(state)  # type: ignore[arg-type]
    return dict(zip(ids.tolist(), least.tolist(), strict=True))


@pytest.mark.parametrize("work", [60, *[pytest.param(work, marks=pytest.mark.exhaustive) for work in (1, 600)]])
@pytest.mark.parametrize("pattern", [*MANY_STATES, "(?:.*[a-f].{60}){2}", "(?:ab?|[b-f]{2,9}é?){30,50}"])
@pytest.mark.long
def test_bounds_near_a_limit_are_sound_and_do_not_depend_on_what_is_remembered(pattern: str, work: int) -> None:
    exact, used = lifted(pattern), lifted(pattern)
    states = [state for seed in range(2 if EXHAUSTIVE else 1) for state in walk(exact, seed)]
    limits = {"_MOST_WORK": work, "_MOST_WORK_NEAR": work}
    with mock.patch.multiple(module, **limits):
        expected = [bounds(lifted(pattern), state) for state in states]
        assert [bounds(used, state) for state in states] == expected
        assert [bounds(used, state) for state in states[::-1]][::-1] == expected
        for state, found in zip(states, expected, strict=True):
            assert [*found] == used.allowed(state).listed(WORDS.size).tolist()  # type: ignore[arg-type]
    for state, found in zip(states, expected, strict=True):
        needed = {t: exact.least_tokens(exact.advance(state, t)) for t in found}  # type: ignore[arg-type]
        assert all((least or 0) <= found[t] for t, least in needed.items())
        here = exact.least_tokens(state)  # type: ignore[arg-type]
        assert here is not None
        if not exact.may_end(state):  # type: ignore[arg-type]
            assert min(found.values()) <= here - 1


@pytest.mark.parametrize("pattern", MANY_STATES)
@pytest.mark.long
def test_bounds_below_the_bounds_of_work_are_those_of_the_states(pattern: str) -> None:
    constraint = lifted(pattern)
    with mock.patch.multiple(module, _MOST_WORK=1 << 30, _MOST_WORK_NEAR=1 << 30):
        for state in walk(constraint, 3):
            found = bounds(constraint, state)
            reached = [constraint.advance(state, t) for t in found]  # type: ignore[arg-type]
            assert [*found.values()] == [constraint.least_tokens(after) for after in reached]  # type: ignore[arg-type]


def test_the_last_levels_of_a_trie_are_walked_without_arrays() -> None:
    words = Vocabulary([*(bytes([byte]) for byte in range(256)), b"x" * 90, b"-" * 80, b""], eos=[258])
    constraint = lift(
        LazyDfa(*_subsets(parse_pattern(".{0,200}[ab].{200}"), ".{0,200}[ab].{200}", 0, BudgetTracker())), words
    )
    with (
        mock.patch.object(module, "automaton_kernels", return_value=None),
        mock.patch.object(VisitedStates, "step", autospec=True, side_effect=VisitedStates.step) as step,
    ):
        constraint.allowed(constraint.start())
    assert 0 < step.call_count < 10


@pytest.mark.parametrize("mode", MODES)
def test_positions_of_states_count_as_work(mode: str) -> None:
    most = 800
    words = "|".join(a + b + c + "x" for a in "abcdefg" for b in "abcdefg" for c in "ab")
    constraint = lifted(f".{{0,100}}(?:{words}).{{0,100}}")
    start = constraint.start()
    assert isinstance(start, bytes)
    assert len(start) // 4 >= 98, "a position for each word and the first of any characters"
    with mock.patch.object(module, "_MOST_WORK", most):
        masks(constraint, [start], mode)
    visited = constraint.memory.visited
    # Positions within a character are those of the state before it.
    read = [visited.values[state] for state in visited._costs]
    positions = sum(len(each if isinstance(each, bytes) else each[0]) // 4 for each in read)
    # The first state is read whatever it takes.
    assert positions <= most + len(start) // 4
