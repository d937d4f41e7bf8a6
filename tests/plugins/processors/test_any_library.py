"""Processors that declare an operation make of NumPy's views of tensors what they make of the tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from logitloom import Context, load_backend, processors
from logitloom.chain.numpy_views import OnViews
from logitloom.chain.row_loop import RowLoop
from logitloom.masks.logits_pool import LogitsPool
from logitloom.rows import tree as rows
from tests.plugins.processors.driving import random_logits

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="the library is not installed")

WIDTH = 2600
CHAINS: dict[str, Any] = {
    "ordinary": [
        ("repetition_penalty", {"penalty": 1.2}), ("temperature", {"temperature": 0.8}), ("top_k", {"k": 50}),
        ("top_p", {"p": 0.9}), ("min_p", {"p": 0.05}),
    ],
    "penalties": [("repetition_penalty", {"penalty": 0.7}), ("frequency_penalty", {"penalty": 0.3})],
    "sharp": [("temperature", {"temperature": 0.11}), ("top_p", {"p": 0.6})],
    "temperature": [("temperature", {"temperature": 0.7})],
    "nothing": [("temperature", {"temperature": 1.0})],
    "min_p": [("min_p", {"p": 0.1})],
}  # fmt: skip


class Run:
    """Some steps of a chain: logits and states after each, as NumPy's, and the arrays that went in and came out."""

    def __init__(
        self, name: str, lines: list[np.ndarray], shares: bool, dtype: Any = torch.float32, **more: Any
    ) -> None:
        backend = load_backend("torch")
        self.chain, count = processors.load(*CHAINS[name], debug=False), len(lines[0])
        # One processor that changes logits takes tensors.
        plan = self.chain._plan
        on_views = plan.otherwise if isinstance(plan, RowLoop) else plan
        assert isinstance(on_views, OnViews) == (len(CHAINS[name]) > 1 or name == "min_p")
        if not shares and isinstance(on_views, OnViews):
            inner = on_views.inner
            self.chain._plan = dataclasses.replace(plan, otherwise=inner) if isinstance(plan, RowLoop) else inner
        prompt = [[row, 5, 9, 5, 9] for row in range(count)]
        context = Context.start(torch.zeros(count, WIDTH, dtype=dtype), prompt=prompt, max_length=16, **more)
        state = self.chain.init_state(context)
        self.given: list[Any] = []
        self.out: list[Any] = []
        self.arrays: list[Any] = []
        for step, line in enumerate(lines):
            self.given.append(torch.from_numpy(line.copy()).to(dtype))
            version = self.given[-1]._version
            out, state = self.chain.process(self.given[-1], state, context)
            assert isinstance(out, torch.Tensor)
            assert out is not self.given[-1] or name == "nothing" or out._version > version
            leaves = [leaf for _, leaf in rows.leaves(state)]
            assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
            self.out.append(out)
            self.arrays += [backend.to_numpy(array).copy() for array in (out, *leaves)]
            context = context.accept([[5 + 4 * (step % 2)]] * count)


def same(found: Run, expected: Run) -> None:
    """To the bit."""
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def watched(chain: Any) -> list[type]:
    """The types of the logits that the first processor of a chain will get."""
    seen: list[type] = []
    first, *others = chain._steps

    def watching(logits: Any, state: Any, context: Context) -> Any:
        seen.append(type(logits))
        assert type(context.backend.asarray([1])) is type(logits)
        return first(logits, state, context)

    chain._steps = (watching, *others)
    chain._plan_steps(loops=False)  # of a compiled loop it sees nothing
    return seen


@pytest.mark.parametrize(
    ("specs", "kind"),
    [
        ([*CHAINS["ordinary"]], np.ndarray),
        ([*CHAINS["ordinary"], ("typical_p", {"p": 0.9})], torch.Tensor),  # does not declare it
        ([("suppress_tokens", {"tokens": [1]})], torch.Tensor),
    ],
)
def test_chains_of_such_processors_get_views(specs: Any, kind: type) -> None:
    chain = processors.load(*specs, debug=False)
    seen = watched(chain)
    context = Context.start(torch.zeros(1, WIDTH), prompt=[[1]])
    chain.process(torch.zeros(1, WIDTH), chain.init_state(context), context)
    assert seen == [kind]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("kind", ["plain", "ties", "holes"])
def test_results_are_those_of_tensors(name: str, kind: str) -> None:
    for count in (1, 3):
        lines = [random_logits(seed, count, WIDTH, kind) for seed in range(3)]
        expected = Run(name, lines, shares=False)
        for more in ({}, {"donate": True, "donate_state": True}, {"donate": True, "pool": LogitsPool()}):
            same(Run(name, lines, shares=True, **more), expected)


def test_logits_that_are_not_donated_stay_as_they_are() -> None:
    lines = [random_logits(seed, 2, WIDTH) for seed in range(3)]
    for name in CHAINS:
        run = Run(name, lines, shares=True)
        for given, line in zip(run.given, lines, strict=True):
            np.testing.assert_array_equal(given.numpy(), line)


def test_donated_logits_are_overwritten_and_returned() -> None:
    run = Run("temperature", [random_logits(1, 1, WIDTH)], shares=True, donate=True)
    assert run.out[0] is run.given[0]


def test_tensors_that_numpy_cannot_write_to_take_their_own_way() -> None:
    lines = [random_logits(seed, 2, WIDTH) for seed in range(2)]
    same(Run("ordinary", lines, True, torch.bfloat16), Run("ordinary", lines, False, torch.bfloat16))
    same(Run("ordinary", lines, True, torch.float64), Run("ordinary", lines, False, torch.float64))
    logits = torch.zeros(1, WIDTH, requires_grad=True)
    chain = processors.load(*CHAINS["temperature"], debug=False)
    context = Context.start(logits)
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert out.requires_grad
    with torch.inference_mode():
        inferred = torch.ones(1, WIDTH)
        found, _ = chain.process(inferred, chain.init_state(context), context.with_fields(donate=True))
    assert found.tolist() == (torch.ones(1, WIDTH) / 0.7).tolist()


def test_memory_of_states_is_not_wrapped_again_at_each_step() -> None:
    chain = processors.load(*CHAINS["ordinary"], debug=False)
    context = Context.start(torch.zeros(1, WIDTH), prompt=[[1]], donate_state=True)
    state = chain.init_state(context)
    table = next(leaf for _, leaf in rows.leaves(state))
    for token in range(5):
        context = context.accept([[token]])
        _, state = chain.process(torch.zeros(1, WIDTH), state, context)
    assert next(leaf for _, leaf in rows.leaves(state)) is table
