"""Definitions of the operations of :mod:`logitloom.arrays.row_operations`; processors and kernels give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.row_operations import (
    DIVIDE,
    KEEP_HIGHEST,
    KEEP_NEAR_TOP,
    LOWER_SEEN,
    RESCALE_SEEN,
    RowOperation,
)

__all__ = ["entered", "operated"]


def operated(operation: RowOperation, x: NDArray[np.float32], table: NDArray[Any] | None = None) -> NDArray[np.float32]:
    """The result of an operation.

    Args:
        operation: the operation.
        x: ``[rows, vocab]``.
        table: ``[rows, vocab]``, if the operation has a table.

    Example:
        >>> operated(RowOperation(KEEP_HIGHEST, 1), np.array([[1.0, 3.0]], dtype=np.float32))
        array([[-inf,   3.]], dtype=float32)
    """
    value, kind = np.float32(operation.value), operation.kind
    if kind == DIVIDE:
        return x / value
    if operation.has_table:
        assert table is not None
        if kind == RESCALE_SEEN:
            changed = np.minimum(x * value, x / value) if value >= 1 else np.maximum(x * value, x / value)
        else:
            changed = x - value if kind == LOWER_SEEN else x + table.astype(np.float32) * -value
        return np.where(table != 0, changed, x)
    descending = -np.sort(-x, axis=-1)
    if kind == KEEP_HIGHEST:
        least = descending[:, min(int(operation.value), x.shape[1]) - 1, None]
    elif kind == KEEP_NEAR_TOP:
        least = descending[:, :1] + value
    else:
        mass = np.exp(descending.astype(np.float64) - descending[:, :1])
        before = (mass.cumsum(axis=-1) - mass) / mass.sum(axis=-1, keepdims=True)
        least = np.where(before < operation.value, descending, np.inf).min(axis=-1, keepdims=True)
        least = np.minimum(least, descending[:, :1])
    return np.where(x < least, np.float32(-np.inf), x)


def entered(operation: RowOperation, table: NDArray[Any], tokens: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """The table of an operation after newly accepted tokens.

    Args:
        operation: an operation with a table.
        table: ``[rows, vocab]``.
        tokens: ``[rows, n]``; negative tokens, and tokens beyond the row, are skipped.

    Example:
        >>> from logitloom.arrays.row_operations import LOWER_BY_COUNT
        >>> entered(RowOperation(LOWER_BY_COUNT, 1), np.zeros((1, 3), np.float32), np.array([[2, -1, 2]]))
        array([[0., 0., 2.]], dtype=float32)
    """
    found = table.copy()
    for line, ids in zip(found, tokens, strict=True):
        for token in ids[(ids >= 0) & (ids < len(line))]:
            line[token] += line.dtype.type(1)
    return found
