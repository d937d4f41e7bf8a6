"""What a request to a server asks for x every kind of JSON value: a chain document, or a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import Vocabulary
from logitloom.errors import LogitloomError
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.servers.request_body import asked_chain

WORDS = Vocabulary([b"", *[bytes([code]) for code in range(32, 127)]], eos=[0])


def nested(levels: int, key: str | None = None) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if key is None else {key: value}
    return value


VALUES: list[Any] = [
    True, False, -1, 0, 2**64, 0.5, 1e300, "", "x", "[", "\ud800", [], [[]], [None], ["x"], [5], {}, {"a": {}},
    {"type": 5}, {"type": []}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 5}, {"use": "regex"},
    [{"use": 5}], [{"use": "regex", "options": 5}], {"logitloom": 5}, {"type": "structural_tag", "format": 5},
    {"type": "json_schema", "json_schema": {"schema": 5}}, [{"type": "function"}],
    [{"type": "function", "function": 5}], [{"type": "function", "function": {"name": 5}}],
    [{"function": {"name": "a", "parameters": 5}}], nested(900), nested(900, "items"), nested(900, "function"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", ["logitloom", "vllm_xargs", "response_format", "tools", "tool_choice", "both"])
def test_any_value_in_a_request_is_taken_or_refused_with_a_sentence(key: str) -> None:
    """As the server's handler reads it: the request, then the chain."""
    permissions = Permissions(allow=frozenset({"regex", "json", "tool_call", "structural_tag"}))
    chains, told = ChainCache(permissions, WORDS, WORDS.size, engine="a server"), []
    for value in VALUES:
        body = {key: value} if key != "both" else {"logitloom": value, "response_format": {"type": "json_object"}}
        if key == "tool_choice":
            body["tools"] = [{"type": "function", "function": {"name": "look"}}]
        for template in (None, "{{ tools }}"):
            try:
                asked = asked_chain(body, chat_template=template)
                if asked is not None:
                    chains.get(asked)
            except LogitloomError as error:
                told.append(str(error))
    assert told
    assert min(map(len, told)) > 20
