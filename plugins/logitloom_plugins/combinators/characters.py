"""The number of bytes that the last UTF-8 character of a text still lacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.vocabulary import kept_with_vocabulary

__all__ = ["missing_after", "missing_by_token"]


def missing_after(missing: int, data: bytes) -> int:
    """The bytes that the last character lacks after ``data``. A byte that is not UTF-8 counts as a complete character.

    >>> missing_after(0, "é".encode()[:1]), missing_after(1, "é".encode()[1:])
    (1, 0)
    """
    for byte in data[-4:] if len(data) > 4 else data:
        if 0x80 <= byte < 0xC0:
            missing = max(missing - 1, 0)
        else:
            missing = 0 if byte < 0xC0 or byte >= 0xF8 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
    return missing


@kept_with_vocabulary
def missing_by_token(vocabulary: Vocabulary) -> NDArray[np.int8]:
    """``[4, size] int8``: :func:`missing_after` for 0 to 3 missing bytes and each token."""
    table = np.zeros((4, vocabulary.size), dtype=np.int8)
    for token, text in enumerate(vocabulary.token_bytes):
        if not text:
            table[:, token] = range(4)
        elif max(text[-3:]) >= 0x80:
            table[:, token] = [missing_after(missing, text) for missing in range(4)]
    table.setflags(write=False)
    return table
