"""Every format of tool calls: its entries, the texts it allows, and what parsers that are not ours read in them."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, processors
from logitloom.constraints import UNKNOWN
from logitloom.errors import OptionError, UnsupportedSchema
from logitloom.host import registry
from logitloom.host.registry import available, load_plugin
from logitloom_plugins.processors.tool_call import ToolCall
from logitloom_plugins.tool_formats.builtin import tables
from logitloom_plugins.tool_formats.text_language import of_length
from logitloom_plugins.tool_formats.tool_format import ToolFormat, find_format, tool_format
from tests.cases import some
from tests.plugins.tool_formats.tool_texts import (
    BYTES,
    constraint_of,
    random_calls,
    random_tools,
    reader_of,
    refused_at,
    written,
)

ROOT = Path(__file__).parents[3]
NAMES = sorted(tables())
FORMATS = pytest.mark.parametrize("name", NAMES)


def test_every_row_is_an_entry_point_and_stands_in_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert sorted(project["logitloom.tool_formats"]) == NAMES
    assert {record.name for record in available("tool_formats")} >= set(NAMES)
    page = (ROOT / "docs" / "tool_call.md").read_text(encoding="utf-8").partition("## What parsers read")[0]
    documented = re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    assert documented[1:] == [(name, tables()[name]["models"]) for name in tables()], "write the row of the page"


@FORMATS
def test_a_chat_template_with_the_marks_of_a_format_is_recognised(name: str) -> None:
    form = tool_format(name)
    marks = [mark if isinstance(mark, str) else max(mark, key=len) for mark in form.template]
    if marks:
        assert find_format("{% for tool in tools %}" + " ... ".join(marks)) == name


#: Of a parameter behind a string.
KINDS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": "integer", "minimum": 5, "maximum": 500},
    {"type": "boolean"},
    {"type": "string"},
    {"type": "string", "maxLength": 30},
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9},
    {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 4},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": ["string", "null"]},
]


@FORMATS
@pytest.mark.long
def test_a_bound_is_known_on_the_tokens_that_a_call_still_needs(name: str) -> None:
    """Far from a limit on tokens no mask is searched for tokens that lead too far."""
    for kind in KINDS:
        if tables()[name].get("nested") == "none" and kind.get("type") == "array":
            continue
        properties = {"a": {"type": "string"}, "b": kind}
        parameters = {"type": "object", "properties": properties, "required": ["a", "b"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
        constraint = constraint_of(name, [tool])
        assert constraint._distances.most_after(constraint.start()) < UNKNOWN, kind
        assert max(constraint._distances._most) < UNKNOWN, kind


@pytest.mark.parametrize("trimmed", [False, True])
def test_one_pattern_says_how_long_a_string_is_and_whether_it_is_trimmed(trimmed: bool) -> None:
    texts = ["".join(characters) for size in range(6) for characters in itertools.product("a \né", repeat=size)]
    for least, most in itertools.product(range(5), [None, *range(6)]):
        if most is None or least <= most:
            pattern = re.compile(of_length(least, most, trimmed))
            for text in texts:
                fits = least <= len(text) <= (6 if most is None else most) and (not trimmed or text == text.strip())
                assert bool(pattern.fullmatch(text)) == fits, (least, most, text)


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
    tools = random_tools(form, random)
    calls = random_calls(form, tools, random, 3 if form.parallel else 1)
    text = written(form, calls)
    assert refused_at(constraint_of(name, tools), text) is None
    required = constraint_of(name, tools, choice="required")
    assert refused_at(required, text) is None
    assert refused_at(required, "So: " + text) == 0
    assert refused_at(required, text.replace(calls[0][0], "never", 1)) is not None
    # A call that was begun is completed.
    assert refused_at(required, text[:-1]) == len(text[:-1].encode())
    named = constraint_of(name, tools, choice=calls[0][0], parallel=False)
    assert refused_at(named, written(form, calls[:1])) is None
    if len(calls) > 1:
        assert refused_at(named, text) is not None
    if form.first_trigger:
        none = constraint_of(name, tools, choice="none")
        assert refused_at(none, "No call.") is None
        assert refused_at(none, "No " + text) is not None


@pytest.mark.extras
@pytest.mark.parametrize("version", ["v2", "v3", "v7", "tekken"])
@pytest.mark.long
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


@FORMATS
@pytest.mark.long
def test_tags_that_are_special_tokens_are_written_with_them(name: str) -> None:
    form, random = tool_format(name), np.random.default_rng(5)
    tools = random_tools(form, random)
    text = written(form, random_calls(form, tools, random, 2 if form.parallel else 1))
    tags = sorted((tag for tag in form.unwritten if tag in text and len(tag) > 2), key=len, reverse=True)
    first = 257
    words = Vocabulary(
        [b"", *[bytes([byte]) for byte in range(256)], *[b""] * len(tags)],
        eos=[0], special=range(first, first + len(tags)),
        special_text={first + i: tag for i, tag in enumerate(tags)},
    )  # fmt: skip
    parts = re.split("(" + "|".join(map(re.escape, tags)) + ")", text) if tags else [text]
    ids = [
        token
        for part in parts
        for token in ([first + tags.index(part)] if part in tags else [1 + byte for byte in part.encode()])
    ]
    assert any(token >= first for token in ids) == bool(tags)
    for choice, before in (("required", []), ("auto", []), ("auto", [1 + ord("a")] * (not form.at_start))):
        chain = processors.load(("tool_call", {"tools": tools, "format": name, "choice": choice}), tokenizer=words)
        assert isinstance(chain["tool_call"], ToolCall)
        constraint: Any = chain["tool_call"].constraint(words, words.size)
        state = constraint.start()
        for place, token in enumerate([*before, *ids]):
            allowed = constraint.allowed(state)
            assert token in allowed, (choice, place)
            if place == 0 and token >= first and choice == "required" and not form.plain:
                assert allowed.listed(words.size).tolist() == [token], "not as bytes"
            state = constraint.advance(state, token)
            assert state is not None, (choice, place)
        assert constraint.may_end(state)


@FORMATS
@pytest.mark.long
def test_strings_hold_whole_characters(name: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    constraint = constraint_of(name, [{"name": "f", "parameters": schema}], choice="required")
    begin = written(tool_format(name), [("f", {"city": "XYZ"})]).encode().partition(b"XYZ")[0]
    state = constraint.start()
    for byte in begin:
        state = constraint.advance(state, 1 + byte)
    for character in ("é", "日", "🙂"):
        *first, last = character.encode()
        inside = state
        for byte in first:
            inside = constraint.advance(inside, 1 + byte)
            assert constraint.advance(inside, 1 + ord("a")) is None
        assert constraint.advance(inside, 1 + last) is not None
    assert constraint.advance(state, 1 + 0x80) is None, "no character begins with it"


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
        ({"type": "string", "maxLength": 2083}, ["", "é" * 2083], ["a" * 2084]),
        ({"type": "string", "minLength": 300, "maxLength": 2000}, ["<" * 300], ["<" * 299]),
        ({"type": "string", "format": "email", "maxLength": 254}, ["a@b.org"], ["a", f"{'a' * 64}@{'b.' * 99}org"]),
        ({"type": "string", "format": "uri", "minLength": 9, "maxLength": 2083}, ["ab://c.org"], ["ab://c.o", "/x"]),
        ({"type": "string", "pattern": r"^\d+$"}, ["12"], ["١٢"]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["", "2023-02-29"]),
        ({"type": "string", "minLength": 2, "not": {"const": "ab"}}, ["ac", "abc"], ["a", "ab"]),
        ({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]}, ["ab", "cba"], ["a", "b"]),
        ({"type": ["string", "null"]}, ["null", "x"], ["x</arg_value>"]),
        ({"type": ["string", "null"], "format": "date"}, ["null", "2024-02-29"], ["", "x", "1"]),
        ({"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]}, ["ab", "12"], ["b", "true"]),
        ({"type": ["string", "integer"], "maxLength": 2, "maximum": 20}, ["ab", "20"], ["abc", "30"]),
        ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "boolean"}]}, ["b", "true"], ["ab", "null"]),
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


def test_the_format_of_a_string_that_is_referred_to_holds() -> None:
    parameters = {"properties": {"p": {"$ref": "#/$defs/day"}}, "$defs": {"day": {"type": "string", "format": "date"}}}
    constraint = constraint_of("glm47", [{"name": "f", "parameters": {**parameters, "required": ["p"]}}])
    call = "<tool_call>f<arg_key>p</arg_key><arg_value>{}</arg_value></tool_call>"
    assert refused_at(constraint, call.format("2024-02-29")) is None
    assert refused_at(constraint, call.format("tomorrow")) is not None


OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}}
TREE = {"type": "object", "properties": {"x": {"$ref": "#/$defs/t"}}}


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("qwen3_coder", {"type": "object", "minProperties": 1}, "'minProperties', which cannot be enforced"),
        ("function_gemma", {"type": "object", "properties": {"a": {"type": "array"}}}, "may be an array or an object"),
        ("glm45", {"properties": {"a": {"enum": ["x</arg_value>"]}}}, "may be 'x</arg_value>'"),
        ("muse_glimmer", {"properties": {"a": {"enum": ["3"]}}}, "may be '3', which parsers take for something else"),
        ("gemma4", {"properties": {"a b": {}}}, r"parameter of the tool 'f' is 'a b', but parsers .* match '\\\\w\+'"),
        ("gemma4", {"properties": {"a": {"type": "object"}}}, "whose members the schema does not name"),
        ("gemma4", {"properties": {"a": {"enum": [[1]]}}}, "an array or object of 'enum' or 'const'"),
        ("gemma4", {"properties": {"a": {"type": "array", "uniqueItems": True}}}, "'a' of the tool 'f' has 'uniqueIt"),
        (
            "gemma4",
            {"properties": {"a": {"type": "array", "minItems": 2, "maxItems": 1}}},
            "at least 2 items and at mo",
        ),
        ("gemma4", {"properties": {"a": {"type": "array", "maxItems": 9999}}}, "more than 4096 sections"),
        ("gemma4", {"properties": {"a": {**OBJECT, "minProperties": 1}}}, "The members of the parameter 'a' of the to"),
        ("gemma4", {"properties": {"a": {"oneOf": [OBJECT, OBJECT]}}}, "alternatives of 'oneOf' that may hold at the"),
        ("gemma4", {"properties": {"a": {"anyOf": [OBJECT], "minProperties": 1}}}, "'minProperties' beside alternativ"),
        (
            "gemma4",
            {"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": TREE}},
            "a schema that refers to itself",
        ),
        ("minimax_m3", {"properties": {"a": {"type": ["string", "array"]}}}, "several types, which this format"),
    ],
)
@pytest.mark.long
def test_tools_that_a_format_cannot_write_are_refused(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        constraint_of(name, [{"name": "f", "parameters": parameters}])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"nested": "xml"},
            "The entry 'nested' of a format of 'tool_call' is 'xml'; it is one of json, none, parameters",
        ),
        ({"nested": "parameters"}, "nests parameters needs entries that tell where an array, an object and an item"),
        (
            {"object": ["{"]},
            r"Option 'object' of \"a format of .* must be tuple\[str, str\], but is \['{'\]",
        ),
        (
            {"variants": [{"calls": "x"}]},
            "\"a variant of a format of 'tool_call'\" has no option 'calls'. Did you mean 'call'",
        ),
        ({"variants": [{"variants": []}]}, "A variant of a format of 'tool_call' has variants"),
        (
            {"variants": [{"call": 3}]},
            "Option 'call' of \"a variant of a format of .* must be str, but is 3",
        ),
        ({"forbid": [3]}, "Option 'forbid' of \"a format of 'tool_call'\" must be "),
        ({"types": {"string": 3}}, "Option 'types' of \"a format of 'tool_call'\" must be "),
        ({"words": ["Nil"]}, r"The entry 'words' of a format of 'tool_call' is \('Nil',\); give some of True, False"),
        ({"keys": "("}, r"The entry 'keys' of a format of 'tool_call' is '\(', which is no pattern: missing \)"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tool_format({"call": "CALL {name}", "style": "parameters", "parameter": "{key}=", **entry})


THOUGHT = "<|channel|>analysis<|message|>So<|end|>"
VALUES = {"type": "object", "properties": {"s": {"type": "string"}, "b": {"type": "boolean"}, "n": {"type": "null"}}}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("gpt_oss", [' to=functions.f<|channel|>commentary json<|message|>{"s": "x"}'], [" to=functions.g"]),
        (
            "gpt_oss",
            [THOUGHT + "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}"],
            [THOUGHT + "<|start|>assistant to=functions.g"],
        ),
        (
            "llama",
            ['<|python_start|><|python_end|>{"name": "f", "parameters": {}}'],
            ["<|python_start|><|python_end|>x"],
        ),
        (
            "qwen3_coder",
            ["<tool_call>\n<function=f>\n<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>"],
            ["<tool_call>\n<function=f>\n<parameter=n>\nNone", "<tool_call>\n<function=f>\n<parameter=b>\nTRUE"],
        ),
        (
            "lfm2",
            ["<|tool_call_start|>[f(s='say \"x\"', b=True, n=None)]<|tool_call_end|>",
             '<|tool_call_start|>[f(s="it\'s", b=False, n=null)]<|tool_call_end|>'],
            ["<|tool_call_start|>[f(s='\\n", "<|tool_call_start|>[f(s=x"],
        ),
        (
            "mistral_ids",
            ["[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}"],
            ["[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[CALL_ID]short[ARGS]"],
        ),
    ],
)  # fmt: skip
def test_further_ways_in_which_templates_write_calls(name: str, good: list[str], bad: list[str]) -> None:
    constraint = constraint_of(name, [{"name": "f", "parameters": VALUES}])
    assert [refused_at(constraint, text) for text in good] == [None] * len(good)
    assert all((refused_at(constraint, text) or 0) < len(text.encode()) for text in bad)
    for text in good:
        reader = reader_of(name, [{"name": "f", "parameters": VALUES}])
        reader.add(text)
        assert [call["name"] for call in reader.end().value] == ["f"]


def test_members_are_sorted_where_a_template_sorts_them() -> None:
    point = {"type": "object", "properties": {"y": {"type": "integer"}, "x": {"type": "integer"}}}
    parameters = {"properties": {"b": {"$ref": "#/$defs/p"}, "a": {"enum": [{"y": 1, "x": 2}]}}, "$defs": {"p": point}}
    constraint = constraint_of("inkling", [{"name": "f", "parameters": parameters}])
    call = '<|content_invoke_tool_json|>{"name":"f","args":%s}<|end_message|>'
    assert refused_at(constraint, call % '{"a":{"y":1,"x":2},"b":{"x":1,"y":2}}') is None
    assert refused_at(constraint, call % '{"b":{"x":1,"y":2},"a"') is not None
    assert refused_at(constraint, call % '{"b":{"y":2,"x"') is not None


def test_texts_that_a_template_may_not_have_rule_a_format_out() -> None:
    marks = ["<tool_call>", '"name"', '"arguments"', "</tool_call>"]
    assert find_format(" ".join(marks)) == "hermes"
    assert find_format(" ".join([*marks, "<tool_calls>["])) == "hunyuan"


def gemma(schema: dict[str, Any], **more: Any) -> Any:
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"], **more}
    return constraint_of("gemma4", [{"name": "f", "parameters": parameters}])


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"type": "array", "items": {"type": "integer"}},
            ["[]", "[1]", "[1,-2,3]"],
            ["[1,]", "[,1]", "[1 2]", "[true]"],
        ),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, ["[1,2]", "[1,2,3]"], ["[]", "[1]"]),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
            ["[null]"],
            ["[]", "[null,null,null]"],
        ),
        ({"type": "array"}, ['[1,<|"|>a,b<|"|>,true]'], ["[a]", "[[]]"]),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, ["[[],[1.5,2]]"], ["[1]", "[[]"]),
        (OBJECT, ["{}", "{x:1}"], ["{x:1,}", "{y:1}", "{x:a}"]),
        (
            {"type": "object", "properties": {"b": OBJECT, "A": {"type": "string"}}, "required": ["b"]},
            ['{A:<|"|>x}<|"|>,b:{}}', "{b:{x:1}}"],
            ['{b:{},A:<|"|>x<|"|>}', '{A:<|"|>x<|"|>}'],
        ),
        (
            {"type": ["string", "null"]},
            ["null", '<|"|>null<|"|>', '<|"|><|"|>'],
            ["nul", '<|"|>x'],
        ),
        (
            {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]},
            ['<|"|>a<|"|>', "12"],
            ['<|"|>ab<|"|>', "x"],
        ),
        (
            {"anyOf": [OBJECT, {"type": "null"}, {"type": "array"}]},
            ["{x:2}", "null", "[]", "[null]"],
            ["1", "{x:null}"],
        ),
        ({"enum": ["a", 1, None]}, ['<|"|>a<|"|>', "1", "null"], ["a", "2", '<|"|>1<|"|>']),
        (
            {"oneOf": [{**OBJECT, "properties": {"k": {"const": k}}, "required": ["k"]} for k in ("a", "b")]},
            ['{k:<|"|>a<|"|>}', '{k:<|"|>b<|"|>}'],
            ["{}", '{k:<|"|>c<|"|>}'],
        ),
    ],
)
def test_nested_values_of_one_parameter(schema: Any, good: list[str], bad: list[str]) -> None:
    constraint, call = gemma(schema), "<|tool_call>call:f{{p:{}}}<tool_call|>"
    assert [refused_at(constraint, call.format(value)) for value in good] == [None] * len(good)
    assert None not in [refused_at(constraint, call.format(value)) for value in bad]


def test_references_are_followed_in_nested_values() -> None:
    definitions = {"o": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}, "n": {"enum": [7, "s"]}}
    constraint = gemma({"type": "array", "items": {"$ref": "#/$defs/o"}}, **{"$defs": definitions})
    call = "<|tool_call>call:f{{p:[{{}},{{n:{}}}]}}<tool_call|>"
    assert refused_at(constraint, call.format("7")) is None
    assert refused_at(constraint, call.format('<|"|>s<|"|>')) is None
    assert refused_at(constraint, call.format("8")) is not None


def test_strings_have_no_tags_of_the_format() -> None:
    parameters = {"type": "object", "properties": {"s": {"type": "string"}, "o": {"type": "object"}}}
    for name, text in (
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"s": "a </tool_call>'),
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"o": {"k": ["</tool_call>'),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\n<parameter="),
        ("qwen3_coder", '<tool_call>\n<function=f>\n<parameter=o>\n{"k": "</parameter>'),
    ):
        constraint = constraint_of(name, [{"name": "f", "parameters": parameters}])
        assert refused_at(constraint, text) == len(text.encode()) - 1


def test_a_tool_without_properties_takes_no_arguments() -> None:
    constraint = constraint_of("hermes", [{"name": "f", "parameters": {"type": "object", "properties": {}}}])
    text = '<tool_call>\n{"name": "f", "arguments": {"'
    assert refused_at(constraint, text) == len(text) - 1


def test_a_format_of_another_package_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/tool_call.md says: a table in a module, and an entry point that names it."""
    page = (ROOT / "docs" / "tool_call.md").read_text(encoding="utf-8")
    [point] = re.findall(r"^mine = .*$", page, re.MULTILINE)
    module, _, name = tomllib.loads(point)["mine"].partition(":")
    form = {"call": "CALL {name} WITH ", "style": "arguments", "end": " DONE"}
    (tmp_path / f"{module}.py").write_text(f"{name} = {form!r}\n", encoding="utf-8")
    info = tmp_path / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    points = f"[logitloom.tool_formats]\nmine = {module}:{name}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    registry.refresh()
    try:
        constraint = constraint_of("mine", [{"name": "now"}])
        assert refused_at(constraint, "Well. CALL now WITH {} DONE") is None
        assert isinstance(tool_format("mine"), ToolFormat)
        assert load_plugin("tool_formats", "mine")["end"] == " DONE"
        assert "mine" in {record.name for record in available("tool_formats")}
    finally:
        monkeypatch.undo()
        registry.refresh()


@FORMATS
@pytest.mark.long
def test_in_every_format_calls_are_looked_for_after_the_reasoning_only(name: str) -> None:
    form, random = tool_format(name), np.random.default_rng(4)
    tools = random_tools(form, random)
    text = written(form, random_calls(form, tools, random, 1))
    must = constraint_of(name, tools, reasoning="</think>", choice="required")
    assert refused_at(must, f"{form.first_trigger} I think</think>{text}") is None
    assert refused_at(must, "I think") == len("I think")
    assert refused_at(must, "I think</think>So: " + text) == len("I think</think>")
    auto = constraint_of(name, tools, reasoning="</think>")
    assert refused_at(auto, f"{form.first_trigger} I think</think>{text}") is None
    assert refused_at(auto, "I think</think>No call.") is None


def test_hundreds_of_tools_are_told_apart() -> None:
    tools = [{"name": f"tool_{i}"} for i in range(some(1000))]
    constraint = constraint_of("kimi_k2", tools, choice="required")
    call = "<|tool_call_begin|>functions.tool_177:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert refused_at(constraint, f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>") is None
    assert BYTES.size == 257


def test_functionary_names_the_recipient_of_each_part() -> None:
    tools = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    auto = constraint_of("functionary_v32", tools)
    text = 'all\nLet me see.>>>weather\n{"city": "Rome"}>>>weather\n{}'
    assert refused_at(auto, text) is None
    assert refused_at(auto, text.partition(">>>")[2]) is None  # the prompt ends with >>>
    assert refused_at(auto, "all\n1 >> 0") is None
    assert refused_at(auto, "all\nLet me see.>>>wonder") == len("all\nLet me see.>>>w")
    assert refused_at(auto, 'weather\n{"city": ">>>') == len('weather\n{"city": ">>')
    reader = reader_of("functionary_v32", tools)
    reader.add(text)
    assert [(call["name"], call["arguments"]) for call in reader.end().value] == [
        ("weather", {"city": "Rome"}),
        ("weather", {}),
    ]
    with pytest.raises(OptionError, match="'all', but parsers"):
        constraint_of("functionary_v32", [{"name": "all"}])


def test_parameters_with_equal_schemas_share_a_constraint() -> None:
    """Equal as JSON: a constant of 1 is not one of true."""
    schemas = [{"type": "integer"}, {"enum": [1, 2]}, {"enum": [True, 2]}, {"type": "integer"}, {"enum": [1, 2]}]
    properties = {f"parameter{number}": schema for number, schema in enumerate(schemas)}
    tools = [{"name": "tool", "parameters": {"properties": properties, "required": [*properties]}}]
    found: Any = constraint_of("qwen3_coder", tools)
    kept = [id(one) for one in found.constraints if one is not None and one.restricts]
    assert len(kept) == 5
    assert len({*kept}) == 3


def test_the_arguments_of_a_tool_are_compiled_once_for_all_ways_to_begin_a_call() -> None:
    tools = [{"name": f"f{i}", "parameters": {"properties": {f"p{i}": {"type": "integer"}}}} for i in range(4)]
    inners = [section.inner for section in ToolCall(tools=tools, format="gpt_oss").sections() if section.inner]
    schemas = [inner for inner in inners if [each.label for each in inner.links] == ["json"]]
    assert len(tool_format("gpt_oss").ways) > 1
    assert len(schemas) == len(tool_format("gpt_oss").ways) * len(tools)
    assert len({id(inner) for inner in schemas}) == len(tools)
