"""Patterns mean what they mean to ``re.fullmatch``, or are refused with a reason."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logitloom.automata import Budget, compile_pattern
from logitloom.automata.patterns.char_sets import category, literal
from logitloom.errors import BudgetExceeded, LogitloomError, UnsupportedPattern
from tests.cases import EXHAUSTIVE, examples
from tests.core.automata.pattern_strategies import ALPHABET, FLAGS, TEXTS, patterns

SHORT_TEXTS = ["".join(t) for n in range(4) for t in itertools.product("ab\n 1é", repeat=n)]


def compiled(pattern: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern, flags)
        except re.error:
            assume(False)
            raise


def supported(pattern: str, flags: int) -> bool:
    """Whether a random pattern is valid, and free of atomic parts that may change the language."""
    compiled(pattern, flags)
    try:
        compile_pattern(pattern, flags)
    except UnsupportedPattern as error:
        if "may change which texts match" in str(error):
            return False
        raise
    return True


def check(pattern: str, flags: int, texts: list[str]) -> None:
    oracle = re.compile(pattern, flags)
    dfa = compile_pattern(pattern, flags)
    smallest = compile_pattern(pattern, flags, minimal=True)
    for text in texts:
        expected = oracle.fullmatch(text) is not None
        assert dfa.fullmatch(text) == expected, (pattern, flags, text)
        assert smallest.fullmatch(text) == expected, (pattern, flags, text)


@pytest.mark.long
@settings(max_examples=400 if EXHAUSTIVE else 37)
@given(patterns(anchors=False), FLAGS, st.lists(TEXTS, min_size=20, max_size=40))
def test_random_patterns_agree_with_re(pattern: str, flags: int, texts: list[str]) -> None:
    check(pattern, flags, texts) if supported(pattern, flags) else assume(False)


@pytest.mark.long
@settings(max_examples=400 if EXHAUSTIVE else 37)
@given(patterns(anchors=True), FLAGS, st.lists(TEXTS, min_size=20, max_size=40))
def test_random_patterns_with_anchors_agree_with_re(pattern: str, flags: int, texts: list[str]) -> None:
    check(pattern, flags, texts) if supported(pattern, flags) else assume(False)


@examples(40)
@given(patterns(anchors=True), FLAGS)
def test_all_short_texts_agree_with_re(pattern: str, flags: int) -> None:
    check(pattern, flags, SHORT_TEXTS) if supported(pattern, flags) else assume(False)


@pytest.mark.parametrize(
    "pattern",
    [
        "yes|no|maybe", "|a", "a||b", "é|日本", "a|a", "ab", r"a$", "a$\n", r"a$\n?", "(?m)a$\n^b", "(?m)^a$|b",
        r"\Aa\Z", r"a\Z\n", r"^^a", r"(^a|b)+", r"(a\b|b)*", r"\b\w+\b", r"\B", r"\b", r"a\Bb", r"\w+\b.\b\w+",
        r"(?a:\bé)", r"(?a:é\b)a", r"(?m)(^a$\n?)*", r"(?:$a?)*", r"\n$\n", "$\n$", r"(?x) a # comment", r"(?i:k)s",
        r"(?i)[^k]", r"(?i)\u212a", r"(?s:.)\n.", r"a{2,}?b??", r"(?P<name>a)(?:b)", "(?!)|a", "", "()", "()*",
        "(?:){3}", "(?:a|)+", "(a*)*", "(a?b?){2,3}", r"[\d-]", r"[]a]", r"[^]a]", r"a++b", r"[ab]*+1",
        r"(?>ab|a )b", r"(?:a++b)+", "a{0}b", "a{0,0}", "(?:a{2}){2}", "(?:a{1,2}){2,3}", r"\d", r"(?a)\d\w\s",
        r"(?a)(?u:\d)\d", r"(?a)\w(?u:\w(?a:\w))", r"(?a)(?u:(?i:k))s",
    ],
)  # fmt: skip
def test_chosen_patterns_agree_with_re(pattern: str) -> None:
    check(pattern, 0, [*SHORT_TEXTS, *ALPHABET, "a\nb", "a\nb\n", "aé", "kS", "a b", "aab", "\n\n", "a\n\n", "abab"])


@pytest.mark.parametrize("letter", "wdsWDS")
@pytest.mark.parametrize("flags", [0, re.ASCII, re.IGNORECASE, re.ASCII | re.IGNORECASE])
@pytest.mark.long
def test_classes_hold_the_same_characters_as_in_re(letter: str, flags: int) -> None:
    chars = compile_pattern(f"\\{letter}", flags)
    oracle = re.compile(f"\\{letter}", flags)
    points = [*range(0xD800), *range(0xE000, 0x3400), *range(0x10000, 0x10FFFF, 97), 0x10FFFF]
    for point in itertools.chain(points[:0x3000], points[0x3000::13]):
        assert chars.fullmatch(chr(point)) == bool(oracle.fullmatch(chr(point))), hex(point)


def test_the_set_of_word_characters_is_complete() -> None:
    word = category("w", 0)
    members = {p for low, high in word.high.ranges for p in range(low, high + 1)}
    expected = {p for p in range(0x80, 0x110000) if not 0xD800 <= p < 0xE000 and re.match(r"\w", chr(p))}
    assert members == expected


def test_only_four_characters_above_ascii_equal_an_ascii_letter() -> None:
    for letter in "abcdefghijklmnopqrstuvwxyz":
        oracle = re.compile(letter, re.IGNORECASE)
        points = (p for p in range(0x110000) if not 0xD800 <= p < 0xE000)
        expected = {p for p in points if oracle.match(chr(p))} if letter in "iks" else None
        chars = literal(ord(letter), int(re.IGNORECASE))
        found = {p for p in range(0x80, 0x2200) if chars.contains(p)}
        if expected is not None:
            assert found == {p for p in expected if p >= 0x80}
        else:
            assert not found
            assert not any(oracle.match(c) for c in "\u0130\u0131\u017f\u212aªºáÀßﬀ")


@pytest.mark.parametrize("pattern", ["é", "[à-þ]", "[Α-Ω]", "ß", "µ", "ǅ", "[^é]", r"[\u0400-\u0450]", "ſ", "ΐ", "𐐀"])
def test_ignoring_case_above_ascii_agrees_with_re(pattern: str) -> None:
    chars = compile_pattern(pattern, re.IGNORECASE)
    oracle = re.compile(pattern, re.IGNORECASE)
    for point in [*range(0x600), *range(0x1E00, 0x2200), *range(0x10400, 0x10450)]:
        assert chars.fullmatch(chr(point)) == bool(oracle.fullmatch(chr(point))), hex(point)


@pytest.mark.parametrize(
    ("pattern", "construct", "position"),
    [
        (r"(a)\1", "back-reference", 3),
        (r"(?P<n>a)b(?P=n)", "back-reference", 9),
        (r"a(?=b)", "look-around", 1),
        (r"[(?=]a(?!b)c", "look-around", 6),
        (r"\((?<=b)c", "look-around", 2),
        (r"(?<!b)c", "look-around", 0),
        (r"(a)?(?(1)b|c)", "conditional group", 4),
        (r"xa++a", "possessive quantifier", 2),
        (r"x(?>a|ab)c?", "atomic group", 1),
        (r"(?x)a # (?=b)" "\n(?=c)", "look-around", 14),
    ],
)
def test_irregular_constructs_are_refused_by_name_and_position(pattern: str, construct: str, position: int) -> None:
    with pytest.raises(UnsupportedPattern, match=construct) as refused:
        compile_pattern(pattern)
    assert f"at position {position})" in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "position"), [("(a", 0), ("a)", 1), ("[a", 0), ("*a", 0), ("a{3,2}", 2), (r"\p", 0)]
)
def test_invalid_patterns_are_refused_with_the_position(pattern: str, position: int) -> None:
    with pytest.raises(LogitloomError, match=f"no valid regular expression: .* at position {position}"):
        compile_pattern(pattern)


def test_flags_that_mean_nothing_here_are_refused() -> None:
    with pytest.raises(UnsupportedPattern, match="LOCALE"):
        compile_pattern("a", re.LOCALE)
    with pytest.raises(UnsupportedPattern, match="bytes was given"):
        compile_pattern(b"a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern",
    ["(?>a|ab)c", "a*+a", "(?:a|ab)++c", "(?>a*?)b", "(?>|a)b", "(?:a|b)*+b", "a{1,2}+a", r"(?:\A(?:bb)*+){2,}"],
)
def test_atomic_parts_that_change_the_language_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern, match="depends on backtracking"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?>ab){1,2}a?",
        "(?>[ab]{2})+b",
        "(?>ab|b1|bb)+b",
        r"\b(?>[ab]1){1,2}\b",
        "(?>a)(?>b1|[^ab])*a",
        "(?:[ab]{2}+)*a?",
    ],
)
def test_atomic_parts_that_match_in_one_way_agree_with_re(pattern: str) -> None:
    check(pattern, 0, ["".join(t) for n in range(6) for t in itertools.product("ab 1", repeat=n)])


BOMBS = {
    "nested counts": "(a{0,1000}){0,1000}",
    "many stars": "(.*a){25}",
    "exponential": "((a|b)*a(a|b){20})",
    "tower of counts": "(((((a?){50}){50}){50}){50})",
    "long text": "ab" * 5_000_000,
    "deep groups": "(" * 100_000 + ")" * 100_000,
    "deep classes": "(?:" * 900 + "a" + ")*" * 900,
    "huge count": "a{4000000000}",
    "count of nothing": "(?:){4000000}",
    "optional pairs": "(a?b?){0,1000}",
    "word counts": r"(?:\w{1,300} ){300}",
    "anchored counts": r"(?:\b\w{1,30}\b ?){1,300}",
}


@pytest.mark.parametrize("pattern", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.long
def test_hostile_patterns_end_within_their_budget(pattern: str) -> None:
    budget = Budget(states=20_000, seconds=1.0)
    message = None
    try:
        states = compile_pattern(pattern, budget=budget).states
    except BudgetExceeded as error:
        message = str(error)
    if message is None:
        assert states <= budget.states
    else:
        assert re.search("Compiling pattern|The text of pattern", message)
        assert "raise " in message


def test_each_limit_of_a_budget_is_named_when_it_is_passed() -> None:
    with pytest.raises(BudgetExceeded, match=r"'a\{500\}' takes more than 100 positions.*raise max_states\."):
        compile_pattern("a{500}", budget=Budget(states=100))
    with pytest.raises(BudgetExceeded, match=r"limit is 1000\..*raise table_bytes of the budget\."):
        compile_pattern("é{500}", budget=Budget(table_bytes=1000))
    with pytest.raises(BudgetExceeded, match=r"longer than 0.1 seconds.*raise max_seconds\."):
        compile_pattern("((a|b)*a(a|b){20})", budget=Budget(states=10**7, seconds=0.1))


def test_a_larger_budget_lets_the_same_pattern_pass() -> None:
    with pytest.raises(BudgetExceeded):
        compile_pattern("(?:a|b)*a(?:a|b){8}", budget=Budget(states=200))
    assert compile_pattern("(?:a|b)*a(?:a|b){8}", budget=Budget(states=2000)).fullmatch("abbbbbbbb")
