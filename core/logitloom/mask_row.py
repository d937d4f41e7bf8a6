"""One row of a token mask in host memory, in the form that is cheapest to apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MaskRow", "apply_bits"]

#: From this part of the vocabulary on, reading a word per id costs less than touching the listed ids one by one.
_DENSE_ALLOWED: Final = 16
_DENSE_FORBIDDEN: Final = 6


class MaskRow:
    """The ids that one state allows or forbids, prepared for being applied at many steps.

    Short lists are kept as 64-bit indices, which NumPy takes as they are. Long ones become a word of ones or
    zeros per id, made at first use, so that applying them is a few vectorised passes.

    Args:
        allowed: whether ``ids`` alone are allowed, or alone forbidden.
        ids: distinct ids below ``vocab``.
        vocab: width of the logits.

    Example:
        >>> allowed, ids = MaskRow(True, [3, 5], 8)
        >>> allowed, ids.tolist()
        (True, [3, 5])
    """

    __slots__ = ("_bits", "allowed", "dense", "ids", "vocab")

    def __init__(self, allowed: bool, ids: ArrayLike, vocab: int) -> None:
        self.allowed = allowed
        self.vocab = vocab
        listed = np.asarray(ids)
        self.dense = len(listed) * (_DENSE_ALLOWED if allowed else _DENSE_FORBIDDEN) > vocab
        self.ids: NDArray[np.integer[Any]] = listed if self.dense else listed.astype(np.intp)
        self._bits: dict[int, NDArray[np.signedinteger[Any]]] = {}

    def __iter__(self) -> Iterator[Any]:
        yield self.allowed
        yield self.ids

    @property
    def nbytes(self) -> int:
        """Bytes it takes, words for 32-bit logits included."""
        return self.ids.nbytes + (4 * self.vocab if self.dense else 0)

    def bits(self, itemsize: int) -> NDArray[np.signedinteger[Any]]:
        """``[vocab]`` signed integers of that size: -1 (all ones) where an id is allowed, else 0."""
        found = self._bits.get(itemsize)
        if found is None:
            found = np.full(self.vocab, 0 if self.allowed else -1, dtype=f"i{itemsize}")
            found[self.ids] = -1 if self.allowed else 0
            self._bits[itemsize] = found
        return found


def apply_bits(before: NDArray[Any], after: NDArray[Any], bits: NDArray[Any], forbidden: Any) -> None:
    """``after = before`` where ``bits`` are ones, ``forbidden`` where they are zeros; bit for bit, NaN too.

    ``((x ^ f) & bits) ^ f`` needs the mask once and no second table.
    """
    out = after.view(bits.dtype)
    np.bitwise_xor(before.view(bits.dtype), forbidden, out=out)
    np.bitwise_and(out, bits, out=out)
    np.bitwise_xor(out, forbidden, out=out)
