"""Operations of samplers and penalties on single rows, as numbers that a compiled loop goes by.

A processor that declares what it does as such an operation still does it by itself, on every library. Where kernels are
installed, neighbours that all declare one run as one loop, which never copies a row (:mod:`logitloom.row_program`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ADD_LISTED",
    "DIVIDE",
    "KEEP_HIGHEST",
    "KEEP_NEAR_TOP",
    "KEEP_NUCLEUS",
    "LOWER_BY_COUNT",
    "LOWER_SEEN",
    "RESCALE_SEEN",
    "RowOperation",
    "as_arrays",
    "entered",
    "operated",
]

#: Divide the logits by the value.
DIVIDE: Final = 0
#: Keep so many of the highest logits, with those that tie.
KEEP_HIGHEST: Final = 1
#: Keep the nucleus of that mass.
KEEP_NUCLEUS: Final = 2
#: Keep what reaches the sum of the highest logit and the value.
KEEP_NEAR_TOP: Final = 3
#: Of tokens that occurred, divide positive logits by the value and multiply the others by it. Its table is bool.
RESCALE_SEEN: Final = 4
#: Of tokens that occurred, subtract the value from the logit. Its table is bool.
LOWER_SEEN: Final = 5
#: Of tokens that occurred, subtract the value times their number from the logit. Its table is float32, the numbers.
LOWER_BY_COUNT: Final = 6
#: Add numbers to the logits of listed tokens. It has no value.
ADD_LISTED: Final = 7


class RowOperation(NamedTuple):
    """What a processor does to a row of float32 logits.

    Attributes:
        kind: one of the numbers above.
        value: its operand, which is rounded to float32 (but for the mass of a nucleus).
        listed: tokens, each once, and the numbers that are added to their logits, rounded to float32.
    """

    kind: int
    value: float = 0.0
    listed: tuple[tuple[int, float], ...] = ()

    @property
    def has_table(self) -> bool:
        """Whether it goes by a table ``[rows, vocab]`` of what occurred, the one array of the processor's state.

        Each accepted token becomes true there, or is counted (:func:`entered`). Where the state may be overwritten, the
        compiled loop does that.
        """
        return RESCALE_SEEN <= self.kind <= LOWER_BY_COUNT


def as_arrays(operations: Sequence[RowOperation]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The kinds and the values of some operations, read-only, as compiled loops take them."""
    kinds = np.array([each.kind for each in operations], dtype=np.int64)
    values = np.array([each.value for each in operations], dtype=np.float64)
    kinds.flags.writeable = values.flags.writeable = False
    return kinds, values


def operated(operation: RowOperation, x: NDArray[np.float32], table: NDArray[Any] | None = None) -> NDArray[np.float32]:
    """The result of an operation: its definition, for tests.

    Args:
        operation: the operation.
        x: ``[rows, vocab]``.
        table: ``[rows, vocab]``, if it goes by one.

    Example:
        >>> operated(RowOperation(KEEP_HIGHEST, 1), np.array([[1.0, 3.0]], dtype=np.float32))
        array([[-inf,   3.]], dtype=float32)
    """
    value, kind = np.float32(operation.value), operation.kind
    if kind == DIVIDE:
        return x / value
    if kind == ADD_LISTED:
        added = x.copy()
        for token, number in operation.listed:
            added[:, token] += np.float32(number)
        return added
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
    """The table of an operation after newly accepted tokens: its definition, for tests.

    Args:
        operation: one that goes by a table.
        table: ``[rows, vocab]``.
        tokens: ``[rows, n]``; negative ones, and those beyond the row, are skipped.

    Example:
        >>> entered(RowOperation(LOWER_BY_COUNT, 1), np.zeros((1, 3), np.float32), np.array([[2, -1, 2]]))
        array([[0., 0., 2.]], dtype=float32)
    """
    found = table.copy()
    for line, ids in zip(found, tokens, strict=True):
        for token in ids[(ids >= 0) & (ids < len(line))]:
            line[token] += line.dtype.type(1)
    return found
