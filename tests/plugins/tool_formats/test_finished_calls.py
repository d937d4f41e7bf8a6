"""The calls in a finished text or its tokens, in every format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, processors
from logitloom.errors import GenerationError, NeedsNotMet
from logitloom.generation import read_value
from logitloom_plugins.tool_formats.builtin import tables
from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.plugins.tool_formats.tool_texts import random_calls, random_tools, written

TAG = "<tool_call>"
WORDS = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), b"", b""], eos=[256], special=[257], special_text={257: TAG}
)
TOOLS = [{"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}]


@pytest.mark.parametrize("name", sorted(tables()))
@pytest.mark.long
def test_the_calls_are_those_that_were_written(name: str) -> None:
    form, random = tool_format(name), np.random.default_rng(4)
    tools = random_tools(form, random)
    calls = random_calls(form, tools, random, 1)
    text = written(form, calls)
    chain = processors.load(("tool_call", {"tools": tools, "format": name, "choice": "required"}), tokenizer=WORDS)
    expected = [{"name": called, "arguments": arguments} for called, arguments in calls]
    assert read_value(chain, text) == expected
    assert read_value(chain, [*text.encode(), 256]) == expected


def test_special_tokens_are_read_from_ids() -> None:
    chain = processors.load(("tool_call", {"tools": TOOLS}), tokenizer=WORDS)
    rest = '\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    assert read_value(chain, [257, *rest.encode(), 256]) == [{"name": "add", "arguments": {"a": 2}}]


def test_what_is_no_finished_text_of_the_chain_is_told() -> None:
    chain = processors.load(("tool_call", {"tools": TOOLS}))
    with pytest.raises(GenerationError, match="ends too early for 'tool_call'"):
        read_value(chain, f'{TAG}\n{{"name": "add", "argu')
    with pytest.raises(GenerationError, match="none that 'tool_call' allows"):
        read_value(chain, f'{TAG}\n{{"name": "subtract"')
    with pytest.raises(NeedsNotMet, match="this chain has none: load it with tokenizer"):
        read_value(chain, [1, 2])
    with pytest.raises(NeedsNotMet, match="says what its texts mean: temperature"):
        read_value(processors.load("temperature"), "a")


def test_a_text_of_json_is_its_value() -> None:
    chain = processors.load(("json", {"schema": {"type": "object"}}))
    assert read_value(chain, '{"a": [1.5, null]}') == {"a": [1.5, None]}
    with pytest.raises(GenerationError, match="ends too early for 'json'"):
        read_value(chain, '{"a": [1')


@pytest.mark.parametrize("letters", [1, 5000])
def test_a_text_of_json_that_violates_the_schema_is_told(letters: int) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    chain = processors.load(("json", {"schema": schema}))
    text = letters * "\u00e9"
    begun = f'{{"a": "{text}", "b": '
    assert read_value(chain, begun + "3}") == {"a": text, "b": 3}
    for wrong in ('"3"}', "true}", "[]}"):
        with pytest.raises(GenerationError, match=f"none that 'json' allows: it goes wrong at character {len(begun)}"):
            read_value(chain, begun + wrong)
    with pytest.raises(GenerationError, match="none that 'json' allows: it goes wrong at character 0"):
        read_value(chain, f" {begun}3}}")


def test_a_processor_that_has_the_whole_text_inside_another_is_read() -> None:
    call = ["tool_call", {"tools": TOOLS, "choice": "required"}]
    text = f'{TAG}\n{{"name": "add", "arguments": {{"a": 2}}}}\n</tool_call>'
    chain = processors.load(("all_of", {"inner": [["bad_words", {"phrases": ["3"]}], call]}), tokenizer=WORDS)
    assert read_value(chain, text) == [{"name": "add", "arguments": {"a": 2}}]
    with pytest.raises(GenerationError, match="none that 'all_of' allows"):
        read_value(chain, text.replace("2", "3"))
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"enum": [[1], [2]]}}}
    assert read_value(processors.load(("structural_tag", {"tag": tag})), "[2]") == [2]


SEQUENCE = {
    "type": "sequence",
    "elements": [{"type": "const_string", "value": "a"}, {"type": "json_schema", "json_schema": {}}],
}


@pytest.mark.parametrize(
    "spec",
    [
        ("thinking", {"then": ["tool_call", {"tools": TOOLS}]}),
        ("after", {"trigger": "b", "inner": ["tool_call", {"tools": TOOLS}]}),
        ("structural_tag", {"tag": {"type": "structural_tag", "format": SEQUENCE}}),
    ],
)
def test_of_a_processor_that_has_a_part_of_the_text_the_remedy_is_told(spec: Any) -> None:
    with pytest.raises(NeedsNotMet, match="give the part of the text that the inner processor constrains"):
        read_value(processors.load(spec), "a")
