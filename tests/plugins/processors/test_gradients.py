"""Gradients pass through every processor that has a formula for them, and straight through masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Context, Vocabulary, load_backend, processors
from logitloom.automata import compile_pattern
from logitloom.host.registry import load_plugin
from tests.cases import first
from tests.plugins.processors.catalogue import SPECS, VOCAB

MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive_p": ("adaptive_p", {"target": 0.2}),
    "alternating_codebooks": ("alternating_codebooks", {"offset": 2, "size": 9}),
    "bad_words_ids": ("bad_words_ids", {"sequences": [[1], [2, 3]]}),
    "dynamic_temperature": ("dynamic_temperature", {"low": 0.4, "high": 2.0}),
    "encoder_repetition_penalty": ("encoder_repetition_penalty", {"penalty": 1.4}),
    "exponential_decay_length_penalty": ("exponential_decay_length_penalty", {"start": 1, "factor": 1.3, "eos": [0]}),
    "encoder_no_repeat_ngram": ("encoder_no_repeat_ngram", {"n": 2}),
    "eos_above": ("eos_above", {"p": 0.01, "eos": [0]}),
    "forced_eos": ("forced_eos", {"max_length": 9, "eos": [0]}),
    "mirostat": ("mirostat", {"tau": 2.0, "m": 12}),
    "mirostat_v2": ("mirostat_v2", {"tau": 2.0}),
    "normalize": ("normalize", {}),
    "p_less": ("p_less", {"relaxed": True}),
    "prefix_allowed_tokens": ("prefix_allowed_tokens", {"function": lambda row, ids: [row, int(ids[-1]), 7]}),
    "quadratic": ("quadratic", {"factor": 0.2, "curve": 1.5}),
    "remove_invalid": ("remove_invalid", {}),
    "sequence_bias": ("sequence_bias", {"sequences": [[1], [2, 3]], "biases": [0.5, 1.0]}),
    "top_a": ("top_a", {"a": 0.5}),
    "top_h": ("top_h", {"h": 0.8}),
    "watermark_delta": ("watermark_delta", {"key": 5, "width": 1}),
    "watermark_dipmark": ("watermark_dipmark", {"key": 5, "width": 1}),
    "watermark_greenlist": ("watermark_greenlist", {"ratio": 0.5}),
    "watermark_gumbel": ("watermark_gumbel", {"key": 5, "width": 1}),
    "watermark_synthid": ("watermark_synthid", {"keys": [654, 400], "ngram_len": 2}),
    "whisper_no_speech": ("whisper_no_speech", {"token": 5, "eos": 0}),
    "whisper_timestamps": ("whisper_timestamps", {"no_timestamps": 12, "eos": 0}),
}
INNER = ["regex", {"pattern": "[a-c]{2,9}"}]
TOOLS = [{"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]
#: Constraints over ``BYTES``, each with a text after which some tokens are forbidden.
CONSTRAINTS: dict[str, tuple[dict[str, Any], str]] = {
    "after": ({"trigger": "<", "inner": INNER}, "x<a"),
    "all_of": ({"inner": [INNER, ["bad_words", {"phrases": ["ab"]}]]}, "a"),
    "bad_words": ({"phrases": ["a", "bc"]}, "b"),
    "between": ({"open": "<", "close": ">", "inner": INNER}, "<a"),
    "budget": ({"n": 1, "inner": INNER, "text": "!"}, "a"),
    "checked": ({"check": lambda text, ends: text.endswith("b"), "sample": True}, "a"),
    "choice": ({"choices": ["abc", "bd"]}, "b"),
    "fsm": ({"automaton": compile_pattern("[a-f]{1,6}")}, "ab"),
    "grammar": ({"grammar": 'root ::= "a" [b-d]+'}, "ab"),
    "heal": ({"removed": [[97, 98]]}, "a"),
    "json": ({"schema": {"type": "array", "items": {"type": "integer"}}}, "[1"),
    "regex": ({"pattern": "[a-c]+x"}, "ab"),
    "stop": ({"strings": ["x"]}, "abx"),
    "stop_repetition": ({"times": 3, "longest": 2}, "abbb"),
    "structural_tag": ({"tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "abc"}}}, "a"),
    "thinking": ({"budget": 2, "begin": "inside"}, "ab"),
    "tool_call": ({"tools": TOOLS, "choice": "required", "format": "hermes"}, "<tool_call>"),
    "until": ({"trigger": "x", "inner": INNER, "then": INNER}, "abxa"),
}
BYTES = Vocabulary([*(bytes([n]) for n in range(256)), b""], eos=[256])
LABELS = [*SPECS, *MORE]
WEIGHTS = np.random.default_rng(1).normal(size=(2, VOCAB)).astype(np.float32)
PROMPT, TOKENS = [[1, 2, 3, 1, 2], [4, 4]], [[3], [1]]


def processed(chain: Chain, logits: Any) -> Any:
    context = Context.start(logits, prompt=PROMPT, max_length=32, donate=True)
    state = chain.init_state(context)
    return chain.process(logits, state, context.accept(TOKENS))[0]


def values() -> np.ndarray:
    return np.random.default_rng(5).normal(scale=2.0, size=(2, VOCAB))


@pytest.mark.torch
@pytest.mark.parametrize("label", LABELS)
def test_gradients_are_those_of_finite_differences(label: str) -> None:
    torch = pytest.importorskip("torch", reason="gradients are checked with PyTorch")
    chain = processors.load({**SPECS, **MORE}[label])

    def legal(logits: Any) -> Any:
        out = processed(chain, logits)
        return torch.where(out > float("-inf"), out, torch.zeros_like(out))

    given = torch.tensor(values(), requires_grad=True)
    assert legal(given).dtype == torch.float64
    assert torch.autograd.gradcheck(legal, (given,), eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


def gradient_in_torch(label: str) -> np.ndarray:
    """The gradient of the weighted sum of what a processor leaves."""
    import torch

    given = torch.tensor(values().astype(np.float32), requires_grad=True)
    out = processed(processors.load({**SPECS, **MORE}[label]), given)
    torch.where(out > float("-inf"), out * torch.tensor(WEIGHTS), torch.zeros_like(out)).sum().backward()
    assert given.grad is not None
    return np.asarray(given.grad)


@pytest.mark.torch
@pytest.mark.jax
# JAX compiles each operation: every third processor by default.
@pytest.mark.parametrize("label", first(17, [label for turn in range(3) for label in LABELS[turn::3]]))
@pytest.mark.long
def test_jax_gives_the_same_gradients(label: str) -> None:
    pytest.importorskip("torch", reason="the other side of the comparison")
    jax = pytest.importorskip("jax", reason="needs JAX")
    chain = processors.load({**SPECS, **MORE}[label])
    load_backend("jax")

    def loss(logits: Any) -> Any:
        out = processed(chain, logits)
        return jax.numpy.where(out > float("-inf"), out * WEIGHTS, 0.0).sum()

    traced = chain.compilable
    given = jax.numpy.asarray(values(), dtype="float32")
    found = jax.grad(loss)(given) if traced else jax.vjp(loss, given)[1](jax.numpy.float32(1.0))[0]
    np.testing.assert_allclose(np.asarray(found), gradient_in_torch(label), atol=1e-4, rtol=1e-3)


@pytest.mark.torch
@pytest.mark.mlx
@pytest.mark.parametrize("label", LABELS)
def test_mlx_gives_the_same_gradients(label: str) -> None:
    pytest.importorskip("torch", reason="the other side of the comparison")
    mx = pytest.importorskip("mlx.core", reason="needs MLX")
    chain = processors.load({**SPECS, **MORE}[label])

    def loss(logits: Any) -> Any:
        out = processed(chain, logits)
        return mx.where(out > float("-inf"), out * mx.array(WEIGHTS), 0.0).sum()

    found = mx.grad(loss)(mx.array(values().astype(np.float32)))
    np.testing.assert_allclose(np.asarray(found), gradient_in_torch(label), atol=1e-4, rtol=1e-3)


def test_every_processor_is_checked_or_says_that_it_has_no_gradient() -> None:
    checked = {name for name, _ in [*SPECS.values(), *MORE.values()]} | set(CONSTRAINTS)
    installed = {record.name for record in processors.available() if record.distribution == "logitloom"}
    without = {name for name in installed if load_plugin("processors", name).stage == "guidance"}
    assert installed - without - checked == set(), "add it to SPECS or CONSTRAINTS of this file"
    assert without == {"cfg", "context_aware", "contrastive", "dola"}


def in_torch(loss: Any, host: np.ndarray) -> np.ndarray:
    import torch

    given = torch.tensor(host, requires_grad=True)
    loss(given).backward()
    assert given.grad is not None
    return np.asarray(given.grad)


def in_mlx(loss: Any, host: np.ndarray) -> np.ndarray:
    import mlx.core as mx

    return np.asarray(mx.grad(loss)(mx.array(host)))


def in_jax(loss: Any, host: np.ndarray) -> np.ndarray:
    import jax

    return np.asarray(jax.vjp(loss, jax.numpy.asarray(host))[1](jax.numpy.float32(1.0))[0])


GRADIENT = {"torch": in_torch, "mlx": in_mlx, "jax": in_jax}


@pytest.mark.extras
@pytest.mark.parametrize("library", ["torch", "mlx", "jax"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_gradients_pass_straight_through_the_masks_of_constraints(name: str, library: str) -> None:
    pytest.importorskip({"mlx": "mlx.core"}.get(library, library), reason=f"needs {library}")
    options, text = CONSTRAINTS[name]
    chain, backend = processors.load((name, options), tokenizer=BYTES), load_backend(library)
    host, weights = np.random.default_rng(7).normal(size=(2, 1, 257)).astype(np.float32)

    def marked(logits: Any) -> Any:
        context = Context.start(logits, vocabulary=BYTES, prompt=[[97]], max_length=64, donate=logits is not host)
        return chain.process(logits, chain.init_state(context), context.accept([list(text.encode())]))[0]

    def loss(logits: Any) -> Any:
        out, xp = marked(logits), backend.xp
        return xp.sum(xp.where(out > float("-inf"), out * backend.asarray(weights), xp.zeros_like(out)))

    found = GRADIENT[library](loss, host)
    allowed = np.isfinite(marked(host))
    assert 0 < allowed.sum() < allowed.size
    np.testing.assert_allclose(found, np.where(allowed, weights, 0), atol=1e-6)


@pytest.mark.torch
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
