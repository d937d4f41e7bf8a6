"""Single entries of a large table in host memory, for the backends that touch only those."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["set_positions", "set_tokens", "spread_positions"]

#: One word in so many may be set for the words to be looked through first: beyond, NumPy's own search is faster.
_SPARSE: Final = 8
#: Largest number of tokens for which writing one at a time is faster than writing all at once.
_FEW: Final = 8


def set_positions(table: NDArray[Any]) -> NDArray[np.intp]:
    """The positions of the entries that are true, or not 0, of ``table: [n]``, in order.

    NumPy looks at each entry. This function reads a table of truth values with few set entries as words of eight
    entries, and finds the words that are not 0 in the same way.

    >>> set_positions(np.array([False, True, False, True] * 4)).tolist()
    [1, 3, 5, 7, 9, 11, 13, 15]
    """
    mask = table if table.dtype == np.bool_ else table != 0
    if mask.size and mask.size % 8 == 0 and mask.flags.c_contiguous:
        words = mask.view(np.uint64)
        some = words != 0
        if np.count_nonzero(some) * _SPARSE <= words.size:
            at = set_positions(some)
            byte = words.take(at).view(np.bool_).nonzero()[0]
            sparse: NDArray[np.intp] = at.take(byte >> 3) * 8 + (byte & 7)
            return sparse
    positions: NDArray[np.intp] = mask.nonzero()[0]
    return positions


def set_tokens(x: NDArray[Any], tokens: NDArray[np.integer[Any]], value: float | bool) -> None:
    """Write ``x[row, tokens[row, j]] = value``, without the tokens that are negative or beyond the row.

    Args:
        x: ``[rows, vocab]``, written to.
        tokens: ``[rows, n]``.
        value: cast to the dtype of ``x``.
    """
    if tokens.size <= _FEW:
        for line, ids in zip(x, tokens.tolist(), strict=True):
            for token in ids:
                if 0 <= token < x.shape[1]:
                    line[token] = value
        return
    row, column = np.divmod(((tokens >= 0) & (tokens < x.shape[1])).reshape(-1).nonzero()[0], tokens.shape[1])
    x[row, tokens[row, column]] = value


def spread_positions(values: NDArray[Any], ids: NDArray[Any], vocab: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values, at least all that are not -inf, and their positions in a flat array of rows.

    Args:
        values: ``[rows, n]``.
        ids: ``[rows, n]``, -1 where there is no id; a single row has no -1.
        vocab: of the rows.
    """
    if len(ids) == 1:
        return values[0], ids[0]
    ids = ids + np.arange(len(ids))[:, None] * vocab
    values = values.reshape(-1)
    kept = (values != -np.inf).nonzero()[0]
    return values[kept], ids.reshape(-1)[kept]
