"""Searching for strings finds what a naive search finds, in whole texts and in pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import AhoCorasick, Budget, Match
from logitloom.constraints import Ended
from logitloom.errors import BudgetExceeded, OptionError
from tests.cases import examples
from tests.core.automata.vocabularies import small
from tests.oracles.walk import walked

FINISHED = Ended.FINISHED.value

STRINGS = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=5)
TEXT = st.text("abé", max_size=14)


def naive(strings: list[str], text: bytes) -> Match | None:
    """The match that ends first; of those, the longest."""
    needles = list(dict.fromkeys(s.encode() for s in strings))
    for end in range(1, len(text) + 1):
        found = [n for n in needles if text[:end].endswith(n)]
        if found:
            longest = max(found, key=len)
            return Match(needles.index(longest), end - len(longest), end)
    return None


@pytest.mark.long
@examples(200)
@given(STRINGS, TEXT)
def test_the_first_match_is_that_of_a_naive_search(strings: list[str], text: str) -> None:
    assert AhoCorasick(strings).find(text) == naive(strings, text.encode())


@pytest.mark.long
@examples(200)
@given(STRINGS, TEXT, st.lists(st.integers(0, 20), max_size=4))
def test_matches_are_found_across_pieces(strings: list[str], text: str, cuts: list[int]) -> None:
    data = text.encode()
    finder = AhoCorasick(strings)
    bounds = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    state, found = 0, None
    for begin, end in itertools.pairwise(bounds):
        state, match = finder.scan(state, data[begin:end])
        if match is not None:
            found = Match(match.string, match.start + begin, match.end + begin)
            break
    assert found == naive(strings, data)


@examples(100)
@given(STRINGS, TEXT)
def test_the_automata_contain_avoid_and_stop(strings: list[str], text: str) -> None:
    finder = AhoCorasick(strings)
    match = naive(strings, text.encode())
    assert finder.containing().fullmatch(text) == (match is not None)
    assert finder.avoiding().fullmatch(text) == (match is None)
    stop = finder.stopping()
    state = stop.dfa.walk(text.encode())
    assert stop.closing.get(state) == (None if match is None else match.string)
    assert stop.dfa.fullmatch(text)


def test_avoiding_every_byte_leaves_the_empty_text() -> None:
    dfa = AhoCorasick([bytes([i]) for i in range(256)]).avoiding()
    assert dfa.fullmatch("")
    assert dfa.states == 1


def test_only_end_of_sequence_is_allowed_after_a_stop_string() -> None:
    vocabulary = small("st", "opera", "op", "s", "x", "stopat", b"\xff")
    stop = AhoCorasick(["stop"]).stopping()
    automaton = walked(stop.dfa, vocabulary, closing=list(stop.closing))
    everything = [0, 2, 3, 4, 5, 6, 7, 8]
    assert automaton.row(automaton.start).tolist() == everything
    for first, second in ((2, 3), (2, 4)):
        state = automaton.advance(automaton.start, first)
        assert automaton.row(state).tolist() == everything
        state = automaton.advance(state, second)
        assert automaton.row(state).tolist() == [0]
        assert stop.closing[state] == 0
        assert automaton.advance(state, 2) == -1
        assert automaton.advance(state, 0) == FINISHED
    assert automaton.row(automaton.advance(automaton.start, 7)).tolist() == [0]
    tables = automaton.tables()
    for state in range(stop.dfa.states):
        allowed = tables.allowed[state][tables.token_class].nonzero()[0].tolist()
        assert allowed == automaton.row(state).tolist()


def test_empty_strings_and_no_strings_are_refused() -> None:
    with pytest.raises(OptionError, match="string at index 1 is empty"):
        AhoCorasick(["a", ""])
    with pytest.raises(OptionError, match="at least one"):
        AhoCorasick([])


def test_the_construction_keeps_to_a_budget() -> None:
    with pytest.raises(BudgetExceeded, match="more than 10 states"):
        AhoCorasick(["abcdefghijklmn"], budget=Budget(states=10))
