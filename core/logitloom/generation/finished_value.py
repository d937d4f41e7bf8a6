"""Finished texts: the value that a text says, such as the calls of ``tool_call``, and the reading of a text by a
constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from logitloom.arguments import ids, instance
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.constraints import Constraint, State
from logitloom.errors import GenerationError, NeedsNotMet
from logitloom.generation.partial_values import value_reader_of
from logitloom.vocabulary import Vocabulary

__all__ = ["read_value", "text_state"]

#: Bytes of a long text that are read as one token while the text is allowed: engines copy their matcher for each token.
_PIECE: Final = 256
#: Up to so many bytes are read one by one, with a vocabulary whose tables are remembered.
_SHORT: Final = 2048
_BYTES: Final = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], eos=[256], name="all bytes")


def read_value(chain: Chain, text: str | Sequence[int]) -> Any:
    """The value of a finished text that a chain constrained, from any engine.

    Args:
        chain: with a processor whose texts are values: ``json``, ``tool_call``, one of another package, or a combinator
            that has one of these for the whole text (``all_of``).
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
    found = ((link, value_reader_of(link.processor)) for link in chain.links)
    link, reader = next(((link, reader) for link, reader in found if reader is not None), (None, None))
    if link is None or reader is None:
        raise NeedsNotMet(
            f"No processor of this chain says what its texts mean: {', '.join(chain.labels) or 'it is empty'}. Give a "
            f"chain with 'json' or 'tool_call' whose schemas need no grammar engine. If such a processor is inside "
            f"another one, such as 'thinking', give the part of the text that the inner processor constrains, and a "
            f"chain with the inner processor alone."
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
            f"The text ends too early for {link.label!r}: ...{text[-40:]!r}. Give more tokens, or read what there is "
            f"of it with the pieces of Generator.stream."
        )
    if link.is_constraint:
        _require_allowed(link, text)
    return value.value


def _require_allowed(link: Link, text: str) -> None:
    data = text.encode(errors="surrogatepass")
    constraint, state, position = text_state(link.constraint, data)
    if position < len(data) or not constraint.may_end(state):
        read = data[:position].decode("utf-8", "replace")
        raise GenerationError(
            f"The text is none that {link.label!r} allows: it goes wrong at character {len(read)}, after "
            f"{read[-40:]!r}. Read texts that the constraint has kept to its form, with the same options."
        )


def text_state(find: Callable[[Vocabulary, int], Constraint], text: bytes) -> tuple[Constraint, State, int]:
    """Read a text by a constraint.

    Args:
        find: the hook ``constraint`` of a processor.
        text: the bytes of the text.

    Returns:
        The constraint, whose vocabulary begins with the 256 bytes; its last state; and the number of bytes that it
        allows.
    """
    size = _PIECE if len(text) > _SHORT else 1
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    # Every byte and every piece of the text is a token, so that the constraint can read either.
    longer = dict.fromkeys(piece for piece in pieces if len(piece) > 1)
    vocabulary = Vocabulary([*_BYTES.token_bytes, *longer], eos=[256], name=_BYTES.name) if longer else _BYTES
    number = {piece: token for token, piece in enumerate(vocabulary.token_bytes)}
    constraint = find(vocabulary, vocabulary.size)
    state: State = constraint.start()
    for n, piece in enumerate(pieces):
        whole = constraint.advance(state, number[piece])
        if whole is not None:
            state = whole
            continue
        for position, byte in enumerate(piece, n * size):
            after = constraint.advance(state, byte)
            if after is None:
                return constraint, state, position
            state = after
    return constraint, state, len(text)


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
