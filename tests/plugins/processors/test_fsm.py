"""``fsm``: any automaton of the library steers the text, combinations included."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import load_backend, processors
from logitloom.automata import AhoCorasick, Dfa, compile_pattern, difference, intersection, union
from logitloom.errors import OptionTypeError, VocabularyError
from tests.plugins.processors.constraining import WORDS, automaton_of, begin, random_walk, step

WORD = compile_pattern("[a-c]{1,5}")
CASES = {
    "intersection": (
        intersection(WORD, compile_pattern(".*b.*")),
        lambda t: re.fullmatch("[a-c]{1,5}", t) and "b" in t,
    ),
    "difference": (
        difference(WORD, AhoCorasick(["ab"]).containing()),
        lambda t: re.fullmatch("[a-c]{1,5}", t) and "ab" not in t,
    ),
    "union": (union(WORD, compile_pattern(r"\d{2}")), lambda t: re.fullmatch(r"[a-c]{1,5}|\d{2}", t)),
}


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10_000))
def test_texts_are_those_of_the_combination(name: str, seed: int) -> None:
    dfa, oracle = CASES[name]
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("fsm", {"automaton": dfa}))
    walk = random_walk(automaton_of(chain, context), seed, 8)
    for n in range(len(walk) + 1):
        if n and walk[n - 1] in WORDS.eos:
            break
        (allowed,), _ = step(backend, chain, at, context, [walk[:n]])
        data = WORDS.text_bytes(walk[:n])
        text = data.decode("utf-8", "surrogateescape")
        assert (WORDS.eos[0] in allowed) == bool(oracle(text))


def test_equal_automata_share_one_token_automaton() -> None:
    backend = load_backend("numpy")
    first = begin(backend, ("fsm", {"automaton": compile_pattern("[xy]{3}")}))
    second = begin(backend, ("fsm", {"automaton": compile_pattern("[xy]{3}")}))
    assert automaton_of(*first[:2]).constraint is automaton_of(*second[:2]).constraint


def test_an_automaton_that_accepts_nothing_is_an_error_before_the_first_step() -> None:
    nothing = difference(compile_pattern("a"), compile_pattern("a"))
    with pytest.raises(VocabularyError, match="accepts no text"):
        begin(load_backend("numpy"), ("fsm", {"automaton": nothing}))


def test_something_else_than_an_automaton_is_an_error() -> None:
    with pytest.raises(OptionTypeError, match="automaton"):
        processors.load(("fsm", {"automaton": "a+"}))
    assert isinstance(processors.load(("fsm", {"automaton": WORD}))["fsm"].automaton, Dfa)
