"""Every format of tool calls: its entries, the texts it allows, and what parsers that are not ours read in them."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.errors import OptionError, UnsupportedSchema
from logitloom.registry import available, load_plugin
from logitloom_plugins.tool_formats.builtin import rows
from logitloom_plugins.tool_formats.tool_format import ToolFormat, find_format, tool_format
from tests.plugins.tool_formats.tool_texts import (
    BYTES,
    Call,
    constraint_of,
    random_calls,
    random_tools,
    refused_at,
    walk,
    written,
)

ROOT = Path(__file__).parents[3]
NAMES = sorted(rows())
FORMATS = pytest.mark.parametrize("name", NAMES)

#: The parsers of mlx-lm by format.
MLX_PARSERS = {
    "hermes": "json_tools", "longcat": "longcat", "glm47": "glm47", "glm45": "glm47", "kimi_k2": "kimi_k2",
    "kimi_k3": "kimi_k3", "minicpm5": "minicpm5", "minimax_m2": "minimax_m2", "mistral": "mistral",
    "mistral_v11": "mistral", "muse_glimmer": "muse_spark", "lfm2": "pythonic", "qwen3_coder": "qwen3_coder",
    "function_gemma": "function_gemma", "gemma4": "gemma4",
}  # fmt: skip


def test_every_row_is_an_entry_point_and_stands_in_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert sorted(project["logitloom.tool_formats"]) == NAMES
    assert {record.name for record in available("tool_formats")} >= set(NAMES)
    page = (ROOT / "docs" / "tool_call.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    assert documented[1:] == [(name, rows()[name]["models"]) for name in rows()]


@FORMATS
def test_a_chat_template_with_the_marks_of_a_format_is_recognised(name: str) -> None:
    marks = tool_format(name).template
    if marks:
        assert find_format("{% for tool in tools %}" + " ... ".join(marks)) == name


@FORMATS
@pytest.mark.parametrize("seed", [3])
def test_calls_as_models_write_them_are_allowed_and_no_others(name: str, seed: int) -> None:
    check_written_calls(name, seed)


@pytest.mark.exhaustive
@FORMATS
def test_calls_of_200_sets_of_tools_are_allowed_and_no_others(name: str) -> None:
    for seed in range(200):
        check_written_calls(name, seed)


def check_written_calls(name: str, seed: int) -> None:
    form, random = tool_format(name), np.random.default_rng(seed)
    tools = random_tools(random, nested=form.nested)
    calls = random_calls(tools, random, 3 if form.parallel else 1)
    text = written(form, calls, tools)
    assert refused_at(constraint_of(name, tools), text) is None
    required = constraint_of(name, tools, choice="required")
    assert refused_at(required, text) is None
    assert refused_at(required, "So: " + text) == 0
    assert refused_at(required, text.replace(calls[0][0], "never", 1)) is not None
    # A call that was begun is completed.
    assert refused_at(required, text[:-1]) == len(text[:-1].encode())
    named = constraint_of(name, tools, choice=calls[0][0], parallel=False)
    assert refused_at(named, written(form, calls[:1], tools)) is None
    if len(calls) > 1:
        assert refused_at(named, text) is not None
    if form.first_trigger:
        none = constraint_of(name, tools, choice="none")
        assert refused_at(none, "No call.") is None
        assert refused_at(none, "No " + text) is not None


@pytest.mark.extras
@pytest.mark.parametrize("name", MLX_PARSERS)
@pytest.mark.parametrize("seed", [3])
def test_the_parsers_of_mlx_lm_read_the_calls_that_were_meant(name: str, seed: int) -> None:
    form, random = tool_format(name), np.random.default_rng(seed)
    tools = random_tools(random, nested=form.nested)
    calls = random_calls(tools, random, 2)
    assert read_by_mlx_lm(name, written(form, calls, tools), tools) == calls


@pytest.mark.extras
@pytest.mark.parametrize("name", MLX_PARSERS)
def test_the_parsers_of_mlx_lm_read_valid_calls_in_random_texts(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    random = np.random.default_rng(7)
    tools = random_tools(random, nested=tool_format(name).nested)
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    found = read_by_mlx_lm(name, walk(name, constraint_of(name, tools, choice="required"), random), tools)
    assert found
    for tool, arguments in found:
        jsonschema.validate(arguments, schemas[tool])


def read_by_mlx_lm(name: str, text: str, tools: list[dict[str, Any]]) -> list[Call]:
    """The calls of a text, as mlx-lm's server finds and reads them."""
    pytest.importorskip("mlx_lm", reason="the package mlx-lm is not installed")
    parser = importlib.import_module(f"mlx_lm.tool_parsers.{MLX_PARSERS[name]}")
    parts = text.split(parser.tool_call_start)[1:]
    if name == "minicpm5":
        parts = [parser.tool_call_start + part for part in parts]
    elif parser.tool_call_end:
        parts = [part.partition(parser.tool_call_end)[0] for part in parts]
    calls: list[Call] = []
    for part in parts:
        found = parser.parse_tool_call(part, tools)
        calls += [(call["name"], call["arguments"]) for call in (found if isinstance(found, list) else [found])]
    return calls


@pytest.mark.extras
@pytest.mark.parametrize("version", ["v2", "v3", "v7", "tekken"])
def test_what_mistral_common_renders_is_allowed(version: str) -> None:
    pytest.importorskip("mistral_common", reason="the package mistral-common is not installed")
    from mistral_common.protocol.instruct.messages import AssistantMessage
    from mistral_common.protocol.instruct.tool_calls import FunctionCall
    from mistral_common.protocol.instruct.tool_calls import ToolCall as Rendered
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    made = {"v2": MistralTokenizer.v2, "v3": MistralTokenizer.v3, "v7": MistralTokenizer.v7}
    tokenizer = MistralTokenizer.v3(is_tekken=True) if version == "tekken" else made[version]()
    tools = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    call = Rendered(id="abcdefghi", function=FunctionCall(name="weather", arguments=json.dumps({"city": "Rome"})))
    message: Any = AssistantMessage(content=None, tool_calls=[call])
    ids = tokenizer.instruct_tokenizer.encode_assistant_message(message, False)
    chain = processors.load(("tool_call", {"tools": tools, "format": "mistral"}), tokenizer=tokenizer)
    assert chain.vocabulary is not None
    constraint = chain["tool_call"].constraint(chain.vocabulary, chain.vocabulary.size)
    state = constraint.start()
    for token in ids[:-1]:
        assert token in constraint.allowed(state)
        state = constraint.advance(state, token)
    assert constraint.may_end(state)


def test_calls_are_looked_for_after_the_reasoning_only() -> None:
    tools = [{"name": "now"}]
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    free = constraint_of("hermes", tools, reasoning="</think>")
    assert refused_at(free, "<tool_call> is how I call</think>" + call) is None
    assert refused_at(free, "x</think><tool_call> x") == len("x</think><tool_call>")
    must = constraint_of("hermes", tools, reasoning="</think>", choice="required")
    assert refused_at(must, "I think") == len("I think")
    assert refused_at(must, "I think</think>" + call) is None
    assert refused_at(must, "I think</think>x") == len("I think</think>")


def test_allowed_tools_leave_out_the_others() -> None:
    tools = [{"name": "now"}, {"name": "later"}]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "later"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    constraint = constraint_of("llama_tags", tools, choice=choice)
    assert refused_at(constraint, "<function=later>{}</function>") is None
    assert refused_at(constraint, "<function=now>{}</function>") == len("<function=")


CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "$defs": {"city": {"type": "integer"}}}


def test_references_of_parameters_stay_within_their_tool() -> None:
    other = {**CITY, "$defs": {"city": {"enum": ["Rome"]}}}
    constraint = constraint_of("glm47", [{"name": "f", "parameters": CITY}, {"name": "g", "parameters": other}])
    call = "<tool_call>{}<arg_key>city</arg_key><arg_value>{}</arg_value></tool_call>"
    assert refused_at(constraint, call.format("f", 12)) is None
    assert refused_at(constraint, call.format("g", "Rome")) is None
    assert refused_at(constraint, call.format("g", 12)) is not None


def test_references_that_cannot_be_followed_are_refused() -> None:
    properties = {"city": {"$ref": "https://example.com/city"}}
    with pytest.raises(UnsupportedSchema, match="points outside the schema"):
        constraint_of("glm47", [{"name": "f", "parameters": {"properties": properties}}])


def test_a_reference_to_an_anchor_is_followed() -> None:
    parameters = {"properties": {"n": {"$ref": "#count"}}, "$defs": {"c": {"$anchor": "count", "type": "integer"}}}
    constraint = constraint_of("glm47", [{"name": "f", "parameters": parameters}])
    call = "<tool_call>f<arg_key>n</arg_key><arg_value>{}</arg_value></tool_call>"
    assert refused_at(constraint, call.format("12")) is None
    assert refused_at(constraint, call.format("x")) is not None


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "pattern": "b+$"}, ["b", "xabb"], ["", "bx"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["éé", "abc"], ["a", "abcd"]),
        ({"type": ["string", "null"]}, ["null", "x"], ["x</arg_value>"]),
        ({"const": "a b"}, ["a b"], ["a", '"a b"']),
        ({"enum": [1, "one", None]}, ["1", "one", "null"], ["2", '"one"']),
        ({"type": "integer"}, ["12", "-1"], ["9.0", "x"]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, ["1", "true"], ["x", '"1"']),
    ],
)
def test_values_of_one_parameter(schema: Any, good: list[str], bad: list[str]) -> None:
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    constraint = constraint_of("glm47", [{"name": "f", "parameters": parameters}])
    call = "<tool_call>f<arg_key>p</arg_key><arg_value>{}</arg_value></tool_call>"
    assert [refused_at(constraint, call.format(value)) for value in good] == [None] * len(good)
    assert None not in [refused_at(constraint, call.format(value)) for value in bad]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("qwen3_coder", {"type": "object", "minProperties": 1}, "'minProperties', which cannot be enforced"),
        ("gemma4", {"type": "object", "properties": {"a": {"type": "array"}}}, "may be an array or an object"),
        ("glm45", {"properties": {"a": {"enum": ["x</arg_value>"]}}}, "may be 'x</arg_value>'"),
    ],
)
def test_tools_that_a_format_cannot_write_are_refused(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        constraint_of(name, [{"name": "f", "parameters": parameters}])


def test_a_format_of_another_package_is_data() -> None:
    from logitloom import registry

    registry.register("mine", {"call": "CALL {name} WITH ", "style": "arguments", "end": " DONE"}, kind="tool_formats")
    try:
        constraint = constraint_of("mine", [{"name": "now"}])
        assert refused_at(constraint, "Well. CALL now WITH {} DONE") is None
        assert isinstance(tool_format("mine"), ToolFormat)
        assert load_plugin("tool_formats", "mine")["end"] == " DONE"
    finally:
        registry.unregister("mine", kind="tool_formats")


def test_a_thousand_tools_are_told_apart() -> None:
    tools = [{"name": f"tool_{i}"} for i in range(1000)]
    constraint = constraint_of("kimi_k2", tools, choice="required")
    call = "<|tool_call_begin|>functions.tool_777:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert refused_at(constraint, f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>") is None
    assert BYTES.size == 257
