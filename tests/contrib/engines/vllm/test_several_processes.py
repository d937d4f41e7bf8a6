"""Tensor parallel and data parallel servers on the CPU: every answer is that of one engine with one rank."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from logitloom_plugins.engine_texts import CHAINS, chain_named
from tests.contrib.engines.conftest import VOCABULARY
from tests.contrib.engines.vllm.serving import serving
from tests.contrib.engines.vllm.smollm2_folder import missing_packages
from tests.contrib.engines.vllm.tiny_folder import write_tiny_folder

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

PROMPTS = ("hello there", "12 red birds")
REFUSED = "contradiction at the start"
LAYOUTS = {
    "tensor parallel 2": ["--tensor-parallel-size", "2"],
    "data parallel 2, two API servers": ["--data-parallel-size", "2", "--api-server-count", "2"],
}


def answers(address: str) -> dict[tuple[str, str], tuple[str, Any, Any]]:
    """What a server gives to all chains at once."""
    import openai

    from logitloom_contrib.engines.vllm import to_vllm

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300)

    def ask(case: tuple[str, str]) -> tuple[str, Any, Any]:
        chain = to_vllm(chain_named(case[0], VOCABULARY), text=True)
        try:
            done = client.completions.create(
                model="tiny", prompt=case[1], max_tokens=16, temperature=0.0, extra_body={"vllm_xargs": chain}
            )
        except openai.BadRequestError as refused:
            return refused.body["message"], 400, None  # type: ignore[call-overload, index, return-value]
        [choice] = done.choices
        return choice.text, choice.finish_reason, getattr(choice, "stop_reason", None)

    cases = [(name, prompt) for name in CHAINS for prompt in PROMPTS]
    with ThreadPoolExecutor(24) as pool:
        return dict(zip(cases, pool.map(ask, cases), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, Any, Any]]:
    with _served(folder, tmp_path_factory) as address:
        return answers(address)


def _served(folder: Path, tmp_path_factory: pytest.TempPathFactory, *layout: str) -> Any:
    options = ["--served-model-name", "tiny", "--max-model-len", "128", "--dtype", "float32", *layout]
    # The CPU build binds each rank to a NUMA node of its own, and a small machine has one.
    return serving(folder, tmp_path_factory.mktemp("server") / "log", *options, VLLM_CPU_OMP_THREADS_BIND="nobind")


@pytest.fixture(params=LAYOUTS)
def server(request: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _served(folder, tmp_path_factory, *LAYOUTS[request.param]) as address:
        yield address


def test_every_answer_is_that_of_one_process(server: str, alone: dict[Any, Any]) -> None:
    assert {case for case, answer in alone.items() if answer[1] == 400} == {(REFUSED, prompt) for prompt in PROMPTS}
    for _ in range(2):  # the second time each process has compiled the chains that it was asked for
        found = answers(server)
        assert found == alone
