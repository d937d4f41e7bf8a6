"""The parser of the common syntax reads nothing that it does not understand, and the rest as the general one does."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.automata.alphabet import alphabet
from logitloom.automata.budget import Meter
from logitloom.automata.determinize import determinize, without_dead_ends
from logitloom.automata.minimize import minimize
from logitloom.automata.nfa import position_automaton
from logitloom.automata.pattern import Atomic, Node, parse_pattern
from logitloom.automata.plain_syntax import plain_tree
from logitloom.errors import UnsupportedPattern

FLAGS = [0, re.IGNORECASE, re.ASCII, re.DOTALL, re.IGNORECASE | re.ASCII]


def smallest(tree: Node) -> str:
    """What tells the language of a tree."""

    def refuse(part: Atomic) -> UnsupportedPattern:
        raise AssertionError(part)

    meter = Meter()
    nfa = position_automaton(tree, meter, refuse)
    letters = alphabet(nfa.chars)
    table = without_dead_ends(determinize(nfa, letters.members, letters.classes, meter))
    return minimize(letters.lower(*table, meter)).fingerprint


PIECES = [*r"ab-^[]\{}(),|*+?.1k&~:é", r"\d", r"\x41", r"\n", "(?:", "[^", "{2}"]


@settings(max_examples=1500)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.sampled_from(FLAGS))
def test_any_text_is_read_as_the_general_parser_reads_it_or_left_to_it(text: str, flags: int) -> None:
    tree = plain_tree(text, flags)
    if tree is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what other versions of Python may read differently is left, too
            assert smallest(tree) == smallest(parse_pattern(text, flags)), text


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(
    "pattern",
    [
        r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}x", r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?", "(a|b|c)+?", "", "|", "a||b",
        r"[\x00-\x1f\n\-]", r"[^\W\d_-]{2,}?", "(?:ab){0}c", "()*", "a{2}b{2,}c{0,2}", r"\(\)\[\]\ \/", "K[k-s]\u017f",
        "[a-]", "[-a]", "[é-я]|[^é]", ". .\n.", r"\u20ac[\u0000-\U0010ffff]*\U0001f600",
    ],
)  # fmt: skip
def test_the_common_syntax_is_read_without_the_general_parser(pattern: str, flags: int) -> None:
    tree = plain_tree(pattern, flags)
    assert tree is not None
    assert smallest(tree) == smallest(parse_pattern(pattern, flags))


@pytest.mark.parametrize(
    "pattern",
    [
        "^a", "a$", r"\ba", r"(a)\1", "(?P<n>a)", "(?i)a", "(?i:a)", "(?=a)", "(?>a)", "a++", "a**", "a{2}{2}", "*a",
        "(", ")", "a|*", "(*a)", "[", "[]", "[]a]", "[z-a]", r"[\w-z]", r"[a-\d]", "[[a]", "[a&&b]", "[a--b]", "a{",
        "a{2,1}", "a{,2}", "a{12345678}", r"\A", r"\Z", r"\U00110000", r"\u20a", r"\07", "\\", r"\q", r"\N{BULLET}",
        "(?#a)", "a}", "a]",
    ],
)  # fmt: skip
def test_the_rest_is_left_to_the_general_parser(pattern: str) -> None:
    assert plain_tree(pattern, 0) is None


@pytest.mark.parametrize("flags", [re.VERBOSE, re.MULTILINE, re.LOCALE])
def test_flags_that_change_the_syntax_are_left_to_it_as_well(flags: int) -> None:
    assert plain_tree("a", flags) is None
