"""Generators that draft without a model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.errors import OptionError
from logitloom.generation import candidates
from logitloom_plugins.candidates.ngram_cache import NgramCache, _Counts
from logitloom_plugins.candidates.prompt_lookup import PromptLookup

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def looked_up(text: Sequence[int], max_ngram: int, width: int) -> list[int]:
    """By the definition, place by place."""
    for n in range(min(max_ngram, len(text) - 1), 0, -1):
        for start in range(len(text) - n):
            if text[start : start + n] == text[-n:]:
                return list(text[start + n : start + n + width])
    return []


@given(TEXTS, st.integers(1, 4), st.integers(1, 6))
def test_prompt_lookup_takes_the_first_place_of_the_longest_ngram(text: list[int], max_ngram: int, width: int) -> None:
    assert PromptLookup(max_ngram=max_ngram).continuation(text, width) == looked_up(text, max_ngram, width)


@pytest.mark.parametrize("option", ["max_ngram", "num_tokens"])
def test_sizes_that_are_not_positive_are_refused(option: str) -> None:
    with pytest.raises(OptionError, match=option):
        candidates.load("prompt_lookup", {option: 0})


@given(TEXTS)
def test_ngram_counts_do_not_depend_on_how_a_text_grew(text: list[int]) -> None:
    whole = _Counts(1, 3).with_text(text, 0)
    start = _Counts(1, 3).with_text(text[: len(text) // 2], 0)
    grown = start.with_text(text, start.length)
    forked = start.with_text(text, start.length)  # the older handle again, as a forked row does
    for n in range(1, 4):
        assert whole.most_frequent(text[-n:]) == grown.most_frequent(text[-n:]) == forked.most_frequent(text[-n:])


def test_the_own_text_goes_before_the_corpus() -> None:
    cache = NgramCache(max_ngram=1, corpus=((1, 2), (1, 2), (5, 6)))
    assert cache.following([1, 3, 1], 1) == [3]
    assert cache.following([4, 5], 1) == [6]
