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
    table = np.arange(4, dtype=np.int8)[:, None].repeat(vocabulary.size, axis=1)
    begun = np.array([missing_after(0, bytes([byte])) for byte in range(256)], dtype=np.int8)
    ends, sizes = vocabulary.offsets[1:], np.diff(vocabulary.offsets)
    for back in (4, 3, 2, 1):
        at = (sizes >= back).nonzero()[0]
        byte = vocabulary.flat_bytes.take(ends.take(at) - back)
        table[:, at] = np.where(byte & 0xC0 == 0x80, np.maximum(table[:, at] - 1, 0), begun.take(byte))
    table.setflags(write=False)
    return table
