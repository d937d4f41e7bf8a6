"""Constraints on the real model: every text matches, under greedy decoding, sampling and beams."""

from __future__ import annotations

import re
from typing import Any

import pytest

from logitloom import processors
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial

pytestmark = [pytest.mark.extras, pytest.mark.weights]

#: A prefix of white space, rows of different lengths, and an address.
PATTERNS = ["a b c d e", "(123456789)|(abcdefghijklmnop)", r"([a-z]{10})@([a-z]{5})\.([a-z]{3})"]
PROMPTS = ["Hello", "The answer is", "Write an address:", "x"]

STRATEGIES = {"greedy": Greedy(), "sampling": Multinomial(4), "beams": BeamSearch(4, samples=4)}


def generator(model: Any, *specs: Any, **more: Any) -> Generator:
    chain = processors.load(*specs, tokenizer=model.vocabulary)
    return Generator(model, chain, **{"max_tokens": 40, **more})


def encoded(model: Any, prompts: list[str]) -> list[list[int]]:
    return [model.tokenizer.encode(prompt) for prompt in prompts]


#: Each pattern with each strategy; by default each with one of them.
MATRIX = [
    pytest.param(strategy, pattern, marks=() if n == m else pytest.mark.exhaustive)
    for n, pattern in enumerate(PATTERNS)
    for m, strategy in enumerate(STRATEGIES)
]


@pytest.mark.parametrize(("strategy", "pattern"), MATRIX)
@pytest.mark.long
def test_every_text_matches(smollm2: Any, strategy: str, pattern: str) -> None:
    made = generator(smollm2, ("regex", {"pattern": pattern}), strategy=STRATEGIES[strategy])
    found = made(encoded(smollm2, PROMPTS), seed=3)
    assert len(found) == len(PROMPTS) * STRATEGIES[strategy].samples
    for sequence in found:
        # Beams may hold fewer than four different texts where a pattern has only two.
        assert sequence.finish == "eos" or sequence.logprob == float("-inf")
        assert re.fullmatch(pattern, sequence.text or "")


@pytest.mark.parametrize("longest", [False, True])
@pytest.mark.long
def test_skipping_forced_tokens_changes_nothing_but_the_work(smollm2: Any, longest: bool) -> None:
    prompts = encoded(smollm2, PROMPTS[:2])
    pattern = r'\{"name": "[A-Z][a-z]{2,8}", "age": [0-9]{1,2}\}'
    spec = ("regex", {"pattern": pattern, "longest_tokens": longest})
    skipped = generator(smollm2, spec, skip_forced=True)(prompts)
    asked = generator(smollm2, spec, skip_forced=False)(prompts)
    assert [g.tokens for g in skipped] == [g.tokens for g in asked]
    assert all(re.fullmatch(pattern, g.text or "") for g in skipped)
    assert all(g.forced == 0 for g in asked)
    if longest:
        assert all(2 * g.forced > len(g.tokens) for g in skipped)


def test_streams_join_to_the_text(smollm2: Any) -> None:
    made = generator(smollm2, ("regex", {"pattern": PATTERNS[2]}))
    (whole,) = made(encoded(smollm2, PROMPTS[2:3]))
    pieces = list(made.stream(encoded(smollm2, PROMPTS[2:3])))
    assert "".join(piece.text for piece in pieces) == whole.text


def test_choices_and_stop_strings_together(smollm2: Any) -> None:
    made = generator(
        smollm2, ("choice", {"choices": ["one two three", "one two four"]}), ("stop", {"strings": ["o t", "o f"]})
    )
    (found,) = made(encoded(smollm2, PROMPTS[:1]))
    assert (found.text, found.finish) == ("one tw", "stop")


def test_a_banned_phrase_does_not_occur(smollm2: Any) -> None:
    prompts = encoded(smollm2, ["The capital of France is"])
    (free,) = Generator(smollm2, processors.load(tokenizer=smollm2.vocabulary), max_tokens=8)(prompts)
    assert "Paris" in (free.text or "")
    (found,) = generator(smollm2, ("bad_words", {"phrases": ["Paris"]}), max_tokens=8)(prompts)
    assert "Paris" not in (found.text or "")
