"""What the conformance kit tests of the adapters; needs ``logitloom[test]`` and PyTorch."""

# ruff: noqa: D101 - what each class is for is its name

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.testing import Call, EngineConformance

__all__ = ["TestDynamo", "TestExLlamaV3", "TestLmdeploy", "TestTensorRtBatch", "TestTensorRtBeams"]


class TestTensorRtBeams(EngineConformance):
    engine = "tensorrt_llm"
    moves = ("reorder", "leave")

    def open(self, chain: Chain) -> Call:
        """The beams of one request, processed in place."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_protocol_adapters.tensorrt_llm import to_tensorrt_llm

        processor: Any = to_tensorrt_llm(chain)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            given = torch.from_numpy(logits)[:, None]
            processor(1, given, [list(row) for row in rows], None, None)
            found: NDArray[np.float32] = given[:, 0].numpy()
            return found

        return call


class TestTensorRtBatch(EngineConformance):
    engine = "tensorrt_llm"
    moves = ("leave", "join")

    def open(self, chain: Chain) -> Call:
        """A request per row, all of them in one call."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_protocol_adapters.tensorrt_llm import to_tensorrt_llm

        processor: Any = to_tensorrt_llm(chain, batched=True)
        prompt: list[int] = []

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            prompt[:] = prompt or [len(rows[0])]
            names = [hash(tuple(row[: prompt[0]])) for row in rows]
            given = list(torch.from_numpy(logits)[:, None, None])
            processor(names, given, [[list(row)] for row in rows], None, [None] * len(rows))
            found: NDArray[np.float32] = torch.cat([part[:, 0] for part in given]).numpy()
            return found

        return call


class TestLmdeploy(EngineConformance):
    engine = "lmdeploy"
    moves = ("leave", "join")

    def open(self, chain: Chain) -> Call:
        """One row after the other, padded on the left with an id that no row has."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_protocol_adapters.lmdeploy import to_lmdeploy

        processor = to_lmdeploy(chain, padding=-1)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            width = max(map(len, rows)) + 2
            padded = torch.tensor([[-1] * (width - len(row)) + list(row) for row in rows])
            each = [processor(row, line) for row, line in zip(padded, torch.from_numpy(logits), strict=True)]
            found: NDArray[np.float32] = torch.stack(each).numpy()
            return found

        return call


class TestDynamo(EngineConformance):
    engine = "dynamo"
    rows = 1
    moves = ()

    def open(self, chain: Chain) -> Call:
        """One request, processed in place."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_protocol_adapters.dynamo import to_dynamo

        processor = to_dynamo(chain)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            given = torch.from_numpy(logits)
            processor(rows[0], given[0])
            found: NDArray[np.float32] = given.numpy()
            return found

        return call


class _KeepingSampler:
    """A sampler of ExLlamaV3 that returns the logits it gets."""

    reqs_torch_seed = False

    def forward(self, logits: Any, *more: Any) -> Any:
        return logits


class TestExLlamaV3(EngineConformance):
    engine = "exllamav3"
    moves = ("leave", "join")

    def open(self, chain: Chain) -> Call:
        """A job per row, all with one object; the inner sampler keeps what it gets."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_protocol_adapters.exllamav3 import to_exllamav3

        outer = to_exllamav3(chain, sampler=_KeepingSampler())

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            lines = zip(rows, torch.from_numpy(logits), strict=True)
            each = [outer.forward(line[None, None], torch.tensor([row])) for row, line in lines]
            found: NDArray[np.float32] = torch.cat(each)[:, 0].numpy()
            return found

        return call
