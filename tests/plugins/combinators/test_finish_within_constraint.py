"""Texts within a number of tokens, against brute force over all sequences of tokens of a small vocabulary."""

from __future__ import annotations

import pickle
import random
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import AhoCorasick, Budget, DenseAutomaton, TokenAutomaton, compile_pattern
from logitloom.constraints import FINISHED, ConstraintMemory, LongestTokens, State, lift
from logitloom.errors import BudgetExceeded, VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.combinators import FinishWithin
from tests.cases import examples

WORDS = Vocabulary([b"", b"a", b"b", b"c", b"ab", b"ca", b"abc", b"bb"], eos=[0])
#: ``b`` and ``c`` only come in longer tokens.
FEW = Vocabulary([b"", b"a", b"ab", b"bca", b"ca", b"abb"], eos=[0])
EVERY = Vocabulary([b"", *[bytes([byte]) for byte in range(256)], b"ab", b"abc", b"ca"], eos=[0])

patterns = st.recursive(
    st.sampled_from(["a", "b", "c", "ab", "[ab]", "[^a]", "abc"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,4}"])).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=6,
)


def automaton(pattern, vocabulary=WORDS, **more):
    return TokenAutomaton(compile_pattern(pattern), vocabulary, vocabulary.size + 2, **more)


def nearest_end(constraint, state, most=40):
    """The least number of tokens to an end by trying all of them, layer by layer."""
    layer, seen = {state}, {state}
    for distance in range(most):
        if any(constraint.may_end(at) for at in layer):
            return distance
        after = {constraint.advance(at, token) for at in layer for token in range(constraint.vocab_size) if token}
        layer = after - seen - {None}
        seen |= layer
    return None


@examples(60)
@given(pattern=patterns, vocabulary=st.sampled_from([WORDS, FEW]))
def test_the_distance_to_an_end_is_exact(pattern, vocabulary):
    try:
        constraint = automaton(pattern, vocabulary)
    except VocabularyError:  # FEW cannot write every text
        return
    for state in range(constraint.states):
        if constraint.may_end(state) or len(constraint.allowed(state).ids):
            assert constraint.least_tokens(state) == nearest_end(constraint, state)
            ids, least = constraint.least_after(state)
            assert ids.tolist() == constraint.allowed(state).listed(constraint.vocab_size).tolist()
            for token, found in zip(ids.tolist(), least.tolist(), strict=True):
                assert found == nearest_end(constraint, constraint.advance(state, token))


@examples(60)
@given(pattern=patterns, more=st.integers(0, 4), vocabulary=st.sampled_from([WORDS, FEW]))
def test_exactly_the_tokens_are_allowed_with_which_a_text_still_fits(pattern, more, vocabulary):
    try:
        inner = automaton(pattern, vocabulary)
    except VocabularyError:
        return
    budget = inner.least_tokens(inner.start()) + 1 + more
    limited = FinishWithin(inner, budget)

    @cache
    def fits(state, left):
        """Whether some sequence of at most ``left`` tokens, with end-of-sequence as the last, completes the text."""
        if left < 1:
            return False
        return inner.may_end(state) or any(
            fits(inner.advance(state, token), left - 1)
            for token in inner.allowed(state).listed(inner.vocab_size).tolist()
        )

    states = {limited.start()}
    for _ in range(min(budget, 5)):
        following = set()
        for inner_state, left in states:
            candidates = inner.allowed(inner_state).listed(inner.vocab_size).tolist()
            expected = [token for token in candidates if fits(inner.advance(inner_state, token), left - 1)]
            state = (inner_state, left)
            assert limited.allowed(state).listed(limited.vocab_size).tolist() == expected
            for token in range(1, limited.vocab_size):
                assert (limited.advance(state, token) is not None) == (token in expected)
            following |= {limited.advance(state, token) for token in expected}
        states = set(random.Random(0).sample(sorted(following), min(len(following), 30)))


def walk(constraint, dice, most):
    """A random text of a constraint: its tokens without end-of-sequence, and whether it was completed in time."""
    memory = ConstraintMemory(constraint)
    state, tokens = constraint.start(), []
    for _ in range(most):
        allowed = constraint.row(state).tolist()
        assert allowed, f"nothing is allowed after {tokens}"
        # End-of-sequence only where it must be: the longest texts that fit.
        token = dice.choice([token for token in allowed if token] or allowed)
        state = memory.advance(state, token)
        assert state is not memory.dead
        if token == 0:
            return tokens, state is FINISHED
        tokens.append(token)
    return tokens, False


@examples(60)
@given(pattern=patterns, more=st.integers(0, 6), seed=st.integers(0, 99), longest=st.booleans(), lifted=st.booleans())
def test_every_random_text_is_finished_and_matches(pattern, more, seed, longest, lifted):
    inner = automaton(pattern, EVERY)
    if lifted:
        inner = lift(inner.automaton(), EVERY)
    budget = inner.least_tokens(inner.start()) + 1 + more
    limited = FinishWithin(inner, budget)
    tokens, finished = walk(LongestTokens(limited) if longest else limited, random.Random(seed), budget)
    assert finished
    assert re.fullmatch(pattern, EVERY.decode(tokens))


@examples(40)
@given(pattern=patterns, seed=st.integers(0, 99))
def test_the_bound_of_a_lifted_automaton_is_kept_by_some_token(pattern, seed):
    constraint = lift(automaton(pattern, EVERY).automaton(), EVERY)
    dice, state = random.Random(seed), constraint.start()
    for _ in range(6):
        ids, least = constraint.least_after(state)
        assert ids.tolist() == constraint.allowed(state).listed(constraint.vocab_size).tolist()
        told = [constraint.least_tokens(constraint.advance(state, token)) for token in ids.tolist()]
        assert least.tolist() == told
        if constraint.least_tokens(state):
            assert min(told) <= constraint.least_tokens(state) - 1
        if not len(ids):
            break
        state = constraint.advance(state, dice.choice(ids.tolist()))


def test_tables_beyond_the_budget_leave_a_bound_that_is_kept():
    pattern = "(?:abc){1,30}c?|ba"
    exact, bounded = automaton(pattern), automaton(pattern, budget=Budget(table_bytes=1))
    with pytest.raises(BudgetExceeded):
        bounded.tables()
    assert (exact.least_tokens(exact.start()), bounded.least_tokens(bounded.start())) == (1, 2)
    for seed in range(20):
        tokens, finished = walk(FinishWithin(bounded, 9), random.Random(seed), 9)
        assert finished
        assert re.fullmatch(pattern, WORDS.decode(tokens))


def test_a_search_string_may_close_the_text():
    watched = TokenAutomaton(AhoCorasick(["bb"]).avoiding(), WORDS, restricts=False)
    limited = FinishWithin(watched, 2)
    after = limited.advance(limited.start(), 1)
    assert limited.row(limited.start()).tolist() == watched.row(watched.start()).tolist()
    assert limited.row(after).tolist() == [0]


def test_far_from_the_end_the_inner_sets_are_used():
    inner = automaton("[ab]{0,9}c")
    limited = FinishWithin(inner, 40)
    assert limited.allowed(limited.start()) is inner.allowed(inner.start())


def test_of_several_tokens_that_fit_the_longest_is_allowed_alone():
    longest = LongestTokens(automaton("abc[ab]"))
    assert longest.row(longest.start()).tolist() == [6]
    for tokens in (3, 4, 5, 40):  # with 4 tokens "ab" would fit too, with 5 "a"
        assert FinishWithin(longest, tokens).row((longest.start(), tokens)).tolist() == [6]


def test_states_and_names_travel():
    limited = FinishWithin(automaton("(ab)+"), 5)
    again = FinishWithin(automaton("(ab)+"), 5)
    assert limited.fingerprint == again.fingerprint != FinishWithin(automaton("(ab)+"), 6).fingerprint
    state = pickle.loads(pickle.dumps(limited.advance(limited.start(), 4)))
    assert np.array_equal(again.row(state), limited.row(limited.advance(limited.start(), 4)))


def test_too_small_a_budget_names_the_least():
    with pytest.raises(ValueError, match=r"2 is too few, because the shortest text needs 3 tokens, .* at least 3\."):
        FinishWithin(automaton("abcabc"), 2)
    assert walk(FinishWithin(automaton("abcabc"), 3), random.Random(0), 3) == ([6, 6], True)


def test_what_cannot_be_told_is_refused():
    class Silent(DenseAutomaton):
        def completion(self, state: State) -> None:
            """No text is told, and no token of one byte begins one."""

    inner = lift(Silent(automaton("bca", FEW).automaton().dfa), FEW)
    assert inner.least_tokens(inner.start()) is None
    with pytest.raises(ValueError, match="it is unknown how many tokens this constraint needs"):
        FinishWithin(inner, 9)
