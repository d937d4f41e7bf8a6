"""Chains whose last processors run as one compiled loop give what the processors give one by one, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, load_backend, processors
from logitloom.chain.row_loop import RowLoop
from logitloom.masks.kernels import KernelFailed, load_kernels
from logitloom.masks.logits_pool import LogitsPool
from logitloom.rows import tree as rows
from tests.plugins.processors.driving import random_logits

pytest.importorskip("numba", reason="Numba is not installed")

pytestmark = pytest.mark.extras

WIDTH = 3000
WARPS: list[Any] = [("temperature", {"temperature": 0.8}), ("top_k", {"k": 20}), ("top_p", {"p": 0.9})]
CHAINS: dict[str, tuple[int, list[Any]]] = {
    "penalties": (0, [
        ("frequency_penalty", {"penalty": 0.5, "include_prompt": True}), ("presence_penalty", {"penalty": 0.3}),
        ("repetition_penalty", {"penalty": 1.2}), *WARPS, ("min_p", {"p": 0.05}),
    ]),
    "behind others": (1, [("no_repeat_ngram", {"n": 2}), ("repetition_penalty", {"penalty": 0.8}), *WARPS]),
    "behind a window": (1, [("repetition_penalty", {"penalty": 1.2, "window": 4}), *WARPS]),
}  # fmt: skip


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Those whose arrays have addresses."""
    pytest.importorskip(request.param, reason="the library is not installed")
    return load_backend(request.param)


def run(backend: Backend, name: str, lines: list[np.ndarray], *, fused: bool, **more: Any) -> list[np.ndarray]:
    """Logits and states after each step."""
    chain, count = processors.load(*CHAINS[name][1], debug=False), len(lines[0])
    loop = chain._plan if isinstance(chain._plan, RowLoop) else chain._plan.segments[-1]
    assert isinstance(loop, RowLoop)
    assert chain._whole.count - loop.count == CHAINS[name][0]
    chain._plan_steps(loops=fused)
    prompt = [[5, 9, 5, 9, 70 + row] for row in range(count)]
    context = Context.start(backend.asarray(lines[0]), prompt=prompt, max_length=30, **more)
    state, found, loops = chain.init_state(context), [], _Watched(chain, fused)
    for step, line in enumerate(lines):
        given = backend.asarray(line)
        out, state = chain.process(given, state, context)
        assert type(out) is type(given)
        if not context.donate:
            np.testing.assert_array_equal(backend.to_numpy(given), line)
        leaves = [leaf for _, leaf in rows.leaves(state)]
        assert all(type(leaf) is type(given) for leaf in leaves)
        found += [np.array(backend.to_numpy(array)) for array in (out, *leaves)]
        context = context.accept([[5 + 4 * (step % 2)]] * count)
    assert loops.stepped == (loops.expected or not fused or bool(np.ptp(lines[0][0]) == 0))
    return found


class _Watched:
    """Whether the last processor of a chain was called by itself."""

    #: Whether it must be, whatever the logits.
    expected = False

    def __init__(self, chain: Any, fused: bool) -> None:
        self.stepped = False
        *others, last = chain._steps

        def watching(logits: Any, state: Any, context: Context) -> Any:
            self.stepped = True
            return last(logits, state, context)

        chain._steps = (*others, watching)
        chain._plan_steps(loops=fused)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("kind", ["plain", "ties", "holes", "flat"])
def test_results_and_states_are_those_of_the_processors(backend: Backend, name: str, kind: str) -> None:
    assert load_kernels() is not None
    for count in (1, 3):
        lines = [random_logits(seed, count, WIDTH, kind) for seed in range(3)]
        if kind == "flat":  # too many tie: the processors do it after all, and count no token twice
            lines = [np.zeros_like(line) for line in lines]
        wanted = run(backend, name, lines, fused=False)
        for more in ({}, {"donate": True, "donate_state": True}, {"donate": True, "pool": LogitsPool()}):
            found = run(backend, name, lines, fused=True, **more)
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)), more


def test_where_the_loop_fails_tokens_count_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [random_logits(seed, 2, WIDTH) for seed in range(3)]
    wanted = run(backend, "penalties", lines, fused=False)

    def fail(*given: Any) -> Any:
        raise KernelFailed("operate")

    monkeypatch.setattr(load_kernels(), "operate", fail)
    monkeypatch.setattr(_Watched, "expected", True)
    found = run(backend, "penalties", lines, fused=True, donate=True, donate_state=True)
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_one_row_without_a_batch(backend: Backend) -> None:
    chain = processors.load(*WARPS)
    line = random_logits(1, 1, WIDTH)
    context = Context.start(backend.asarray(line[0]))
    [wide, flat] = [chain.process(backend.asarray(x), chain.init_state(context), context)[0] for x in (line, line[0])]
    np.testing.assert_array_equal(backend.to_numpy(wide)[0], backend.to_numpy(flat))


def test_other_dtypes_and_layouts_take_the_processors(backend: Backend) -> None:
    chain = processors.load(*WARPS, debug=False)
    watched = _Watched(chain, True)
    line = random_logits(1, 2, WIDTH)
    for given in (backend.asarray(line.astype(np.float64)), backend.asarray(np.tile(line, 2))[:, :WIDTH]):
        watched.stepped = False
        context = Context.start(given)
        out, _ = chain.process(given, chain.init_state(context), context)
        assert watched.stepped
        assert out.dtype == given.dtype


def test_what_is_masked_on_the_way_stays_masked(backend: Backend) -> None:
    for specs in ([("suppress_tokens", {"tokens": [1, 2]}), *WARPS], [("suppress_tokens", {"tokens": [1]}), WARPS[1]]):
        line = random_logits(1, 2, WIDTH)
        line[:, 1] = 90
        chain = processors.load(*specs, debug=False)
        context = Context.start(backend.asarray(line))
        out, _ = chain.process(backend.asarray(line), chain.init_state(context), context)
        assert np.isneginf(backend.to_numpy(out)[:, 1]).all()


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty", "repetition_penalty"])
@pytest.mark.parametrize("before", [(), (("no_repeat_ngram", {"n": 2}),)], ids=["at the beginning", "behind another"])
def test_an_exception_says_whose_it_is(name: str, before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = processors.load(*before, *CHAINS["penalties"][1], debug=False)
    link = next(link for link in chain.links if link.label == name)

    def fail(*given: Any) -> Any:
        raise ZeroDivisionError("of the third party")

    monkeypatch.setattr(type(link.processor), "next_state", fail)
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    context = Context.start(logits, prompt=[[1, 2, 3]], max_length=20)
    state = chain.init_state(context)
    with pytest.raises(ZeroDivisionError, match="of the third party") as caught:
        chain.process(logits, state, context)
    (note,) = caught.value.__notes__
    when = "at step 0" if before else "before the first token"  # where nobody asks for the position
    assert note == f"Raised by process of the processor {name!r}, {when}."
