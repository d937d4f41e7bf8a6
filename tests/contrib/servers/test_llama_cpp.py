"""llama-cpp-python's own server on a port, with a tiny model: chains by name, streamed, and what is refused."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
pytest.importorskip("llama_cpp.server.app", reason="llama-cpp-python[server] is not installed", exc_type=ImportError)
pytest.importorskip("gguf", reason="the package gguf is not installed")

import uvicorn
from llama_cpp.server.settings import ModelSettings, ServerSettings

from logitloom import processors
from logitloom.cli.server_check import check_server
from logitloom_contrib.engines.llama_cpp import to_llama_cpp
from logitloom_contrib.servers.llama_cpp import ChainedLlama, Chains, _WithSpecialTokens, create_app
from tests.contrib.engines.tiny_gguf import write_tiny_gguf
from tests.contrib.servers.bodies import FORM, REFUSED, SAMPLER, TOOL

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]

PATTERN = "[0-9]{3}-[0-9]{4}"
DIGITS = [{"use": "regex", "options": {"pattern": PATTERN}}]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", '{}[]":,<>_/\n')
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    app = create_app(
        server_settings=ServerSettings(port=port),
        model_settings=[ModelSettings(model=str(path), n_ctx=256, n_threads=1, verbose=False)],
    )
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


def post(address: str, path: str, **body: Any) -> Any:
    data = json.dumps({"max_tokens": 24, "temperature": 0.0, **body}).encode()
    request = urllib.request.Request(f"{address}/v1{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if not body.get("stream"):
            return json.load(answer)
        return [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: {")]


def refused(address: str, path: str = "/completions", **body: Any) -> str:
    with pytest.raises(urllib.error.HTTPError) as raised:
        post(address, path, **body)
    assert raised.value.code == 400
    return str(json.load(raised.value)["error"]["message"])


MESSAGES = [{"role": "user", "content": "hello"}]


def test_completions_and_chats_run_their_chain(address: str) -> None:
    [choice] = post(address, "/completions", prompt="hello", logitloom=DIGITS)["choices"]
    assert re.fullmatch(PATTERN, choice["text"]), choice
    [choice] = post(address, "/chat/completions", messages=MESSAGES, logitloom=json.dumps(DIGITS))["choices"]
    assert re.fullmatch(PATTERN, choice["message"]["content"]), choice


def test_streams_run_their_chain(address: str) -> None:
    parts = post(address, "/completions", prompt="hello", logitloom=DIGITS, stream=True)
    assert re.fullmatch(PATTERN, "".join(part["choices"][0]["text"] for part in parts))
    parts = post(address, "/chat/completions", messages=MESSAGES, logitloom=DIGITS, stream=True)
    text = "".join(part["choices"][0]["delta"].get("content") or "" for part in parts)
    assert re.fullmatch(PATTERN, text)


def test_requests_without_a_chain_are_the_librarys(address: str) -> None:
    free = post(address, "/completions", prompt="hello")["choices"][0]["text"]
    post(address, "/completions", prompt="hello", logitloom=DIGITS)
    assert post(address, "/completions", prompt="hello")["choices"][0]["text"] == free
    assert not re.fullmatch(PATTERN, free)


def test_bias_and_least_tokens_apply_beside_a_chain(address: str) -> None:
    chain = [{"use": "regex", "options": {"pattern": "[ab]{3,8}"}}]
    bias = {"a": -100.0}
    asked = {"logitloom": chain, "logit_bias": bias, "logit_bias_type": "tokens", "min_tokens": 6}
    [choice] = post(address, "/completions", prompt="hello", **asked)["choices"]
    assert re.fullmatch("b{6,8}", choice["text"]), choice


def test_what_cannot_be_served_is_refused_before_anything_is_written(address: str) -> None:
    assert "There is no processor 'regexx'" in refused(address, prompt="a", logitloom=[{"use": "regexx"}])
    assert "may not use the processor 'cfg'" in refused(address, prompt="a", logitloom=[{"use": "cfg"}])
    assert "Write 'logitloom'" in refused(address, prompt="a", logit_loom=DIGITS)
    told = refused(address, prompt="a", logitloom=DIGITS, stream=True, grammar='root ::= "a"')
    assert "a chain and for a constraint in 'grammar'" in told


def test_too_few_tokens_for_the_shortest_text_are_refused_with_the_least(address: str) -> None:
    told = refused(address, prompt="a", logitloom=DIGITS, max_tokens=3)
    assert "may generate 3 tokens, but the shortest text that regex allows needs" in told
    told = refused(
        address, prompt="a", logitloom=[{"use": "regex", "options": {"pattern": "[a-c]{40}"}}], max_tokens=16
    )
    assert "may generate 16 tokens" in told
    told = refused(address, "/chat/completions", messages=MESSAGES, logitloom=DIGITS, max_tokens=3, stream=True)
    assert "may generate 3 tokens" in told


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_that_nobody_would_read_is_refused(address: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGITLOOM_TOOL_FORMAT", "hermes")
    body, part = REFUSED[case]
    assert part in refused(address, "/chat/completions", messages=MESSAGES, **body)


@pytest.mark.parametrize("beside", [{}, {"logitloom": SAMPLER}])
def test_a_response_format_is_the_chain_that_enforces_it(address: str, beside: Any) -> None:
    asked = {"messages": MESSAGES, "response_format": FORM, "max_tokens": 60, **beside}
    [choice] = post(address, "/chat/completions", **asked)["choices"]
    assert set(json.loads(choice["message"]["content"])) == {"n"}
    own = {"type": "json_object", "schema": FORM["json_schema"]["schema"]}
    [choice] = post(address, "/chat/completions", **asked | {"response_format": own})["choices"]
    assert set(json.loads(choice["message"]["content"])) == {"n"}


def test_tool_calls_are_read_from_the_text(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGITLOOM_TOOL_FORMAT", "hermes")
    for choice in ("required", {"type": "function", "function": {"name": "look"}}):
        asked = {"messages": MESSAGES, "tools": [TOOL], "tool_choice": choice, "max_tokens": 100}
        [told] = post(address, "/chat/completions", **asked)["choices"]
        assert told["finish_reason"] == "tool_calls"
        [call] = told["message"]["tool_calls"]
        assert not told["message"]["content"]
        assert call["function"]["name"] == "look"
        assert set(json.loads(call["function"]["arguments"])) == {"n"}
        pieces = post(address, "/chat/completions", stream=True, **asked)
        [streamed] = [each for piece in pieces for each in piece["choices"][0]["delta"].get("tool_calls", ())]
        assert streamed["function"] == call["function"]


def test_an_error_within_a_stream_is_its_last_event(address: str) -> None:
    """With ``min_tokens`` the text may not end where the chain lets it do nothing else."""
    contradiction = {"logitloom": DIGITS, "min_tokens": 20}
    for path, given in (("/completions", {"prompt": "a"}), ("/chat/completions", {"messages": MESSAGES})):
        *pieces, last = post(address, path, stream=True, **given, **contradiction)
        assert pieces
        assert "No token is legal for the chain (regex) together with" in last["error"]["message"]
    [last] = post(address, "/completions", stream=True, prompt="a" * 2000)
    assert "exceed context window" in last["error"]["message"]
    [choice] = post(address, "/completions", prompt="hello", logitloom=DIGITS)["choices"]
    assert re.fullmatch(PATTERN, choice["text"])


def test_what_shows_while_the_text_is_written_is_the_requests_fault_too(address: str) -> None:
    assert "No token is legal for the chain (regex)" in refused(address, prompt="a", logitloom=DIGITS, min_tokens=20)
    told = refused(address, prompt="hello " * 42, logitloom=DIGITS, max_tokens=24)
    assert re.search("may generate [1-8] tokens, but the shortest text that regex allows needs", told)


def test_a_record_is_refused(address: str) -> None:
    for fields in ({"logitloom_record": "a"}, {"vllm_xargs": {"logitloom_record": "a"}}):
        assert "llama.cpp's server writes no records" in refused(address, prompt="a", logitloom=DIGITS, **fields)


def test_a_bias_that_cannot_be_applied_is_refused(address: str) -> None:
    for bias, told in (({"99999": 1.0}, "names the token 99999"), ({"a": 1.0}, "has 'a': 1.0"), ([5], "a list")):
        assert told in refused(address, prompt="a", logitloom=DIGITS, logit_bias=bias)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]", b'{"logitloom": ' + b"[" * 9000 + b"]" * 9000 + b"}"])
def test_a_body_that_is_no_object_is_refused(address: str, body: bytes) -> None:
    request = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    assert raised.value.code == 400
    assert "The body of the request is" in json.load(raised.value)["error"]["message"]


def test_a_message_of_calls_needs_no_content(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As clients send an answer back."""
    monkeypatch.setenv("LOGITLOOM_TOOL_FORMAT", "hermes")
    asked = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100}
    [told] = post(address, "/chat/completions", messages=MESSAGES, **asked)["choices"]
    assert told["message"]["content"] is None
    result = {"role": "tool", "tool_call_id": told["message"]["tool_calls"][0]["id"], "content": "5"}
    turn = [*MESSAGES, told["message"], result]
    [told] = post(address, "/chat/completions", messages=turn, **asked)["choices"]
    assert told["finish_reason"] == "tool_calls"
    for more in ({}, asked | {"tool_choice": "none"}):
        [told] = post(address, "/chat/completions", messages=turn, **more)["choices"]
        assert told["message"]["content"]


def test_streams_of_calls_in_turn_share_no_method_of_the_model(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama_cpp.server import app

    monkeypatch.setenv("LOGITLOOM_TOOL_FORMAT", "hermes")
    llama = app._llama_proxy(None)
    chain = processors.load(("tool_call", {"tools": [TOOL], "format": "hermes", "choice": "required"}))

    def stream() -> Any:
        faced = _WithSpecialTokens(llama)
        chained = ChainedLlama(faced, to_llama_cpp(chain, faced))
        return chained.create_chat_completion(MESSAGES, stream=True, max_tokens=100)

    first, second = stream(), stream()
    next(first), next(second)
    first.close()
    assert not {"detokenize", "sample"} & set(vars(llama))
    second.close()
    assert llama.detokenize(llama.tokenize(b"hello"))
    del first, second
    assert llama.tokenize(b"hello")  # the model is open


def test_a_form_of_chats_that_reads_calls_itself_keeps_the_tools(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama_cpp.server import app

    monkeypatch.setattr(app._llama_proxy(None), "chat_format", "chatml-function-calling")
    chains = Chains(None, app._llama_proxy)  # type: ignore[arg-type]
    named = {"type": "function", "function": {"name": "look"}}
    for choice in (named, "required", "auto", None):
        data = json.dumps({"messages": MESSAGES, "tools": [TOOL], "tool_choice": choice}).encode()
        assert chains._asked(data, "/v1/chat/completions") == (None, data)


def test_a_server_with_a_key_reads_no_chain_without_it(address: str) -> None:
    from llama_cpp.server import app

    started: list[Any] = []

    async def send(message: Any) -> None:
        started.append(message)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send("the library")

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"prompt": "a"}'}

    chains = Chains(inner, app._llama_proxy, "secret")
    for key, told in ((b"", 401), (b"Bearer other", 401), (b"Bearer secret", "the library")):
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [(b"authorization", key)]}
        started.clear()
        asyncio.run(chains(scope, receive, send))
        assert (started[0] if told == "the library" else started[0]["status"]) == told


def test_doctor_finds_that_the_server_runs_chains(address: str) -> None:
    told = check_server(address)
    assert told["runs_chains"]
    assert told["place"] == "vllm_xargs.logitloom"
