"""Gradients pass through every processor that has a formula for them, and straight through masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Context, load_backend, processors
from tests.plugins.processors.catalogue import SPECS, VOCAB

MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive_p": ("adaptive_p", {"target": 0.2}),
    "alternating_codebooks": ("alternating_codebooks", {"offset": 2, "size": 9}),
    "bad_words_ids": ("bad_words_ids", {"sequences": [[1], [2, 3]]}),
    "dynamic_temperature": ("dynamic_temperature", {"low": 0.4, "high": 2.0}),
    "encoder_repetition_penalty": ("encoder_repetition_penalty", {"penalty": 1.4}),
    "exponential_decay_length_penalty": ("exponential_decay_length_penalty", {"start": 1, "factor": 1.3, "eos": [0]}),
    "mirostat": ("mirostat", {"tau": 2.0, "m": 12}),
    "mirostat_v2": ("mirostat_v2", {"tau": 2.0}),
    "normalize": ("normalize", {}),
    "p_less": ("p_less", {"relaxed": True}),
    "quadratic": ("quadratic", {"factor": 0.2, "curve": 1.5}),
    "sequence_bias": ("sequence_bias", {"sequences": [[1], [2, 3]], "biases": [0.5, 1.0]}),
    "top_h": ("top_h", {"h": 0.8}),
    "watermark_greenlist": ("watermark_greenlist", {"ratio": 0.5}),
    "watermark_synthid": ("watermark_synthid", {"keys": [654, 400], "ngram_len": 2}),
}
PROMPT, TOKENS = [[1, 2, 3, 1, 2], [4, 4]], [[3], [1]]


def processed(chain: Chain, logits: Any) -> Any:
    context = Context.start(logits, prompt=PROMPT, max_length=32, donate=True)
    state = chain.init_state(context)
    return chain.process(logits, state, context.accept(TOKENS))[0]


def values() -> np.ndarray:
    return np.random.default_rng(5).normal(scale=2.0, size=(2, VOCAB))


@pytest.mark.parametrize("label", [*SPECS, *MORE])
def test_gradients_are_those_of_finite_differences(label: str) -> None:
    torch = pytest.importorskip("torch", reason="gradients are checked with PyTorch")
    chain = processors.load({**SPECS, **MORE}[label])
    weight = torch.tensor(np.random.default_rng(1).normal(size=(2, VOCAB)))

    def loss(logits: Any) -> Any:
        out = processed(chain, logits)
        legal = out > float("-inf")
        # Of float32 in float64 disguise finite differences would be noise, so each row counts as a distribution.
        return (torch.where(legal, torch.where(legal, out, 0.0).double() * weight, 0.0)).sum()

    given = torch.tensor(values(), requires_grad=True)
    loss(given).backward()
    assert given.grad is not None
    found, step = given.grad.numpy(), 1e-5
    plain = torch.tensor(values())
    for row, column in [(0, 0), (0, 3), (1, 1), (1, 7), (0, int(plain[0].argmax())), (1, int(plain[1].argmax()))]:
        up, down = plain.clone(), plain.clone()
        up[row, column] += step
        down[row, column] -= step
        wanted = float(loss(up) - loss(down)) / (2 * step)
        assert found[row, column] == pytest.approx(wanted, abs=2e-4), (row, column)


@pytest.mark.parametrize("label", ["temperature", "top_p", "min_p", "repetition_penalty", "quadratic", "top_k"])
def test_other_libraries_give_the_same_gradients(label: str) -> None:
    torch = pytest.importorskip("torch", reason="the other side of the comparison")
    jax = pytest.importorskip("jax", reason="needs JAX")
    chain = processors.load({**SPECS, **MORE}[label])
    given = torch.tensor(values().astype(np.float32), requires_grad=True)
    torch.log_softmax(processed(chain, given), -1)[:, 3].clamp(min=-50).sum().backward()
    load_backend("jax")

    def loss(logits: Any) -> Any:
        return jax.numpy.clip(jax.nn.log_softmax(processed(chain, logits))[:, 3], -50).sum()

    found = jax.grad(loss)(jax.numpy.asarray(values(), dtype="float32"))
    np.testing.assert_allclose(np.asarray(found), given.grad.numpy(), atol=1e-5)


def test_scores_of_sampled_sequences_can_be_learnt_from() -> None:
    torch = pytest.importorskip("torch", reason="gradients are those of PyTorch")
    chain = processors.load(
        ("temperature", {"temperature": 0.7}), ("top_k", {"k": 5}), ("frequency_penalty", {"penalty": 0.5})
    )
    logits = torch.tensor(np.random.default_rng(3).normal(size=(2, 6, VOCAB)).astype(np.float32), requires_grad=True)
    tokens = logits.detach().argmax(-1).tolist()
    context = Context.start(logits[:, 0], prompt=PROMPT)
    chain.score(logits, tokens, context).sum().backward()
    assert logits.grad is not None
    # With a temperature T, the gradient of a log-probability is (1 - p) / T at the token, and -p / T elsewhere.
    state, found = chain.init_state(context), logits.grad.numpy()
    out = chain.process(logits[:, 0].detach(), state, context)[0]
    p = torch.softmax(out, -1).numpy()
    wanted = -p / 0.7
    wanted[np.arange(2), [row[0] for row in tokens]] += 1 / 0.7
    np.testing.assert_allclose(found[:, 0], wanted, atol=1e-5)


def test_guidance_says_that_it_has_none() -> None:
    told = {name: processors.load((name, o)).links[0].declared("differentiable") for name, o in {
        "cfg": {}, "context_aware": {"question": [1]}, "top_p": {"p": 0.5},
    }.items()}  # fmt: skip
    assert told == {"cfg": False, "context_aware": False, "top_p": True}
