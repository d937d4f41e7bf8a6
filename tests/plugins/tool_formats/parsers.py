"""Parsers of tool calls that are not ours: of vLLM, mlx-lm, Cohere's package melody, and Functionary's own."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.plugins.tool_formats.tool_texts import (
    Call,
    Tools,
    constraint_and_reader,
    random_calls,
    random_tools,
    strings_in,
    walk,
    written,
)

#: Per library its parsers, each with the formats that it reads.
PARSERS: dict[str, dict[str, list[str]]] = {
    "vllm": {
        "apertus": ["apertus"],
        "cohere_command3": ["cohere"],
        "cohere_command4": ["cohere"],
        "deepseek_v3": ["deepseek_v3"],
        "deepseek_v31": ["deepseek_v31"],
        "deepseek_v32": ["deepseek_v32"],
        "deepseek_v4": ["deepseek_v4"],
        "deepseek_v41": ["deepseek_v41"],
        "dots": ["dots"],
        "ernie45": ["ernie45"],
        "functiongemma": ["function_gemma"],
        "gemma4": ["gemma4"],
        "gigachat3": ["gigachat3", "gigachat3_10b"],
        "glm45": ["glm45"],
        "glm47": ["glm47"],
        "granite": ["granite"],
        "granite-20b-fc": ["granite_20b_fc"],
        "granite4": ["hermes"],
        "hermes": ["hermes", "exaone4"],
        "hunyuan_a13b": ["hunyuan"],
        "hy_v3": ["hunyuan_v3"],
        "hy_v4": ["hunyuan_v4"],
        "inkling": ["inkling"],
        "internlm": ["internlm2"],
        "jamba": ["jamba"],
        "k2_horizon": ["k2_horizon"],
        "kimi_k2": ["kimi_k2"],
        "kimi_k3": ["kimi_k3"],
        "lfm2": ["lfm2"],
        "ling3": ["ling3", "glm47"],
        "llama3_json": ["llama"],
        "llama4_json": ["llama"],
        "llama4_pythonic": ["llama4_pythonic"],
        "longcat": ["longcat"],
        "mimo": ["mimo"],
        "minicpm5": ["minicpm5"],
        "minimax_m2": ["minimax_m2"],
        "minimax_m3": ["minimax_m3"],
        "mistral": ["mistral_v11"],
        "muse_glimmer": ["muse_glimmer"],
        "olmo3": ["olmo3"],
        "phi4_mini_json": ["phi4_mini"],
        "plamo3": ["plamo3"],
        "poolside_v1": ["glm47", "glm45"],
        "pythonic": ["pythonic"],
        "qwen3_coder": ["qwen3_coder"],
        "qwen3_json": ["hermes"],
        "qwen3_xml": ["qwen3_coder"],
        "seed_oss": ["seed_oss"],
        "step3": ["step3"],
        "step3p5": ["qwen3_coder"],
        "xlam": ["xlam"],
    },
    "mlx_lm": {
        "function_gemma": ["function_gemma"],
        "gemma4": ["gemma4"],
        "glm47": ["glm47", "glm45"],
        "json_tools": ["hermes", "exaone4"],
        "kimi_k2": ["kimi_k2"],
        "kimi_k3": ["kimi_k3"],
        "laguna": ["glm47", "glm45"],
        "longcat": ["longcat"],
        "minicpm5": ["minicpm5"],
        "minimax_m2": ["minimax_m2"],
        "mistral": ["mistral", "mistral_v11"],
        "muse_spark": ["muse_glimmer"],
        "pythonic": ["lfm2"],
        "qwen3_coder": ["qwen3_coder"],
    },
    "melody": {"cmd3": ["cohere"], "cmd4": ["cohere"], "cmd5": ["cohere_xml"]},
    "functionary": {"v3-llama3.1": ["llama_tags"], "v3.llama3": ["functionary_v32"]},
}

#: Parsers without a format, with the reason.
WITHOUT_FORMAT: dict[str, dict[str, str]] = {
    "vllm": {
        "hf": "It reads the format that the tokenizer's 'response_template' describes, which is none of its own.",
        "openai": "It reads token ids of the harmony encoding, not text: the format is 'gpt_oss'.",
    },
    "mlx_lm": {},
    "melody": {},
    "functionary": {},
}


@dataclass(frozen=True)
class Misread:
    """What a parser reads wrong in a format.

    Attributes:
        what: in words.
        types: JSON types that it reads wrong.
        text: a pattern that is found in strings that it reads wrong.
        name: a pattern that is found in names of tools that it reads wrong.
        stray: a tag after which it reads nothing, if it stands in free text.
    """

    what: str
    types: frozenset[str] = frozenset()
    text: str = ""
    name: str = ""
    stray: str = ""

    def text_is_read(self, text: str) -> bool:
        """Whether the parser reads a string right."""
        return not (self.text and re.search(self.text, text))


_NULL: Final = Misread("the string `null` is read as null", text=r"(?i)^\s*null\s*$")
_STRIPPED: Final = Misread("white space at the ends of strings is removed", text=r"^\s|\s$")
#: By library and parser.
MISREAD: Final[dict[tuple[str, str], Misread]] = {
    ("vllm", "functiongemma"): Misread(
        "strings only are read, and a string that is JSON as that JSON",
        frozenset({"integer", "number", "boolean", "null"}),
        r'^\s*(-?\d+(\.\d+)?([eE][+-]?\d+)?|-?Infinity|NaN|true|false|null|["\[{][\s\S]*)\s*$',
    ),
    ("vllm", "granite4"): Misread("nothing is read where free text has `</tool_call>`", stray="</tool_call>"),
    ("vllm", "olmo3"): Misread(
        "a string is cut where Python's splitlines does", text="[\\v\\f\x1c-\x1e\x85\u2028\u2029]"
    ),
    ("vllm", "phi4_mini_json"): Misread("the calls end at the first `]`", frozenset({"array"}), r"\]"),
    ("vllm", "step3"): Misread("arrays and objects are read as strings", frozenset({"array", "object"})),
    ("mlx_lm", "glm47"): _STRIPPED,
    ("mlx_lm", "laguna"): _STRIPPED,
    ("mlx_lm", "minicpm5"): _NULL,
    ("mlx_lm", "minimax_m2"): _NULL,
    ("mlx_lm", "mistral"): Misread("of a name with dots the part after the last one is read", name=r"\."),
    ("mlx_lm", "qwen3_coder"): _NULL,
}


class Result(NamedTuple):
    """What a parser read in the texts of a format.

    Attributes:
        written: texts of given calls, put together from the entries of the format.
        walked: random texts that the constraint allows.
        wrong: of all these those in which other calls were read than those that were meant.
        left_out: random texts with a string that the parser is known to read wrong.
    """

    written: int
    walked: int
    wrong: list[tuple[str, Any, Any]]
    left_out: int


def compare(library: str, parser: str, name: str, seeds: Iterable[int]) -> Result:
    """Let a parser read texts of a format, for one set of tools, one text of each kind, for each seed."""
    form, misread = tool_format(name), MISREAD.get((library, parser), Misread(""))
    written_count = walked = left_out = 0
    wrong: list[tuple[str, Any, Any]] = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        tools = random_tools(form, random, misread.types, misread.name)
        calls = random_calls(form, tools, random, 3 if form.parallel else 1, misread.text_is_read)
        texts: list[tuple[str, Any]] = [(written(form, calls), calls)]
        written_count += 1
        constraint, reader = constraint_and_reader(name, tools, choice="required")
        text = walk(name, constraint, random)
        reader.add(text)
        meant = [(call["name"], call["arguments"]) for call in reader.end().value]
        strayed = misread.stray and text.count(misread.stray) > len(meant)
        if not strayed and all(map(misread.text_is_read, strings_in([arguments for _, arguments in meant]))):
            texts.append((text, meant))
            walked += 1
        else:
            left_out += 1
        for text, expected in texts:
            try:
                found: Any = read(library, parser, tools, text)
            except Exception as error:
                found = repr(error)
            if found != expected:
                wrong.append((text, expected, found))
    return Result(written_count, walked, wrong, left_out)


# --- vLLM -----------------------------------------------------------------------------------------------------------


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

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.ids[token]


def _by_vllm(parser: str, tools: Tools, text: str) -> list[Call]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    message = {"role": "user", "content": "x"}
    request = ChatCompletionRequest(model="m", messages=[message], tools=tools, tool_choice="auto")
    kind = ToolParserManager.get_tool_parser(parser)
    if hasattr(kind, "melody_preset"):  # vLLM reads Cohere's formats with melody
        return _by_melody(kind.melody_preset, tools, text)
    found = kind(_Tokenizer(), request.tools).extract_tool_calls(text, request).tool_calls
    return [(call.function.name, json.loads(call.function.arguments or "{}")) for call in found]


# --- mlx-lm ---------------------------------------------------------------------------------------------------------


def _by_mlx_lm(name: str, tools: Tools, text: str) -> list[Call]:
    """The calls of a text, as mlx-lm's server finds and reads them."""
    parser = importlib.import_module(f"mlx_lm.tool_parsers.{name}")
    parts = text.split(parser.tool_call_start)[1:]
    if name == "minicpm5":
        end = parser.tool_call_end
        parts = [parser.tool_call_start + part.partition(end)[0] + end for part in parts]
    elif parser.tool_call_end:
        parts = [part.partition(parser.tool_call_end)[0] for part in parts]
    calls: list[Call] = []
    for part in parts:
        found = parser.parse_tool_call(part, tools)
        calls += [(call["name"], call["arguments"]) for call in (found if isinstance(found, list) else [found])]
    return calls


# --- melody ---------------------------------------------------------------------------------------------------------


def _by_melody(preset: str, tools: Tools, text: str) -> list[Call]:
    import cohere_melody

    options = getattr(cohere_melody.PyFilterOptions(), preset)()
    found = cohere_melody.PyFilter(options).process_full_text(text).tool_calls
    return [(call.name, json.loads(call.arguments or "{}")) for call in found]


# --- Functionary ----------------------------------------------------------------------------------------------------


def _by_functionary(version: str, tools: Tools, text: str) -> list[Call]:
    del tools
    template = _functionary_templates()[version]
    found = template.parse_assistant_response(text, "auto")["tool_calls"] or []
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in found]


def _functionary_templates() -> dict[str, Any]:
    """The templates of Functionary 3 by version, made without a tokenizer, which parsing does not need."""
    folder = "functionary.prompt_template"
    # The package reads its files as from the folder that it lies in.
    with chdir(Path(importlib.import_module("functionary").__path__[0]).parent):
        kinds = [
            importlib.import_module(f"{folder}.llama3_prompt_template_v3").Llama3TemplateV3,
            importlib.import_module(f"{folder}.llama31_prompt_template").Llama31Template,
        ]
    return {kind.version: kind.__new__(kind) for kind in kinds}


_READ: dict[str, Callable[[str, Tools, str], list[Call]]] = {
    "vllm": _by_vllm, "mlx_lm": _by_mlx_lm, "melody": _by_melody, "functionary": _by_functionary
}  # fmt: skip


def read(library: str, parser: str, tools: Tools, text: str) -> list[Call]:
    """The calls that a parser reads in a text."""
    return _READ[library](parser, tools, text)


def parsers_of(library: str) -> list[str]:
    """The parsers that an installed library has."""
    if library == "vllm":
        from vllm.tool_parsers import ToolParserManager

        return sorted({*ToolParserManager.lazy_parsers, *ToolParserManager.tool_parsers})
    if library == "mlx_lm":
        package = importlib.import_module("mlx_lm.tool_parsers")
        return sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    if library == "functionary":
        return sorted(_functionary_templates())
    cohere_melody = importlib.import_module("cohere_melody")
    return sorted(name.removeprefix("render_") for name in dir(cohere_melody) if name.startswith("render_"))
