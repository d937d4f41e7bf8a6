"""Bodies of requests over HTTP that mean the same to each server."""

from __future__ import annotations

from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "number", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
#: A chat template that tells how calls are written.
TEMPLATE = 'Answer with <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>'
CONSTRAINT = [{"use": "regex", "options": {"pattern": "[0-9]{3}"}}]
SAMPLER = [{"use": "top_k", "options": {"k": 8}}, {"use": "repetition_penalty", "options": {"penalty": 1.1}}]

#: Bodies that each server refuses, with a part of the sentence. Nobody would read what they ask for.
MISPLACED: dict[str, tuple[dict[str, Any], str]] = {
    "a letter is missing": ({"logitlom": CONSTRAINT}, "'logitlom'"),
    "a capital letter": ({"Logitloom": CONSTRAINT}, "'Logitloom'"),
    "an underscore inside vllm_xargs": ({"vllm_xargs": {"logit_loom": "[]"}}, "'logit_loom'"),
    "extra_body": ({"extra_body": {"logitloom": CONSTRAINT}}, "an argument of the Python client"),
    "extra_args": ({"extra_args": {"logitloom": CONSTRAINT}}, "inside the field 'extra_args'"),
    "misspelt vllm_xargs": ({"vllm_args": {"logitloom": "[]"}}, "Write 'vllm_xargs'"),
    "misspelt response_format": ({"responseFormat": FORM}, "Write 'response_format'"),
    "a schema of older vLLM": ({"guided_json": SCHEMA}, "'guided_json', which nobody reads"),
    "a schema of Ollama": ({"format": "json"}, "Write 'response_format'"),
    "functions": ({"functions": [TOOL["function"]]}, "Write 'tools' and 'tool_choice'"),
    "misspelt tool_choice": ({"toolchoice": "required"}, "Write 'tool_choice'"),
}
#: Bodies that servers which run chains for ``response_format`` and ``tools`` refuse, those above included.
REFUSED: dict[str, tuple[dict[str, Any], str]] = MISPLACED | {
    "a chain twice": ({"logitloom": SAMPLER, "vllm_xargs": {"logitloom": SAMPLER}}, "'logitloom' twice"),
    "an empty chain": ({"logitloom": []}, "at least one processor"),
    "two constraints": ({"logitloom": CONSTRAINT, "response_format": FORM}, "in 'logitloom' ('regex') and in 'respon"),
    "a format and tools": (
        {"response_format": FORM, "tools": [TOOL], "tool_choice": "required"}, "in 'response_format' and in 'tools'"
    ),
}  # fmt: skip
