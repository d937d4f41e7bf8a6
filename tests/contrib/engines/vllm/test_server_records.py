"""Records over HTTP: the OpenAI-compatible server with the real SmolLM2, compared with our own loop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logitloom import processors, read_vocabulary
from logitloom.generation import Generator, Sampled
from tests.contrib.engines.vllm.serving import serving
from tests.contrib.engines.vllm.smollm2_folder import missing_packages, smollm2_folder
from tests.contrib.requests.records import assert_records_agree

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

MODEL = "smollm2"
CHAIN = [
    {"use": "repetition_penalty", "options": {"penalty": 1.2}},
    {"use": "regex", "options": {"pattern": "[A-Z][a-z]{2,9}( [a-z]{2,9}){3}"}},
    {"use": "temperature", "options": {"temperature": 0.7}},
    {"use": "top_k", "options": {"k": 40}},
]
PROMPT = "A city in the north of Italy is "


class Server(NamedTuple):
    address: str
    records: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    records = tmp_path_factory.mktemp("records")
    options = ["--served-model-name", MODEL, "--max-model-len", "128", "--dtype", "float32"]
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(smollm2_folder(), log, *options, LOGITLOOM_SERVER_RECORD=str(records)) as address:
        yield Server(address, records)


def completed(server: Server, record: str, **options: Any) -> str:
    """The text of a request that leaves a record."""
    import openai

    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=300)
    asked = {"logitloom": json.dumps(CHAIN), "logitloom_record": record}
    fields: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0, **options, "extra_body": {"vllm_xargs": asked}}
    return str(client.completions.create(model=MODEL, prompt=PROMPT, **fields).choices[0].text)


def read(server: Server, name: str) -> tuple[Sampled | None, ...]:
    """A record, which the engine writes in its next step."""
    from logitloom_contrib.engines.vllm import read_record

    for _ in range(600):
        if (server.records / f"{name}.json").exists():
            break
        time.sleep(0.1)
    return read_record(server.records, name)


def test_records_over_http_are_those_of_our_own_loop(server: Server) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from logitloom_contrib.engines.transformers import TransformersModel

    folder = smollm2_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = TransformersModel(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    specs = [(each["use"], each["options"]) for each in CHAIN]
    chain = processors.load(*specs, tokenizer=read_vocabulary(tokenizer))
    loop = Generator(model, chain, max_tokens=24, record=True, skip_forced=False)
    [ours] = loop([tokenizer.encode(PROMPT)])

    text = completed(server, "greedy")
    told = read(server, "greedy")
    tokens = [each.token for each in told if each is not None]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == text
    assert len(tokens) == len(told) > 4
    assert_records_agree(told, ours.sampled, 2e-3)


def test_what_the_server_samples_is_recorded(server: Server) -> None:
    completed(server, "drawn", temperature=1.0, seed=7)
    told = read(server, "drawn")
    assert told
    assert all(each is not None and each.logprob <= 0 and 1 <= each.kept <= 41 for each in told)
