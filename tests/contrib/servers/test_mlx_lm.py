"""mlx-lm's own server on a port, with a tiny model: chains by name, response_format and tools, alone and in a batch."""

from __future__ import annotations

import functools
import json
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

mx: Any = pytest.importorskip("mlx.core", reason="needs MLX")
pytest.importorskip("mlx_lm", reason="needs mlx-lm")
pytest.importorskip("transformers", reason="needs transformers for the tokenizer")

from mlx_lm import server as library  # noqa: E402

from logitloom import processors  # noqa: E402
from logitloom.cli.server_check import check_server  # noqa: E402
from logitloom.errors import NeedsNotMet  # noqa: E402
from logitloom.generation import Generator  # noqa: E402
from logitloom_contrib.engines.mlx_lm import MlxModel  # noqa: E402
from logitloom_contrib.requests.request_record import read_record  # noqa: E402
from logitloom_contrib.servers import mlx_lm as ours  # noqa: E402
from logitloom_contrib.servers.request_body import asked_chain  # noqa: E402
from logitloom_plugins.processors.tool_call import ToolCall  # noqa: E402
from logitloom_plugins.tool_formats.tools import chosen, tools_of  # noqa: E402
from tests.contrib.engines.conftest import documented  # noqa: E402
from tests.contrib.requests.records import assert_records_agree  # noqa: E402
from tests.contrib.servers.bodies import REFUSED, SAMPLER, TEMPLATE  # noqa: E402

pytestmark = [pytest.mark.mlx, pytest.mark.extras, pytest.mark.filterwarnings("ignore")]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["city", "n"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
DIGITS = [{"use": "regex", "options": {"pattern": "[0-9]{3}-[0-9]{4}"}}]


def write_folder(folder: Path, backwards: bool = False) -> None:
    """A random model of 300 ids, of which 257 are end-of-sequence and the bytes."""
    from mlx.utils import tree_flatten, tree_map
    from mlx_lm.models import llama
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields: dict[str, Any] = {
        "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 300,
        "max_position_embeddings": 512, "tie_word_embeddings": False,
    }  # fmt: skip
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs(**fields))
    model.update(tree_map(lambda a: mx.random.normal(a.shape) * 0.4, model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps(fields | {"eos_token_id": 0}))
    words = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=backwards)]
    made = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    write_folder(made)
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder, "--model", str(folder)) as address:
        yield address


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """A server with these options; records are written to the folder."""
    servers: list[Any] = []

    class Reachable(ThreadingHTTPServer):
        daemon_threads = True

        def serve_forever(self, *args: Any) -> None:
            servers.append(self)
            ready.set()
            super().serve_forever(*args)

    ready, generators, thread = threading.Event(), [], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mlx_lm.server", "--port", "0", "--host", "127.0.0.1", *options])
        patch.setenv("LOGITLOOM_SERVER_SECONDS", "20")  # test machines may be busy
        patch.setenv("LOGITLOOM_TOOL_FORMAT", "hermes")
        patch.setenv("LOGITLOOM_SERVER_RECORD", str(folder))
        patch.setattr(library, "_make_logits_processors", library._make_logits_processors)
        original = library.ResponseGenerator

        def remembered(*args: Any) -> Any:
            generators.append(original(*args))
            return generators[-1]

        def run(host: str, port: int, provider: Any) -> None:
            ours.run(host, port, provider, server_class=Reachable)

        patch.setattr(library, "ResponseGenerator", remembered)
        patch.setattr(library, "run", run)
        thread = threading.Thread(target=library.main, daemon=True)
        thread.start()
        assert ready.wait(60)
        yield f"http://127.0.0.1:{servers[0].server_address[1]}"
        servers[0].shutdown()
        servers[0].server_close()
        generators[0].stop_and_join()
        thread.join(30)


class Refused(Exception):
    """Status and sentence of an answer that is an error."""


def post(address: str, path: str, **body: Any) -> Any:
    """The answer to a request, or the events of its stream."""
    data = json.dumps({"max_tokens": 120, "temperature": 0.0} | body).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            told = answer.read().decode()
    except urllib.error.HTTPError as refused:
        told = json.loads(refused.read())["error"]
        assert told == {"type": "invalid_request_error", "param": None, "code": None, "message": told["message"]}
        raise Refused(refused.code, told["message"]) from refused
    if not body.get("stream"):
        return json.loads(told)
    return [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]


def completed(address: str, **body: Any) -> str:
    return str(post(address, "/v1/completions", prompt="12 birds", **body)["choices"][0]["text"])


def chatted(address: str, **body: Any) -> Any:
    found = post(address, "/v1/chat/completions", messages=[{"role": "user", "content": "Where?"}], **body)
    return found["choices"][0]["message"]


def test_chains_by_name_run_and_requests_without_are_free(address: str) -> None:
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", completed(address, logitloom=DIGITS))
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", completed(address, logitloom=json.dumps(DIGITS), seed=3, temperature=1.0))
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", completed(address, vllm_xargs={"logitloom": json.dumps(DIGITS)}))
    assert not re.match("[0-9]{3}-[0-9]{4}", completed(address, max_tokens=12))
    stop = [{"use": "stop", "options": {"strings": ["7"]}}]
    both = [{"use": "regex", "options": {"pattern": "[0-6]{4}7[0-9]*"}}, *stop]
    assert re.fullmatch("[0-6]{4}", completed(address, logitloom=both))


def test_response_formats_and_tools_constrain_the_answer(address: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    value = json.loads(chatted(address, response_format=form)["content"])
    assert value["city"] in ("Paris", "Rome")
    assert 0 <= value["n"] <= 99
    beside = json.loads(chatted(address, response_format=form, logitloom=SAMPLER)["content"])
    assert beside["city"] in ("Paris", "Rome")


def test_tool_calls_are_read_from_the_text_where_the_library_has_no_parser(address: str) -> None:
    message = chatted(address, tools=[TOOL], tool_choice="required")
    [call] = message["tool_calls"]
    assert not message["content"]
    assert (call["type"], call["function"]["name"]) == ("function", "look")
    assert set(json.loads(call["function"]["arguments"])) == {"city", "n"}
    asked = {"messages": [{"role": "user", "content": "Where?"}], "tools": [TOOL], "tool_choice": "required"}
    pieces = post(address, "/v1/chat/completions", stream=True, **asked)
    deltas = [piece["choices"][0]["delta"] for piece in pieces if piece["choices"]]
    assert not "".join(delta.get("content") or "" for delta in deltas)
    [streamed] = [each for delta in deltas for each in delta.get("tool_calls", ())]
    assert (streamed["index"], streamed["function"]) == (0, call["function"])
    assert pieces[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_that_nobody_would_read_is_refused(address: str, case: str) -> None:
    body, part = REFUSED[case]
    with pytest.raises(Refused) as caught:
        completed(address, **body)
    code, message = caught.value.args
    assert code == 400
    assert part in message


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (
            {"logitloom": DIGITS, "max_tokens": 3},
            "may generate 3 tokens, but the shortest text that regex allows needs 9",
        ),
        ({"logitloom": DIGITS, "stop": 5}, "'stop' of a request is a text or a list of texts, but is 5"),
    ],
)
def test_what_would_end_a_text_at_its_beginning_is_refused(address: str, asked: dict[str, Any], part: str) -> None:
    with pytest.raises(Refused) as caught:
        completed(address, **asked)
    assert caught.value.args[0] == 400
    assert part in caught.value.args[1]


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"stop": [5]}, "'stop' of a request is a text or a list of texts, but is [5]"),
        ({"stop": "\ud800"}, "half a surrogate pair"),
        ({"prompt": ""}, "'prompt' of a request is empty"),
        ({"prompt": ["a", "b"]}, "Send one text per request"),
        ({"temperature": 10**30}, "'temperature' of a request is 1000"),
        ({"presence_penalty": float("nan")}, "'presence_penalty' of a request is nan"),
        ({"seed": -1}, "'seed' of a request is -1"),
        ({"top_logprobs": True}, "'top_logprobs' of a request is True"),
        ({"logit_bias": {"5": None}}, "'logit_bias' of a request is None for the token '5'"),
        ({"logit_bias": {"5": float("inf")}}, "'logit_bias/5' of a request is inf"),
        ({"logit_bias": {str(10**9): 1}}, "has the token 1000000000, but the model has 300 tokens"),
        ({"logit_bias": {str(10**30): 1}}, "the model has 300 tokens"),
        ({"max_tokens": "5"}, "max_tokens must be of type int"),
        ({"draft_model": 5}, "'draft_model' of a request is 5. Give a text"),
        ({"stream": True, "stream_options": 5}, "'stream_options' of a request is 5. Give a table"),
        ({"chat_template_kwargs": "x"}, "'chat_template_kwargs' of a request is 'x'. Give a table"),
        ({"messages": {}}, "'messages' of a request is {}. Give a list"),
        ({"messages": []}, "'messages' of a request is []. Give a list of at least one message"),
    ],
)
def test_no_request_ends_the_server(address: str, asked: dict[str, Any], part: str) -> None:
    """Each of these ended the library's thread or process, or had no answer; what follows is served."""
    with pytest.raises(Refused) as caught:
        post(address, "/v1/completions", **{"prompt": "12 birds"} | asked)
    assert caught.value.args[0] == 400
    assert part in caught.value.args[1]
    assert completed(address, max_tokens=2)


def test_requests_for_other_models_leave_the_servers_own_to_chains(address: str, tmp_path: Path) -> None:
    """The library lets go of its model before it loads another one, which may have other tokens or not exist."""
    other, nothing = tmp_path / "other", tmp_path / "nothing"
    nothing.mkdir()
    other.mkdir()
    write_folder(other, backwards=True)
    for model in (nothing, other, nothing):
        with suppress(Refused):
            completed(address, model=str(model), max_tokens=2)
        assert re.fullmatch("[0-9]{3}-[0-9]{4}", completed(address, logitloom=DIGITS))
    completed(address, model=str(other), max_tokens=2)
    assert chatted(address, tools=[TOOL], tool_choice="required")["tool_calls"]


@pytest.mark.parametrize("downloads", [True, False])
def test_the_first_model_of_the_list_is_the_servers_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, downloads: bool
) -> None:
    """A path that was given in another form names the server's own model, too."""
    cache = tmp_path if downloads else tmp_path / "nothing"
    monkeypatch.setattr(library, "scan_cache_dir", functools.partial(library.scan_cache_dir, cache))
    made = tmp_path / "models--someone--other" / "snapshots" / "1"
    made.mkdir(parents=True)
    (tmp_path / "models--someone--other" / "refs").mkdir()
    (tmp_path / "models--someone--other" / "refs" / "main").write_text("1")
    for name in ("config.json", "model.safetensors.index.json", "tokenizer_config.json"):
        (made / name).write_text("{}")
    monkeypatch.chdir(folder.parent)
    with serving(folder, "--model", folder.name) as address:
        with urllib.request.urlopen(f"{address}/v1/models", timeout=60) as answer:
            listed = [each["id"] for each in json.loads(answer.read())["data"]]
        assert listed == [str(folder.resolve()), *["someone/other"] * downloads]
        found = check_server(address)
        assert (found["runs_chains"], found["model"]) == (True, str(folder.resolve()))
        assert re.fullmatch("[0-9]{3}-[0-9]{4}", completed(address, model=listed[0], logitloom=DIGITS))


def test_a_server_without_a_model_of_its_own_answers_requests_without_chains(folder: Path) -> None:
    with serving(folder) as address:
        assert completed(address, model=str(folder), max_tokens=2)
        assert chatted(address, model=str(folder), max_tokens=2, logit_bias={"65": 100})["content"] is not None
        with pytest.raises(Refused, match="the model that the server was started with"):
            completed(address, model=str(folder), logitloom=DIGITS)


def test_a_stream_ends_in_order_whatever_its_options_leave_out(address: str) -> None:
    for options in ({}, {"include_usage": None}, None):
        data = json.dumps({"prompt": "12 birds", "max_tokens": 2, "stream": True, "stream_options": options}).encode()
        request = urllib.request.Request(f"{address}/v1/completions", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.read().decode().rstrip().endswith("data: [DONE]")


def test_the_client_of_the_protocol_reads_errors_and_counts(address: str) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)
    asked: dict[str, Any] = {"model": "default_model", "messages": [{"role": "user", "content": "Where?"}]}
    with pytest.raises(openai.BadRequestError, match="has the token 301"):
        client.chat.completions.create(**asked, logit_bias={"301": 1})
    asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        joined = stream.get_final_completion()
    assert joined.choices[0].message.content == whole.choices[0].message.content
    assert joined.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_probabilities_of_forbidden_tokens_are_numbers_of_json(address: str, stream: bool) -> None:
    asked = {"logprobs": True, "top_logprobs": 4, "stream": stream, "logitloom": DIGITS}
    data = json.dumps({"prompt": "12 birds", "max_tokens": 20, "temperature": 0.0} | asked).encode()
    request = urllib.request.Request(f"{address}/v1/completions", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = answer.read().decode()
    assert "Infinity" not in told
    if not stream:
        places = json.loads(told)["choices"][0]["logprobs"]["content"]
        assert min(each["logprob"] for place in places for each in place["top_logprobs"]) == -9999.0


def test_a_class_becomes_an_object_as_the_documentation_shows(address: str) -> None:
    pytest.importorskip("pydantic", reason="the package pydantic is not installed")
    code = documented("structured-output.md", __file__, "pydantic").replace("http://localhost:8080", address)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/structured-output.md", "exec", dont_inherit=True), names)
    assert isinstance(names["person"], names["Person"])


def test_streams_and_batches_give_what_requests_alone_give(address: str) -> None:
    bodies: list[dict[str, Any]] = [
        {"logitloom": DIGITS},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"logitloom": [{"use": "choice", "options": {"choices": ["north", "south"]}}]},
        {"max_tokens": 16},
    ]
    alone = [completed(address, **body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda n: completed(address, **bodies[n % 4]), range(12)))
    assert together == alone * 3
    for body, text in zip(bodies, alone, strict=True):
        pieces = post(address, "/v1/completions", prompt="12 birds", stream=True, **body)
        assert "".join(piece["choices"][0]["text"] for piece in pieces if piece["choices"]) == text


def test_a_record_holds_what_our_own_loop_records(address: str, folder: Path) -> None:
    from mlx_lm.utils import load

    model, tokenizer = load(str(folder))[:2]
    asked = [
        {"use": "regex", "options": {"pattern": "[0-9]{3}-[a-f]{4}"}},
        {"use": "temperature", "options": {"temperature": 0.7}},
        {"use": "top_k", "options": {"k": 5}},
    ]
    chain = processors.load(*((each["use"], each["options"]) for each in asked), tokenizer=tokenizer._tokenizer)
    prompt = tokenizer.encode("12 birds")
    loop = Generator(MlxModel(model), chain, max_tokens=120, record=True, skip_forced=False)
    [ours] = loop([prompt])
    text = completed(address, logitloom=asked, logitloom_record="first")
    assert re.fullmatch("[0-9]{3}-[a-f]{4}", text)
    told = read_record(folder, "first")
    assert len(told) >= 8
    assert_records_agree(told, ours.sampled, 1e-3)
    # Sampled texts have records, too, and a stream writes its own.
    post(address, "/v1/completions", prompt="12 birds", stream=True, logitloom=asked, logitloom_record="streamed")
    assert [each.token for each in read_record(folder, "streamed")] == [each.token for each in told]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"logitloom_record": "alone"}, "'logitloom_record' and no chain"),
        ({"logitloom": DIGITS, "logitloom_record": "../up"}, "a name of 1 to 64 letters"),
        ({"logitloom": "nonsense"}, "is no JSON"),
        ({"logitloom": [{"use": "cfg"}]}, "may not use the processor 'cfg'"),
        ({"logitloom": [{"use": "regex", "options": {"pattern": "("}}]}, "no valid regular expression"),
        ({"response_format": {"type": "yaml"}}, "Give {'type': 'text'}"),
        ({"logitloom": DIGITS, "model": "another"}, "the model that the server was started with"),
    ],
)
def test_what_is_wrong_with_a_chain_is_answered_with_400_and_a_sentence(address: str, body: Any, part: str) -> None:
    with pytest.raises(Refused) as caught:
        completed(address, **body)
    code, message = caught.value.args
    assert code == 400
    assert part in message


#: Only after the letter it turns out that no token is allowed.
CONTRADICTING = [
    {"use": "regex", "options": {"pattern": "[a-c][0-9]"}},
    {"use": "bad_words", "options": {"phrases": list("0123456789")}},
]


def test_an_error_in_a_chain_ends_its_own_request_alone(address: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        ended, whole = pool.map(lambda chain: completed(address, logitloom=chain), [CONTRADICTING, DIGITS])
    assert re.fullmatch("[a-c]", ended)
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", whole)


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_an_error_has_cut_does_not_say_that_it_is_whole(address: str, stream: bool) -> None:
    reasons = []
    for chain in (CONTRADICTING, DIGITS):
        asked = {"messages": [{"role": "user", "content": "Where?"}], "stream": stream, "logitloom": chain}
        found = post(address, "/v1/chat/completions", **asked)
        reasons.append((found[-1] if stream else found)["choices"][0]["finish_reason"])
    assert reasons == ["error", "stop"]


def test_tools_that_a_model_cannot_call_are_left_out_unless_they_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGITLOOM_TOOL_FORMAT", raising=False)
    assert asked_chain({"tools": [TOOL]}) is None
    assert asked_chain({"tools": [TOOL], "tool_choice": "none", "response_format": {"type": "text"}}) is None
    other = {"type": "function", "function": {"name": "other", "parameters": SCHEMA}}
    choices: list[Any] = [{"type": "function", "function": {"name": "look"}}]
    choices.append({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": choices[:1]}})
    for choice in choices:
        [asked] = asked_chain({"tools": [TOOL, other], "tool_choice": choice}, chat_template=TEMPLATE)
        call = ToolCall(**asked["options"] | {"format": "hermes"})
        assert [tool.name for tool in chosen(tools_of(call.tools), call.choice).tools] == ["look"]
    with pytest.raises(NeedsNotMet, match=r"in 'logitloom' \('regex'\) and in 'tools'"):
        asked_chain({"tools": [TOOL], "tool_choice": "required", "logitloom": DIGITS}, chat_template=TEMPLATE)
