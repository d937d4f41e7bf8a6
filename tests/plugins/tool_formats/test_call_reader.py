"""The calls that a text says so far: at every prefix consistent with the calls that are meant, in every format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import GenerationError
from logitloom.generation import Generator, Partial
from logitloom_contrib.llama import random_model
from logitloom_plugins.tool_formats.builtin import tables
from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.plugins.test_json_text import check_consistent, parts
from tests.plugins.tool_formats.tool_texts import random_calls, random_tools, reader_of, written

FORMATS = pytest.mark.parametrize("name", sorted(tables()))


def check_reading(name: str, seed: int) -> None:
    form, random = tool_format(name), np.random.default_rng(seed)
    tools = random_tools(form, random)
    several = form.parallel and (form.separator or form.end or form.style == "array")
    calls = random_calls(form, tools, random, 3 if several else 1)
    text = written(form, calls)
    wanted = [{"name": called, "arguments": arguments} for called, arguments in calls]
    whole, completed, counts = parts(wanted), set[Any](), []
    reader = reader_of(name, tools)
    for character in text:
        partial = reader.add(character)
        assert not completed & set(partial.completed), "each part is completed once"
        completed |= set(partial.completed)
        check_consistent(partial, whole, completed)
        counts.append((partial.value, partial.path, len(completed)))
    last = reader.end()
    assert (last.value, last.path, last.complete) == (wanted, None, True)
    assert completed | set(last.completed) == set(whole)
    pieces, place, count = reader_of(name, tools), 0, 0
    while place < len(text):
        end = min(place + int(random.integers(1, 12)), len(text))
        partial, place = pieces.add(text[place:end]), end
        count += len(partial.completed)
        assert (partial.value, partial.path, count) == counts[place - 1]


@FORMATS
@pytest.mark.long
def test_every_prefix_is_consistent_with_the_calls_that_are_meant(name: str) -> None:
    check_reading(name, 2)


@pytest.mark.exhaustive
@FORMATS
def test_every_prefix_of_calls_of_50_sets_of_tools_is_consistent(name: str) -> None:
    for seed in range(50):
        check_reading(name, seed)


def test_text_around_calls_is_no_part_of_them() -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
    reader = reader_of("qwen3_coder", tools, reasoning="</think>")
    assert reader.add("<tool_call> is not yet one.</think>Well: <tool").value == []
    assert reader.add("_call>\n<function=f>\n<parameter=a>\nx \n<").value == [{"name": "f", "arguments": {"a": "x "}}]
    assert reader.add("/b").value == [{"name": "f", "arguments": {"a": "x \n</b"}}]
    assert reader.add(" \n</parameter>\n</function>\n</tool_call>").completed[-1] == (0,)
    assert reader.end().complete


def test_a_text_that_breaks_the_format_is_an_error_that_names_the_byte() -> None:
    reader = reader_of("hermes", [{"name": "now"}])
    with pytest.raises(GenerationError, match="none that 'tool_call' allows: .* goes wrong at byte 12. Read texts"):
        reader.add("<tool_call>\n[")


def test_a_stream_has_the_calls_so_far_where_tags_are_special_tokens() -> None:
    words = Vocabulary(
        [b"", b"", b"", *[bytes([byte]) for byte in range(256)]],
        eos=[0], special=[1, 2], special_text={1: "<tool_call>", 2: "</tool_call>"},
    )  # fmt: skip
    tools = [{"name": "f", "parameters": {"properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}}]
    chain = processors.load(("tool_call", {"tools": tools, "choice": "required", "parallel": False}), tokenizer=words)
    model = random_model("numpy", vocab=words.size, tied=False)
    *_, last = Generator(model, chain, max_tokens=120).stream([[5, 6]])
    assert isinstance(last.partial, Partial)
    assert last.partial.complete
    [call] = last.partial.value
    assert call["name"] == "f"
    assert call["arguments"]["n"] in (1, 2)
