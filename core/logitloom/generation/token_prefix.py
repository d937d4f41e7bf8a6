"""Tokens of a changed text: the longest possible prefix of the old tokens, then newly encoded tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from logitloom.errors import GenerationError, SlicingError
from logitloom.host.text_encoder import text_encoder
from logitloom.vocabulary import Vocabulary

__all__ = ["common_prefix", "continuation_ids", "kept_prefix", "retokenized"]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix of two sequences.

    Example:
        >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
        2
    """
    n = min(len(a), len(b))
    if tuple(a[:n]) == tuple(b[:n]):
        return n
    return next(i for i in range(n) if a[i] != b[i])


def continuation_ids(text: str, tokenizer: Any) -> list[int]:
    """The ids of a text that continues another text: without the special tokens that a tokenizer adds around a text.

    Args:
        text: any text.
        tokenizer: a tokenizer of any library.

    Raises:
        GenerationError: without a tokenizer.
    """
    if tokenizer is None:
        raise GenerationError(
            f"The text {_shortened(text)} must be turned into tokens, but the sequences came from a generator "
            f"without a tokenizer. Give Generator(tokenizer=...)."
        )
    encoder = text_encoder(tokenizer)
    ids, around = encoder.encode(text), encoder.encode("")
    if not around:
        return ids
    before = common_prefix(ids, around)
    ids, around = ids[before:], around[before:]
    after = common_prefix(ids[::-1], around[::-1])
    return ids[: len(ids) - after]


def kept_prefix(tokens: Sequence[int], text: str, vocabulary: Vocabulary) -> int:
    """The largest number of first tokens of a row whose text is a prefix of a text, whole characters of it.

    Args:
        tokens: the tokens of the row.
        text: the new text; a byte that is no part of a character is U+FFFD in it.
        vocabulary: bytes of the tokens.

    Example:
        >>> kept_prefix([0, 1, 2], "hello wo", Vocabulary([b"he", b"llo", b" world"]))
        2
    """
    written = vocabulary.text_bytes(tokens)
    # U+FFFD has as many bytes as it can stand for, or more.
    longest = len(text.encode())
    ends = list(accumulate((len(vocabulary.text_bytes((token,))) for token in tokens), initial=0))
    for kept in range(len(tokens), 0, -1):
        end = ends[kept]
        if end <= longest and text.startswith(written[:end].decode("utf-8", "replace")):
            return kept
    return 0


def retokenized(tokens: Sequence[int], text: str, vocabulary: Vocabulary, tokenizer: Any) -> tuple[int, ...]:
    """Tokens of a text that begins with the text of a row's first tokens: these tokens, then the rest newly encoded.

    Args:
        tokens: the tokens of the row.
        text: the text of the result.
        vocabulary: bytes of the tokens.
        tokenizer: encodes the rest of the text if the cut goes through a token.

    Returns:
        Ids; at least the first id is the first of ``tokens``.

    Raises:
        SlicingError: if the text does not begin with the whole first token of the row.
        GenerationError: if a token must be cut and there is no tokenizer.
    """
    kept = kept_prefix(tokens, text, vocabulary)
    if not kept:
        raise SlicingError(f"The row's first token is not a whole part of the beginning of {_shortened(text)}.")
    prefix = tuple(int(token) for token in tokens[:kept])
    rest = "" if kept == len(tokens) else text[len(vocabulary.decode(prefix)) :]
    return (*prefix, *continuation_ids(rest, tokenizer)) if rest else prefix


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
