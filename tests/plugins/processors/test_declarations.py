"""What the processors declare about themselves is true, and half types and donation change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import Backend, Context, processors
from tests.plugins.processors.catalogue import SPECS, VOCAB
from tests.plugins.processors.driving import random_logits

PROMPTS = [[1, 2, 3, 1, 2], [], [4, 4]]
STEPS = [None, [[3], [1], [4]], [[1, 2], [], [6, 2]], [[-1], [3], [7]]]


def run(
    backend: Backend, spec: object, dtype: str, kind: str, donate: bool = False
) -> list[tuple[np.ndarray, np.ndarray]]:
    chain = processors.load(spec, debug=True)
    pairs = []
    context = state = None
    for step, tokens in enumerate(STEPS):
        logits = backend.asarray(random_logits(step, 3, VOCAB, kind), dtype)
        before = backend.to_numpy(logits).copy()
        if context is None:
            context = Context.start(logits, prompt=PROMPTS, max_length=32, donate=donate, donate_state=donate)
            state = chain.init_state(context)
        processed, state = chain.process(logits, state, context.accept(tokens))
        assert processed.dtype == logits.dtype
        assert donate or np.array_equal(before, backend.to_numpy(logits))
        pairs.append((before, backend.to_numpy(processed)))
    return pairs


@pytest.mark.parametrize("label", SPECS)
@pytest.mark.parametrize("kind", ["ties", "holes"])
def test_declarations_hold(backend: Backend, label: str, kind: str) -> None:
    link = processors.load(SPECS[label]).links[0]
    for before, after in run(backend, SPECS[label], "float32", kind):
        assert link.declared("preserves_masked")
        assert (after[before == -np.inf] == -np.inf).all()
        if link.declared("mask_only"):
            assert ((after == before) | (after == -np.inf)).all()
        if link.declared("argmax_invariant"):
            assert (after.argmax(-1) == before.argmax(-1)).all()


@pytest.mark.parametrize("label", SPECS)
def test_the_one_legal_token_stays_where_that_is_declared(backend: Backend, label: str) -> None:
    chain = processors.load(SPECS[label], debug=True)
    single = np.full((VOCAB, VOCAB), -np.inf, dtype=np.float32)
    np.fill_diagonal(single, np.linspace(-2.0, 2.0, VOCAB))
    logits = backend.asarray(single)
    context = Context.start(logits, prompt=[[1, 2, 4, 6, 1, 2]] * VOCAB, max_length=32)
    processed, _ = chain.process(logits, chain.init_state(context), context.accept([[1, 2]] * VOCAB))
    if chain.links[0].declared("keeps_last"):
        assert (backend.to_numpy(processed) > -np.inf).any(-1).all()
    else:
        assert chain.links[0].declared("stage") == "constraint"


@pytest.mark.parametrize("label", SPECS)
def test_processors_do_something(backend: Backend, label: str) -> None:
    assert any((before != after).any() for before, after in run(backend, SPECS[label], "float32", "plain"))


@pytest.mark.parametrize("label", SPECS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_come_back_and_decide_as_float32_does(backend: Backend, label: str, dtype: str) -> None:
    if dtype == "bfloat16" and backend.name == "numpy":
        pytest.skip("NumPy has no bfloat16")
    for before, after in run(backend, SPECS[label], dtype, "plain"):
        assert after.shape == before.shape
        assert np.isfinite(after).any(-1).all()
    chain = processors.load(SPECS[label])
    if chain.mask_only:
        half = backend.asarray(random_logits(0, 3, VOCAB), dtype)
        single = backend.asarray(backend.to_numpy(half).astype(np.float32))
        masks = []
        for logits in (half, single):
            context = Context.start(logits, prompt=PROMPTS, max_length=32)
            processed, _ = chain.process(logits, chain.init_state(context), context)
            masks.append(backend.to_numpy(processed) == -np.inf)
        assert np.array_equal(*masks)


@pytest.mark.parametrize("label", SPECS)
def test_donation_changes_no_result_and_no_earlier_state(backend: Backend, label: str) -> None:
    kept, given = run(backend, SPECS[label], "float32", "holes"), run(backend, SPECS[label], "float32", "holes", True)
    for (_, expected), (_, actual) in zip(kept, given, strict=True):
        np.testing.assert_array_equal(actual, expected)
    chain = processors.load(SPECS[label])
    logits = backend.asarray(random_logits(0, 3, VOCAB))
    context = Context.start(logits, prompt=PROMPTS, max_length=32)
    state = chain.init_state(context)
    first, _ = chain.process(logits, state, context.accept([[1], [2], [3]]))
    chain.process(logits, state, context.accept([[4], [4], [4]]))
    again, _ = chain.process(logits, state, context.accept([[1], [2], [3]]))
    np.testing.assert_array_equal(backend.to_numpy(again), backend.to_numpy(first))
