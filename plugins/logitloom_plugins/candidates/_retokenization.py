"""Translating a text between tokenizers: re-encode a window of the text, and find where it joins the known tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logitloom import Vocabulary

__all__ = ["Join", "join", "shown"]


class Join(NamedTuple):
    """How re-encoded ids join known ones.

    Attributes:
        dropped: how many of the last known ids no longer hold.
        replacements: the new ids in their place, as many (or fewer, if the re-encoding is shorter).
        new: the ids after them.
    """

    dropped: int
    replacements: tuple[int, ...]
    new: tuple[int, ...]


def join(known: Sequence[int], encoded: Sequence[int]) -> Join | None:
    """Join a re-encoded window to the ids that are known, along the longest run of equal ids.

    In the matrix of ``known[i] == encoded[j]`` that is the longest run on a diagonal; of equally long ones the last.
    Tokenizers write the edges of a window differently, hence the run may begin and end inside.

    Args:
        known: the last ids of the text so far.
        encoded: the ids of a window that begins inside the text so far and extends beyond its end.

    Returns:
        None if no id is in both.

    Example:
        >>> join([1, 2, 3], [2, 3, 4, 5])
        Join(dropped=0, replacements=(), new=(4, 5))
        >>> join([1, 2, 9], [1, 2, 3, 4])
        Join(dropped=1, replacements=(3,), new=(4,))
    """
    if not len(known) or not len(encoded):
        return None
    equal = np.asarray(known)[:, None] == np.asarray(encoded)[None, :]
    run = np.zeros((len(known) + 1, len(encoded) + 1), dtype=np.int32)
    for i in range(len(known)):
        run[i + 1, 1:] = np.where(equal[i], run[i, :-1] + 1, 0)
    longest = int(run.max())
    if not longest:
        return None
    i, j = (int(index) for index in np.argwhere(run == longest)[-1])
    dropped = len(known) - i
    return Join(dropped, tuple(encoded[j : j + dropped]), tuple(encoded[j + dropped :]))


def shown(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """The text of tokens, special ones written out as tokenizers read them."""
    special = vocabulary.special_text
    parts = [special[t].encode() if t in special else vocabulary.text_bytes([t]) for t in tokens]
    return b"".join(parts).decode("utf-8", "replace")
