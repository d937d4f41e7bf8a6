"""The forward pass: equal to a plain one written from the papers, on every backend, and careful about its arguments."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

from logitloom.arrays.backend import Backend
from logitloom.errors import ModelError
from logitloom_contrib.llama import LlamaModel, random_model
from logitloom_contrib.llama.weights import LlamaConfig, random_weights

CONFIG = LlamaConfig(
    vocab_size=40, layers=3, dim=24, hidden=40, heads=6, kv_heads=2, head_dim=8, max_length=96, rope_base=500.0
)


def plain_logits(config: LlamaConfig, seed: int, tokens: list[int], tied: bool) -> np.ndarray:
    """``[n, vocab]``: the pass in float64, place by place and head by head, without cache or batch."""
    weights = random_weights(config, seed, tied=tied)
    d, half = config.head_dim, config.head_dim // 2

    def norm(v, weight):
        return v / np.sqrt((v**2).mean() + config.rms_eps) * weight

    def rotate(v, place):
        turned = np.empty(d)
        for i in range(half):
            angle = place * config.rope_base ** (-2 * i / d)
            number = complex(v[i], v[i + half]) * np.exp(1j * angle)
            turned[i], turned[i + half] = number.real, number.imag
        return turned

    xs = [weights.embedding[token].astype(np.float64) for token in tokens]
    for w in weights.layers:
        keys, values = [], []
        for place, x in enumerate(xs):
            heads = (norm(x, w.attention_norm) @ w.qkv.T.astype(np.float64)).reshape(-1, d)
            queries, rest = heads[: config.heads], heads[config.heads :]
            keys.append([rotate(k, place) for k in rest[: config.kv_heads]])
            values.append(rest[config.kv_heads :])
            mixed = []
            for h, query in enumerate(queries):
                group = h // (config.heads // config.kv_heads)
                scores = np.array([rotate(query, place) @ k[group] / np.sqrt(d) for k in keys])
                share = np.exp(scores - scores.max())
                mixed.append(sum(s * v[group] for s, v in zip(share / share.sum(), values, strict=True)))
            x = x + np.concatenate(mixed) @ w.attention_output.T
            gate, up = np.split(norm(x, w.feed_forward_norm) @ w.gate_up.T.astype(np.float64), 2)
            xs[place] = x + (gate / (1 + np.exp(-gate)) * up) @ w.down.T
    head = weights.embedding if weights.head is None else weights.head
    return np.array([norm(x, weights.norm) @ head.T for x in xs])


def decode(model: LlamaModel, tokens: np.ndarray, all_positions: bool = False) -> np.ndarray:
    logits, _ = model.forward(tokens, model.empty_cache(len(tokens)), all_positions=all_positions)
    return model.backend.to_numpy(logits)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_a_plain_pass(backend: Backend, tied: bool):
    model = LlamaModel(CONFIG, random_weights(CONFIG, 3, tied=tied), backend)
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (1, 13)).astype(np.int32)
    expected = plain_logits(CONFIG, 3, tokens[0].tolist(), tied)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(decode(model, tokens, all_positions=True)[0], expected, atol=2e-4)
    np.testing.assert_allclose(decode(model, tokens)[0], expected[-1], atol=2e-4)


def test_token_by_token_gives_the_logits_of_one_pass(backend: Backend):
    model = random_model(backend, kv_heads=1)
    tokens = np.random.default_rng(1).integers(0, 64, (2, 9)).astype(np.int32)
    together = decode(model, tokens, all_positions=True)
    cache = model.empty_cache(2)
    for i in range(tokens.shape[1]):
        logits, cache = model.forward(tokens[:, i : i + 1], cache)
        np.testing.assert_allclose(model.backend.to_numpy(logits), together[:, i], atol=1e-4)


def test_rows_do_not_see_each_other_nor_the_padding(backend: Backend):
    model = random_model(backend)
    rng = np.random.default_rng(2)
    rows = [rng.integers(0, 64, n).astype(np.int32) for n in (7, 1, 12, 4)]
    tokens = np.full((4, 12), -1, dtype=np.int32)
    for row, line in zip(tokens, rows, strict=True):
        row[: len(line)] = line
    last, every = decode(model, tokens), decode(model, tokens, all_positions=True)
    for i, line in enumerate(rows):
        alone = decode(model, line[None], all_positions=True)[0]
        np.testing.assert_allclose(every[i, : len(line)], alone, atol=1e-4)
        np.testing.assert_allclose(last[i], alone[-1], atol=1e-4)


def test_the_output_head_reads_the_hidden_states(backend: Backend):
    model = random_model(backend, vocab=48)
    head = random_weights(model.config, 0).embedding
    tokens = np.random.default_rng(4).integers(0, 48, (2, 9)).astype(np.int32)
    tokens[1, 4:] = -1
    every = decode(model, tokens, all_positions=True)
    logits, hidden, cache = model.forward_hidden(tokens, model.empty_cache(2))
    hidden = model.backend.to_numpy(hidden)
    assert hidden.shape == (2, 9, model.config.dim)
    assert cache.lengths.tolist() == [9, 4]
    for row, length in enumerate((9, 4)):
        np.testing.assert_allclose(hidden[row, :length] @ head.T, every[row, :length], atol=1e-4)
        np.testing.assert_allclose(model.backend.to_numpy(logits)[row], every[row, length - 1], atol=1e-4)


def test_many_rows_give_what_each_gives_alone(backend: Backend):
    model = random_model(backend)
    tokens = np.arange(11, dtype=np.int32)[:, None]
    together = decode(model, tokens)
    for row in (0, 5, 10):
        np.testing.assert_allclose(together[row], decode(model, tokens[row : row + 1])[0], atol=1e-4)


def test_long_prompts_in_several_passes_give_what_one_pass_gives(monkeypatch, backend: Backend):
    model = random_model(backend)
    tokens = np.random.default_rng(3).integers(0, 64, (2, 40)).astype(np.int32)
    tokens[1, 13:] = -1
    expected, last = decode(model, tokens, all_positions=True), decode(model, tokens)
    monkeypatch.setattr("logitloom_contrib.llama.llama_model._TOKENS_PER_PASS", 16)
    found = decode(model, tokens, all_positions=True)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(found[1, :13], expected[1, :13], atol=1e-4)
    np.testing.assert_allclose(decode(model, tokens), last, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_come_back_as_such_and_close_to_float32(backend: Backend, dtype: str):
    if not hasattr(backend.xp, dtype):
        with pytest.raises(ModelError, match=f"The backend '{backend.name}' has no dtype '{dtype}'"):
            random_model(backend, dtype=dtype)
        return
    tokens = np.array([[1, 2, 3, 4, 5]], dtype=np.int32)
    model = random_model(backend, dtype=dtype)
    logits, _ = model.forward(tokens, model.empty_cache(1))
    assert logits.dtype == getattr(backend.xp, dtype)
    exact = decode(random_model("numpy"), tokens)
    assert np.abs(backend.to_numpy(logits).astype(np.float32) - exact).max() < 0.05 * np.abs(exact).max()


def test_no_tokens_and_no_rows_are_harmless(backend: Backend):
    model = random_model(backend)
    logits, cache = model.forward(np.zeros((0, 3), dtype=np.int32), model.empty_cache(0))
    assert tuple(logits.shape) == (0, 64)
    assert cache.row_count() == 0
    logits, hidden, cache = model.forward_hidden(np.zeros((2, 0), dtype=np.int32), model.empty_cache(2))
    assert (tuple(logits.shape), tuple(hidden.shape)) == ((2, 64), (2, 0, 32))
    assert cache.lengths.tolist() == [0, 0]
    _, cache = model.forward(np.array([[1], [-1]], dtype=np.int32), model.empty_cache(2))
    assert cache.lengths.tolist() == [1, 0]
    _, cache = model.forward(np.full((2, 2), -1, dtype=np.int32), cache)
    assert cache.lengths.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[64]], "token 64 in row 0 at position 0; ids are 0 to 63"),
        ([[1, -2]], "token -2 in row 0 at position 1"),
        ([[-1, 3]], "to the right of a -1"),
        ([[1], [2]], r"shape \[2, 1\] for a cache of 1 rows"),
        ([1, 2], r"shape \[2\]"),
        ([[0.5]], "dtype float64; they must be integers"),
        ([[1] * 17], "Row 0 would hold 17 tokens; this model takes at most 16"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tokens, message):
    model = random_model(max_length=16)
    with pytest.raises(ModelError, match=message):
        model.forward(np.asarray(tokens), model.empty_cache(1))


def test_a_row_can_be_filled_to_the_last_place(backend: Backend):
    model = random_model(backend, max_length=70)
    tokens = np.random.default_rng(4).integers(0, 64, (1, 70)).astype(np.int32)
    _, cache = model.forward(tokens[:, :69], model.empty_cache(1))
    logits, cache = model.forward(tokens[:, 69:], cache)
    np.testing.assert_allclose(backend.to_numpy(logits), decode(random_model(max_length=70), tokens), atol=1e-4)
    with pytest.raises(ModelError, match="would hold 71 tokens"):
        model.forward(tokens[:, :1], cache)


def test_a_model_without_a_file_has_no_tokenizer():
    with pytest.raises(ModelError, match="not loaded from a file, so it has no tokenizer"):
        _ = random_model().tokenizer
    with pytest.raises(ModelError, match="has no vocabulary"):
        _ = random_model().vocabulary


def test_a_model_goes_on_in_another_process(backend: Backend):
    """The compiled functions are compiled again there."""
    model = LlamaModel(CONFIG, random_weights(CONFIG, 0), backend)
    tokens = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int32)
    for one in (model, model.first_layers(2)):
        other = pickle.loads(pickle.dumps(one))
        np.testing.assert_array_equal(decode(other, tokens), decode(one, tokens))


def test_a_model_that_is_dropped_frees_its_weights_at_once(backend: Backend):
    model = random_model(backend)
    model.forward(np.array([[1, 2, 3]], dtype=np.int32), model.empty_cache(1))
    dropped = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert dropped() is None
    finally:
        gc.enable()
