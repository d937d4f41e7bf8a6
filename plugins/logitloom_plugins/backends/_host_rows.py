"""Apply token masks to logits in host memory, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import TokenIds
from logitloom.masks.kernels import KernelFailed, host_kernels
from logitloom.masks.mask_row import MaskRow, mask_rows, records_of

__all__ = ["bits_of", "mask_host_rows"]


def mask_host_rows(logits: NDArray[Any], rows: Sequence[TokenIds], forbidden: Any, donate: bool) -> NDArray[Any]:
    """:meth:`logitloom.arrays.backend.Backend.apply_token_rows` in host memory; a row costs time only for changed
    entries.

    Args:
        logits: ``[batch, vocab]`` of any element type, also bits of a type that NumPy lacks.
        rows: as there.
        forbidden: the element that stands for -inf.
        donate: whether to write into ``logits``.
    """
    out = logits if donate else np.empty_like(logits)
    kernels, bits = host_kernels(logits.size), bits_of(logits.dtype, forbidden)
    if kernels is not None and bits is not None and logits.flags.c_contiguous and out.flags.writeable:
        masks = mask_rows(rows, logits.shape)
        if masks is not None:
            kind, word = bits
            try:
                kernels.write(out.view(kind), logits.view(kind), records_of(masks), word, donate)
            except KernelFailed:
                return mask_host_rows(logits, rows, forbidden, donate)
            return out
    for before, after, row in zip(logits, out, rows, strict=True):
        if type(row) is MaskRow and row.dense:
            row.limit(before, after, forbidden)
            continue
        allowed, ids = row
        if allowed:
            kept = before.take(ids)
            after.fill(forbidden)
            after[ids] = kept
            continue
        if not donate:
            np.copyto(after, before)
        after[ids] = forbidden
    return out


@cache
def bits_of(dtype: np.dtype[Any], value: Any) -> tuple[np.dtype[Any], int] | None:
    """The unsigned integer dtype of the same size, and a value's bits in it; ``None`` if the kernels lack this size."""
    if dtype.itemsize not in (2, 4):
        return None
    kind = np.dtype(f"u{dtype.itemsize}")
    return kind, int(np.array(value, dtype=dtype).view(kind))
