"""One meaning of bodies: as the servers of mlx-lm and llama.cpp read them, and as vLLM's is watched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from logitloom.errors import LogitloomError
from logitloom_contrib.engines.vllm.misplaced import require_right_place
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request_document import read
from logitloom_contrib.servers.request_body import asked_chain
from logitloom_contrib.servers.tool_calls import CallsInText
from tests.contrib.servers.bodies import CONSTRAINT, FORM, MISPLACED, REFUSED, SAMPLER, TEMPLATE, TOOL


def asked(body: dict[str, Any]) -> Any:
    """What a server that runs chains makes of a body."""
    found = asked_chain(body, chat_template=TEMPLATE)
    return None if found is None else read(found, Permissions(allow=Permissions().allow | {"tool_call"})).document


def watched(body: dict[str, Any]) -> None:
    """What vLLM's server does with a body: fields that it does not know are in ``model_extra``."""
    known = {"vllm_xargs", "response_format", "tools", "tool_choice"}
    extra = {name: value for name, value in body.items() if name not in known}
    require_right_place(SimpleNamespace(model_extra=extra, vllm_xargs=body.get("vllm_xargs")), beams=False)


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_is_refused_with_a_sentence_that_names_the_field(case: str) -> None:
    body, part = REFUSED[case]
    with pytest.raises(LogitloomError) as caught:
        asked(body)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("case", MISPLACED)
def test_vllm_is_watched_for_the_same_fields(case: str) -> None:
    body, _ = MISPLACED[case]
    [name] = body
    with pytest.raises(LogitloomError, match=name if name != "vllm_xargs" else "logit_loom"):
        watched(body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("guided_choice", ["a", "b"]), ("guided_regex", "a+"), ("guided_grammar", "root ::= 'a'"),
        ("structured_outputs", {"regex": "a+"}), ("regex", "a+"), ("grammar", 'root ::= "a"'), ("ebnf", 'root ::= "a"'),
        ("structural_tag", "{}"), ("json_schema", FORM["json_schema"]),
    ],
)  # fmt: skip
def test_a_constraint_of_another_protocol_is_refused_unless_the_field_is_empty(name: str, value: Any) -> None:
    with pytest.raises(LogitloomError, match=f"{name!r}, which nobody reads.* Write (a chain in 'logitloom'|'respon)"):
        asked({name: value})
    assert asked({name: None}) is None


def test_ordinary_bodies_are_taken() -> None:
    ordinary = {
        "model": "m", "messages": [], "prompt": "p", "temperature": 0.0, "top_p": 1.0, "top_k": 3, "n": 1, "stop": "a",
        "max_tokens": 5, "logit_bias": {"5": 1.0}, "logprobs": True, "top_logprobs": 2, "stream": True, "user": "u",
        "stream_options": {"include_usage": True}, "seed": 3, "metadata": {"a": "b"}, "tool_choice": "auto",
        "tools": [],
        "parallel_tool_calls": True, "functions": [], "function_call": "auto", "reasoning_effort": "low", "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False}, "response_format": None, "vllm_xargs": {"other": 5},
        "guided_json": {}, "structured_outputs": {}, "repetition_penalty": 1.1, "role_mapping": {"user": "U"},
    }  # fmt: skip
    assert asked(ordinary) is None
    watched(ordinary)


def test_a_response_format_and_tools_stand_for_a_processor_and_take_samplers_beside_them() -> None:
    for body, name in (({"response_format": FORM}, "json"), ({"tools": [TOOL]}, "tool_call")):
        assert [each["use"] for each in asked(body)["processor"]] == [name]
        for beside in ({"logitloom": SAMPLER}, {"vllm_xargs": {"logitloom": SAMPLER}}):
            uses = [each["use"] for each in asked(body | beside)["processor"]]
            assert uses == [name, "top_k", "repetition_penalty"]
    assert asked({"response_format": {"type": "text"}, "tools": [TOOL], "tool_choice": "none"}) is None
    free = {"response_format": {"type": "text"}, "logitloom": CONSTRAINT}
    assert [each["use"] for each in asked(free)["processor"]] == ["regex"]


def test_fields_about_tools_mean_what_they_mean_to_openai() -> None:
    for given, option, wanted in (
        ({"parallel_tool_calls": False}, "parallel", False),
        ({"parallel_tool_calls": True}, "parallel", True),
        ({"parallel_tool_calls": None, "tool_choice": None}, "choice", "auto"),
    ):
        [entry] = asked({"tools": [TOOL], **given})["processor"]
        assert entry["options"][option] == wanted
    for tools in ({}, {"tools": None}, {"tools": []}):
        assert asked({**tools, "tool_choice": None}) is None
        with pytest.raises(LogitloomError, match="tool_choice 'required' and no tools. Give the tools in 'tools'"):
            asked({**tools, "tool_choice": "required"})


@pytest.mark.parametrize("template", [None, "{% for m in messages %}[INST]{{ m['content'] }}[/INST]{% endfor %}"])
def test_a_model_whose_chat_template_tells_no_calls_need_not_call_tools(template: str | None) -> None:
    with pytest.raises(LogitloomError, match="the model has no chat template.* LOGITLOOM_TOOL_FORMAT=hermes"):
        asked_chain({"tools": [TOOL], "tool_choice": "required"}, chat_template=template)
    for choice in ("auto", None):
        assert asked_chain({"tools": [TOOL], "tool_choice": choice}, chat_template=template) is None


def test_a_schema_beside_json_object_is_enforced() -> None:
    with_schema = {"response_format": {"type": "json_object", "schema": FORM["json_schema"]["schema"]}}
    [entry] = asked(with_schema)["processor"]
    assert entry["options"]["schema"]["json_schema"] == {"schema": FORM["json_schema"]["schema"]}


def test_a_schema_may_bound_unsigned_integers_of_64_bits() -> None:
    form = {"type": "json_object", "schema": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}
    assert [each["use"] for each in asked({"response_format": form})["processor"]] == ["json"]
    form["schema"] = {"type": "integer", "maximum": 2**64}
    with pytest.raises(LogitloomError, match="chain of the request holds an integer of more than 64 bits"):
        asked({"response_format": form})


@pytest.mark.parametrize("form", ["hermes", "llama", "mistral", "qwen3_coder", "pythonic", "deepseek_v3"])
def test_calls_are_told_from_free_text_however_it_is_cut(form: str) -> None:
    """The oracle is the text at once; pieces of every length give the same."""
    import numpy as np

    from logitloom import Context, Vocabulary, processors

    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
    chain = processors.load(("tool_call", {"tools": [TOOL], "format": form, "choice": "required"}), tokenizer=words)
    context = Context.start(np.zeros((1, 257), np.float32), vocabulary=words)
    state, tokens, dice = chain.init_state(context), [], np.random.default_rng(1)
    while not tokens or tokens[-1] != 0:
        logits, state = chain.process(dice.normal(size=(1, 257)).astype(np.float32), state, context)
        tokens.append(int(logits[0].argmax()))
        context = context.accept([[tokens[-1]]])
    text = words.decode(tokens[:-1])
    whole = CallsInText.of(chain)
    assert whole is not None
    begun = whole.add(text)
    expected = whole.end()
    assert expected.calls
    assert begun + expected.content in text
    for size in (1, 2, 7):
        pieces = CallsInText.of(chain)
        assert pieces is not None
        told = "".join(pieces.add(text[at : at + size]) for at in range(0, len(text), size))
        last = pieces.end()
        assert told + last.content == begun + expected.content
        assert [call["function"] for call in last.calls] == [call["function"] for call in expected.calls]


def test_free_text_and_texts_that_are_cut_off_are_told_whole() -> None:
    from logitloom import processors

    chain = processors.load(("tool_call", {"tools": [TOOL], "format": "hermes"}))
    for text in ("No call.", "A < b, <tool", 'Wait. <tool_call>\n{"name": "lo'):
        calls = CallsInText.of(chain)
        assert calls is not None
        told = "".join(calls.add(letter) for letter in text)
        assert (told + calls.end().content, calls.end().calls) == (text, [])
    assert CallsInText.of(processors.load(("top_k", {"k": 3}))) is None
    assert CallsInText.of(None) is None
