"""Minimal automata are minimal, canonical, and accept what they accepted."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import Budget, Dfa, choice, compile_pattern, minimize, union
from logitloom.errors import BudgetExceeded
from tests.cases import examples
from tests.core.automata.pattern_strategies import patterns
from tests.core.automata.patterns.test_pattern import supported


def states_told_apart(dfa: Dfa) -> int:
    """The number of inequivalent states, by filling the table of distinguishable pairs until nothing changes."""
    states = [*range(dfa.states), -1]
    step = {s: (dfa.by_byte[s].tolist() if s >= 0 else [-1] * 256) for s in states}
    accepts = {s: s >= 0 and bool(dfa.accepting[s]) for s in states}
    columns = [int(np.argmax(dfa.byte_class == c)) for c in np.unique(dfa.byte_class)]
    apart = {(a, b) for a, b in itertools.product(states, states) if accepts[a] != accepts[b]}
    while True:
        more = {
            (a, b)
            for a, b in itertools.product(states, states)
            if (a, b) not in apart and any((step[a][c], step[b][c]) in apart for c in columns)
        }
        if not more:
            break
        apart |= more
    representatives: list[int] = []
    for state in states[:-1]:
        if all((state, other) in apart for other in [*representatives, -1]):
            representatives.append(state)
    return max(len(representatives), 1)


@examples(25)
@given(patterns(anchors=True))
def test_no_two_states_of_a_minimal_automaton_are_equivalent(pattern: str) -> None:
    if not supported(pattern, 0):
        return
    dfa = compile_pattern(pattern)
    assert Dfa(dfa.byte_class, dfa.next, dfa.accepting).trimmed().states == dfa.states  # no promise made
    smallest = minimize(dfa)
    if dfa.states <= 40:
        assert smallest.states == states_told_apart(dfa)
    columns = {smallest.next[:, c].tobytes() for c in range(smallest.classes)}
    assert len(columns) == smallest.classes == len(set(smallest.byte_class.tolist()))
    assert minimize(smallest).fingerprint == smallest.fingerprint


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("(a|b)*", "(a*b*)*"),
        ("a{2,4}", "aa|aaa|aaaa"),
        ("ab|ac", "a[bc]"),
        (r"\w|\W", "(?s:.)"),
        ("a|ab*c|abc", "a(b*c)?"),
    ],
)
def test_equal_languages_have_equal_fingerprints(one: str, two: str) -> None:
    assert compile_pattern(one, minimal=True).fingerprint == compile_pattern(two, minimal=True).fingerprint


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]))
def test_random_automata_keep_their_language(seed: int, whole_rounds: int) -> None:
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, 12))
    table = rng.integers(-1, states, size=(states, 3))
    byte_class = np.full(256, 2, dtype=np.uint8)
    byte_class[[97, 98]] = [0, 1]
    dfa = Dfa(byte_class, table, rng.random(states) < 0.3, int(rng.integers(states)))
    with mock.patch("logitloom.automata.deterministic.minimize._WHOLE_ROUNDS", whole_rounds):
        smallest = minimize(dfa)
    for length in range(6):
        for word in itertools.product(b"abc", repeat=length):
            assert smallest.fullmatch(bytes(word)) == dfa.fullmatch(bytes(word))
    if dfa.is_empty:
        assert smallest.states == 1
        assert smallest.is_empty
    else:
        assert smallest.states == states_told_apart(dfa.trimmed())


def test_long_chains_are_minimised_quickly_and_correctly() -> None:
    dfa = compile_pattern("a{3000}|a{3000}", minimal=True)
    assert dfa.states == 3001


@pytest.mark.parametrize("pattern", [r"(\S+\s+){0,9}\S+", "(ab?|a[a-c]{2,5}){0,12}c", "(a|b)*a(a|b){6}c{0,9}"])
def test_rounds_over_some_states_split_what_rounds_over_all_states_split(pattern: str) -> None:
    dfa = union(compile_pattern("a?"), compile_pattern(pattern), minimal=False)
    with mock.patch("logitloom.automata.deterministic.minimize._WHOLE_ROUNDS", 10**6):
        expected = minimize(dfa)
    with mock.patch("logitloom.automata.deterministic.minimize._WHOLE_ROUNDS", 1):
        assert minimize(dfa).fingerprint == expected.fingerprint
    assert minimize(dfa).fingerprint == expected.fingerprint


@given(st.lists(st.text("abcé0", max_size=6), max_size=30))
def test_a_list_of_texts_gives_the_minimal_automaton_of_its_prefix_trie(texts: list[str]) -> None:
    found, expected = choice(texts), minimize(choice(texts, minimal=False))
    assert found.fingerprint == expected.fingerprint
    assert np.array_equal(found.byte_class, expected.byte_class)
    assert states_told_apart(found) == found.states


def test_a_list_of_all_bytes_has_two_states() -> None:
    found = choice([bytes([byte]) for byte in range(256)])
    assert (found.states, found.next.tolist(), found.accepting.tolist()) == (2, [[1], [-1]], [False, True])


def test_minimisation_keeps_to_a_budget() -> None:
    dfa = compile_pattern("(?:a|b)*a(?:a|b){10}")
    with pytest.raises(BudgetExceeded, match="longer than 0 seconds"):
        minimize(dfa, budget=Budget(seconds=0))
