"""Anchors that their surroundings decide are left out of a pattern, and only these."""

from __future__ import annotations

import itertools
import re

import pytest

from logitloom.automata import compile_pattern
from logitloom.automata.patterns.anchors import without_decided_anchors
from logitloom.automata.patterns.pattern import Boundary, nodes, parse_pattern

DECIDED = [
    *("^ab$", r"\Aab\Z", "^(^a|b)$", "(?:(?:^|^a)b)?", "(a$)?"),
    *(r"\bab\b ", r"a \bb", r"(?:a|b)\b (?:\ba)?", r"a\B\Bb", r"\n\B\n"),
    *("a^b", "(?:a$b)?", r"a\bb|b", "(?m)^a\n^b$", "(?m)a$\nb", "(?m)(?:^a\n)+"),
]
UNDECIDED = [
    r"(?>\Aa+)b",
    "(?:^a|^b)+?",
    r"\b[a ]",
    r"a?\b ?b?",
    r"(?:a|\n)$\n?",
    r"a*^b",
    "(?m)[a\n]^b",
    r"\b.*\b",
    "a$\n",
]


def boundaries(pattern: str) -> list[Boundary]:
    return list(nodes(without_decided_anchors(parse_pattern(pattern)), Boundary))


@pytest.mark.parametrize("pattern", DECIDED)
def test_an_anchor_that_its_surroundings_decide_is_left_out(pattern: str) -> None:
    assert list(nodes(parse_pattern(pattern), Boundary))
    assert not boundaries(pattern)


@pytest.mark.parametrize("pattern", UNDECIDED)
def test_an_anchor_that_depends_on_the_text_stays(pattern: str) -> None:
    assert boundaries(pattern)


@pytest.mark.parametrize("pattern", [*DECIDED, *UNDECIDED])
def test_the_same_texts_match_as_in_re(pattern: str) -> None:
    automaton, compiled = compile_pattern(pattern), re.compile(pattern)
    for text in map("".join, itertools.chain(*[itertools.product("ab \né", repeat=length) for length in range(5)])):
        assert automaton.fullmatch(text) == bool(compiled.fullmatch(text)), text
