"""DoLa: its formula, with all layers read without any cache."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, load_backend, processors
from logitloom.errors import ModelError, NeedsNotMet, OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.testing.toy_model import ToyModel
from logitloom_contrib.llama import LlamaModel, random_model
from tests.oracles.guidance import Spy, log_softmax, uncached

VOCAB = 20
PROMPTS = [[1, 2, 3, 4], [5], [6, 7, 8]]


@cache
def model_on(backend: str) -> LlamaModel:
    return random_model(backend, 0, vocab=VOCAB, layers=4, dim=16, hidden=16, heads=2, kv_heads=1, max_length=64)


def jensen_shannon(a: np.ndarray, b: np.ndarray) -> float:
    p, q = np.exp(a), np.exp(b)
    middle = (p + q) / 2
    return float((p * np.log(p / middle)).sum() + (q * np.log(q / middle)).sum()) / 2


def contrasted(rows: list[list[int]], layers: list[int], alpha: float) -> tuple[np.ndarray, set[int]]:
    """The scores of each row, and which layers were taken."""
    model = model_on("numpy")
    last = log_softmax(uncached(model, rows))
    early = [log_softmax(uncached(model.first_layers(n), rows)) for n in layers]
    out, taken = [], set()
    for row, line in enumerate(last):
        best = max(range(len(layers)), key=lambda i: jensen_shannon(line, early[i][row]))
        taken.add(layers[best])
        plausible = np.exp(line) >= alpha * np.exp(line).max()
        out.append(np.where(plausible, line - early[best][row], -np.inf))
    return np.stack(out), taken


def follow(backend: Backend, strategy: Any, layers: list[int], alpha: float) -> set[int]:
    spy = Spy()
    chain = processors.load(("dola", {"layers": layers, "alpha": alpha}), spy)
    Generator(model_on(backend.name), chain, strategy, max_tokens=5, eos=())(PROMPTS)
    expected, taken = contrasted([[*prompt, *new] for prompt, new, _ in spy.seen], layers, alpha)
    found = np.stack([line for *_, line in spy.seen])
    assert (np.isfinite(found) == np.isfinite(expected)).all()
    # Scores may lack a constant per row, which changes no distribution.
    np.testing.assert_allclose(log_softmax(found), log_softmax(expected), atol=1e-4)
    return taken


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(4)], ids=["greedy", "multinomial", "beam"])
def test_each_row_takes_the_layer_that_is_farthest(strategy: Any) -> None:
    assert len(follow(load_backend("numpy"), strategy, [1, 2, 3], 0.2)) > 1


def test_one_layer_on_every_backend(backend: Backend) -> None:
    assert follow(backend, Greedy(), [2], 0.3) == {2}


def test_what_is_missing_is_said() -> None:
    with pytest.raises(OptionError, match="Name at least one early layer"):
        processors.load(("dola", {"layers": []}))
    toy = ToyModel(load_backend("numpy"), vocab=VOCAB, seed=3, max_length=96)
    logits = np.zeros((1, VOCAB), dtype=np.float32)
    context = Context.start(logits, prompt=[[1]])
    chain = processors.load(("dola", {"layers": [1]}), model=toy)
    with pytest.raises(NeedsNotMet, match=r"can run its first layers alone, but ToyModel has no method first_layers"):
        chain.init_state(context)
    with pytest.raises(NeedsNotMet, match="needs model"):
        processors.load(("dola", {"layers": [1]})).init_state(context)
    with pytest.raises(ModelError, match="A model of 4 layers cannot be cut to 5"):
        processors.load(("dola", {"layers": [5]}), model=model_on("numpy")).init_state(context)
