"""Logits as large as their dtype holds under the strongest options: rows stay rows of numbers, on every library."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Processor, load_backend, processors
from logitloom.errors import OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from tests.core.test_wrong_values import BASE, EXTREMES, GIVEN, STEPWISE, WIDTH, WORDS, numbers_of_all
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.catalogue import SPECS, VOCAB

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


def far_apart(width: int) -> np.ndarray[Any, Any]:
    """Rows with probabilities that float32 cannot hold, and forbidden ids."""
    logits = (np.random.default_rng(0).normal(size=(4, width)) * 60).astype(np.float32)
    logits[:, 3] = -np.inf
    logits[1] = -1e4
    logits[2, width // 2 :] = -np.inf
    logits[1, 5] = logits[3, 5] = 1e4
    return logits


COUNTING = ("adaptive_p", "dynamic_temperature", "mirostat", "mirostat_v2", "p_less", "top_a", "top_h")


@pytest.mark.parametrize("label", [*SPECS, *COUNTING])
def test_the_callers_error_state_of_numpy_makes_no_processor_fail(label: str) -> None:
    chain = processors.load(SPECS.get(label, (label, BASE.get(label, {}))), tokenizer=WORDS)
    context = Context.start(far_apart(VOCAB), prompt=[[1, 2, 1]] * 4, max_length=30)
    expected, state = [], chain.init_state(context)
    steps = [context, *(context.accept(np.full((4, 1), token, dtype=np.int32)) for token in (1, 2))]
    for step in steps:
        out, state = chain.process(far_apart(VOCAB), state, step)
        expected.append(out)
    with np.errstate(all="raise"):
        state = chain.init_state(context)
        for step, before in zip(steps, expected, strict=True):
            out, state = chain.process(far_apart(VOCAB), state, step)
            np.testing.assert_array_equal(out, before)


def test_the_callers_error_state_of_numpy_makes_no_constraint_fail_that_reads_logits() -> None:
    class MostlyLikely(Processor):
        stage = "constraint"

        def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
            return np.where(np.exp(logits - logits.max(axis=-1, keepdims=True)) < 0.1, -np.inf, logits), state

    chain = processors.load(MostlyLikely())
    logits = np.array([[0.0, -200.0, -1.0]], dtype=np.float32)
    context = Context.start(logits)
    with np.errstate(under="raise"):
        out, _ = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(out, [[0.0, -np.inf, -1.0]])


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(samples=2), BeamSearch(beams=3)], ids=repr)
def test_the_callers_error_state_of_numpy_makes_no_loop_fail(strategy: Any) -> None:
    class Decided(ToyModel):
        def forward(self, *given: Any, **named: Any) -> Any:
            logits, cache = super().forward(*given, **named)
            return logits * 60, cache

    model = Decided(load_backend("numpy"), vocab=VOCAB)
    chain = processors.load(("typical_p", {"p": 0.9}), ("temperature", {"temperature": 0.7}))

    def texts() -> list[Any]:
        return [found.tokens for found in Generator(model, chain, strategy, max_tokens=8)([[1, 2], [3]])]

    expected = texts()
    with np.errstate(all="raise"):
        assert texts() == expected
