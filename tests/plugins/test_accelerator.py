"""Every processor on an accelerator, step by step, beside the same processor on NumPy: masks are equal bit for bit.

Without an accelerator the same comparison runs on the CPU, so that the comparison itself is tested; the rest skips
with the reason. ``tox -e gpu`` runs it where there is a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Context, backend_of, processors
from logitloom.rows import tree as row_state
from tests.plugins.processors.catalogue import VOCAB

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")

from tests.plugins.processors.test_without_reading import CASES, CHAINS, WAITS, WORDS  # noqa: E402

pytestmark = pytest.mark.torch

STEPS, ROWS = 6, 3


def on_torch(device: str) -> Callable[[Any], Any]:
    return lambda host: torch.from_numpy(np.array(host)).to(device)


def _torch_cuda() -> Callable[[Any], Any]:
    if not torch.cuda.is_available():
        pytest.skip("no device: torch.cuda.is_available() is False")
    return on_torch("cuda")


def _cupy() -> Callable[[Any], Any]:
    cupy: Any = pytest.importorskip("cupy", reason="no device: CuPy is not installed")
    if not cupy.is_available():
        pytest.skip("no device: cupy.is_available() is False")
    found: Callable[[Any], Any] = cupy.asarray
    return found


def _jax() -> Callable[[Any], Any]:
    jax: Any = pytest.importorskip("jax", reason="no device: JAX is not installed")
    if jax.default_backend() == "cpu":
        pytest.skip("no device: jax.default_backend() is 'cpu'")
    found: Callable[[Any], Any] = jax.numpy.asarray
    return found


DEVICES: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "torch on CUDA": _torch_cuda,
    "CuPy": _cupy,
    "JAX": _jax,
}

ALL: dict[str, tuple[Any, ...]] = {
    **{name: (spec,) for name, spec in CASES.items() if name not in WAITS},
    "json": (("json", {"schema": {"const": True}}),),
    **CHAINS,
}


def compare(case: str, put: Callable[[Any], Any]) -> None:
    """Run some steps on NumPy and on a device; each row goes on with the best token that NumPy allows."""
    chain, rng = processors.load(*ALL[case], tokenizer=WORDS, debug=False), np.random.default_rng(5)
    hosts = [rng.normal(size=(ROWS * chain.branches, VOCAB)).astype(np.float32) for _ in range(STEPS)]
    reference = chain_run(chain, lambda host: host, hosts, None)
    found = chain_run(chain, put, hosts, [logits.argmax(axis=-1) for logits in reference])
    for theirs, ours in zip(found, reference, strict=True):
        assert theirs.dtype == np.float32
        np.testing.assert_array_equal(np.isneginf(theirs), np.isneginf(ours))
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)


def chain_run(chain: Chain, put: Callable[[Any], Any], hosts: list[Any], tokens: list[Any] | None) -> list[np.ndarray]:
    logits = put(hosts[0])
    backend = backend_of(logits)
    context = Context.start(
        logits, prompt=[[1, 2], [3], [4, 5]], max_length=32, branches=chain.branches, seed=(1, 2, 3)
    )
    state, out = chain.init_state(context), []
    for n, host in enumerate(hosts):
        if n:
            new = out[-1].argmax(axis=-1) if tokens is None else tokens[n - 1]
            context = context.accept(backend.asarray(new[:, None].astype(np.int32)))
        processed, state = chain.process(put(host), state, context)
        if n == STEPS // 2:
            state = row_state.take(state, [0, 1, 2])
        out.append(backend.to_numpy(processed))
    return out


@pytest.mark.parametrize("case", ALL)
def test_the_comparison_holds_on_the_cpu(case: str) -> None:
    compare(case, on_torch("cpu"))


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_gives_what_numpy_gives(device: str) -> None:
    put, wrong = DEVICES[device](), {}
    for case in ALL:
        try:
            compare(case, put)
        except AssertionError as error:
            wrong[case] = str(error)
    assert not wrong, f"{len(wrong)} of {len(ALL)} differ on {device}: {wrong}"


def test_a_step_is_recorded_in_a_cuda_graph_without_the_host_waiting() -> None:
    put, wrong = _torch_cuda(), []
    for case in ALL:
        if case != "json":  # its states are on the host
            wrong += [] if _is_recorded(case, put) else [case]
    assert not wrong, f"{wrong} gave other logits when they were replayed"


def _is_recorded(case: str, put: Callable[[Any], Any]) -> bool:
    chain = processors.load(*ALL[case], tokenizer=WORDS, debug=False)
    logits = put(np.random.default_rng(1).normal(size=(ROWS * chain.branches, VOCAB)).astype(np.float32))
    start = Context.start(logits, prompt=[[1, 2], [3], [4, 5]], max_length=32, branches=chain.branches, seed=(1, 2, 3))
    _, state = chain.process(logits, chain.init_state(start), start)
    context = start.accept(put(np.full((ROWS, 1), 3, dtype=np.int32)))
    expected, _ = chain.process(logits, state, context)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # what is compiled or allocated at first use
        chain.process(logits, state, context)
    torch.cuda.current_stream().wait_stream(side)
    graph, before = torch.cuda.CUDAGraph(), torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph):
            recorded, _ = chain.process(logits, state, context)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    graph.replay()
    return bool(torch.equal(recorded, expected))
