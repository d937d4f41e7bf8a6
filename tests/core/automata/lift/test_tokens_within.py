"""Tokens near a limit that are found together: the same as if each was looked at, sound, and with a way to the end."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given

from logitloom import Vocabulary
from logitloom.automata import LazyDfa
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift import lifted_automaton as module
from logitloom.automata.lift import tokens_within, visited
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.automata.lift.visited import VisitedStates
from logitloom.automata.patterns import position_completions
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.constraints import LiftedAutomaton, lift
from logitloom.errors import LogitloomError
from tests.cases import examples
from tests.core.automata.lift.test_runs import vocabulary
from tests.core.automata.pattern_strategies import FLAGS, patterns

WORDS = vocabulary()
PIECES = [b"ab", b"aab", b"a a", b"\n\n", "éé".encode(), b"b\xc3", b"A1"]
SMALL = Vocabulary([b"</s>", *[bytes([byte]) for byte in range(256)], *PIECES], eos=[0])
UNBOUNDED = {"_MOST_WORK": 1 << 30, "_MOST_WORK_NEAR": 1 << 30}
PATTERNS = [
    r".{0,40}-ab/\d+(?:\.(\d+)|) cd",
    r".{0,30}(?:-ab/\d{3}|cde?)(?: C)?",
    r"(?i)[\w.-]{0,20}?(?:crawl|bot|spider)[\w.-]{0,20}",
    r"(?i)[\w.-]{0,20}?\d{1,5}x",
    r"(?:\w{1,9}\W){0,20}",
    r".{0,20}(?:a|b).{0,20}c",
    r"(?:.*[a-f].{20})*",
    r"[^é]{2,30}é{0,3}\W{3}",
    r"^a.{0,20}\b(?:x|yz)$\n?",
    r"\b\w+\b x{0,30}\b.{0,9}z",
    r"(?m)(?:^.{0,10}$\n?){1,5}",
    r"(?:[a-z]{1,9} ){2,9}\.",
    r".{30}|a{0,40}b{9}",
]


def lazy(pattern: str, flags: int = 0) -> LazyDfa:
    tracker = BudgetTracker()
    return LazyDfa(*_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker))


def states_of(constraint: LiftedAutomaton, seed: int, steps: int) -> list[object]:
    """States of a random text."""
    dice, states = random.Random(seed), [constraint.start()]
    for _ in range(steps):
        ids = constraint.allowed(states[-1]).listed(WORDS.size).tolist()
        if not ids:
            break
        states.append(constraint.advance(states[-1], dice.choice(ids)))
    return states


def needed_after(constraint: LiftedAutomaton, state: object) -> dict[int, int]:
    """By token the fewest tokens that complete the text after it: each token is taken."""
    found = {}
    for token, text in enumerate(constraint.vocabulary.token_bytes):
        after = constraint.advance(state, token) if text else None  # type: ignore[arg-type]
        least = None if after is None else constraint.least_tokens(after)
        if least is not None:
            found[token] = least
    return found


def expected(needed: dict[int, int], most: int) -> list[int]:
    """The ids of all tokens after which at most so many complete the text."""
    return [token for token, least in needed.items() if least <= most]


def within(constraint: LiftedAutomaton, state: object, most: int) -> list[int]:
    members = constraint.allowed_within(state, most)  # type: ignore[arg-type]
    assert members is not None
    return list(members.listed(constraint.vocab_size).tolist())


@pytest.mark.long
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_tokens_within_a_limit_are_those_after_which_the_text_can_be_completed(pattern: str) -> None:
    constraint = lift(lazy(pattern), WORDS)
    with mock.patch.multiple(module, **UNBOUNDED):
        for state in states_of(constraint, 1, 6):
            farthest, needed = constraint.most_after(state), needed_after(constraint, state)  # type: ignore[arg-type]
            for most in sorted({*range(-1, min(farthest, 8)), farthest - 1, farthest}):
                assert within(constraint, state, most) == expected(needed, most)


SPANS = [b"\xa9-", b"\xa9-ab", b"\x98b", b"\x9f\x98\x80ab", b"\x98\x80\xc3", b"-\xf0\x9f", b"ab\xe2\x82"]


@pytest.mark.parametrize("pieces", [SPANS, SPANS[-2:]], ids=["across", "apart"])
@pytest.mark.parametrize(
    "pattern", [".{0,30}-ab", "[^a]{2,20}b", ".{0,20}(?:ab|-b|😀b)", "é?.{3,9}-{1,9}[^x]a", "[x-é]{0,9}a-"]
)
@pytest.mark.long
def test_tokens_that_end_within_characters(pattern: str, pieces: list[bytes]) -> None:
    """Other tokens may end the character and go on with the rest of the text."""
    words = Vocabulary([*SMALL.token_bytes, *pieces], eos=[0])
    constraint, dice = lift(lazy(pattern), words), random.Random(pattern)
    with mock.patch.multiple(module, **UNBOUNDED):
        for _ in range(4):
            state = constraint.start()
            for _ in range(5):
                needed = needed_after(constraint, state)
                for most in range(5):
                    assert within(constraint, state, most) == expected(needed, most)
                if not needed:
                    break
                state = constraint.advance(state, dice.choice([*needed]))


def test_tokens_within_characters_are_not_walked_where_they_lead_no_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [chr(code) for code in (*range(0xE9, 0x119), *range(0x4E00, 0x4E40))]
    texts = {one + other for one in ("", *letters) for other in letters}
    words = Vocabulary([*SMALL.token_bytes, *[text.encode()[:-1] for text in sorted(texts)]], eos=[0])
    found = []
    for known in (Trie.after_tails, property(lambda self: frozenset(range(256)))):
        monkeypatch.setattr(Trie, "after_tails", known)
        constraint = lift(lazy(r".{0,60}-ab/\d"), words)
        with (
            mock.patch.multiple(module, **UNBOUNDED),
            mock.patch.object(tokens_within, "bytes_at", side_effect=tokens_within.bytes_at) as read,
        ):
            ids = within(constraint, constraint.start(), 2)
        found.append((ids, sum(len(call.args[1]) for call in read.call_args_list)))
    (ids, walked), (others, more) = found
    assert ids == others
    assert walked < more / 2


@examples(80)
@given(patterns(anchors=True), FLAGS)
def test_the_tokens_within_a_limit_of_any_pattern(pattern: str, flags: int) -> None:
    try:
        constraint = lift(lazy(pattern, flags), SMALL)
    except LogitloomError:
        return
    with mock.patch.multiple(module, **UNBOUNDED):
        state, dice = constraint.start(), random.Random(pattern)
        for _ in range(4):
            needed = needed_after(constraint, state)
            for most in range(4):
                members = constraint.allowed_within(state, most)
                assert members is None or members.listed(SMALL.size).tolist() == expected(needed, most)
            allowed = constraint.allowed(state).listed(SMALL.size).tolist()
            if not allowed:
                break
            after = constraint.advance(state, dice.choice(allowed))
            assert after is not None
            state = after


@pytest.mark.parametrize("pattern", [".{200}", r"\d{150}x{0,20}"])
def test_texts_of_which_only_the_bytes_are_counted(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_completions, "_MOST_TEXTS", 20)
    constraint = lift(lazy(pattern), WORDS)
    with mock.patch.multiple(module, **UNBOUNDED):
        for state in states_of(constraint, 2, 3):
            least = constraint.least_tokens(state)  # type: ignore[arg-type]
            assert least is not None
            needed = needed_after(constraint, state)
            for most in (least - 2, least - 1, least, least + 9):
                assert within(constraint, state, most) == expected(needed, most)


@pytest.mark.parametrize("work", [1, 60, pytest.param(600, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_bounded_work_finds_a_smaller_set_with_a_way_to_the_end(pattern: str, work: int) -> None:
    exact, used = lift(lazy(pattern), WORDS), lift(lazy(pattern), WORDS)
    states = states_of(exact, 3, 4)
    limits = {"_MOST_WORK": work, "_MOST_WORK_NEAR": work}
    cases = [(state, most) for state in states for most in (0, 1, 2, 4)]
    with mock.patch.multiple(module, **limits):
        found = [within(lift(lazy(pattern), WORDS), *case) for case in cases]
        assert [within(used, *case) for case in cases] == found
        used.forget()
        assert [within(used, *case) for case in cases[::-1]][::-1] == found
    with mock.patch.multiple(module, **UNBOUNDED):
        needed = {state: needed_after(exact, state) for state in states}
        for (state, most), ids in zip(cases, found, strict=True):
            assert set(ids) <= set(expected(needed[state], most))
            least = exact.least_tokens(state)  # type: ignore[arg-type]
            assert least is not None
            assert ids or least == 0 or least > most + 1


@pytest.mark.parametrize("work", [2000, 6000])
def test_nodes_count_as_work(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visited, "_NODES_OF_A_UNIT", 1)
    constraint, automaton = lift(lazy("(?:.{0,9}[éü]|[^a]{3}.?){10,50}"), WORDS), VisitedStates
    state = constraint.start()
    least = constraint.least_tokens(state)
    assert least is not None
    with mock.patch.object(automaton, "step", autospec=True, side_effect=automaton.step) as step:
        with mock.patch.object(module, "_MOST_WORK_NEAR", work):
            some = within(constraint, state, least - 1)
        visits = sum(len(call.args[1]) for call in step.call_args_list)
        constraint.forget()
        with mock.patch.multiple(module, **UNBOUNDED):
            every = within(constraint, state, least - 1)
    assert visits < work < sum(len(call.args[1]) for call in step.call_args_list) - visits
    assert {*some} < {*every}
    assert some


def test_few_tokens_are_looked_at_where_optional_characters_change_no_distance() -> None:
    constraint, automaton = lift(lazy(r".{0,200}-ab/\d+ cd"), WORDS), VisitedStates
    least = constraint.least_tokens(constraint.start())
    assert least is not None
    for most in (-1, least - 3, least, least + 1):
        with mock.patch.object(automaton, "step", autospec=True, side_effect=automaton.step) as step:
            constraint.allowed_within(constraint.start(), most)
        assert sum(len(call.args[1]) for call in step.call_args_list) < 500 < vocabulary_trie(WORDS).nodes // 30


@pytest.mark.parametrize("pattern", [r"[^;/é]{1,30}(?:-ab|\) cd)", r"x.{0,40}ab/"])
def test_only_tokens_within_a_character_are_looked_at_where_all_positions_are_near(pattern: str) -> None:
    constraint = lift(lazy(pattern), WORDS)
    for state in states_of(constraint, 4, 3):
        if type(state) is not bytes:
            continue
        farthest, needed = constraint.most_after(state), needed_after(constraint, state)
        with mock.patch.object(module, "tokens_within", side_effect=AssertionError):
            for most in range(farthest - 3, farthest):
                assert within(constraint, state, most) == expected(needed, most)
