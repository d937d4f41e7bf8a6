"""Model runner V2 in the conformance kit, on the emulation of its protocol; V1 is in the package's own suites."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="vLLM hands over torch tensors")

from logitloom import Chain  # noqa: E402
from logitloom.testing import EngineConformance  # noqa: E402
from logitloom.testing.engine import Call  # noqa: E402
from logitloom_contrib.requests.chain_cache import CompiledChain  # noqa: E402
from tests.contrib.engines.vllm.conftest import params_of  # noqa: E402
from tests.contrib.engines.vllm.test_runner_v2 import Emulation  # noqa: E402

pytestmark = pytest.mark.torch


class Request(SimpleNamespace):
    """What the emulation knows of a request: ``prompt``, ``output`` (committed tokens), ``slot``, ``params``."""


def entered(engine: Emulation, prompt: Sequence[int], output: Sequence[int]) -> Request:
    params = params_of([{"use": "follow"}])
    request = Request(prompt=list(prompt), output=list(output), slot=-1, params=params)
    assert engine.enter(request)
    return request


def emulation(chain: Chain, drafts: int = 0) -> Emulation:
    engine, compiled = Emulation(drafts), CompiledChain("conformance", chain)
    engine.runner.engine = SimpleNamespace(  # type: ignore[assignment]
        max_length=64, config=None, chain_of=lambda params: compiled, ends=lambda params: (0,)
    )
    return engine


class TestSlots(EngineConformance):
    """Every token is committed; rows that leave, move or go back give up their slots, and the next row takes them."""

    engine = "vllm"

    def open(self, chain: Chain) -> Call:
        engine, live, begun = emulation(chain), [], []

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            begun[:] = begun or [len(rows[0])]
            left, batch = list(live), []
            for row in rows:
                before = (list(row[: begun[0]]), list(row[begun[0] : -1]))
                grown = (r for r in left if len(row) > begun[0] and (r.prompt, r.output) == before)
                request = next(grown, None)
                if request is not None:
                    left.remove(request)
                    engine.commit(request, [row[-1]])
                batch.append(request)
            for request in left:
                engine.leave(request)
            batch = [
                entered(engine, row[: begun[0]], row[begun[0] :]) if request is None else request
                for row, request in zip(rows, batch, strict=True)
            ]
            engine.flush()
            live[:] = batch
            found: NDArray[np.float32] = engine.apply([(r, []) for r in batch], torch.from_numpy(logits)).numpy()
            return found

        return call


class TestDrafts(EngineConformance):
    """Prompts are committed, and everything behind them is a draft: a row of logits after each, the last one counts."""

    engine = "vllm"

    def open(self, chain: Chain) -> Call:
        engine, known, begun = emulation(chain, drafts=8), {}, []

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            begun[:] = begun or [len(rows[0])]
            batch: list[tuple[Any, list[int]]] = []
            for place, row in enumerate(rows):  # beams may share a prompt, a request has one row
                prompt = tuple(row[: begun[0]])
                nth = sum(tuple(other[: begun[0]]) == prompt for other in rows[:place])
                if (prompt, nth) not in known:
                    known[prompt, nth] = entered(engine, prompt, [])
                batch.append((known[prompt, nth], list(row[begun[0] :])))
            engine.flush()
            counts = [1 + len(drafts) for _, drafts in batch]
            every = np.random.default_rng(1).normal(size=(sum(counts), logits.shape[1])).astype(np.float32)
            last = np.cumsum(counts) - 1
            every[last] = logits
            found: NDArray[np.float32] = engine.apply(batch, torch.from_numpy(every)).numpy()
            return found[last]

        return call
