"""Completions of patterns with boundaries are shortest texts, and rests of each other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from logitloom.automata import LazyDfa
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.subsets import ContextSubsets
from logitloom.automata.patterns.boundaries import BEGIN, END, KINDS, LAST_NEWLINE, NEWLINE, context_bit
from logitloom.automata.patterns.nfa import END_POSITION
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.contract import State, TextTokens

PIECES = [piece.encode() for piece in ("a", "b", "_", " ", "x", "\n", "-", "é", "foo")]
#: Each byte is a token, and no text of more bytes is.
SINGLE = TextTokens(
    1, frozenset(range(256)), lambda text, after: [*range(len(text) + len(after) - 1, -1, -1)][: len(text) + 1]
)
BYTES = b"ab_ x\nof-\xc3\xa9\xe2\x82\xac\x80"


def lazy(pattern: str) -> LazyDfa:
    return LazyDfa(*_subsets(parse_pattern(pattern), pattern, 0, BudgetTracker()), "the pattern")


def shortest_length(automaton: LazyDfa, state: State, most: int) -> int:
    """The bytes to acceptance, by breadth-first search."""
    frontier, length = {state}, 0
    while length < most and not any(automaton.accepts(each) for each in frontier):
        frontier = {after for each in frontier for byte in BYTES if (after := automaton.step(each, byte)) is not None}
        length += 1
    return length


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b\w+\b x{0,30}\b",
        r"\b(?:\w+\b.{0,10}\b){0,9}x",
        r"^a.{0,50}$\n?",
        r"(?m)(^.{0,10}$\n?){1,5}",
        r"\bé+\b.{3,9}\B",
        r".{0,50}\b",
        r"(?:\bfoo\b|\W{1,30}\b){2,4}",
        r"(?s).{0,9}\Z\n{0,3}$",
    ],
)
def test_completions_are_shortest_texts_and_rests_of_each_other(pattern: str) -> None:
    automaton, dice = lazy(pattern), random.Random(1)
    for _ in range(60):
        state: State | None = automaton.start()
        for byte in b"".join(dice.choices(PIECES, k=dice.randrange(9))):
            after = automaton.step(state, byte)
            state = state if after is None else after
        text = automaton.completion(state)
        assert text is not None
        assert shortest_length(automaton, state, len(text)) == len(text)
        for size, byte in enumerate(text):
            assert automaton.completion(state) == text[size:]
            state = automaton.step(state, byte)
        assert automaton.accepts(state)


@pytest.mark.parametrize("pattern", [r"\b(?:\w+\b.{0,10}\b){0,9}x", r"\bé+\b.{3,9}\B", r"(?m)(^.{0,10}$\n?){1,5}"])
def test_completions_do_not_grow_beyond_their_bound(pattern: str) -> None:
    automaton, dice = lazy(pattern), random.Random(2)
    bound_of = automaton.completion_bound(SINGLE)
    assert bound_of is not None
    for _ in range(60):
        state, trail = automaton.start(), []
        for byte in b"".join(dice.choices(PIECES, k=dice.randrange(9))):
            after = automaton.step(state, byte)
            if after is not None:
                trail.append((state, after))
                state = after
        for count, (before, _) in enumerate(trail):
            for _, after in trail[count:]:
                bound, text = bound_of(before), automaton.completion(after)
                assert bound is not None
                assert text is not None
                assert len(text) <= bound


def test_a_pattern_that_matches_nothing_has_no_completion() -> None:
    automaton = lazy(r"\Ba.{0,40}\b$")
    assert automaton.completion(automaton.start()) is None
    bound_of = automaton.completion_bound(SINGLE)
    assert bound_of is None or bound_of(automaton.start()) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"^.{0,9}(?:bot|^crawl|lycos)",
        r"(?m)(?:\b[aé\n]{0,3}\B.$){2,3}\n?",
        r"(?:\Z|\bx{1,3}\b\n?)+$",
        r"(?:(?:a|b|é)\b-?){2}",
    ],
)
def test_what_comes_next_is_what_contexts_allow_between_two_kinds(pattern: str) -> None:
    subsets = lazy(pattern)._subsets
    assert isinstance(subsets, ContextSubsets)
    plain, nfa, alive = subsets._plain, subsets.nfa, subsets._alive
    assert plain is not None
    number = {key: at for at, key in enumerate(((p, k) for p in range(1, len(alive)) for k in range(KINDS)
                                                if alive[p] >> k & 1), 1)}  # fmt: skip
    last, pairs = len(number) + 1, set()
    for p, following in enumerate(nfa.follow[at] for at in nfa.follow_at):
        for before in range(KINDS) if p else (BEGIN,):
            expected = {END_POSITION} if nfa.accept[p] & context_bit(before, END) else set()
            for q, contexts in following.items():
                expected |= {number[q, k] for k in range(KINDS)
                             if contexts & context_bit(before, k) and alive[q] >> k & 1}  # fmt: skip
                ends = nfa.accept[q] & context_bit(NEWLINE, END) and nfa.chars[q].ascii >> 10 & 1
                if contexts & context_bit(before, LAST_NEWLINE) and ends:
                    expected.add(last)
            assert plain.after(p, before) == expected
            pairs |= {(number[p, before], q) for q in expected if (p, before) in number}
    sources, targets, alike = map(np.ndarray.tolist, plain.edges)
    edges = {*zip(sources, targets, strict=True)}
    shown = {(p, q) for p, one in enumerate(alike) for source, q in edges if source == one}
    assert shown == pairs | {(last, END_POSITION)}
