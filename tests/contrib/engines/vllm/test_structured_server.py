"""The OpenAI-compatible server with drafts, whose structured outputs logitloom enforces, driven by ``openai``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.engines.conftest import documented
from tests.contrib.engines.vllm.conftest import one
from tests.contrib.engines.vllm.serving import serving
from tests.contrib.engines.vllm.smollm2_folder import missing_packages, smollm2_folder

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SCHEMA = {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "n": {"type": "integer", "maximum": 9}},
    "required": ["city", "n"], "additionalProperties": False,
}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": SCHEMA}}
NOTHING = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 1, "enum": []}}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="module")
def server(log: Path) -> Iterator[str]:
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    options = ["--served-model-name", MODEL, "--max-model-len", "512", "--speculative-config", json.dumps(ngram)]
    options += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    settings = {
        "LOGITLOOM_VLLM_STRUCTURED_OUTPUTS": "1", "LOGITLOOM_SERVER_ALLOW": "+structural_tag +grammar",
        "VLLM_LOGGING_LEVEL": "INFO",
    }  # fmt: skip
    with serving(smollm2_folder(), log, *options, **settings) as address:
        yield address


@pytest.fixture(scope="module")
def client(server: str) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0, timeout=300)


def asked(client: Any, **fields: Any) -> Any:
    own = {"model": MODEL, "messages": [{"role": "user", "content": "Where?"}], "max_tokens": 60, "temperature": 0.0}
    return client.chat.completions.create(**own | fields)


def is_place(text: str) -> bool:
    value = json.loads(text)
    return set(value) == {"city", "n"} and value["city"] in ("Rome", "Oslo") and value["n"] <= 9


def test_the_log_says_who_enforces(server: str, log: Path) -> None:
    assert "Structured outputs of requests are enforced by logitloom." in log.read_text(errors="replace")


def test_response_formats(client: Any) -> None:
    answer = asked(client, response_format=FORMAT).choices[0]
    assert answer.finish_reason == "stop"
    assert is_place(answer.message.content)
    pieces = [chunk.choices[0].delta.content or "" for chunk in asked(client, response_format=FORMAT, stream=True)]
    assert "".join(pieces) == answer.message.content
    for most in (12, 20, 60):
        answer = asked(client, response_format={"type": "json_object"}, max_tokens=most).choices[0]
        assert answer.finish_reason == "stop"
        assert isinstance(json.loads(answer.message.content), dict)


def test_structured_outputs_of_vllm(client: Any) -> None:
    kinds: list[tuple[dict[str, Any], str]] = [
        ({"regex": r"[A-Z][a-z]{2,8}"}, r"[A-Z][a-z]{2,8}"),
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"grammar": 'root ::= "(" root ")" | [a-z]{3}'}, r"\(*[a-z]{3}\)*"),
    ]
    with ThreadPoolExecutor(9) as pool:
        texts = list(
            pool.map(
                lambda i: asked(client, temperature=1.0, extra_body={"structured_outputs": kinds[i % 3][0]}), range(9)
            )
        )
    for i, answer in enumerate(texts):
        assert re.fullmatch(kinds[i % 3][1], answer.choices[0].message.content)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_forced_calls(client: Any, choice: Any) -> None:
    answer = asked(client, tools=TOOLS, tool_choice=choice, max_tokens=120).choices[0]
    assert answer.message.tool_calls
    for call in answer.message.tool_calls:
        assert call.function.name == "look"
        assert is_place(call.function.arguments)


def test_a_chain_of_samplers_is_refused_with_drafts_and_the_format_is_not(client: Any) -> None:
    """Model runner V1 calls no processors with drafts."""
    import openai

    chain = json.dumps(one("top_k", k=4))
    with pytest.raises(openai.BadRequestError, match="calls no custom logits processors"):
        asked(client, response_format=FORMAT, extra_body={"vllm_xargs": {"logitloom": chain}})


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"response_format": NOTHING}, "No JSON value satisfies the schema"),
        ({"response_format": FORMAT, "max_tokens": 2}, "may generate 2 tokens, but the shortest text"),
        ({"extra_body": {"structured_outputs": {"regex": "("}}}, "is no valid regular expression"),
        ({"extra_body": {"structured_outputs": {"grammar": "root ::= ("}}}, "This bracket is never closed"),
    ],
)  # fmt: skip
def test_wrong_constraints_are_http_400(client: Any, fields: dict[str, Any], part: str) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match=part):
        asked(client, **fields)
    assert is_place(asked(client, response_format=FORMAT).choices[0].message.content)


def test_the_documented_client(client: Any, server: str) -> None:
    code = documented("engines/vllm.md", __file__).replace("http://localhost:8000", server)
    found: dict[str, Any] = {}
    exec(compile(code, "docs/engines/vllm.md", "exec"), found)
    assert set(json.loads(found["answer"].choices[0].message.content)) == {"name", "age"}
