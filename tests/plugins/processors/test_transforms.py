"""Chains inside the transforms of array libraries: what they give outside, or a sentence that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, Processor, load_backend, processors
from logitloom.errors import InvalidContext
from tests.plugins.processors.catalogue import SPECS, VOCAB
from tests.plugins.processors.test_gradients import (
    BYTES,
    CONSTRAINTS,
    LABELS,
    MORE,
    PROMPT,
    TOKENS,
    WEIGHTS,
    gradient_in_torch,
    processed,
    values,
)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("label", LABELS)
def test_torch_func_grad_gives_the_gradients_of_autograd(label: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="the transforms are those of PyTorch")
    chain = processors.load({**SPECS, **MORE}[label])

    def loss(logits: Any) -> Any:
        out = processed(chain, logits)
        return torch.where(out > float("-inf"), out * torch.tensor(WEIGHTS), torch.zeros_like(out)).sum()

    given = torch.tensor(values().astype(np.float32))
    np.testing.assert_allclose(torch.func.grad(loss)(given), gradient_in_torch(label), atol=1e-5)
    assert torch.func.jvp(loss, (given,), (torch.ones_like(given),))[0] == loss(given)


@pytest.mark.torch
@pytest.mark.parametrize("label", LABELS)
def test_rows_may_be_mapped_by_torch_func_vmap(label: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="the transforms are those of PyTorch")
    chain = processors.load({**SPECS, **MORE}[label])
    given = torch.tensor(values().astype(np.float32))
    context = Context.start(given[0], prompt=PROMPT[:1], max_length=32, compiled=chain.compilable)
    state = chain.init_state(context)

    def step(row: Any, tokens: Any) -> Any:
        return chain.process(row, state, context.accept(tokens))[0]

    expected = torch.stack([step(row, TOKENS[:1]) for row in given])
    assert torch.equal(torch.func.vmap(lambda row: step(row, TOKENS[:1]))(given), expected)
    if chain.compilable:
        tokens = torch.tensor([TOKENS[0], TOKENS[0]])
        assert torch.equal(torch.func.vmap(lambda row, own: step(row, own[None]))(given, tokens), expected)


@pytest.mark.torch
@pytest.mark.extras
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constraint_that_is_made_in_a_transform_serves_outside(name: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="the transforms are those of PyTorch")
    options, text = CONSTRAINTS[name]
    chain = processors.load((name, options), tokenizer=BYTES)
    given = torch.tensor(np.random.default_rng(7).normal(size=(1, 257)).astype(np.float32))

    def masked(logits: Any) -> Any:
        context = Context.start(logits, prompt=[[97]], max_length=64)
        return chain.process(logits, chain.init_state(context), context.accept([list(text.encode())]))[0]

    def loss(logits: Any) -> Any:
        out = masked(logits)
        return torch.where(out > float("-inf"), out, torch.zeros_like(out)).sum()

    found = torch.func.grad(loss)(given)
    assert torch.equal(found > 0, masked(given) > float("-inf"))


@pytest.mark.torch
def test_scores_have_the_gradients_of_autograd_in_torch_func() -> None:
    torch: Any = pytest.importorskip("torch", reason="the transforms are those of PyTorch")
    chain = processors.load(("frequency_penalty", {"penalty": 0.5}), ("no_repeat_ngram", {"n": 2}), ("top_k", {"k": 9}))
    given = torch.tensor(np.random.default_rng(3).normal(size=(2, 4, VOCAB)).astype(np.float32), requires_grad=True)
    context, tokens = Context.start(given[:, 0], prompt=PROMPT, max_length=32), given.argmax(-1).tolist()

    def loss(logits: Any) -> Any:
        return chain.score(logits, tokens, context).clamp(min=-20.0).sum()

    loss(given).backward()
    assert torch.allclose(torch.func.grad(loss)(given.detach()), given.grad, atol=1e-6)


def mapped_by_torch(function: Any, rows: np.ndarray) -> None:
    import torch

    torch.func.vmap(function)(torch.tensor(rows))


def traced_by_jax(function: Any, rows: np.ndarray) -> None:
    import jax

    jax.jit(function)(jax.numpy.asarray(rows[0]))


def compiled_by_mlx(function: Any, rows: np.ndarray) -> None:
    import mlx.core as mx

    mx.compile(function)(mx.array(rows[0]))


TRACED = {"torch": mapped_by_torch, "jax": traced_by_jax, "mlx": compiled_by_mlx}


@pytest.mark.parametrize("library", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in TRACED])
def test_reading_values_where_there_are_none_is_refused_in_a_sentence(library: str) -> None:
    pytest.importorskip({"mlx": "mlx.core"}.get(library, library), reason=f"needs {library}")
    chain, backend = processors.load(("watermark_greenlist", {"ratio": 0.5})), load_backend(library)
    logits = backend.asarray(np.zeros((1, VOCAB), dtype=np.float32))
    context = Context.start(logits, prompt=[[1]])
    state = chain.init_state(context)

    def step(tokens: Any) -> Any:
        return chain.process(logits, state, context.accept(tokens))[0]

    with pytest.raises(InvalidContext, match=r"has no values, and this step reads some\. .*compiled=True"):
        TRACED[library](step, np.array([[[3]], [[4]]], dtype=np.int32))


@pytest.mark.jax
def test_what_a_processor_raises_in_a_traced_function_is_told() -> None:
    jax = pytest.importorskip("jax", reason="needs JAX")

    class Broken(Processor):
        needs = frozenset({"length"})

        def process(self, logits: Any, context: Context) -> Any:
            raise ValueError("broken")

    chain = processors.load(Broken())
    logits = jax.numpy.zeros((1, 3))
    context = Context.start(logits)
    state = chain.init_state(context)
    with pytest.raises(ValueError, match="broken"):
        jax.jit(lambda tokens: chain.process(logits, state, context.accept(tokens)))(jax.numpy.array([[1]]))


@pytest.mark.torch
@pytest.mark.long
def test_steps_that_torch_compiles_without_being_told_are_not_captured_again_and_again() -> None:
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
    graphs: list[Any] = []

    def captured(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    chain = processors.load(("frequency_penalty", {"penalty": 0.5}), ("top_k", {"k": 5}), debug=False)
    logits = torch.tensor(np.random.default_rng(2).normal(size=(12, 2, 300)).astype(np.float32))
    context = Context.start(logits[0])
    state = chain.init_state(context)
    torch.compiler.reset()

    @torch.compile(backend=captured, dynamic=False)
    def step(line: Any, state: Any, tokens: Any) -> Any:
        out, state = chain.process(line, state, context.accept(tokens))
        return out, state, out.argmax(-1)

    tokens = torch.full((2,), -1)
    for line in logits:
        out, state, tokens = step(line, state, tokens)
        assert (out > float("-inf")).sum() == 10
    assert len(graphs) < 5  # the first steps look at types that are new
