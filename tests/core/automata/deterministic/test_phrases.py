"""Texts without phrases: the oracle is ``re.search`` with ``IGNORECASE``."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.automata import Budget, texts_without
from logitloom.errors import BudgetExceeded, OptionError
from tests.cases import EXHAUSTIVE, examples, some

#: Characters with one to four cases, of one to three bytes each: k has K and the Kelvin sign, s has S and the long s.
LETTERS = "aAbBkKsSiIıİſ\u212aéÉ1."
PHRASES = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=5)
TEXT = st.text(LETTERS, max_size=12)


@pytest.mark.long
@settings(max_examples=300 if EXHAUSTIVE else 30)
@given(PHRASES, TEXT, st.booleans())
def test_a_text_is_refused_exactly_if_a_phrase_occurs(phrases: list[str], text: str, ignore_case: bool) -> None:
    pattern = "|".join(re.escape(phrase) for phrase in phrases)
    found = re.search(pattern, text, re.IGNORECASE if ignore_case else 0)
    assert texts_without(phrases, ignore_case=ignore_case).fullmatch(text) == (found is None)


@pytest.mark.long
@examples(100)
@given(PHRASES, st.lists(st.sampled_from([text.encode()[n:] for text in LETTERS for n in (0, 1)]), max_size=8))
def test_bytes_that_are_no_characters_do_not_hide_a_phrase(phrases: list[str], pieces: list[bytes]) -> None:
    """A phrase is found in the text as broken characters are shown, and nowhere else."""
    data = b"".join(pieces)
    pattern = "|".join(re.escape(phrase) for phrase in phrases)
    found = re.search(pattern, data.decode("utf-8", "replace"), re.IGNORECASE)
    assert texts_without(phrases, ignore_case=True).fullmatch(data) == (found is None)


@pytest.mark.long
def test_thousands_of_phrases_in_either_case() -> None:
    dice = random.Random(0)
    phrases = ["".join(dice.choices("abcdefghiklmnoprstuvé", k=dice.randint(5, 12))) for _ in range(some(10_000))]
    clean = texts_without(phrases, ignore_case=True, budget=Budget(states=200_000, seconds=60.0))
    assert clean.states < 2 * len(set(itertools.chain(*({p[:n] for n in range(len(p))} for p in phrases))))
    for phrase in dice.sample(phrases, 100):
        mixed = "".join(dice.choice((letter.upper(), letter)) for letter in phrase)
        assert not clean.fullmatch(f"so {mixed} it is")
        assert clean.fullmatch(mixed[:-1])


def test_limits_are_kept() -> None:
    with pytest.raises(BudgetExceeded, match="states"):
        texts_without(["".join(chr(97 + n % 26) for n in range(k, k + 40)) for k in range(26)], ignore_case=True,
                      budget=Budget(states=100))  # fmt: skip
    with pytest.raises(OptionError, match="none that is empty"):
        texts_without(["a", ""], ignore_case=True)
