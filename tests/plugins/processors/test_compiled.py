"""The same chains, unchanged, inside compiled loops: the eager results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.errors import StateMismatch
from logitloom.rows import tree as state
from tests.plugins.processors.catalogue import SPECS, VOCAB
from tests.plugins.processors.driving import random_logits

PROMPTS = [[1, 2, 3, 1, 2], [], [4, 4]]
STEPS = 6

#: All processors but those that dictate the first token, in one chain; the conformance kit compiles each alone.
CHAINS = {"all": [label for label in SPECS if not label.startswith(("force_tokens", "suppress_tokens-begin"))]}


def begin(backend: Backend, labels: list[str]) -> tuple[Any, Context, Any, list[np.ndarray]]:
    chain = processors.load(*(SPECS[label] for label in labels), debug=False)
    logits = [random_logits(step, 3, VOCAB) for step in range(STEPS)]
    context = Context.start(backend.asarray(logits[0]), prompt=PROMPTS, max_length=32, seed=[3, 4, 5], compiled=True)
    return chain, context, chain.init_state(context), logits


def eager(backend: Backend, labels: list[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """Greedy decoding over given logits: processed logits of each step, and the tokens ``[rows, steps]``."""
    chain, context, at, logits = begin(backend, labels)
    out, tokens = [], []
    for line in logits:
        processed, at = chain.process(backend.asarray(line), at, context)
        picked = backend.xp.argmax(processed, axis=-1)
        context = context.accept(backend.cast(picked, "int32"))
        out.append(backend.to_numpy(processed))
        tokens.append(backend.to_numpy(picked))
    return out, np.stack(tokens, 1)


@pytest.mark.exhaustive
@pytest.mark.torch
@pytest.mark.parametrize("label", CHAINS)
def test_torch_compile_without_graph_breaks(label: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    backend = load_backend("torch")
    expected, _ = eager(backend, CHAINS[label])
    chain, context, at, logits = begin(backend, CHAINS[label])

    def step(line: Any, at: Any, tokens: Any) -> tuple[Any, Any, Any]:
        processed, after = chain.process(line, at, replace(context, tokens=tokens))
        return processed, after, torch.argmax(processed, dim=-1).to(torch.int32)[:, None]

    torch._dynamo.reset()
    graph = "aot_eager" if label == "all" else "eager"
    first = torch.compile(step, fullgraph=True, backend=graph, dynamic=False)
    tokens = torch.full((3, 1), -1, dtype=torch.int32)
    for line, wanted in zip(logits, expected, strict=True):
        processed, at, tokens = first(backend.asarray(line), at, tokens)
        np.testing.assert_allclose(backend.to_numpy(processed), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.jax
@pytest.mark.parametrize("label", CHAINS)
def test_jax_while_loop_with_the_choice_of_tokens_inside(label: str) -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    import jax.numpy as jnp

    backend = load_backend("jax")
    expected, tokens = eager(backend, CHAINS[label])
    chain, context, at, logits = begin(backend, CHAINS[label])
    lines = jnp.asarray(np.stack(logits))

    @jax.jit
    def generate(lines: Any, at: Any) -> Any:
        def body(carry: Any) -> Any:
            step, at, last, chosen, out = carry
            processed, at = chain.process(lines[step], at, replace(context, tokens=last))
            last = jnp.argmax(processed, axis=-1).astype(jnp.int32)[:, None]
            return step + 1, at, last, chosen.at[:, step].set(last[:, 0]), out.at[step].set(processed)

        none = jnp.full((3, 1), -1, dtype=jnp.int32)
        start = (0, at, none, jnp.zeros((3, STEPS), dtype=jnp.int32), jnp.zeros_like(lines))
        return jax.lax.while_loop(lambda carry: carry[0] < STEPS, body, start)[3:]

    chosen, out = generate(lines, at)
    np.testing.assert_array_equal(np.asarray(chosen), tokens)
    np.testing.assert_allclose(np.asarray(out), np.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.mlx
@pytest.mark.parametrize("label", CHAINS)
def test_mlx_compile(label: str) -> None:
    mx = pytest.importorskip("mlx.core", reason="needs mlx")
    backend = load_backend("mlx")
    expected, _ = eager(backend, CHAINS[label])
    chain, context, at, logits = begin(backend, CHAINS[label])
    leaves: list[Any] = []
    state.map_leaves(leaves.append, at)

    @mx.compile
    def step(line: Any, leaves: list[Any], tokens: Any) -> Any:
        before, after = iter(leaves), []
        rebuilt = state.map_leaves(lambda _: next(before), at)
        processed, new = chain.process(line, rebuilt, replace(context, tokens=tokens))
        state.map_leaves(after.append, new)
        return processed, after, mx.argmax(processed, axis=-1).astype(mx.int32)[:, None]

    tokens = mx.full((3, 1), -1, dtype=mx.int32)
    for line, wanted in zip(logits, expected, strict=True):
        processed, leaves, tokens = step(mx.array(line), leaves, tokens)
        np.testing.assert_allclose(np.array(processed), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.jax
def test_sampling_inside_the_loop_draws_what_it_draws_outside() -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    import jax.numpy as jnp

    from logitloom.arrays import rng

    backend = load_backend("jax")
    chain, context, at, logits = begin(backend, ["temperature", "top_p", "xtc", "frequency_penalty"])
    seeds, lines = jnp.asarray(context.row_seeds()), jnp.asarray(np.stack(logits))

    def draw(processed: Any, step: Any) -> Any:
        mass = jnp.cumsum(backend.softmax(processed), axis=-1)
        dice = rng.uniform(backend.xp, seeds, jnp.full((3,), step, dtype=jnp.int32))
        return jnp.sum(mass <= dice[:, None], axis=-1).astype(jnp.int32)

    def advance(step: Any, at: Any, last: Any) -> tuple[Any, Any]:
        processed, at = chain.process(lines[step], at, replace(context, tokens=last))
        return at, draw(processed, step)[:, None]

    @jax.jit
    def generate(at: Any) -> Any:
        def body(carry: Any) -> Any:
            step, at, last, chosen = carry
            at, last = advance(step, at, last)
            return step + 1, at, last, chosen.at[:, step].set(last[:, 0])

        start = (0, at, jnp.full((3, 1), -1, dtype=jnp.int32), jnp.zeros((3, STEPS), dtype=jnp.int32))
        return jax.lax.while_loop(lambda carry: carry[0] < STEPS, body, start)[3]

    compiled = np.asarray(generate(at))
    last, outside = jnp.full((3, 1), -1, dtype=jnp.int32), []
    for step in range(STEPS):
        at, last = advance(step, at, last)
        outside.append(np.asarray(last[:, 0]))
    np.testing.assert_array_equal(compiled, np.stack(outside, 1))


def test_a_state_with_objects_of_the_host_is_refused_where_steps_are_compiled() -> None:
    words = Vocabulary([b"a", b"b", b""], eos=[2])
    chain = processors.load(("regex", {"pattern": "[ab]{2,9}"}), tokenizer=words)
    logits = np.zeros((2, 3), np.float32)
    host = Context.start(logits, max_new_tokens=8)
    compiled = Context.start(logits, max_new_tokens=8, compiled=True)
    with pytest.raises(StateMismatch, match=r"of 'regex' was begun .* host objects.*Chain\.replay"):
        chain.load_state(chain.save_state(chain.init_state(host)), compiled)
    anew = chain.replay([[0, 1], []], compiled)
    loaded = chain.load_state(chain.save_state(anew), compiled)
    state.check_like(loaded, anew, "chain")
    assert loaded.processors[0].left.tolist() == [6, 8]
