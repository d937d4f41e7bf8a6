"""Logits as large as their dtype holds under the strongest options: rows stay rows of numbers, on every library."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, processors
from logitloom.errors import OptionError
from tests.core.test_wrong_values import BASE, EXTREMES, GIVEN, STEPWISE, WIDTH, WORDS, numbers_of_all

DTYPES = ("float16", "bfloat16", "float32")
#: What float16 can hold; elsewhere larger logits than 1e15 are not promised anything.
LARGEST = {"float16": 65504.0, "bfloat16": 1e15, "float32": 1e15}
#: Processors that only weigh: what they get as a number they give as a number.
WEIGHING = {
    "dry", "encoder_repetition_penalty", "exponential_decay_length_penalty", "frequency_penalty", "logit_bias",
    "presence_penalty", "repetition_penalty", "sequence_bias", "watermark_greenlist",
}  # fmt: skip


def rows_of(largest: float) -> np.ndarray[Any, Any]:
    """Rows whose ids 1, 2 and 4 were or will be seen, with logits at both ends of a dtype, and a forbidden id 3."""
    rows = np.zeros((5, WIDTH))
    rows[0, [1, 2, 4]] = largest, -largest, largest / 2
    rows[1, [1, 2, 4]] = largest * 0.4609375, largest * 0.46, -largest * 0.4609375
    rows[2] = -largest
    rows[3] = largest
    rows[4, ::2], rows[4, 1::2] = largest, -largest
    rows[:, 3] = -np.inf
    return rows


def extreme_chains(name: str, option: str) -> list[tuple[float, Any]]:
    """The chains of the least and the greatest value that the option takes, and of that nearest to 0."""
    found: dict[float, Any] = {}
    for value in EXTREMES:
        given = GIVEN.get(name, float)(value)
        with contextlib.suppress(OptionError):
            found[value] = processors.load((name, {**BASE.get(name, {}), option: given}), tokenizer=WORDS)
    return [(value, found[value]) for value in {min(found), max(found), min(found, key=abs)}]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "option"), numbers_of_all())
@pytest.mark.long
def test_the_largest_logits_stay_numbers(name: str, option: str, dtype: str, backend: Backend) -> None:
    if not hasattr(backend.xp, dtype):
        pytest.skip(f"{backend.name} has no {dtype}")
    values = rows_of(LARGEST[dtype])
    faults = []
    for value, chain in extreme_chains(name, option):
        logits = backend.cast(backend.asarray(values.astype(np.float32)), dtype)
        context = Context.start(logits, prompt=[[1, 2, 1]] * 5, max_length=30, vocabulary=WORDS)
        state = chain.init_state(context)
        steps = [None, [[1]] * 5, [[2]] * 5] if name in STEPWISE else [[[1, 2, 1, 2] * 3] * 5, [[1]] * 5, [[2]] * 5]
        for tokens in steps:
            given = backend.cast(backend.asarray(values.astype(np.float32)), dtype)
            with np.errstate(over="ignore"):
                out, state = chain.process(given, state, context.accept(tokens) if tokens else context)
            assert str(out.dtype) == str(logits.dtype)
            host = backend.to_numpy(backend.cast(out, "float32")).astype(np.float64)
            if np.isnan(host).any():
                faults.append((value, "NaN"))
            if np.isposinf(host).any():
                faults.append((value, "+inf"))
            if not np.isfinite(host).any(axis=1).all():
                faults.append((value, "a row without a token"))
            if not np.isneginf(host[:, 3]).all():
                faults.append((value, "a forbidden id is allowed"))
            if name in WEIGHING and value > -1e300 and np.isneginf(np.delete(host, 3, axis=1)).any():
                faults.append((value, "a penalty forbids"))
    assert not faults, sorted(set(faults), key=str)
