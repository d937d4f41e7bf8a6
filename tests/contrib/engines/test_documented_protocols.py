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
