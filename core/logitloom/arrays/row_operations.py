"""Operations of samplers and penalties on single rows, as numbers that a compiled loop goes by.

A processor that declares an operation still implements ``process``, which works with every array library. Where kernels
are installed, neighbouring processors that all declare an operation run as one loop, which never copies a row
(:mod:`logitloom.chain.row_loop`). :mod:`logitloom.testing.row_operations` has the definitions of the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DIVIDE",
    "KEEP_HIGHEST",
    "KEEP_NEAR_TOP",
    "KEEP_NUCLEUS",
    "LOWER_BY_COUNT",
    "LOWER_SEEN",
    "RESCALE_SEEN",
    "RowOperation",
    "as_arrays",
]

#: Divide the logits by the value.
DIVIDE: Final = 0
#: Keep this many of the highest logits, ties included.
KEEP_HIGHEST: Final = 1
#: Keep the nucleus of that mass.
KEEP_NUCLEUS: Final = 2
#: Keep what reaches the sum of the highest logit and the value.
KEEP_NEAR_TOP: Final = 3
#: Of tokens that occurred, divide positive logits by the value and multiply all other logits by it; the table is bool.
RESCALE_SEEN: Final = 4
#: Of tokens that occurred, subtract the value from the logit; the table is bool.
LOWER_SEEN: Final = 5
#: Of tokens that occurred, subtract the value times their number from the logit; the table is float32, the numbers.
LOWER_BY_COUNT: Final = 6


class RowOperation(NamedTuple):
    """The operation of a processor on a row of float32 logits.

    Attributes:
        kind: one of the numbers above.
        value: its operand, which is rounded to float32 (but for the mass of a nucleus).
    """

    kind: int
    value: float = 0.0

    @property
    def has_table(self) -> bool:
        """Whether the operation reads a table ``[rows, vocab]`` of past tokens, the one array of the processor's state.

        Each accepted token makes its entry true, or increases its count. Where the state may be overwritten, the
        compiled loop updates the table.
        """
        return RESCALE_SEEN <= self.kind <= LOWER_BY_COUNT


def as_arrays(operations: Sequence[RowOperation]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The kinds and the values of some operations, read-only, as compiled loops take them."""
    kinds = np.array([each.kind for each in operations], dtype=np.int64)
    values = np.array([each.value for each in operations], dtype=np.float64)
    kinds.flags.writeable = values.flags.writeable = False
    return kinds, values
