"""The value that a finished text says: the calls of ``tool_call``, the value of ``json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logitloom.arguments import ids, instance
from logitloom.chain import Chain
from logitloom.errors import GenerationError, NeedsNotMet
from logitloom.generation.partial_values import value_reader_of
from logitloom.vocabulary import Vocabulary

__all__ = ["read_value"]


def read_value(chain: Chain, text: str | Sequence[int]) -> Any:
    """The value of a finished text that a chain constrained, from any engine.

    Args:
        chain: with a processor whose texts are values: ``json``, ``tool_call``, or one of another package.
        text: the text, or its token ids without the prompt, which the chain's vocabulary turns into text. Give the ids
            where the model writes calls with special tokens, because texts usually leave these out.

    Returns:
        Of ``tool_call`` the list of calls in any format, each ``{"name": ..., "arguments": {...}}``; of ``json`` the
        value that ``json.loads`` would give.

    Raises:
        NeedsNotMet: the texts of no processor in the chain are values, or ids are given and the chain has no
            vocabulary.
        GenerationError: the processor does not allow the text, or the text ends too early.

    Example:
        >>> from logitloom import processors
        >>> tools = [{"name": "now"}, {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}]
        >>> chain = processors.load(("tool_call", {"tools": tools, "format": "hermes"}))
        >>> read_value(chain, 'Yes. <tool_call>\\n{"name": "add", "arguments": {"a": 2}}\\n</tool_call>')
        [{'name': 'add', 'arguments': {'a': 2}}]
        >>> read_value(chain, "No call.")
        []
    """
    instance(chain, Chain, "chain", GenerationError)
    found = ((link.label, value_reader_of(link.processor)) for link in chain.links)
    label, reader = next(((label, reader) for label, reader in found if reader is not None), ("", None))
    if reader is None:
        raise NeedsNotMet(
            f"No processor of this chain says what its texts mean: {', '.join(chain.labels) or 'it is empty'}. Give a "
            f"chain with 'json' or 'tool_call' whose schemas need no grammar engine."
        )
    if not isinstance(text, str):
        tokens = ids(text, "text", GenerationError)
        if chain.vocabulary is None:
            raise NeedsNotMet(
                "Ids are turned into text by a vocabulary, and this chain has none: load it with tokenizer=..."
            )
        text = _written(chain.vocabulary, tokens)
    reader.add(text)
    value = reader.end()
    if not value.complete:
        raise GenerationError(
            f"The text ends too early for {label!r}: ...{text[-40:]!r}. Give more tokens, or read what there is "
            f"of it with the pieces of Generator.stream."
        )
    return value.value


def _written(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """The text of ids with special tokens as they are written, without the end of the sequence."""
    kept = list(tokens)
    while kept and kept[-1] in vocabulary.eos:
        kept.pop()
    parts = (
        vocabulary.special_text[token].encode() if token in vocabulary.special_text else vocabulary.text_bytes([token])
        for token in kept
    )
    return b"".join(parts).decode("utf-8", "replace")
