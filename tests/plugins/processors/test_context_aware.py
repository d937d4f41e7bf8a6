"""Context-aware decoding: the same prompt with and without its context, read without any cache."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, load_backend, processors
from logitloom.errors import InvalidContext, MissingOption, OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom_contrib.llama import LlamaModel, random_model
from tests.oracles.guidance import Spy, log_softmax

VOCAB = 20
PROMPTS = [[1, 2, 3, 4, 5], [9, 5], [6, 7, 8]]
QUESTIONS = {(1, 2, 3, 4, 5): [4, 5], (9, 5): [5], (6, 7, 8): [8]}


@cache
def model_on(backend: str) -> LlamaModel:
    return random_model(backend, 4, vocab=VOCAB, layers=1, dim=16, hidden=16, max_length=64)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(4)], ids=["greedy", "multinomial", "beam"])
@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
@pytest.mark.parametrize("given", [{"context_tokens": [3, 1, 2]}, {"question": [[4, 5], [5], [8]]}], ids=["n", "ids"])
def test_every_score_is_that_of_both_prompts_read_from_tokens(strategy: Any, form: str, given: dict[str, Any]) -> None:
    follow(load_backend("numpy"), strategy, form, given)


@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
def test_scores_on_every_backend(backend: Backend, form: str) -> None:
    follow(backend, BeamSearch(2), form, {"context_tokens": [3, 1, 2]})


def follow(backend: Backend, strategy: Any, form: str, given: dict[str, Any]) -> None:
    spy = Spy()
    chain = processors.load(("context_aware", {"alpha": 0.7, "form": form, **given}), spy, debug=False)
    Generator(model_on(backend.name), chain, strategy, max_tokens=4, eos=())(PROMPTS)
    # (1 + alpha) with and -alpha without is guidance of scale 1 + alpha.
    spy.check(model_on("numpy"), QUESTIONS, 1.7, atol=1e-4)


def test_no_contrast_needs_no_model(backend: Backend) -> None:
    logits = np.random.default_rng(0).normal(size=(1, 7)).astype(np.float32)
    for form in ("two_pass", "one_pass"):
        chain = processors.load(("context_aware", {"alpha": 0.0, "context_tokens": 1, "form": form}))
        assert (chain.branches, chain.needs) == (1, frozenset())
        context = Context.start(backend.asarray(logits))
        scores, _ = chain.process(backend.asarray(logits), chain.init_state(context), context)
        np.testing.assert_allclose(backend.to_numpy(scores), log_softmax(logits), atol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="Give one of them"):
        processors.load(("context_aware", {"question": [1], "context_tokens": 1}))
    with pytest.raises(OptionError, match="must be >= 0"):
        processors.load(("context_aware", {"context_tokens": 1, "alpha": -1.0}))
    context = Context.start(np.zeros((2, VOCAB), dtype=np.float32), prompt=[[1, 2], [3]], model=model_on("numpy"))
    with pytest.raises(MissingOption, match="needs the prompt without its context"):
        processors.load("context_aware").init_state(context)
    with pytest.raises(InvalidContext, match="row 1 has 1 context tokens, but its prompt has only 1 tokens"):
        processors.load(("context_aware", {"context_tokens": 1})).init_state(context)
    with pytest.raises(InvalidContext, match="has 3 entries, but the generation has 2 rows"):
        processors.load(("context_aware", {"context_tokens": [1, 1, 1]})).init_state(context)
