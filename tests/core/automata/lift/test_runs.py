"""Runs of characters that an automaton reads: every text of them, and no token more or less in a mask."""

from __future__ import annotations

import contextlib
import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import LazyDfa, TokenAutomaton, compile_pattern
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift import lifted_automaton
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.automata.lift.visited import VisitedStates
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.constraints import LiftedAutomaton
from logitloom.constraints import lift as lifted
from logitloom.errors import LogitloomError, UnsupportedPattern
from logitloom.masks.kernels import load_kernels
from logitloom.vocabulary import Vocabulary
from tests.cases import examples
from tests.core.automata.pattern_strategies import FLAGS, TEXTS, patterns
from tests.core.automata.vocabularies import mixed

COUNTED = [
    r".{0,40}x\d", r"^[a-z]{1,20}?;.*$", r"(?:[^;]{0,9};){2,}\bA.*", r"\w{3,}-\W{0,7}|.{5}", r"(?:a|.b){0,30}é",
    r"(?s).{2,9}\b", r"(?:[ab]{2}[bc]{2}){0,9}.*",
]  # fmt: skip
WORDS, OTHERS = "éßж本", "×€😀\u200b"


def lazy(pattern: str, flags: int = 0) -> LazyDfa:
    tracker = BudgetTracker()
    return LazyDfa(*_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker))


def vocabulary() -> Vocabulary:
    """All bytes, words, and texts of up to 40 characters."""
    rng = random.Random(5)
    texts = ["".join(rng.choices("abcxyz019 ;-é本×😀", k=rng.randint(2, 40))) for _ in range(600)]
    same = [letter * count for letter in "a;.é×" for count in (2, 3, 8, 9, 33)]
    return Vocabulary(
        [*mixed().token_bytes, *[text.encode() for text in (*texts, *same)]], eos=mixed().eos, special=[1]
    )


@pytest.mark.long
@examples(40)
@given(st.one_of(st.sampled_from(COUNTED), patterns(anchors=True)), FLAGS, TEXTS, st.randoms(use_true_random=False))
def test_every_text_of_a_run_is_read(pattern: str, flags: int, text: str, rng: random.Random) -> None:
    try:
        automaton = lazy(pattern, flags)
    except UnsupportedPattern:
        return
    state = automaton.start()
    for byte in text.encode(errors="replace"):
        assert not automaton.runs(state) or isinstance(state, bytes)
        state = automaton.step(state, byte) or automaton.start()
    for run in automaton.runs(state):
        letters = "".join(chr(c) for c in range(128) if run.ascii >> c & 1)
        letters += WORDS * run.words + OTHERS * run.others
        assert letters
        reached = state
        for byte in "".join(rng.choices(letters, k=run.characters)).encode():
            reached = automaton.step(reached, byte)
            assert reached is not None, run


LOOPS = [r"[^<>&]*<", r'"(?:[^"\\]|\\.)*"', r"(?s).*é", r"\w*;", r"[a-z ]*(?:\d.*)?", r"\d[^×]*"]


def after_each_token(constraint: LiftedAutomaton, state: Any) -> dict[int, Any]:
    """By token the state after it: each token is taken."""
    texts = enumerate(constraint.vocabulary.token_bytes)
    found = {token: constraint.advance(state, token) for token, text in texts if text}
    return {token: after for token, after in found.items() if after is not None}


def compare_successors(pattern: str, flags: int, seed: str) -> None:
    """Compare the states that walks find after all tokens of a state with those of single tokens."""
    automaton, words, dice = lazy(pattern, flags), mixed(), random.Random(seed)
    with (
        mock.patch("logitloom.automata.lift.visited._MANY", -1),
        mock.patch("logitloom.automata.lift.visited.VisitedStates.least_tokens", 0),
    ):
        constraint = lifted(automaton, words)
        state = constraint.start()
        for _ in range(3):
            ids, states, which = constraint.successors(state)
            found = {token: states[at] for token, at in zip(ids.tolist(), which.tolist(), strict=True)}
            assert found == after_each_token(constraint, state)
            if not found:
                break
            state = dice.choice([*found.values()])


@pytest.mark.parametrize("pattern", LOOPS)
def test_tokens_that_stay_in_a_loop_are_found_together(pattern: str) -> None:
    compare_successors(pattern, 0, pattern)


@examples(40)
@given(patterns(anchors=True), FLAGS)
def test_loops_change_no_state_after_a_token(pattern: str, flags: int) -> None:
    with contextlib.suppress(LogitloomError):
        compare_successors(pattern, flags, pattern)


def test_most_tokens_that_stay_in_a_loop_are_not_looked_at() -> None:
    words = vocabulary()
    constraint = lifted(lazy("[^<>&]*<"), words)
    with (
        mock.patch("logitloom.automata.lift.visited._MANY", 300),
        mock.patch("logitloom.automata.lift.visited.VisitedStates.least_tokens", 300),
        mock.patch.object(VisitedStates, "step", autospec=True, side_effect=VisitedStates.step) as step,
    ):
        ids, _, _ = constraint.successors(constraint.start())
    assert len(ids) > 600
    assert sum(len(call.args[1]) for call in step.call_args_list) < vocabulary_trie(words).nodes // 2


@pytest.mark.parametrize("pattern", [".{0,200}x", "^.{0,200}x$", r".{0,200}\bfoo\b.{0,9}", r"(?:ab)?.*x|[a-z]*"])
def test_runs_are_as_long_as_counted_repeats(pattern: str) -> None:
    automaton = lazy(pattern)
    longest = max(automaton.runs(automaton.start()))
    assert longest == (128, (1 << 128) - 1 - (1 << 10), True, True)


@pytest.mark.extras
@pytest.mark.skipif(load_kernels() is None, reason="no compiled kernels are installed")
@pytest.mark.parametrize("pattern", COUNTED)
def test_masks_with_runs_equal_masks_without(pattern: str) -> None:
    words = vocabulary()
    with mock.patch("logitloom.automata.lift.visited._MANY", -1):
        found = lifted(lazy(pattern), words)
        with mock.patch.object(lifted_automaton, "automaton_kernels", return_value=None):
            plain = lifted(lazy(pattern), words)
            states = [plain.start()]
            for state in states[:20]:
                states += [
                    s
                    for token in plain.allowed(state).listed(words.size)[:9]
                    if (s := plain.advance(state, int(token)))
                ]
            expected = [plain.allowed(state).listed(words.size).tolist() for state in states]
        assert [found.allowed(state).listed(words.size).tolist() for state in states] == expected


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    "pattern", [".*aby.*", r".*\w;x.*|é+", "(?s).*z.*", r"[^;]*ab(\D*)x", r"\W*(?:x.*y)?.*-", "ab.{0,9}"]
)
@pytest.mark.long
def test_masks_of_whole_automata_are_those_of_single_tokens(pattern: str, kernels: bool) -> None:
    words, dfa = vocabulary(), compile_pattern(pattern)
    found = load_kernels() if kernels else None
    room = "logitloom.automata.lift"
    with (
        mock.patch(f"{room}.token_automaton.automaton_kernels", return_value=found),
        mock.patch(f"{room}.default_paths.automaton_kernels", return_value=found),
    ):
        automaton = TokenAutomaton(dfa, words)
        for state in range(min(dfa.states, 40)):
            alive = [token for token, text in enumerate(words.token_bytes) if text and dfa.walk(text, state) >= 0]
            assert automaton._walked_set(state).listed(words.size).tolist() == alive
