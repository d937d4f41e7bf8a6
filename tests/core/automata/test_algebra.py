"""Operations on automata obey the laws of the languages they stand for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import (
    Budget,
    Dfa,
    any_bytes,
    any_text,
    choice,
    compile_pattern,
    complement,
    concatenation,
    difference,
    intersection,
    literal,
    nothing,
    optional,
    repeat,
    star,
    union,
)
from logitloom.errors import BudgetExceeded, OptionError
from tests.cases import examples

PATTERNS = ["a", "b*", "(ab)*", "a|b", "[ab]{2}", "é|a", ".*", "[^a]*", "a?b?", "", "(?!)", "(a|é)*b", "b+a"]
LANGUAGES = st.sampled_from(PATTERNS)
TEXTS = ["".join(t) for n in range(5) for t in itertools.product("abé", repeat=n)]


def accepted(dfa: Dfa) -> set[str]:
    return {text for text in TEXTS if dfa.fullmatch(text)}


@pytest.mark.long
@examples(60)
@given(LANGUAGES, LANGUAGES)
def test_products_are_the_operations_on_sets(one: str, two: str) -> None:
    a, b = compile_pattern(one), compile_pattern(two)
    assert accepted(union(a, b)) == accepted(a) | accepted(b)
    assert accepted(intersection(a, b)) == accepted(a) & accepted(b)
    assert accepted(difference(a, b)) == accepted(a) - accepted(b)
    assert accepted(complement(a)) == set(TEXTS) - accepted(a)


@pytest.mark.long
@examples(60)
@given(LANGUAGES, LANGUAGES)
def test_the_laws_of_de_morgan_hold_as_equal_tables(one: str, two: str) -> None:
    a, b = compile_pattern(one), compile_pattern(two)
    left = complement(union(a, b))
    right = intersection(complement(a), complement(b))
    assert left.fingerprint == right.fingerprint
    assert complement(complement(a)).fingerprint == union(a, a).fingerprint


@pytest.mark.long
@examples(60)
@given(LANGUAGES, LANGUAGES, LANGUAGES)
def test_concatenation_distributes_over_union(one: str, two: str, three: str) -> None:
    a, b, c = map(compile_pattern, (one, two, three))
    left = concatenation(a, union(b, c))
    right = union(concatenation(a, b), concatenation(a, c))
    assert left.fingerprint == right.fingerprint
    assert concatenation(concatenation(a, b), c).fingerprint == concatenation(a, b, c).fingerprint


@examples(60)
@given(LANGUAGES, st.integers(0, 3), st.integers(0, 3) | st.none())
def test_repetition_is_the_counted_quantifier(pattern: str, least: int, more: int | None) -> None:
    most = None if more is None else least + more
    count = f"{{{least},{'' if most is None else most}}}"
    expected = compile_pattern(f"(?:{pattern}){count}", minimal=True)
    assert repeat(compile_pattern(pattern), least, most).fingerprint == expected.fingerprint


@examples(40)
@given(LANGUAGES)
def test_star_and_optional_are_the_quantifiers(pattern: str) -> None:
    dfa = compile_pattern(pattern)
    assert star(dfa).fingerprint == compile_pattern(f"(?:{pattern})*", minimal=True).fingerprint
    assert star(star(dfa)).fingerprint == star(dfa).fingerprint
    assert optional(dfa).fingerprint == compile_pattern(f"(?:{pattern})?", minimal=True).fingerprint


@given(st.lists(st.text("abé\n", max_size=5), max_size=8))
def test_a_choice_accepts_its_texts_only(texts: list[str]) -> None:
    dfa = choice(texts)
    probes = {*texts, *TEXTS[:60], *(t + "a" for t in texts), *(t[:-1] for t in texts)}
    assert {t for t in probes if dfa.fullmatch(t)} == set(texts)
    assert {t for t in probes if choice(texts, minimal=False).fullmatch(t)} == set(texts)


def test_a_choice_may_use_every_byte() -> None:
    dfa = choice([bytes(range(256)), bytes([i, i]) if (i := 200) else b""])
    assert dfa.fullmatch(bytes(range(256)))
    assert dfa.fullmatch(b"\xc8\xc8")
    assert not dfa.fullmatch(b"\xc8")


def test_universes_are_as_documented() -> None:
    assert not complement(literal("a")).fullmatch(b"\xff")
    assert complement(literal("a"), universe=any_bytes()).fullmatch(b"\xff")
    assert difference(any_bytes(), any_text()).fullmatch(b"\xc3")
    assert intersection(any_text(), literal(b"\xff")).is_empty
    assert union(nothing(), literal("a")).fingerprint == literal("a").fingerprint
    assert concatenation().fullmatch("")
    assert not concatenation(literal("a"), nothing()).fullmatch("a")


def test_every_state_of_a_result_can_reach_acceptance() -> None:
    dfa = intersection(compile_pattern("a*b|c+d"), compile_pattern("[abc]*"))
    assert dfa.states == 2
    assert dfa.trimmed() is dfa or dfa.trimmed().states == dfa.states


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(OptionError, match="3 to 2 times"):
        repeat(literal("a"), 3, 2)
    with pytest.raises(OptionError, match="-1 to"):
        repeat(literal("a"), -1, None)


def test_operations_keep_to_a_budget() -> None:
    with pytest.raises(BudgetExceeded, match=r"the repetition takes more than 500 states.*raise max_states"):
        repeat(literal("abc"), 0, 1000, budget=Budget(states=500))
    lengths = [compile_pattern(f"(?:a{{{n}}})*") for n in (31, 29, 37)]
    with pytest.raises(BudgetExceeded, match="the intersection takes more than"):
        intersection(*lengths, budget=Budget(states=10_000))
    with pytest.raises(BudgetExceeded, match="the choice takes more than 20 states"):
        choice(["abcdefghijklmnopqrstuvwxyz"], budget=Budget(states=20))


def test_the_union_of_many_searches_stays_small() -> None:
    """After one of the texts has been found, what was found of the others makes no difference."""
    searches = [compile_pattern(f"(?s:.*)x{index}y(?s:.*)") for index in range(20)]
    found = union(*searches, budget=Budget(states=2000))
    assert found.states < 100
    assert found.fullmatch("a x7y b")
    assert not found.fullmatch("a x7 y b")
