"""Log-probabilities of some tokens of each row in host memory, without an array of all exponentials."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import KernelFailed, host_kernels

__all__ = ["log_probability", "read_only"]

#: Bytes of the exponentials that are held at a time.
_MOST_BYTES: Final = 1 << 18


def log_probability(x: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """See :meth:`logitloom.arrays.backend.Backend.log_probability`.

    Args:
        x: ``[batch, vocab]``.
        index: ``[batch, n]``.
    """
    kind: np.dtype[Any] = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    top = np.maximum.reduce(x, axis=-1, keepdims=True).astype(kind)
    np.maximum(top, np.finfo(kind.type).min, out=top)  # finite also for a row of -inf
    total = _sums(x, top)
    np.maximum(total, 1, out=total)  # the largest adds 1; of a row of -inf the sum is 0
    chosen = np.take_along_axis(x, index, axis=-1)
    found: NDArray[Any] = chosen - (top + np.log(total))
    return found


def _sums(x: NDArray[Any], top: NDArray[Any]) -> NDArray[Any]:
    """The sum of the exponentials of each row, less its largest entry."""
    total = np.empty_like(top)
    kernels = host_kernels(x.size)
    if kernels is not None and x.dtype == np.float32 and x.flags.c_contiguous and np.isfinite(top).all():
        with contextlib.suppress(KernelFailed):
            kernels.exponentials(read_only(x), read_only(top[:, 0]), total[:, 0])
            return total
    count = max(_MOST_BYTES // (top.itemsize * x.shape[1]), 1)
    memory = np.empty((min(count, len(x)), x.shape[1]), dtype=top.dtype)
    for start in range(0, len(x), count):
        here = slice(start, start + count)
        e = memory[: len(top[here])]
        np.subtract(x[here], top[here], out=e)
        np.exp(e, out=e)
        np.add.reduce(e, axis=-1, keepdims=True, out=total[here])
    return total


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: kernels are compiled for such arrays."""
    x = x.view()
    x.flags.writeable = False
    return x
