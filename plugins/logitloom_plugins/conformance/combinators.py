"""Built-in processors that have other processors inside, and those of grammar engines."""

# ruff: noqa: RUF012 - what each class is for is its name; cases are read only

from __future__ import annotations

import importlib.util

import pytest

from logitloom import Vocabulary
from logitloom_plugins.conformance.processors import AB, ConstraintProcessorConformance

#: A vocabulary of single bytes, so that every text can be written.
BYTES = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], eos=[0], name="bytes")


def _needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"the package {package} is not installed")


#: No automaton has as many states as lists may be deep.
_NESTED = {
    "$defs": {"l": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/l"}, {"const": 1}]}}},
    "$ref": "#/$defs/l",
}
_TAG = {"begin": "<a", "content": {"type": "json_schema", "json_schema": _NESTED}, "end": ">"}
_BRACKETS = 'root ::= "a" root "b" | "1"'


class _OverAB(ConstraintProcessorConformance):
    vocabulary = AB
    vocab_size = 8


class TestAfter(_OverAB):
    processor = "after"
    cases = {"choice": {"trigger": "b", "inner": ["choice", {"choices": ["aa", "ab1"]}]}}


class TestAllOf(_OverAB):
    processor = "all_of"
    cases = {"regex": {"inner": [["regex", {"pattern": "[ab1]{2,4}"}], ["regex", {"pattern": "[ab]*1[ab]*"}]]}}


class TestBetween(_OverAB):
    processor = "between"
    cases = {"regex": {"open": "a", "close": "b", "inner": ["regex", {"pattern": "1{1,3}"}]}}


class TestBudget(_OverAB):
    processor = "budget"
    cases = {"text": {"n": 2, "text": "ab", "then": ["choice", {"choices": ["11", "b"]}]}}


class TestGrammar(_OverAB):
    pytestmark = _needs("llguidance")
    processor = "grammar"
    cases = {"brackets": {"grammar": _BRACKETS, "engine": "llguidance"}}


class TestGrammarOnXgrammar(_OverAB):
    pytestmark = _needs("xgrammar")
    processor = "grammar"
    cases = {"brackets": {"grammar": _BRACKETS, "engine": "xgrammar"}}


class _OverBytes(ConstraintProcessorConformance):
    vocabulary = BYTES
    vocab_size = BYTES.size + 3


class TestJsonOnLlguidance(_OverBytes):
    pytestmark = _needs("llguidance")
    processor = "json"
    cases = {"nested": {"schema": _NESTED, "engine": "llguidance", "whitespace": "compact"}}


class TestJsonOnXgrammar(_OverBytes):
    pytestmark = _needs("xgrammar")
    processor = "json"
    cases = {"nested": {"schema": _NESTED, "engine": "xgrammar", "whitespace": "compact"}}


class TestStructuralTag(_OverBytes):
    processor = "structural_tag"
    cases = {"triggers": {"tag": {"type": "triggered_tags", "triggers": ["<"], "tags": [_TAG], "at_least_one": True}}}


class TestThinking(_OverAB):
    processor = "thinking"
    cases = {"short": {"budget": 2, "open": "1", "close": "b1", "then": ["choice", {"choices": ["ab", "aa"]}]}}


class TestToolCall(_OverBytes):
    processor = "tool_call"
    cases = {"required": {"tools": [{"type": "function", "function": {"name": "now"}}], "choice": "required"}}


class TestUntil(_OverAB):
    processor = "until"
    cases = {"regex": {"trigger": "b", "inner": ["regex", {"pattern": "[1a]*b?"}], "then": ["top_k", {"k": 3}]}}


__all__ = [name for name in tuple(globals()) if name.startswith("Test")]
