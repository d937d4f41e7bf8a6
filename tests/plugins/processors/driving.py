"""Run a chain on NumPy data through any backend, and make the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from logitloom import Backend, Chain, Context, processors


def random_logits(seed: int, rows: int, vocab: int, kind: str = "plain") -> np.ndarray:
    """Logits ``[rows, vocab]`` float32: ``plain``, with ``ties``, or with ``holes`` (-inf, never the whole row)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=3.0, size=(rows, vocab)).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "holes":
        logits[rng.random((rows, vocab)) < 0.3] = -np.inf
        logits[:, 0] = 0.25
    return logits


def start(
    backend: Backend, chain: Chain, logits: np.ndarray, prompt: Sequence[Sequence[int]] | None = None, **more: Any
) -> tuple[Context, Any]:
    context = Context.start(
        backend.asarray(logits), prompt=prompt if prompt is not None else [[]] * len(logits), max_length=64, **more
    )
    return context, chain.init_state(context)


def apply(
    backend: Backend,
    spec: Any,
    logits: np.ndarray,
    prompt: Sequence[Sequence[int]] | None = None,
    tokens: Sequence[Sequence[int]] | None = None,
    **more: Any,
) -> np.ndarray:
    """What one processor makes of the logits, after a prompt and perhaps some accepted tokens."""
    chain = processors.load(spec, debug=True)
    context, state = start(backend, chain, logits, prompt, **more)
    if tokens is not None:
        context = context.accept(tokens)
    given = backend.asarray(logits)
    processed, _ = chain.process(given, state, context)
    assert np.array_equal(backend.to_numpy(given), logits), "the input was overwritten"
    assert type(processed) is type(given)
    assert processed.dtype == given.dtype
    return backend.to_numpy(processed)


def close(actual: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(actual, np.asarray(expected, dtype=np.float32), rtol=2e-6, atol=2e-6)
