"""A real model, helped by a model of another real tokenizer: SmolLM2 as target, and Mistral's Tekken."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Vocabulary, load_backend, processors
from logitloom.errors import ModelError
from logitloom.generation import Generated, Generator, Multinomial, Statistics, candidates
from logitloom.host.registry import read_vocabulary
from logitloom_contrib.llama import default_weights, load
from logitloom_plugins.candidates.universal import translation
from tests.cases import first
from tests.oracles.toy_model import ToyModel

pytest.importorskip("mistral_common", reason="the other tokenizer needs mistral-common")
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

pytestmark = [pytest.mark.extras, pytest.mark.weights]

PROMPTS = [
    "Count: one, two, three, four, five, six,",
    "The cat sat on the mat. The dog sat on the log. The cat sat on the",
]
NEW = 14


class Remembers(ToyModel):
    """A model that has read one text: it expects what followed the last tokens there, and is unsure elsewhere."""

    def __init__(self, backend: Backend, vocab: int, text: Sequence[int]) -> None:
        super().__init__(backend, 2, max_length=1024)
        self.vocab_size, self.text = vocab, list(text)

    def row_logits(self, row: Sequence[int]) -> np.ndarray:
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        for n in (3, 2, 1):
            last = list(row[-n:])
            found = [i + n for i in range(len(self.text) - n) if self.text[i : i + n] == last]
            if found:
                logits[self.text[found[0]]] = 16.0
                break
        return logits


class Encoder:
    """Tekken as an object with ``encode(text)``."""

    def __init__(self, tekken: Tekkenizer) -> None:
        self.tekken = tekken

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tekken.encode(text, bos=False, eos=False)
        return ids


@pytest.fixture(scope="module")
def target() -> Any:
    try:
        default_weights()
    except ModelError as error:
        pytest.skip(f"the real model is not here: {error}")
    return load(backend=load_backend("torch" if importlib.util.find_spec("torch") else "numpy"))


@pytest.fixture(scope="module")
def tekken() -> Tekkenizer:
    found = importlib.util.find_spec("mistral_common")
    assert found is not None
    assert found.origin is not None
    return Tekkenizer.from_file(Path(found.origin).parent / "data" / "tekken_240911.json")


@pytest.fixture(scope="module")
def words(tekken: Tekkenizer) -> Vocabulary:
    return read_vocabulary(tekken)


def generator(target: Any, *specs: Any, **more: Any) -> Generator:
    return Generator(target, processors.load(*specs, tokenizer=target.vocabulary), max_tokens=NEW, **more)


def ids(target: Any) -> list[list[int]]:
    return [target.tokenizer.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def plain(target: Any) -> list[Generated]:
    return generator(target)(ids(target))


@pytest.fixture(scope="module")
def assistant(target: Any, tekken: Tekkenizer, words: Vocabulary, plain: list[Generated]) -> Remembers:
    """It knows what the target writes, but for one word in the middle of each text, where it is wrong."""
    texts = [f"{prompt}{g.text}" for prompt, g in zip(PROMPTS, plain, strict=True)]
    text = Encoder(tekken).encode("\n".join(texts).replace("eight", "zero", 1))
    return Remembers(load_backend("numpy"), words.size, text)


def drafting(name: str, target: Any, tekken: Tekkenizer, words: Vocabulary, assistant: Remembers) -> Any:
    more = {"target_tokenizer": target.tokenizer} if name == "assistant_retokenized" else {}
    given = {"model": assistant, "vocabulary": words, "tokenizer": Encoder(tekken), "num_tokens": 6, **more}
    return candidates.load(name, given)


@pytest.mark.parametrize("name", ["universal", "assistant_retokenized"])
@pytest.mark.long
def test_greedy_text_is_that_of_the_target_alone_and_takes_fewer_passes(
    name: str, target: Any, tekken: Tekkenizer, words: Vocabulary, assistant: Remembers, plain: list[Generated]
) -> None:
    statistics = Statistics()
    made = drafting(name, target, tekken, words, assistant)
    found = generator(target, candidates=made, on_round=statistics.add)(ids(target))
    assert [(g.tokens, g.text) for g in found] == [(g.tokens, g.text) for g in plain]
    assert 0 < statistics.accepted < statistics.drafted
    assert statistics.tokens_per_pass > 1.5


@pytest.mark.parametrize("name", first(1, ["universal", "assistant_retokenized"]))
def test_constraints_and_stop_strings_hold_along_foreign_drafts(
    name: str, target: Any, tekken: Tekkenizer, words: Vocabulary, assistant: Remembers
) -> None:
    specs = (("regex", {"pattern": r"[a-z ,.]+"}), ("stop", {"strings": ["ine", "on the"]}))
    made = drafting(name, target, tekken, words, assistant)
    found = generator(target, *specs, candidates=made)(ids(target))
    assert [(g.text, g.finish) for g in found] == [(g.text, g.finish) for g in generator(target, *specs)(ids(target))]


def test_sampling_at_a_temperature_near_zero_is_greedy(
    target: Any, tekken: Tekkenizer, words: Vocabulary, assistant: Remembers, plain: list[Generated]
) -> None:
    made = drafting("universal", target, tekken, words, assistant)
    cold = ("temperature", {"temperature": 1e-4})
    found = generator(target, cold, strategy=Multinomial(), candidates=made)(ids(target), seed=5)
    assert [g.tokens for g in found] == [g.tokens for g in plain]


def test_the_vocabularies_are_translated_by_bytes(target: Any, words: Vocabulary) -> None:
    both = translation(target.vocabulary, words, target.vocab_size, words.size)
    shared = np.flatnonzero(both.to_target >= 0)
    assert 20_000 < len(shared) < target.vocab_size
    for own in [*shared[:: len(shared) // 500], words.eos[0]]:
        other = int(both.to_target[own])
        assert target.vocabulary.token_bytes[other] == words.token_bytes[own]
        assert both.to_assistant[other] == own
    assert both.to_target[words.eos[0]] == target.vocabulary.eos[0]
    assert len(both.to_target) == words.size
