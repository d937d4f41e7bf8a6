"""All constraints that are automata: every way of stepping gives the same masks and states."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, load_backend
from logitloom.errors import IllegalToken
from logitloom.rows import tree as state
from tests.cases import examples
from tests.plugins.processors.constraining import (
    SPECS,
    WIDTH,
    WORDS,
    automaton_of,
    begin,
    random_walk,
    states_of,
    step,
)

STEPS = 7
LABELS = pytest.mark.parametrize("label", SPECS)


def host_masks(label: str, walks: list[list[int]]) -> list[list[set[int]]]:
    """Per step the allowed sets of all rows, in host memory with NumPy, one token at a time."""
    backend = load_backend("numpy")
    chain, context, at = begin(backend, SPECS[label], len(walks))
    allowed, at = step(backend, chain, at, context)
    masks = [allowed]
    for column in zip(*walks, strict=True):
        allowed, at = step(backend, chain, at, context, [[t] for t in column])
        masks.append(allowed)
    return masks


def walks_for(label: str, rows: int = 4, steps: int = STEPS) -> list[list[int]]:
    chain, context, _ = begin(load_backend("numpy"), SPECS[label])
    return [random_walk(automaton_of(chain, context), seed, steps) for seed in range(rows)]


@LABELS
@pytest.mark.parametrize("compiled", [False, True])
def test_every_backend_steps_as_the_automaton_does(backend: Backend, label: str, compiled: bool) -> None:
    walks = walks_for(label)
    chain, context, at = begin(backend, SPECS[label], len(walks), compiled=compiled)
    automaton = automaton_of(chain, context)
    reached = [automaton.start] * len(walks)
    allowed, at = step(backend, chain, at, context)
    assert allowed == [set(automaton.row(s).tolist()) for s in reached]
    rows = automaton.dfa.states + 2
    for column in zip(*walks, strict=True):
        reached = [automaton.advance(s, t) for s, t in zip(reached, column, strict=True)]
        allowed, at = step(backend, chain, at, context, [[t] for t in column])
        assert allowed == [set(automaton.row(s).tolist()) for s in reached]
        assert [s - rows if s >= rows - 2 else s for s in states_of(backend, at)] == reached
        assert backend.to_numpy(at.processors[0]).dtype == np.int32


@LABELS
@pytest.mark.parametrize("compiled", [False, True])
def test_any_number_of_tokens_at_once_equals_one_by_one(backend: Backend, label: str, compiled: bool) -> None:
    walks = walks_for(label)
    masks = host_masks(label, walks)
    chain, context, first = begin(backend, SPECS[label], len(walks), compiled=compiled)
    for counts in ([0, 1, 2, 3], [STEPS, 0, 5, 1], [2, 2, 0, 0]):
        taken = [walk[:n] for walk, n in zip(walks, counts, strict=True)]
        allowed, middle = step(backend, chain, first, context, taken)
        assert allowed == [masks[n][row] for row, n in enumerate(counts)]
        rest = [walk[n:] for walk, n in zip(walks, counts, strict=True)]
        allowed, _ = step(backend, chain, middle, context, rest)
        assert allowed == masks[STEPS]


@LABELS
def test_drafts_that_are_rolled_back_leave_no_trace(backend: Backend, label: str) -> None:
    walks, drafts = walks_for(label), walks_for(label, rows=8)[4:]
    masks = host_masks(label, walks)
    chain, context, before = begin(backend, SPECS[label], len(walks))
    # Rows 0 and 2 accept a draft of several tokens at once; rows 1 and 3 reject theirs and go on with one token.
    taken = [walks[0][:4], drafts[1][:3], walks[2][:3], drafts[3][:2]]
    _, after = step(backend, chain, before, context, taken)
    mixed = state.select([before, after], [1, 0, 1, 0])
    allowed, final = step(backend, chain, mixed, context, [[], walks[1][:1], [], walks[3][:1]])
    assert allowed == [masks[4][0], masks[1][1], masks[3][2], masks[1][3]]
    lived, _ = step(backend, chain, final, context, [walks[0][4:], walks[1][1:], walks[2][3:], walks[3][1:]])
    assert lived == masks[STEPS]


@LABELS
def test_rows_can_be_moved_forked_and_joined(backend: Backend, label: str) -> None:
    walks = walks_for(label)
    masks = host_masks(label, walks)
    chain, context, at = begin(backend, SPECS[label], len(walks))
    _, at = step(backend, chain, at, context, [walk[:2] for walk in walks])
    order = [3, 0, 0, 1, 2, 3]
    allowed, moved = step(backend, chain, state.take(at, order), context, [walks[i][2:3] for i in order])
    assert allowed == [masks[3][i] for i in order]
    joined = state.concat([moved, at])
    tokens = [walks[i][3:] for i in order] + [walk[2:] for walk in walks]
    allowed, _ = step(backend, chain, joined, context, tokens)
    assert allowed == [masks[STEPS][i] for i in [*order, 0, 1, 2, 3]]


@LABELS
def test_replaying_equals_having_lived_through(backend: Backend, label: str) -> None:
    walks = walks_for(label)
    chain, context, at = begin(backend, SPECS[label], len(walks))
    for n in range(STEPS):
        _, at = step(backend, chain, at, context, [[walk[n]] for walk in walks])
    replayed = chain.replay(walks, context)
    assert states_of(backend, replayed) == states_of(backend, at)


@LABELS
def test_the_state_is_one_number_per_row(backend: Backend, label: str) -> None:
    _, _, at = begin(backend, SPECS[label], 3)
    (numbers,) = at.processors
    assert numbers.shape == (3,)
    assert backend.to_numpy(numbers).dtype == np.int32


@LABELS
@given(seed=st.integers(0, 10_000), cut=st.integers(0, STEPS))
@examples(20)
@pytest.mark.long
def test_forced_tokens_are_the_rows_with_one_allowed_token(label: str, seed: int, cut: int) -> None:
    backend = load_backend("numpy")
    chain, context, at = begin(backend, SPECS[label])
    automaton = automaton_of(chain, context)
    walk = list(takewhile(lambda token: token not in automaton.eos, random_walk(automaton, seed, STEPS)[:cut]))
    expected: list[int] = []
    while True:
        (allowed,), _ = step(backend, chain, at, context, [walk + expected])
        if len(allowed) != 1 or (expected and expected[-1] in automaton.eos):
            break
        expected.append(allowed.pop())
    assert (chain.forced_tokens(at, context.accept([walk])) or [[]]) == [expected]


@LABELS
@pytest.mark.parametrize("compiled", [False, True])
def test_finished_rows_take_any_padding(backend: Backend, label: str, compiled: bool) -> None:
    chain, context, at = begin(backend, SPECS[label], 2, compiled=compiled)
    texts = {"regex": "12-12", "regex-longest": "abcab", "choice": "ab", "fsm": "abc", "stop": "abba", "bad_words": "b"}
    eos = WORDS.eos[0]
    single = {WORDS.token_bytes[t]: t for t in range(2, 258)}
    tokens = [single[bytes([b])] for b in texts[label].encode()]
    allowed, at = step(backend, chain, at, context, [[*tokens, eos], [*tokens, eos]])
    assert allowed == [{eos}, {eos}]
    for pad in (eos, 1, 0, 97, WIDTH - 1, -1):
        allowed, at = step(backend, chain, at, context, [[pad], [pad, pad]])
        assert allowed == [{eos}, {eos}]


@pytest.mark.parametrize("label", ["regex", "choice", "fsm", "bad_words"])
def test_an_illegal_token_is_an_error_that_names_row_and_processor(backend: Backend, label: str) -> None:
    chain, context, at = begin(backend, SPECS[label], 3)
    automaton = automaton_of(chain, context)
    good = random_walk(automaton, 1, 2)
    single = {WORDS.token_bytes[t]: t for t in range(2, 258)}
    bad = [single[b"a"], single[b"b"], single[b"1"], single[b"b"]] if label == "bad_words" else [single[b"\x00"]]
    if not backend.on_host:
        allowed, _ = step(backend, chain, at, context, [good, bad, []])
        assert allowed[1] == set()
        assert allowed[0]
        assert allowed[2]
        return
    with pytest.raises(IllegalToken, match=rf"^{label}: row 1 accepted token \d+ \('.*'\)") as e:
        step(backend, chain, at, context, [good, bad, []])
    assert e.value.row == 1
    assert "roll the row back" in str(e.value)


@LABELS
def test_donated_logits_are_masked_alike(backend: Backend, label: str) -> None:
    walks = walks_for(label)
    masks = host_masks(label, walks)
    chain, context, at = begin(backend, SPECS[label], len(walks), donate=True)
    given = np.random.default_rng(3).normal(size=(len(walks), WIDTH)).astype(np.float32)
    processed, _ = chain.process(backend.asarray(given), at, context.accept([walk[:3] for walk in walks]))
    out = backend.to_numpy(processed)
    for row, line in enumerate(out):
        assert set(np.flatnonzero(line > -np.inf).tolist()) == masks[3][row]
        assert np.array_equal(line[line > -np.inf], given[row][line > -np.inf])


@LABELS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_width_of_float_is_masked_and_kept(backend: Backend, label: str, dtype: str) -> None:
    if (backend.name, dtype) in {("numpy", "bfloat16"), ("mlx", "float64"), ("jax", "float64")}:
        pytest.skip(f"{backend.name} has no {dtype}")
    walks = walks_for(label)
    masks = host_masks(label, walks)
    chain, context, at = begin(backend, SPECS[label], len(walks))
    logits = backend.asarray(np.random.default_rng(4).normal(size=(len(walks), WIDTH)), dtype=dtype)
    processed, _ = chain.process(logits, at, context.accept([walk[:2] for walk in walks]))
    assert processed.dtype == logits.dtype
    out, given = backend.to_numpy(processed), backend.to_numpy(logits)
    for row, line in enumerate(out):
        kept = line > -np.inf
        assert set(np.flatnonzero(kept).tolist()) == masks[2][row]
        assert np.array_equal(line[kept], given[row][kept])


# --- compiled loops ---------------------------------------------------------------------------------------------


def greedy(backend: Backend, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and masks of greedy decoding over given logits, on the host."""
    lines = np.random.default_rng(11).normal(size=(STEPS, 3, WIDTH)).astype(np.float32)
    host = load_backend("numpy")
    chain, context, at = begin(host, SPECS[label], 3)
    tokens = np.full((3, 1), -1, dtype=np.int32)
    chosen = []
    for line in lines:
        processed, at = chain.process(line.copy(), at, context.accept(tokens))
        tokens = processed.argmax(-1).astype(np.int32)[:, None]
        chosen.append(tokens[:, 0])
    return lines, np.stack(chosen, 1)


@pytest.mark.torch
@LABELS
@pytest.mark.long
def test_torch_compile_without_graph_breaks(label: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    backend = load_backend("torch")
    lines, expected = greedy(backend, label)
    chain, context, at = begin(backend, SPECS[label], 3, compiled=True)

    def body(line: Any, at: Any, tokens: Any) -> tuple[Any, Any]:
        processed, after = chain.process(line, at, replace(context, tokens=tokens))
        return torch.argmax(processed, dim=-1).to(torch.int32)[:, None], after

    torch._dynamo.reset()
    compiled = torch.compile(body, fullgraph=True, backend="eager", dynamic=False)
    tokens, chosen = torch.full((3, 1), -1, dtype=torch.int32), []
    for line in lines:
        tokens, at = compiled(backend.asarray(line), at, tokens)
        chosen.append(tokens[:, 0].numpy())
    assert np.array_equal(np.stack(chosen, 1), expected)


@pytest.mark.torch
@LABELS
@pytest.mark.long
def test_torch_compile_with_symbolic_shapes(label: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    backend = load_backend("torch")
    lines, expected = greedy(backend, label)
    chain, context, at = begin(backend, SPECS[label], 3, compiled=True)

    def body(line: Any, at: Any, tokens: Any) -> tuple[Any, Any]:
        processed, after = chain.process(line, at, replace(context, tokens=tokens))
        return torch.argmax(processed, dim=-1).to(torch.int32)[:, None], after

    torch._dynamo.reset()
    compiled = torch.compile(body, fullgraph=True, backend="eager", dynamic=True)
    for rows in (3, 2):  # one graph for any number of rows
        after, chosen = state.take(at, range(rows)), []
        tokens = torch.full((rows, 1), -1, dtype=torch.int32)
        for line in lines:
            tokens, after = compiled(backend.asarray(line[:rows]), after, tokens)
            chosen.append(tokens[:, 0].numpy())
        assert np.array_equal(np.stack(chosen, 1), expected[:rows])


@pytest.mark.jax
@LABELS
def test_jax_while_loop(label: str) -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    import jax.numpy as jnp

    backend = load_backend("jax")
    lines, expected = greedy(backend, label)
    chain, context, at = begin(backend, SPECS[label], 3, compiled=True)

    @jax.jit
    def generate(lines: Any, at: Any) -> Any:
        def body(carry: Any) -> Any:
            n, at, last, chosen = carry
            processed, at = chain.process(lines[n], at, replace(context, tokens=last))
            last = jnp.argmax(processed, axis=-1).astype(jnp.int32)[:, None]
            return n + 1, at, last, chosen.at[:, n].set(last[:, 0])

        none = jnp.full((3, 1), -1, dtype=jnp.int32)
        start = (0, at, none, jnp.zeros((3, STEPS), dtype=jnp.int32))
        return jax.lax.while_loop(lambda carry: carry[0] < STEPS, body, start)[3]

    assert np.array_equal(np.asarray(generate(jnp.asarray(lines), at)), expected)


@pytest.mark.mlx
@LABELS
def test_mlx_compile(label: str) -> None:
    mx = pytest.importorskip("mlx.core", reason="needs mlx")
    backend = load_backend("mlx")
    lines, expected = greedy(backend, label)
    chain, context, at = begin(backend, SPECS[label], 3, compiled=True)

    @mx.compile
    def body(line: Any, numbers: Any, tokens: Any) -> Any:
        before = at._replace(processors=(numbers,))
        processed, after = chain.process(line, before, replace(context, tokens=tokens))
        return mx.argmax(processed, axis=-1).astype(mx.int32)[:, None], after.processors[0]

    numbers, tokens, chosen = at.processors[0], mx.full((3, 1), -1, dtype=mx.int32), []
    for line in lines:
        tokens, numbers = body(mx.array(line), numbers, tokens)
        chosen.append(np.array(tokens)[:, 0])
    assert np.array_equal(np.stack(chosen, 1), expected)
