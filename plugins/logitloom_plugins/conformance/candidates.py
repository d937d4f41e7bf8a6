"""Every built-in candidate generator, over toy models."""

# ruff: noqa: RUF012 - cases are read only

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from logitloom import Backend, Vocabulary
from logitloom.testing import CandidateConformance, ToyModel


class _Letters:
    """A tokenizer of single letters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = {text: i for i, text in enumerate(vocabulary.token_bytes) if len(text) == 1}

    def encode(self, text: str) -> list[int]:
        """The ids of the letters that the tokenizer knows."""
        return [self._ids[bytes([byte])] for byte in text.encode() if bytes([byte]) in self._ids]


class _Layered(ToyModel):
    """A toy model that can run without its last table."""

    def first_layers(self, layers: int) -> ToyModel:
        """The model with only its first ``layers`` tables."""
        part = ToyModel(self.backend, self.vocab_size, max_length=self.max_length)
        part.tables = self.tables.copy()
        part.tables[layers:] = 0
        return part


class TestAssistant(CandidateConformance):
    candidates = "assistant"
    cases = {"five": {"num_tokens": 5}}

    def options(self, case: str, backend: Backend) -> Mapping[str, Any]:
        """With a model that is right often: the target's tables with noise."""
        model = self.target(backend)
        model.tables = model.tables + np.random.default_rng(1).normal(size=model.tables.shape).astype(np.float32) * 0.6
        return {"model": model, **self.cases[case]}


class TestAssistantRetokenized(CandidateConformance):
    candidates = "assistant_retokenized"
    cases = {"five": {"num_tokens": 5, "confidence_threshold": 0.0}}

    def options(self, case: str, backend: Backend) -> Mapping[str, Any]:
        """With the target itself as an assistant that reads text."""
        own = {"model": self.target(backend), "tokenizer": _Letters(self.vocabulary), "vocabulary": self.vocabulary}
        return {**own, "target_tokenizer": _Letters(self.vocabulary), **self.cases[case]}


class TestEarlyExit(CandidateConformance):
    candidates = "early_exit"
    cases = {"two": {"layers": 2}}

    def target(self, backend: Backend) -> Any:
        """One that can stop early."""
        model = _Layered(backend, vocab=self.vocabulary.size, max_length=128)
        model.tables[:, :, self.vocabulary.eos[0]] += 0.7
        return model


class TestGrammarDrafts(CandidateConformance):
    candidates = "grammar"
    chain = (("regex", {"pattern": "(abc|dab)+[a-n]{2}cde"}),)


class TestNgramCache(CandidateConformance):
    candidates = "ngram_cache"
    cases = {"corpus": {"corpus": ((1, 2, 3, 4), (5, 6), (2, 3, 7))}}


class TestPromptLookup(CandidateConformance):
    candidates = "prompt_lookup"
    cases = {"default": {}, "short": {"max_ngram": 1}}


class TestUniversal(CandidateConformance):
    candidates = "universal"
    cases = {"five": {"num_tokens": 5}}

    def options(self, case: str, backend: Backend) -> Mapping[str, Any]:
        """With a model of another vocabulary."""
        other = Vocabulary([*(bytes([110 - i]) for i in range(14)), b"abc", b""], eos=[15], name="other")
        model = ToyModel(backend, vocab=other.size, seed=5, max_length=256)
        return {"model": model, "vocabulary": other, **self.cases[case]}


__all__ = [name for name in tuple(globals()) if name.startswith("Test")]
