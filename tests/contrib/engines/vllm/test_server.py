"""The OpenAI-compatible server, started for real and driven by the client ``openai``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contrib.engines.conftest import documented
from tests.contrib.engines.vllm.conftest import HOSTILE, one
from tests.contrib.engines.vllm.serving import serving
from tests.contrib.engines.vllm.smollm2_folder import missing_packages, smollm2_folder
from tests.contrib.servers.bodies import MISPLACED, SAMPLER

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

MODEL = "smollm2"
#: What the documentation calls it.
DOCUMENTED = "HuggingFaceTB/SmolLM2-135M-Instruct"
#: Values that HTTP can carry: texts, numbers and lists of these.
OVER_HTTP = {
    name: case
    for name, case in HOSTILE.items()
    if isinstance(case[0], (str, int, float)) or all(isinstance(v, (str, int, float)) for v in case[0])
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server; nothing of logitloom is said on its command line."""
    options = ["--served-model-name", MODEL, DOCUMENTED, "--max-model-len", "256", "--dtype", "bfloat16"]
    options += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(smollm2_folder(), log, *options, LOGITLOOM_SERVER_ALLOW="+tool_call") as address:
        yield address


@pytest.fixture(scope="module")
def client(server: str) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0, timeout=300)


def completed(client: Any, prompt: str, chain: Any = None, **options: Any) -> str:
    extra = {} if chain is None else {"extra_body": {"vllm_xargs": {"logitloom": chain}}}
    fields = {"max_tokens": 24, "temperature": 0.0} | options
    text: str = client.completions.create(model=MODEL, prompt=prompt, **fields, **extra).choices[0].text
    return text


def test_completions_match_their_chains(client: Any) -> None:
    pattern = r"(red|green|blue) (cat|dog) [0-9]{2}"
    wanted = [
        (json.dumps(one("regex", pattern=pattern)), lambda text: re.fullmatch(pattern, text)),
        (json.dumps(one("choice", choices=["yes", "no"])), lambda text: text in ("yes", "no")),
        (None, lambda text: text),
    ]
    plain = completed(client, "I like the ", temperature=0.0)
    with ThreadPoolExecutor(9) as pool:
        texts = list(pool.map(lambda i: completed(client, "I like the ", wanted[i % 3][0]), range(9)))
    for i, text in enumerate(texts):
        assert wanted[i % 3][1](text), text
        assert i % 3 != 2 or text[:8] == plain[:8]


def test_chat_streams_and_samples(client: Any) -> None:
    pattern = r"[A-Z][a-z]{2,8}"
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Name a city."}], stream=True, temperature=1.0, n=2, seed=3,
        max_tokens=16, extra_body={"vllm_xargs": {"logitloom": json.dumps(one("regex", pattern=pattern))}},
    )  # fmt: skip
    texts = {0: "", 1: ""}
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert all(re.fullmatch(pattern, text) for text in texts.values()), texts


@pytest.mark.parametrize("choice", ["required", "look"])
def test_vllm_reads_the_calls_that_a_chain_writes(client: Any, choice: str) -> None:
    schema = {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "n": {"type": "integer", "maximum": 9}},
        "required": ["city", "n"], "additionalProperties": False,
    }  # fmt: skip
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    chain = json.dumps(one("tool_call", tools=tools, format="hermes", choice=choice))
    asked: dict[str, Any] = {
        "model": MODEL, "messages": [{"role": "user", "content": "Where?"}], "tools": tools, "max_tokens": 60,
        "temperature": 0.0, "extra_body": {"vllm_xargs": {"logitloom": chain}},
    }  # fmt: skip
    answer = client.chat.completions.create(**asked).choices[0]
    [call] = answer.message.tool_calls
    value = json.loads(call.function.arguments)
    assert (answer.finish_reason, call.function.name) == ("tool_calls", "look")
    assert value["city"] in ("Rome", "Oslo")
    assert value["n"] <= 9
    pieces = [chunk.choices[0].delta.tool_calls or [] for chunk in client.chat.completions.create(**asked, stream=True)]
    assert "".join(each.function.arguments or "" for piece in pieces for each in piece) == call.function.arguments


def test_a_stream_says_what_is_wrong_with_its_chain(client: Any) -> None:
    import openai

    asked: dict[str, Any] = {"model": MODEL, "stream": True, "extra_body": {"vllm_xargs": {"logitloom": "regex"}}}
    with pytest.raises(openai.APIError, match="is no JSON"):
        list(client.completions.create(prompt="a", **asked))
    with pytest.raises(openai.APIError, match="is no JSON"):
        list(client.chat.completions.create(messages=[{"role": "user", "content": "a"}], **asked))


def test_the_request_of_the_documentation_is_answered(server: str) -> None:
    code = documented("engines/vllm.md", __file__)
    names: dict[str, Any] = {}
    exec(
        compile(code.replace("http://localhost:8000", server), "docs/engines/vllm.md", "exec", dont_inherit=True), names
    )
    assert names["answer"].choices[0].message.content in ("yes", "no")


def test_a_class_becomes_an_object_as_the_documentation_shows(server: str) -> None:
    code = documented("structured-output.md", __file__, "pydantic").replace("http://localhost:8000", server)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/structured-output.md", "exec", dont_inherit=True), names)
    assert isinstance(names["person"], names["Person"])


def test_there_are_enough_hostile_requests_that_http_can_carry() -> None:
    assert len(OVER_HTTP) >= 30


@pytest.mark.parametrize("case", OVER_HTTP)
def test_hostile_requests_get_http_400_and_a_sentence(client: Any, case: str) -> None:
    import openai

    given, part = OVER_HTTP[case]
    with pytest.raises(openai.BadRequestError) as caught:
        completed(client, "a", given)
    assert caught.value.status_code == 400
    message = caught.value.body["message"]  # type: ignore[call-overload, index]
    assert part in message
    assert re.search(r"\w+ .*\.", message)


RED = json.dumps(one("regex", pattern="[0-9]{3}"))
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("extra", "part"),
    [
        ({"use_beam_search": True, "n": 2, "vllm_xargs": {"logitloom": RED}}, "Leave out use_beam_search"),
        ({"logitloom": RED}, "Put the chain into vllm_xargs"),
        ({"logit_loom": RED}, "Put the chain into vllm_xargs"),
        ({"vllm_xargs": {"logitlom": RED}}, "Write 'logitloom'"),
        ({"vllm_xargs": {"LogitLoom": RED}}, "Write 'logitloom'"),
        ({"vllm_xargs": {"logitloom": RED}, "structured_outputs": {"choice": ["red"]}}, "structured_outputs"),
        ({"vllm_xargs": {"logitloom": RED}, "response_format": FORM}, "response_format"),
        ({"vllm_xargs": {"logitloom": RED}, "allowed_token_ids": [1, 2]}, "None of the request's allowed_token_ids"),
    ],
)
@pytest.mark.parametrize("chat", [False, True])
def test_a_chain_that_would_not_run_gets_http_400(client: Any, extra: Any, part: str, chat: bool) -> None:
    import openai

    fields = {"model": MODEL, "max_tokens": 8, "temperature": 0.0, "extra_body": extra}
    ask = client.chat.completions if chat else client.completions
    prompt: Any = {"messages": [{"role": "user", "content": "a"}]} if chat else {"prompt": "a"}
    with pytest.raises(openai.BadRequestError, match=part):
        ask.create(**prompt, **fields)


@pytest.mark.parametrize("case", MISPLACED)
def test_a_body_that_nobody_would_read_is_refused(client: Any, case: str) -> None:
    import openai

    body, _ = MISPLACED[case]
    with pytest.raises(openai.BadRequestError, match=r"which nobody reads|where nobody reads it|vLLM ignores"):
        client.completions.create(model=MODEL, prompt="a", max_tokens=4, extra_body=body)


def test_samplers_run_beside_a_response_format(client: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "a"}], max_tokens=40, temperature=0.0,
        extra_body={"response_format": form, "vllm_xargs": {"logitloom": json.dumps(SAMPLER)}},
    )  # fmt: skip
    assert json.loads(answer.choices[0].message.content)["n"] in (1, 2)


def test_after_all_that_the_server_goes_on(client: Any) -> None:
    for case in list(OVER_HTTP)[:3]:
        with pytest.raises(Exception, match="400"):
            completed(client, "a", OVER_HTTP[case][0])
    assert completed(client, "Yes or no? ", json.dumps(one("choice", choices=["yes", "no"]))) in ("yes", "no")
    assert completed(client, "Once upon a time")
