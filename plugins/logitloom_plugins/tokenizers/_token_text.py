"""How vocabularies write arbitrary bytes as printable token strings: byte alphabet and byte fallback."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["SPACE_MARK", "byte_fallback", "byte_level", "complete_utf8"]

SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""The character that SentencePiece writes for a space."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _alphabet() -> NDArray[np.int16]:
    """Code point -> byte, -1 outside the alphabet: ``[324] int16``."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(256)).difference(visible))
    table = np.full(256 + len(hidden), -1, dtype=np.int16)
    table[visible] = visible
    table[256:] = hidden
    return table


_BYTE_OF_CODE_POINT = _alphabet()


def byte_level(tokens: Sequence[str]) -> list[bytes]:
    """Decode token strings written in the byte alphabet of byte-level BPE.

    The alphabet writes visible Latin-1 characters as themselves and the other 68 bytes, in order, as the code points
    from U+0100 on: ``Ġ`` (U+0120) is a space. A token with any character outside the alphabet is plain text, so its
    bytes are its UTF-8 encoding.

    Args:
        tokens: token strings.

    Returns:
        The bytes of each token.

    >>> byte_level(["Ġthe", "Ã©", "a b"])
    [b' the', b'\\xc3\\xa9', b'a b']

    References:
        Radford, Wu, Child, Luan, Amodei, Sutskever, "Language Models are Unsupervised Multitask Learners",
        2019.
    """
    if not tokens:
        return []
    # One pass over all characters at once: a Python loop per character would dominate the reading time.
    lengths = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
    codes = np.frombuffer("".join(tokens).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    last = len(_BYTE_OF_CODE_POINT) - 1
    values = np.where(codes <= last, _BYTE_OF_CODE_POINT[np.minimum(codes, last)], np.int16(-1))
    ends = np.cumsum(lengths)
    strangers = np.concatenate([[0], np.cumsum(values < 0)])
    plain = (strangers[ends] != strangers[ends - lengths]).tolist()
    flat = values.astype(np.uint8).tobytes()
    return [
        token.encode("utf-8", "surrogatepass") if as_is else flat[end - len(token) : end]
        for token, end, as_is in zip(tokens, ends.tolist(), plain, strict=True)
    ]


def byte_fallback(token: str) -> bytes | None:
    """The byte that a byte-fallback token stands for, or None if the token is none.

    >>> byte_fallback("<0x0A>"), byte_fallback("<0xA>")
    (b'\\n', None)

    References:
        Kudo, Richardson, "SentencePiece: A simple and language independent subword tokenizer and detokenizer
        for Neural Text Processing", 2018.
    """
    found = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else None


def complete_utf8(data: bytes) -> bool:
    """Whether a token's bytes are text on their own, neither empty nor part of a longer character."""
    try:
        return bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False
