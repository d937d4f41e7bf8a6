"""Log-probabilities of some tokens of each row in host memory, without an array of all exponentials."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["log_probability"]

#: Bytes of the exponentials that are held at a time.
_MOST_BYTES: Final = 1 << 18


def log_probability(x: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """See :meth:`logitloom.backend.Backend.log_probability`.

    Args:
        x: ``[batch, vocab]``.
        index: ``[batch, n]``.
    """
    kind: np.dtype[Any] = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    top = np.maximum.reduce(x, axis=-1, keepdims=True).astype(kind)
    np.maximum(top, np.finfo(kind.type).min, out=top)  # finite also for a row of -inf
    total = np.empty_like(top)
    count = max(_MOST_BYTES // (kind.itemsize * x.shape[1]), 1)
    memory = np.empty((min(count, len(x)), x.shape[1]), dtype=kind)
    for start in range(0, len(x), count):
        here = slice(start, start + count)
        e = memory[: len(top[here])]
        np.subtract(x[here], top[here], out=e)
        np.exp(e, out=e)
        np.add.reduce(e, axis=-1, keepdims=True, out=total[here])
    np.maximum(total, 1, out=total)  # the largest adds 1; of a row of -inf the sum is 0
    chosen = np.take_along_axis(x, index, axis=-1)
    found: NDArray[Any] = chosen - (top + np.log(total))
    return found
