"""What the conformance kit tests of the engine adapters; needs ``logitloom[test]``."""

# ruff: noqa: D101 - what each class is for is its name

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.testing import Call, EngineConformance


class TestMlxLm(EngineConformance):
    engine = "mlx_lm"
    rows = 1
    moves = ("drafts",)

    def open(self, chain: Chain) -> Call:
        """One sequence at a time, on arrays of MLX."""
        mx = pytest.importorskip("mlx.core", reason="needs mlx")
        pytest.importorskip("mlx_lm", reason="needs mlx-lm")
        from logitloom_contrib.engines.mlx_lm import to_mlx_lm

        processor = to_mlx_lm(chain)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.array(processor(mx.array(rows[0], dtype=mx.int32), mx.array(logits)))

        return call


class TestTransformers(EngineConformance):
    engine = "transformers"
    moves = ("reorder", "leave", "drafts")

    def open(self, chain: Chain) -> Call:
        """All rows at once, on tensors."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        pytest.importorskip("transformers", reason="needs transformers")
        from logitloom_contrib.engines.transformers import to_transformers

        processor = to_transformers(chain)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            found: NDArray[np.float32] = processor(torch.tensor(rows), torch.from_numpy(logits)).numpy()
            return found

        return call


class TestLlamaCpp(EngineConformance):
    engine = "llama_cpp"
    rows = 1
    moves = ("drafts",)

    def open(self, chain: Chain) -> Call:
        """One sequence; scores lie apart in memory, as the library shows them. The library itself is not needed."""
        from logitloom_contrib.engines.llama_cpp import to_llama_cpp

        processor = to_llama_cpp(chain)

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            scores = np.zeros((logits.shape[1], 3), dtype=np.float32)[:, 1]
            scores[:] = logits[0]
            found = processor(np.asarray(rows[0], dtype=np.int32), scores)
            processor.raise_error()
            return found[None]

        return call


class TestOnnxGenAi(EngineConformance):
    engine = "onnx_genai"
    moves = ("reorder", "leave", "drafts")

    def open(self, chain: Chain) -> Call:
        """All rows of a generator, as the library shows them. The library itself is not needed."""
        from logitloom_contrib.engines.onnx_genai import to_onnx_genai

        processor, generator = to_onnx_genai(chain), _OnnxGenerator()

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            generator.rows, generator.logits = rows, logits[:, None]
            processor(generator)
            return generator.logits[:, 0]

        return call


class _OnnxGenerator:
    """A stand-in for a generator of ONNX Runtime GenAI in one step."""

    rows: Sequence[Sequence[int]]
    logits: NDArray[np.float32]

    def get_logits(self) -> NDArray[np.float32]:
        return self.logits

    def set_logits(self, logits: NDArray[np.float32]) -> None:
        self.logits = logits

    def get_sequence(self, row: int) -> NDArray[np.int32]:
        return np.asarray(self.rows[row], dtype=np.int32)


class TestSglang(EngineConformance):
    engine = "sglang"
    moves = ("reorder", "leave", "join")

    @pytest.fixture(autouse=True)
    def withdrawn(self) -> Iterator[None]:
        """What a test offers to the server's requests is taken back."""
        yield
        from logitloom_contrib.engines import sglang

        sglang.withdraw("conformance")

    def open(self, chain: Chain) -> Call:
        """A new processor object for every call, and requests as SGLang shows them. Drafts are refused there."""
        from logitloom_contrib.engines import sglang

        sglang.offer("conformance", chain)
        prompt: list[int] = []

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            prompt[:] = prompt or [len(rows[0])]
            requests = [
                SimpleNamespace(origin_input_ids=list(row[: prompt[0]]), output_ids=list(row[prompt[0] :]))
                for row in rows
            ]
            given = [{"logitloom": "conformance", "__req__": request} for request in requests]
            found: NDArray[np.float32] = sglang.SglangProcessor()(logits, given)
            return found

        return call


class TestVllm(EngineConformance):
    engine = "vllm"

    def open(self, chain: Chain) -> Call:
        """Model runner V1: what changes between two calls is told as updates of the batch."""
        torch: Any = pytest.importorskip("torch", reason="needs torch")
        from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
        from logitloom_contrib.requests.chain_cache import CompiledChain

        compiled = CompiledChain("conformance", chain)
        engine: Any = SimpleNamespace(max_length=256, chain_of=lambda params: compiled, ends=lambda params: (0,))
        runner, batch = RunnerV1(engine), _RunnerBatch()

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            runner.update_state(batch.update(rows))
            found: NDArray[np.float32] = runner.apply(torch.from_numpy(logits)).numpy()
            return found

        return call


class _RunnerRequest(NamedTuple):
    """A request of vLLM: its prompt, and the growing list of its output tokens."""

    prompt: tuple[int, ...]
    output: list[int]


class _RunnerBatch:
    """The batch of vLLM's model runner V1, and what it tells of changes: added, removed and moved slots.

    A request of the previous call keeps its slot or is moved, and may lose tokens. Any other row is added as a new
    request with its output so far, if possible into the slot of a departing request; that request is then not reported
    as removed.
    """

    def __init__(self) -> None:
        self._slots: dict[int, _RunnerRequest] = {}
        self._prompt = 0

    def update(self, rows: Sequence[Sequence[int]]) -> Any:
        """Make the batch that of ``rows``; the ``BatchUpdate`` of it, None if nothing but tokens is new."""
        self._prompt = self._prompt or len(rows[0])
        left = dict(self._slots)
        wanted = [self._taken(row, left) for row in rows]
        free = [*left, *(slot for slot in range(len(rows)) if slot not in self._slots)]
        added, moved = [], []
        params = SimpleNamespace(extra_args={"logitloom": True}, seed=None, max_tokens=None)
        for i, (row, request) in enumerate(zip(rows, wanted, strict=True)):
            if request is None:
                slot = free.pop(0)
                new = _RunnerRequest(tuple(row[: self._prompt]), list(row[self._prompt :]))
                self._slots[slot] = wanted[i] = new
                added.append((slot, params, list(new.prompt), new.output))
        removed = [slot for slot in left if slot in free]
        for slot in removed:
            del self._slots[slot]
        for target, request in enumerate(wanted):
            source = next(slot for slot, other in self._slots.items() if other is request)
            if source != target:
                replaced = self._slots.pop(target, None)
                self._slots[target] = self._slots.pop(source)
                if replaced is not None:
                    self._slots[source] = replaced
                name = "UNIDIRECTIONAL" if replaced is None else "SWAP"
                moved.append((source, target, SimpleNamespace(name=name)))
        if not (removed or added or moved):
            return None
        return SimpleNamespace(batch_size=len(rows), removed=removed, added=added, moved=moved)

    def _taken(self, row: Sequence[int], left: dict[int, _RunnerRequest]) -> _RunnerRequest | None:
        """The request of ``left`` that this row continues, with its output updated; None if there is none."""
        prompt, output = tuple(row[: self._prompt]), list(row[self._prompt :])
        for slot, request in left.items():
            longer = request.output[: len(output)] == output
            if request.prompt == prompt and (longer or output[:-1] == request.output):
                request.output[:] = output
                del left[slot]
                return request
        return None
