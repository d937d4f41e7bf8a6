"""Contrastive decoding: its formula, and expert and amateur read without any cache."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, load_backend, processors
from logitloom.errors import InvalidContext, NeedsNotMet, OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom_contrib.llama import LlamaModel, random_model
from tests.oracles.guidance import Spy, log_softmax, uncached

VOCAB = 20
PROMPTS = [[1, 2, 3, 4], [5], [6, 7, 8]]


@cache
def model_on(backend: str, seed: int, dim: int) -> LlamaModel:
    return random_model(backend, seed, vocab=VOCAB, layers=1, dim=dim, hidden=16, heads=2, kv_heads=1, max_length=64)


def contrasted(
    expert: Any, amateur: Any, alpha: float, gain: float, against: float, temperature: float = 1.0
) -> np.ndarray:
    e, a = log_softmax(expert), log_softmax(np.asarray(amateur, dtype=np.float64) / temperature)
    plausible = np.exp(e) >= alpha * np.exp(e).max(axis=-1, keepdims=True)
    return np.where(plausible, gain * e - against * a, -np.inf)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(4)], ids=["greedy", "multinomial", "beam"])
@pytest.mark.parametrize(
    ("options", "gain", "against"),
    [({"beta": 0.8}, 1.8, 0.8), ({"weighting": "difference", "amateur_temperature": 2.0}, 1.0, 1.0)],
    ids=["beta", "difference"],
)
def test_every_score_is_that_of_both_models_read_from_tokens(
    strategy: Any, options: dict[str, Any], gain: float, against: float
) -> None:
    for debug in (True, False):  # without it the loop lets processors overwrite logits
        follow(load_backend("numpy"), strategy, options, gain, against, debug)


def test_scores_on_every_backend(backend: Backend) -> None:
    follow(backend, BeamSearch(2), {"beta": 0.5}, 1.5, 0.5)


def follow(
    backend: Backend, strategy: Any, options: dict[str, Any], gain: float, against: float, debug: bool = True
) -> None:
    expert, amateur = model_on(backend.name, 0, 16), model_on(backend.name, 1, 8)
    spy = Spy()
    chain = processors.load(("contrastive", {"model": amateur, "alpha": 0.3, **options}), spy, debug=debug)
    Generator(expert, chain, strategy, max_tokens=5, eos=())(PROMPTS)
    rows = [[*prompt, *new] for prompt, new, _ in spy.seen]
    expected = contrasted(
        uncached(model_on("numpy", 0, 16), rows), uncached(model_on("numpy", 1, 8), rows), 0.3, gain, against,
        options.get("amateur_temperature", 1.0),
    )  # fmt: skip
    np.testing.assert_allclose(np.stack([line for *_, line in spy.seen]), expected, atol=1e-4)
    assert len({tuple(np.isfinite(line)) for line in expected}) > 1


def scores(backend: Backend, logits: Any, amateur: LlamaModel, **options: Any) -> np.ndarray:
    line = backend.asarray(np.asarray([logits], dtype=np.float32))
    chain = processors.load(("contrastive", {"model": amateur, **options}), debug=True)
    context = Context.start(line, prompt=[[3, 1]])
    return backend.to_numpy(chain.process(line, chain.init_state(context), context)[0])[0]


def test_the_ends_of_the_cutoff(backend: Backend) -> None:
    amateur = model_on(backend.name, 1, 8)
    logits = np.linspace(0.0, 3.0, VOCAB)
    assert np.isfinite(scores(backend, logits, amateur, alpha=0.0)).all()
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(scores(backend, logits, amateur, alpha=1.0))), [VOCAB - 1])
    np.testing.assert_allclose(scores(backend, logits, amateur, alpha=0.0, beta=0.0), log_softmax(logits), atol=1e-5)
    least = np.exp(scores(backend, logits, amateur, alpha=0.2, beta=0.0))
    assert (least[least > 0] >= 0.2 * least.max() - 1e-6).all()
    assert (least > 0).sum() == int((np.exp(logits) >= 0.2 * np.exp(3.0)).sum())


def test_masked_tokens_stay_masked(backend: Backend) -> None:
    logits = np.zeros(VOCAB)
    logits[3] = -np.inf
    found = scores(backend, logits, model_on(backend.name, 1, 8), weighting="difference")
    assert not np.isnan(found).any()
    assert np.flatnonzero(found == -np.inf).tolist() == [3]


def test_what_is_refused() -> None:
    amateur = model_on("numpy", 1, 8)
    with pytest.raises(OptionError, match="must be a model adapter"):
        processors.load(("contrastive", {"model": "small"}))
    with pytest.raises(OptionError, match="must be >= 0, <= 1"):
        processors.load(("contrastive", {"model": amateur, "alpha": 2.0}))
    chain = processors.load(("contrastive", {"model": amateur}))
    with pytest.raises(InvalidContext, match="20 tokens, but the logits have 4 columns"):
        chain.init_state(Context.start(np.zeros((1, 4), dtype=np.float32), prompt=[[1]]))
    with pytest.raises(NeedsNotMet, match="'contrastive' needs prompt"):
        chain.init_state(Context.start(np.zeros((1, VOCAB), dtype=np.float32)))
    with pytest.raises(InvalidContext, match="the prompt of row 0 has no tokens"):
        chain.init_state(Context.start(np.zeros((1, VOCAB), dtype=np.float32), prompt=[[]]))
    assert math.isclose(chain["contrastive"].alpha, 0.1)
