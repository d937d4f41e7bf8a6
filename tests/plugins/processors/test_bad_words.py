"""``bad_words``: the oracle is ``phrase in text``, whatever tokens the text was written with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, load_backend, processors
from logitloom.errors import OptionError
from tests.plugins.processors.constraining import WIDTH, WORDS, begin, step

PHRASES = ["ab", "本", "foob", "12", "ééa", "Z\n", "a\x00"]
TEXTLESS = {t for t in range(WIDTH) if t >= WORDS.size or not WORDS.token_bytes[t]}
USEFUL = [t for t in range(WORDS.size) if t >= 258 or 97 <= t - 2 <= 99 or t - 2 in (49, 50, 0xC3, 0xA9, 0xE6, 0xAC)]


def clean_walk(phrases: list[bytes], picks: list[int]) -> list[int]:
    """The picked tokens, without those that would complete a phrase."""
    walk: list[int] = []
    for pick in picks:
        text = WORDS.text_bytes([*walk, USEFUL[pick % len(USEFUL)]])
        if not any(phrase in text for phrase in phrases):
            walk.append(USEFUL[pick % len(USEFUL)])
    return walk


@given(
    phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3),
    picks=st.lists(st.integers(0, 10_000), max_size=6),
    compiled=st.booleans(),
)
def test_a_token_is_forbidden_exactly_if_a_phrase_would_be_in_the_text(
    phrases: list[str], picks: list[int], compiled: bool
) -> None:
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("bad_words", {"phrases": phrases}), compiled=compiled)
    sought = [phrase.encode() for phrase in phrases]
    walk = clean_walk(sought, picks)
    (allowed,), _ = step(backend, chain, at, context, [walk])
    before = WORDS.text_bytes(walk)
    clean = {t for t, b in enumerate(WORDS.token_bytes) if b and not any(p in before + b for p in sought)}
    assert allowed == clean | TEXTLESS


def test_special_tokens_pass_and_do_not_interrupt_a_phrase(backend: Backend) -> None:
    chain, context, at = begin(backend, ("bad_words", {"phrases": ["ab"]}))
    a, b = (WORDS.token_bytes.index(text) for text in (b"a", b"b"))
    for between in ([], [1], [1, WIDTH - 1, 1]):
        (allowed,), _ = step(backend, chain, at, context, [[a, *between]])
        assert b not in allowed
        assert allowed >= TEXTLESS


def test_either_case(backend: Backend) -> None:
    chain, context, at = begin(backend, ("bad_words", {"phrases": ["zZ", "a.b"], "ignore_case": True}))
    single = {WORDS.token_bytes[t]: t for t in range(2, 258)}
    (allowed,), at2 = step(backend, chain, at, context, [[single[b"Z"]]])
    assert not allowed & {single[b"z"], single[b"Z"]}
    assert WORDS.token_bytes.index(b"ZZ") not in allowed
    (allowed,), _ = step(backend, chain, at2, context, [[single[b"A"], single[b"."]]])
    assert not allowed & {single[b"B"], single[b"b"]}
    (allowed,), _ = step(backend, chain, at2, context, [[single[b"A"], single[b"c"]]])
    assert {single[b"B"], single[b"b"]} <= allowed


def test_the_prompt_does_not_count(backend: Backend) -> None:
    a, b = (WORDS.token_bytes.index(text) for text in (b"a", b"b"))
    chain, context, at = begin(backend, ("bad_words", {"phrases": ["ab"]}), prompt=[[a]])
    (allowed,), _ = step(backend, chain, at, context)
    assert b in allowed


@pytest.mark.parametrize("phrases", [[], [""], ["a", ""]])
def test_nothing_to_forbid_is_an_error(phrases: list[str]) -> None:
    with pytest.raises(OptionError, match="Option 'phrases' of 'bad_words': .*(at least one|empty)"):
        processors.load(("bad_words", {"phrases": phrases}))
