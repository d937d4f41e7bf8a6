"""The documentation of engines that do not run here, with stand-ins that call what it hands them as the engines do."""

from __future__ import annotations

import pickle
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom_contrib.engines import sglang
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, documented, encode

PATTERN = "[0-9]{3}-[0-9]{4}"


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """A stand-in for an engine's module."""
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


def run(page: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> SimpleNamespace:
    made = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", made)
    vars(made).update(names, tokenizer=VOCABULARY)
    exec(compile(documented(page, __file__), page, "exec"), vars(made))
    return SimpleNamespace(**vars(made))


def chosen(line: Any, dice: np.random.Generator) -> int:
    return int(dice.choice(np.flatnonzero(np.isfinite(np.asarray(line)))))


class CustomLogitProcessor:
    """What SGLang sends to its server is the class, not an object."""

    @classmethod
    def to_str(cls) -> str:
        return pickle.dumps(cls).hex()

    @staticmethod
    def from_str(text: str) -> Any:
        return pickle.loads(bytes.fromhex(text))()


def test_sglang_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sglang", "sglang.srt", "sglang.srt.sampling"):
        module(monkeypatch, name)
    module(monkeypatch, "sglang.srt.sampling.custom_logit_processor", CustomLogitProcessor=CustomLogitProcessor)
    dice = np.random.default_rng(0)
    try:
        given = run("engines/sglang.md", monkeypatch).request
        requests = [SimpleNamespace(origin_input_ids=encode("tel"), output_ids=[]) for _ in range(3)]
        while any(EOS not in request.output_ids for request in requests):
            running = [request for request in requests if EOS not in request.output_ids]
            processor = CustomLogitProcessor.from_str(given["custom_logit_processor"])
            params = [given["sampling_params"]["custom_params"] | {"__req__": request} for request in running]
            out = processor(np.zeros((len(running), WIDTH), dtype=np.float32), params)
            for line, request in zip(out, running, strict=True):
                request.output_ids.append(chosen(line, dice))
    finally:
        sglang.withdraw("phone")
    assert all(re.fullmatch(PATTERN, VOCABULARY.decode(request.output_ids[:-1])) for request in requests)


@pytest.mark.torch
def test_tensorrt_llm_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="TensorRT-LLM passes PyTorch tensors")

    def sampling_params(*, logits_processor: Any) -> Any:
        return SimpleNamespace(logits_processor=logits_processor)

    def llm(model: str, *, batched_logits_processor: Any) -> Any:
        return SimpleNamespace(model=model, batched_logits_processor=batched_logits_processor)

    module(monkeypatch, "tensorrt_llm", LLM=llm, SamplingParams=sampling_params)
    page, dice = run("engines/tensorrt_llm.md", monkeypatch), np.random.default_rng(0)
    alone, rows = encode("tel"), {1: encode("tel"), 2: encode("my tel")}
    prompts = {request: len(row) for request, row in rows.items()}
    while alone[-1] != EOS:
        logits = torch.zeros((1, 1, WIDTH))
        page.params.logits_processor(7, logits, [alone], None, None)
        alone.append(chosen(logits[0, 0], dice))
    while running := [request for request, row in rows.items() if row[-1] != EOS]:
        each = [torch.zeros((1, 1, WIDTH)) for _ in running]
        page.llm.batched_logits_processor(running, each, [[rows[r]] for r in running], None, [None] * len(running))
        for request, logits in zip(running, each, strict=True):
            rows[request].append(chosen(logits[0, 0], dice))
    texts = [VOCABULARY.decode(alone[3:-1]), *(VOCABULARY.decode(row[prompts[r] : -1]) for r, row in rows.items())]
    assert all(re.fullmatch(PATTERN, text) for text in texts), texts


@pytest.mark.torch
def test_lmdeploy_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="LMDeploy passes PyTorch tensors")
    dice = np.random.default_rng(0)

    def engine(model: str) -> Any:
        def answer(prompts: list[str], gen_config: Any) -> list[str]:
            [processor] = gen_config.logits_processors
            texts = []
            for _ in prompts:
                row = [0, 0, *encode("tel")]
                while row[-1] != EOS:
                    row.append(chosen(processor(torch.tensor(row), torch.zeros(WIDTH)), dice))
                texts.append(VOCABULARY.decode(row[5:-1]))
            return texts

        return answer

    module(monkeypatch, "lmdeploy", pipeline=engine, GenerationConfig=SimpleNamespace)
    [text] = run("engines/lmdeploy.md", monkeypatch).answers
    assert re.fullmatch(PATTERN, text), text


@pytest.mark.torch
def test_exllamav3_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="ExLlamaV3 passes PyTorch tensors")
    dice = np.random.default_rng(0)

    def sample(logits: Any, *given: Any) -> Any:
        return torch.tensor([[chosen(logits.view(-1), dice)]])

    def top_p(top_p: float) -> Any:
        return SimpleNamespace(top_p=top_p, reqs_torch_seed=False, forward=sample)

    module(monkeypatch, "exllamav3", Job=lambda **given: SimpleNamespace(**given), TopPSampler=top_p)
    job = run("engines/exllamav3.md", monkeypatch, input_ids=torch.tensor([encode("tel")])).job
    assert job.stop_conditions == [EOS]
    row = job.input_ids
    while row[0, -1] not in job.stop_conditions:
        row = torch.cat([row, job.sampler.forward(torch.zeros(1, 1, WIDTH), row)], dim=1)
    text = VOCABULARY.decode(row[0, 3:-1].tolist())
    assert re.fullmatch(PATTERN, text), text


@pytest.mark.torch
@pytest.mark.parametrize("shown", [encode("tel"), []], ids=["with the prompt", "without"])
def test_dynamo_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch, shown: list[int]) -> None:
    torch = pytest.importorskip("torch", reason="Dynamo passes PyTorch tensors")
    [processor] = run("engines/dynamo.md", monkeypatch).logits_processors
    dice, row = np.random.default_rng(0), list(shown)
    while not row or row[-1] != EOS:
        logits = torch.zeros(WIDTH)
        processor(row, logits)
        row.append(chosen(logits, dice))
    assert re.fullmatch(PATTERN, VOCABULARY.decode(row[len(shown) : -1]))
