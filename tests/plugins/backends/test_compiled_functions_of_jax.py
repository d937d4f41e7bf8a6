"""How many functions JAX compiles, each of which keeps a megabyte or more, for each number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors

jax = pytest.importorskip("jax")


def decoded(chain: Any, rows: int, asarray: Any) -> list[np.ndarray[Any, Any]]:
    """The logits of some steps of rows that repeat themselves."""
    dice = np.random.default_rng(rows)
    logits = asarray(dice.standard_normal((rows, 50)).astype(np.float32))
    context = Context.start(logits, prompt=[dice.integers(0, 4, 12).tolist() for _ in range(rows)], max_length=24)
    state, found = chain.init_state(context), []
    for tokens in dice.integers(0, 4, (6, rows, 1)):
        out, state = chain.process(logits, state, context)
        found.append(np.asarray(out))
        context = context.accept(tokens.tolist())
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dry", {"multiplier": 1.0, "breakers": [], "breaker_ids": [3]}),
        ("dynamic_temperature", {}),
        ("mirostat", {}),
        ("no_repeat_ngram", {"n": 2}),
        ("top_h", {}),
        ("typical_p", {"p": 0.9}),
        ("watermark_gumbel", {"key": 1}),
        ("xtc", {"threshold": 0.02, "probability": 0.7}),
    ],
)
@pytest.mark.long
def test_a_processor_compiles_few_functions_for_a_number_of_rows(name: str, options: dict[str, Any]) -> None:
    chain = processors.load((name, options))
    for rows in (2, 3):
        expected = decoded(chain, rows, np.asarray)
        compiled = 0

        def count(event: str, _seconds: float, **_more: Any) -> None:
            nonlocal compiled
            compiled += event.endswith("backend_compile_duration")

        jax.monitoring.register_event_duration_secs_listener(count)
        try:
            found = decoded(chain, rows, jax.numpy.asarray)
        finally:
            jax._src.monitoring.unregister_event_duration_listener(count)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    # One step without tokens, one with a token, one more token of matches, and what the context does by itself.
    assert 2 <= compiled <= 24
