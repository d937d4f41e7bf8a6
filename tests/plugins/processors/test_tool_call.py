"""Tool calls in every format: what can be written, what cannot, and that the arguments satisfy their schemas."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.errors import OptionError, UnsupportedSchema
from logitloom.generation import BeamSearch, Generator
from logitloom.host import registry
from logitloom.host.registry import load_plugin
from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.cases import first

jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

pytestmark = pytest.mark.extras

BYTES = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0], name="bytes")
#: With tokens of several bytes, and one special tag of its own.
TAG = 262
WORDS = Vocabulary(
    [*BYTES.token_bytes, b'{"', b'": "', b'"}', b"tool_call>", b"name", b""],
    eos=[0],
    special=[TAG],
    special_text={TAG: "<tool_call>"},
    name="words",
)

PLACE = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "now", "description": "Tell the time."}},
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {**PLACE, "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}},
    },
    # The same reference means something else here.
    {"name": "zip", "parameters": {**PLACE, "$defs": {"city": {"type": "integer", "minimum": 10, "maximum": 99}}}},
]
PARAMETERS = {"now": {"type": "object", "maxProperties": 0}} | {
    tool.get("function", tool)["name"]: tool.get("function", tool)["parameters"] for tool in TOOLS[1:]
}

ROME = '{"city": "Rome"}'
#: Per format: texts of one call, and of two.
ONE = {
    "hermes": f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>',
    "llama": f'{{"name": "weather", "parameters": {ROME}}}',
    "llama_tags": f"<function=weather>{ROME}</function>",
    "mistral": f'[TOOL_CALLS][{{"name": "weather", "arguments": {ROME}}}]',
}
TWO = {
    "hermes": ONE["hermes"] + "\n" + '<tool_call>\n{"name": "zip", "arguments": {"city": 12}}\n</tool_call>',
    "llama": ONE["llama"] + '; {"name": "now", "parameters": {}}',
    "llama_tags": ONE["llama_tags"] + "<function=zip>" + '{"city": 12}' + "</function>",
    "mistral": ONE["mistral"][:-1] + ', {"name": "now", "arguments": {}}]',
}
FORMATS = pytest.mark.parametrize("form", ONE)


def calls_in(form: str, text: str) -> list[tuple[str, Any]]:
    """The calls of a text, read as the parsers of servers do."""
    if form == "hermes":
        found = [json.loads(call) for call in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)]
    elif form == "llama_tags":
        found = [
            {"name": name, "arguments": json.loads(call)}
            for name, call in re.findall(r"<function=(\w+)>(.*?)</function>", text, re.DOTALL)
        ]
    elif form == "mistral":
        found = json.loads(text.partition("[TOOL_CALLS]")[2] or "[]")
    else:
        rest = text.partition("<|python_tag|>")[2] or (text if text.startswith('{"name":') else "")
        decoder, found = json.JSONDecoder(), []
        while rest:
            call, end = decoder.raw_decode(rest)
            found.append(call)
            assert rest[end:].startswith("; ") or not rest[end:]
            rest = rest[end + 2 :]
    return [(call["name"], call.get("arguments", call.get("parameters"))) for call in found]


def check_calls(form: str, text: str) -> list[str]:
    calls = calls_in(form, text)
    for name, arguments in calls:
        jsonschema.Draft202012Validator(PARAMETERS[name]).validate(arguments)
    return [name for name, _ in calls]


def begin(vocabulary: Vocabulary = BYTES, **options: Any) -> tuple[Any, Context, Any]:
    chain = processors.load(("tool_call", {"tools": TOOLS, **options}), tokenizer=vocabulary, debug=True)
    context = Context.start(np.zeros((1, vocabulary.size), np.float32), vocabulary=vocabulary)
    return chain, context, chain.init_state(context)


def refused_at(text: str, **options: Any) -> int | None:
    """The place of the first byte that is not allowed; the length for the end; None if all is."""
    chain, context, state = begin(**options)
    accepted: list[int] = []
    for place, token in enumerate([*(1 + byte for byte in text.encode()), 0]):
        logits, state = chain.process(np.zeros((1, BYTES.size), np.float32), state, context.accept([accepted]))
        if logits[0, token] == -np.inf:
            return place
        accepted = [token]
    return None


@FORMATS
@pytest.mark.parametrize("choice", ["auto", "required", "weather"])
def test_calls_as_templates_write_them_are_allowed(form: str, choice: str) -> None:
    assert calls_in(form, ONE[form]) == [("weather", {"city": "Rome"})]
    assert refused_at(ONE[form], format=form, choice=choice, parallel=choice != "required") is None
    assert refused_at(ONE[form][:-1], format=form, choice=choice) == len(ONE[form]) - 1


@FORMATS
def test_several_calls_only_where_they_are_wanted(form: str) -> None:
    assert len(calls_in(form, TWO[form])) == 2
    assert refused_at(TWO[form], format=form) is None
    assert refused_at(TWO[form], format=form, parallel=False) in (len(ONE[form]), len(ONE[form]) - 1)
    assert refused_at(TWO[form], format=form, choice="weather") is not None


@FORMATS
def test_text_without_a_call_is_free_unless_one_is_required(form: str) -> None:
    text = "Ünlike <tool, {1: 2} this."
    assert refused_at(text, format=form) is None
    assert refused_at(text, format=form, choice="required") == 0
    if form != "llama":
        assert refused_at("So: " + ONE[form], format=form) is None


@FORMATS
def test_wrong_names_and_arguments_are_refused_where_they_go_wrong(form: str) -> None:
    for good, bad in {"weather": "w3ather", "Rome": "Roma", '"city"': '"town"'}.items():
        place = refused_at(ONE[form].replace(good, bad), format=form)
        first = next(n for n, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b)
        assert place == ONE[form].index(good) + first


def test_references_stay_within_the_schema_of_their_tool() -> None:
    assert refused_at(ONE["hermes"].replace("weather", "zip").replace('"Rome"', "12")) is None
    assert refused_at(ONE["hermes"].replace('"Rome"', "12")) is not None


def test_llamas_tag_may_stand_after_text() -> None:
    assert refused_at("Let me see. <|python_tag|>" + ONE["llama"], format="llama") is None


def test_a_named_tool_is_forced_as_far_as_there_is_no_choice() -> None:
    chain, context, state = begin(choice={"type": "function", "function": {"name": "now"}})
    (run,) = chain.forced_tokens(state, context)
    assert BYTES.decode(run) == '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def test_a_special_tag_is_forced_as_one_token_and_found_as_such() -> None:
    chain, context, state = begin(WORDS, choice="required")
    assert chain.forced_tokens(state, context)[0][0] == TAG
    chain, context, state = begin(WORDS)
    logits, _ = chain.process(np.zeros((1, WORDS.size), np.float32), state, context.accept([[50, TAG]]))
    assert np.flatnonzero(logits[0] > -np.inf).tolist() == [1 + ord("\n")]


def test_formats_of_ones_own() -> None:
    form = {"call": "CALL ", "end": ";", "name_key": "tool", "arguments_key": "args"}
    assert refused_at('x CALL {"tool": "now", "args": {}}; y', format=form) is None
    assert refused_at('x CALL {"tool": "never", "args": {}};', format=form) == len('x CALL {"tool": "n')
    form = {"call": "<{name}>", "style": "arguments", "end": "!"}
    assert refused_at("<zip>" + '{"city": 11}' + "!", format=form) is None
    spaced = {"json": {"whitespace": "compact"}}
    assert refused_at(ONE["hermes"].replace(": ", ":").replace(", ", ","), **spaced) is None


@pytest.mark.parametrize("name", [record.name for record in registry.available("tool_formats")])
def test_options_of_json_change_the_calls_of_a_format_or_are_refused(name: str) -> None:
    object_of = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"o": object_of}, "required": ["o"]}}

    def least(whitespace: str) -> int:
        options = {"tools": [tool], "format": name, "choice": "required", "json": {"whitespace": whitespace}}
        chain = processors.load(("tool_call", options), tokenizer=BYTES)
        constraint = chain["tool_call"].constraint(BYTES, BYTES.size)
        return constraint.least_tokens(constraint.start())

    if tool_format(name).writes_json:
        assert least("compact") < least("one_space")
    else:
        with pytest.raises(OptionError, match=f"has 'whitespace', but the format '{name}' writes"):
            least("compact")


def test_a_name_may_begin_with_another() -> None:
    tools = [{"name": "a", "parameters": {"maxProperties": 0}}, {"name": "ab", "parameters": {"minProperties": 1}}]
    form = {"call": "@{name}", "style": "arguments", "end": "!"}
    chain = processors.load(("tool_call", {"tools": tools, "format": form, "choice": "required"}), tokenizer=WORDS)
    constraint = chain["tool_call"].constraint(WORDS, WORDS.size)
    for text, end in (("@a{}!", None), ('@ab{"x": 1}!', None), ("@ab{}!", 4), ('@a{"x": 1}!', 3)):
        state = constraint.start()
        for at, byte in enumerate(text.encode()):
            state = constraint.advance(state, 1 + byte)
            assert (state is None) == (at == end), (text, at)
            if state is None:
                break


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": []}, "at least one tool"),
        ({"tools": [{"type": "web_search"}]}, "Tool 0 of 'tool_call' is no function"),
        ({"tools": [{"name": "a", "parameters": {"type": "array"}}]}, "must be a JSON Schema of an object"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "Two tools of 'tool_call' have the name 'a'"),
        ({"tools": [{"name": ""}]}, "empty name"),
        ({"tools": [{"name": "a"}], "choice": "b"}, "the name of a tool: a"),
        ({"tools": [{"name": "a"}], "format": {}}, "needs the entry 'call'"),
        (
            {"tools": [{"name": "a"}], "format": "gemma4", "json": {"whitespace": "compact"}},
            "Option 'json' of 'tool_call' has 'whitespace', but the format 'gemma4' writes strings, arrays and objects",
        ),
        (
            {"tools": [{"name": "a"}], "format": {"call": "x", "begin": "y"}},
            "has no option 'begin'. Its options are call",
        ),
        ({"tools": [{"name": "a"}], "format": {"call": 3}}, "Option 'call' of .* must be str, but is 3"),
        ({"tools": [{"name": "a"}], "format": {"call": "x", "style": "xml"}}, "style of .* is 'xml'; it is one of"),
        ({"tools": [{"name": "a"}], "format": {"call": "{name}"}}, "with the styles 'arguments' and 'parameters'"),
        ({"tools": [{"name": "a"}], "format": {"call": "{name}", "style": "parameters"}}, "needs '{key}'"),
        ({"tools": [{"name": "a"}], "format": {"call": "a b", "trigger": "b"}}, "does not begin 'a b'"),
        ({"tools": [{"name": "a"}], "format": "hermse"}, "'hermse'; give the name .*Did you mean 'hermes'"),
        ({"tools": [{"name": "a"}], "format": "zz"}, "'zz'; .*'logitloom plugins --kind tool_formats' lists the names"),
        ({"tools": [{"name": "a"}], "format": "auto"}, "needs the option 'chat_template'"),
        ({"tools": [{"name": "a"}], "format": "auto", "chat_template": "{{x}}"}, "shows none of the formats"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        processors.load(("tool_call", options))


@FORMATS
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"$ref": "https://example.com/a"}, "/properties/b"),
        ({"type": "strng"}, "/properties/b"),
        ({"type": "string", "pattern": "(?<!a)b"}, "#/properties/b/pattern"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_tool(form: str, wrong: Any, place: str) -> None:
    tools = [*TOOLS, {"name": "last", "parameters": {"type": "object", "properties": {"b": wrong}}}]
    with pytest.raises(UnsupportedSchema, match=f"parameters of the tool 'last': .*{place}"):
        processors.load(("tool_call", {"tools": tools, "format": form}))


@FORMATS
@pytest.mark.parametrize(("choice", "seed"), [("auto", 0), ("auto", 1), ("required", 2), ("required", 3), ("zip", 4)])
def test_whatever_is_written_the_calls_are_valid(form: str, choice: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    chain, context, state = begin(WORDS, format=form, choice=choice)
    tokens: list[int] = []
    accepted: list[int] = []
    wanted = iter(ONE[form].encode() if choice == "auto" else b"")
    for _ in range(400):
        logits, state = chain.process(np.zeros((1, WORDS.size), np.float32), state, context.accept([accepted]))
        legal = np.flatnonzero(logits[0] > -np.inf).tolist()
        # Free text leads to a call.
        guided = next(wanted, None) if len(legal) > 200 else None
        if guided is None and 0 in legal and tokens:
            break
        accepted = [1 + guided] if guided is not None else [int(random.choice(legal))]
        tokens += accepted
    else:
        pytest.fail(f"no end after {WORDS.decode(tokens)!r}")
    text = "".join(WORDS.special_text.get(t) or WORDS.decode([t]) for t in tokens)
    names = check_calls(form, text)
    assert names
    assert choice != "zip" or set(names) == {"zip"}


# -- the real model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", first(2, ["drafts", "greedy", "beams"]))
@pytest.mark.long
@pytest.mark.weights
def test_the_real_model_calls_with_valid_arguments(smollm2: Any, way: str) -> None:
    options = {"tools": TOOLS, "choice": "required", "parallel": False}
    chain = processors.load(("tool_call", options), tokenizer=smollm2.vocabulary)
    more: dict[str, Any] = {
        "beams": {"strategy": BeamSearch(4, samples=4)},
        "drafts": {"candidates": load_plugin("candidates", "prompt_lookup")()},
    }
    generator = Generator(smollm2, chain, max_tokens=60, **more.get(way, {}))
    prompts = ["How is the weather in Rome?", 'Call: {"name": "zip", "arguments": {"city": 12}}\nCall:']
    for sequence in generator([smollm2.tokenizer.encode(prompt) for prompt in prompts]):
        assert sequence.finish == "eos"
        assert len(check_calls("hermes", sequence.text or "")) == 1, sequence.text


@pytest.mark.weights
def test_the_real_model_thinks_before_it_calls(smollm2: Any) -> None:
    call = ["tool_call", {"tools": TOOLS, "choice": "weather", "parallel": False}]
    chain = processors.load(("thinking", {"budget": 8, "then": call}), tokenizer=smollm2.vocabulary)
    (found,) = Generator(smollm2, chain, max_tokens=80)([smollm2.tokenizer.encode("How is the weather in Oslo?")])
    assert found.finish == "eos"
    assert re.match(r"<think>.*</think><tool_call>", found.text or "", re.DOTALL)
    assert check_calls("hermes", found.text or "") == ["weather"]


@pytest.mark.parametrize("name", ["tool_call", "structural_tag"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schema": {"type": "integer"}}, "has 'schema', but .* makes the schema of each value"),
        ({"whitespce": "compact"}, "has 'whitespce', which is no option of the processor 'json'.*whitespace"),
    ],
    ids=["overwritten", "unknown"],
)
def test_options_of_json_that_would_be_ignored_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    own = (
        {"tools": tools} if name == "tool_call" else {"tag": {"type": "structural_tag", "format": {"type": "any_text"}}}
    )
    with pytest.raises(OptionError, match=f"Option 'json' of '{name}' {message}"):
        processors.load((name, {**own, "json": given}))
