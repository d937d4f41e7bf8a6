"""Tool calls of answers, read from the text by the format of the chain, in the form of OpenAI's protocol."""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple

from logitloom import Chain
from logitloom.errors import GenerationError
from logitloom.generation.partial_values import ValueReader, value_reader_of

__all__ = ["CallsInText", "ReadAnswer", "numbered"]


class ReadAnswer(NamedTuple):
    """A finished answer, or the last piece of one.

    Attributes:
        content: the text before the calls; with no calls all of it.
        calls: ``tool_calls`` of OpenAI's protocol.
    """

    content: str
    calls: list[dict[str, Any]]


class CallsInText:
    """Tells the free text of one answer from its tool calls, whole or in pieces.

    Args:
        reader: of the chain's ``tool_call``.
        trigger: the text with which the first call begins.

    Example:
        >>> from logitloom import processors
        >>> chain = processors.load(("tool_call", {"tools": [{"name": "now"}], "format": "hermes"}))
        >>> calls = CallsInText.of(chain)
        >>> calls.add("Wait. <tool"), calls.add('_call>\\n{"name": "now", "arguments": {}}\\n</tool_call>')
        ('Wait. ', '')
        >>> [call["function"] for call in calls.end().calls]
        [{'name': 'now', 'arguments': '{}'}]
    """

    def __init__(self, reader: ValueReader, trigger: str) -> None:
        self._reader, self._trigger = reader, trigger
        self._text, self._told = "", 0

    @classmethod
    def of(cls, chain: Chain | None) -> CallsInText | None:
        """A reader of the calls that a chain lets a model write; None if the chain writes none."""
        for link in chain.links if chain is not None else ():
            trigger = getattr(getattr(link.processor, "form", None), "first_trigger", None)
            if trigger is not None:
                reader = value_reader_of(link.processor)
                return None if reader is None else cls(reader, trigger)
        return None

    def add(self, piece: str) -> str:
        """What of the text can be told before the answer has ended: free text that begins no call."""
        self._text += piece
        told = self._free()
        begun, self._told = self._told, max(told, self._told)
        return self._text[begun : self._told]

    def end(self) -> ReadAnswer:
        """The rest of the free text, and the calls; a text that was cut off within a call has none of them."""
        calls: list[dict[str, Any]] = []
        try:
            self._reader.add(self._text)
            value = self._reader.end()
            calls = list(value.value) if value.complete else []
        except GenerationError:
            pass  # the text was cut off: the client gets it as it is
        if not calls:
            return ReadAnswer(self._text[self._told :], [])
        at = self._text.find(self._trigger) if self._trigger else 0
        content = self._text[self._told : max(at, self._told)]
        return ReadAnswer(content if content.strip() else "", [_call(call) for call in calls])

    def _free(self) -> int:
        """How many letters are free text for certain."""
        text, trigger = self._text, self._trigger
        at = text.find(trigger) if trigger else 0
        if at >= 0:
            return at
        kept = next((n for n in range(min(len(trigger), len(text)), 0, -1) if trigger.startswith(text[-n:])), 0)
        return len(text) - kept


def numbered(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls in the form of streamed answers, each with its index."""
    return [{"index": index, **call} for index, call in enumerate(calls)]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call in the form of the protocol, with the id that the model wrote where its format has ids."""
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
    return {"id": str(call.get("id") or f"call-{uuid.uuid4()}"), "type": "function", "function": function}
