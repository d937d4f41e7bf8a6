"""Where ``top_p`` cuts, against sums in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import Backend, Context, processors

#: How far the mass before a token may be from ``p`` for the token to fall on either side: what the docstring says.
DOUBT = 1e-4


@pytest.mark.parametrize("p", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("vocab", [60, 20_000])
def test_tokens_stay_as_in_double_precision_unless_the_mass_before_them_is_p(
    backend: Backend, vocab: int, p: float
) -> None:
    logits = np.random.default_rng(vocab).normal(scale=2.5, size=(30, vocab)).astype(np.float32)
    native = backend.asarray(logits)
    chain, context = processors.load(("top_p", {"p": p})), Context.start(native)
    kept = np.isfinite(backend.to_numpy(chain.process(native, chain.init_state(context), context)[0]))
    order = np.argsort(-logits, axis=-1, kind="stable")
    e = np.exp(np.take_along_axis(logits, order, -1).astype(np.float64))
    e /= e.sum(-1, keepdims=True)
    before = np.cumsum(e, axis=-1) - e
    stays = np.take_along_axis(kept, order, -1)
    certain = np.abs(before - p) > DOUBT
    # Equal logits stay together, so a token below the border stays with its equal above it.
    equal = np.take_along_axis(logits, order, -1)
    certain[:, 1:] &= equal[:, 1:] != equal[:, :-1]
    np.testing.assert_array_equal(stays[certain], (before < p)[certain])
    assert certain.mean() > 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_have_the_border_of_the_same_numbers_in_float32(backend: Backend, dtype: str) -> None:
    if not hasattr(backend.xp, dtype):
        pytest.skip(f"{backend.name} has no {dtype}")
    for seed in (0, 1):
        logits = np.random.default_rng(seed).normal(scale=2.5, size=(30, 20_000)).astype(np.float32)
        halves = backend.cast(backend.asarray(logits), dtype)
        for p in (0.3, 0.9, 0.99):
            found = backend.cast(backend.nucleus_threshold(halves, p), "float32")
            expected = backend.nucleus_threshold(backend.cast(halves, "float32"), p)
            np.testing.assert_array_equal(backend.to_numpy(found), backend.to_numpy(expected))
