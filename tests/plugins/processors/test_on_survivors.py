"""Chains whose last processors see survivors alone give what they give of the whole rows, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, load_backend, processors
from logitloom.chain.survivors import split
from logitloom.masks.logits_pool import LogitsPool
from tests.plugins.processors.driving import random_logits

WIDTH = 4096


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Those that look for survivors."""
    pytest.importorskip(request.param, reason="the library is not installed")
    return load_backend(request.param)


CHAINS: dict[str, Any] = {
    "ordinary": [
        ("repetition_penalty", {"penalty": 1.2}), ("temperature", {"temperature": 0.8}), ("top_k", {"k": 50}),
        ("top_p", {"p": 0.9}), ("min_p", {"p": 0.05}),
    ],
    "sharp": [("temperature", {"temperature": 0.01}), ("top_k", {"k": 7}), ("typical_p", {"p": 0.8})],
    "late": [("logit_bias", {"bias": {3: 2.0}}), ("min_p", {"p": 0.001}), ("top_k", {"k": 20}), ("xtc", {})],
    "behind a constraint": [
        ("suppress_tokens", {"tokens": [1, 2, 3]}), ("top_k", {"k": 5}), ("epsilon_cutoff", {"epsilon": 0.02}),
    ],
    "one": [("top_k", {"k": 3})],
}  # fmt: skip


def rows_of(kind: str, rows: int, seed: int) -> np.ndarray:
    if kind == "few":  # fewer possible tokens than the truncation keeps
        logits = np.full((rows, WIDTH), -np.inf, dtype=np.float32)
        logits[:, ::1500] = random_logits(seed, rows, WIDTH)[:, ::1500]
        return logits
    return random_logits(seed, rows, WIDTH, kind)


def run(backend: Backend, specs: Any, logits: list[np.ndarray], **more: Any) -> list[np.ndarray]:
    """What a chain makes of the logits of some steps."""
    debug = more.pop("debug", False)
    chain, count = processors.load(*specs, debug=debug), len(logits[0])
    first = backend.asarray(logits[0])
    context = Context.start(first, prompt=[[row, 5, 9] for row in range(count)], max_length=16, seed=3, **more)
    state, given, found = chain.init_state(context), context, []
    for step, line in enumerate(logits):
        out, state = chain.process(backend.asarray(line), state, given)
        found.append(np.array(backend.to_numpy(out)))
        given = context.accept([[7 + step]] * count)
    return found


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("kind", ["plain", "ties", "holes", "few"])
@pytest.mark.long
def test_results_are_those_of_whole_rows(backend: Backend, name: str, kind: str) -> None:
    for rows in (1, 3):
        logits = [rows_of(kind, rows, seed) for seed in range(3)]
        wanted = run(backend, CHAINS[name], logits, debug=True)  # checks of each result need whole rows
        for more in ({}, {"donate": True}, {"pool": LogitsPool()}, {"donate": True, "pool": LogitsPool()}):
            found = run(backend, CHAINS[name], logits, **more)
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)), more


def test_survivors_are_what_the_last_processors_see(backend: Backend) -> None:
    chain = processors.load(*CHAINS["ordinary"], debug=False)
    assert split(chain.links) == (1, 50)
    chain._program = None  # of a compiled loop they see nothing
    seen: list[int] = []
    step = chain._steps[-1]

    def watching(logits: Any, state: Any, context: Any) -> Any:
        seen.append(logits.shape[1])
        assert context.vocab_size == logits.shape[1]
        return step(logits, state, context)

    chain._steps = (*chain._steps[:-1], watching)
    chain._plan_steps(loops=False)  # of a compiled loop they see nothing
    logits = backend.asarray(random_logits(1, 2, WIDTH))
    context = Context.start(logits, prompt=[[1], [2]])
    chain.process(logits, chain.init_state(context), context)
    [width] = seen
    assert width * 8 < WIDTH


def test_logits_that_are_kept_stay_as_they_are(backend: Backend) -> None:
    chain, pool = processors.load(*CHAINS["ordinary"], debug=False), LogitsPool()
    kept, copies = [], []
    for seed in range(5):
        logits = backend.asarray(random_logits(seed, 2, WIDTH))
        context = Context.start(logits, prompt=[[1], [2]], pool=pool, donate=True)
        kept.append(chain.process(logits, chain.init_state(context), context)[0])
        copies.append(np.array(backend.to_numpy(kept[-1])))
    assert all(np.array_equal(backend.to_numpy(a), b) for a, b in zip(kept, copies, strict=True))


def test_what_is_no_number_is_not_lost(backend: Backend) -> None:
    logits = random_logits(1, 2, WIDTH)
    logits[1, 77] = np.nan
    for debug in (True, False):
        [found] = run(backend, CHAINS["one"], [logits], debug=debug)
        assert np.isnan(found[1, 77])


def test_a_row_without_any_legal_token_stays_so(backend: Backend) -> None:
    for rows in (1, 2):
        logits = random_logits(1, rows, WIDTH)
        logits[0] = -np.inf
        assert np.isneginf(run(backend, CHAINS["ordinary"], [logits])[0][0]).all()


@pytest.mark.torch
def test_gradients_are_those_of_whole_rows() -> None:
    torch = pytest.importorskip("torch", reason="the gradients are PyTorch's")
    found = []
    for debug in (True, False):
        logits = torch.tensor(random_logits(4, 2, WIDTH), requires_grad=True)
        chain = processors.load(*CHAINS["ordinary"], debug=debug)
        context = Context.start(logits, prompt=[[1], [2]])
        out, _ = chain.process(logits, chain.init_state(context), context)
        torch.logsumexp(out, -1).sum().backward()
        found.append(logits.grad.numpy())
    assert np.abs(found[0]).sum() > 0
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
