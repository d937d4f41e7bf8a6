"""Every format of tool calls, read by parsers that are not ours: the calls that were meant, in every text."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from logitloom_plugins.tool_formats.builtin import tables
from tests.plugins.tool_formats.parsers import PARSERS, WITHOUT_FORMAT, compare, parsers_of

PAIRS = [
    (library, parser, name)
    for library, parsers in PARSERS.items()
    for parser, names in parsers.items()
    for name in names
]
IDS = [f"{name}-{library}-{parser}" for library, parser, name in PAIRS]
#: The formats of xgrammar's structural tags.
XGRAMMAR = {
    "cohere": "cohere_xml", "deepseek_r1": "deepseek_v3", "deepseek_v3_1": "deepseek_v31",
    "deepseek_v3_2": "deepseek_v32", "deepseek_v4": "deepseek_v4", "deepseek_v4_1": "deepseek_v41",
    "exaone": "exaone4", "glm_4_7": "glm47", "harmony": "gpt_oss", "kimi": "kimi_k2", "kimi_k3": "kimi_k3",
    "llama": "llama", "mimo": "mimo", "minimax": "minimax_m2", "minimax_m3": "minimax_m3", "qwen_3": "hermes",
    "qwen_3_5": "qwen3_coder", "qwen_3_coder": "qwen3_coder",
}  # fmt: skip
#: The formats of vLLM's own structural tags.
VLLM_TAGS = {
    "glm_4_7": "glm47", "harmony": "gpt_oss", "hermes": "hermes", "hy_v4": "hunyuan_v4", "kimi_k3": "kimi_k3",
    "longcat": "longcat", "minimax": "minimax_m2", "plamo3": "plamo3",
}  # fmt: skip

# The libraries and what they import warn.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]


def library(name: str) -> Any:
    """The installed library; the test is skipped without it."""
    module = "cohere_melody" if name == "melody" else name
    return pytest.importorskip(module, reason=f"the package {module} is not installed")


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_of_an_installed_library_has_a_format_or_a_reason(name: str) -> None:
    library(name)
    assert parsers_of(name) == sorted({**PARSERS[name], **WITHOUT_FORMAT[name]})
    assert {form for names in PARSERS[name].values() for form in names} <= set(tables())


def test_every_structural_tag_of_xgrammar_has_a_format() -> None:
    library("xgrammar")
    tags = importlib.import_module("xgrammar.builtin_structural_tag")._structural_tag_registry
    assert sorted(tags) == sorted(XGRAMMAR)
    assert set(XGRAMMAR.values()) <= set(tables())


def test_every_structural_tag_of_vllm_has_a_format() -> None:
    library("vllm")
    registry = importlib.import_module("vllm.tool_parsers.structural_tag_registry")
    importlib.import_module("vllm.parser.harmony")  # registers its tag when it is imported, and nothing else imports it
    assert sorted(registry._VLLM_STRUCTURAL_TAG_REGISTRY) == sorted(VLLM_TAGS)
    assert set(VLLM_TAGS.values()) <= set(tables())


@pytest.mark.parametrize(("name", "parser", "form"), PAIRS, ids=IDS)
def test_the_parser_reads_the_calls_that_were_meant(name: str, parser: str, form: str) -> None:
    library(name)
    assert compare(name, parser, form, range(2, 4)).wrong == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "parser", "form"), PAIRS, ids=IDS)
def test_the_parser_reads_the_calls_of_200_sets_of_tools(name: str, parser: str, form: str) -> None:
    library(name)
    found = compare(name, parser, form, range(int(os.environ.get("LOGITLOOM_TOOL_SETS", "200"))))
    assert found.wrong == []
    assert found.walked
