"""What the tool parsers of vLLM read in calls as formats write them, and in random texts that constraints allow."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import numpy as np
import pytest

from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.plugins.tool_formats.tool_texts import Call, constraint_of, random_calls, random_tools, walk, written

pytest.importorskip("vllm", reason="the package vllm is not installed")
jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

# The library and what it imports warn.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

#: Sets of tools per format and parser.
SETS = 200 if os.environ.get("LOGITLOOM_EXHAUSTIVE") else 20

#: The parsers of vLLM by format. What a parser cannot read of a format is left out of the tools. That of FunctionGemma
#: reads strings only, and those that look like numbers as numbers; mlx-lm's parser is asked instead.
PARSERS: dict[str, tuple[list[str], set[str]]] = {
    "apertus": (["apertus"], set()),
    "deepseek_v3": (["deepseek_v3"], set()),
    "deepseek_v31": (["deepseek_v31"], set()),
    "deepseek_v32": (["deepseek_v32"], set()),
    "deepseek_v4": (["deepseek_v4"], set()),
    "deepseek_v41": (["deepseek_v41"], set()),
    "dots": (["dots"], set()),
    "ernie45": (["ernie45"], set()),
    "exaone4": (["hermes"], set()),
    "gemma4": (["gemma4"], set()),
    "gigachat3": (["gigachat3"], set()),
    "glm45": (["glm45"], set()),
    "glm47": (["glm47", "ling3", "poolside_v1"], set()),
    "granite": (["granite"], set()),
    "granite_20b_fc": (["granite-20b-fc"], set()),
    "hermes": (["hermes"], set()),
    "hunyuan": (["hunyuan_a13b"], set()),
    "hunyuan_v3": (["hy_v3"], set()),
    "hunyuan_v4": (["hy_v4"], set()),
    "inkling": (["inkling"], set()),
    "internlm2": (["internlm"], set()),
    "jamba": (["jamba"], set()),
    "k2_horizon": (["k2_horizon"], set()),
    "kimi_k2": (["kimi_k2"], set()),
    "kimi_k3": (["kimi_k3"], set()),
    "lfm2": (["lfm2"], set()),
    "llama": (["llama3_json", "llama4_json"], set()),
    "llama4_pythonic": (["llama4_pythonic"], set()),
    "longcat": (["longcat"], set()),
    "mimo": (["mimo"], set()),
    "minicpm5": (["minicpm5"], set()),
    "minimax_m2": (["minimax_m2"], set()),
    "minimax_m3": (["minimax_m3"], set()),
    "mistral_v11": (["mistral"], set()),
    # A string that looks like JSON is read as that JSON.
    "muse_glimmer": (["muse_glimmer"], {"string"}),
    "olmo3": (["olmo3"], set()),
    "phi4_mini": (["phi4_mini_json"], {"array"}),
    "plamo3": (["plamo3"], set()),
    "pythonic": (["pythonic"], set()),
    "qwen3_coder": (["qwen3_coder", "step3p5"], set()),
    "seed_oss": (["seed_oss"], set()),
    "step3": (["step3"], {"array", "object"}),
    "xlam": (["xlam"], set()),
}
PAIRS = [(name, parser, left_out) for name, (parsers, left_out) in PARSERS.items() for parser in parsers]
IDS = [f"{name}-{parser}" for name, parser, _ in PAIRS]


class _Ids(dict[str, int]):
    """A vocabulary that has every token."""

    def __missing__(self, token: str) -> int:
        self[token] = len(self) + 1
        return self[token]

    def get(self, token: str, default: Any = None) -> int:
        return self[token]

    def __contains__(self, token: object) -> bool:
        return True


class _Tokenizer:
    """What the parsers ask of a tokenizer: ids of their special tokens."""

    chat_template = ""
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.ids, self.init_kwargs = _Ids(), dict[str, Any]()

    def get_vocab(self) -> _Ids:
        return self.ids

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self.ids[character] for character in text]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def parsed(parser: str, tools: list[dict[str, Any]], text: str) -> list[Call]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    message = {"role": "user", "content": "x"}
    request = ChatCompletionRequest(model="m", messages=[message], tools=tools, tool_choice="auto")
    made = ToolParserManager.get_tool_parser(parser)(_Tokenizer(), request.tools)
    found = made.extract_tool_calls(text, request).tool_calls
    return [(call.function.name, json.loads(call.function.arguments or "{}")) for call in found]


def tools_for(name: str, left_out: set[str], random: np.random.Generator) -> list[dict[str, Any]]:
    return random_tools(random, nested=tool_format(name).nested, left_out=left_out)


@pytest.mark.parametrize(("name", "parser", "left_out"), PAIRS, ids=IDS)
def test_the_parser_reads_the_calls_that_were_meant(name: str, parser: str, left_out: set[str]) -> None:
    form = tool_format(name)
    for seed in range(SETS):
        random = np.random.default_rng(seed)
        tools = tools_for(name, left_out, random)
        calls = random_calls(tools, random, 3 if form.parallel else 1)
        assert parsed(parser, tools, written(form, calls, tools)) == calls


@pytest.mark.parametrize(("name", "parser", "left_out"), PAIRS, ids=IDS)
def test_the_parser_reads_valid_calls_in_random_texts(name: str, parser: str, left_out: set[str]) -> None:
    for seed in range(SETS // 4):
        random = np.random.default_rng(seed)
        tools = tools_for(name, left_out, random)
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        text = walk(name, constraint_of(name, tools, choice="required"), random)
        found = parsed(parser, tools, text)
        assert found, text
        for tool, arguments in found:
            jsonschema.validate(arguments, schemas[tool])
