"""The precision of thresholds and transformed logits, and the handling of values beyond a narrow dtype."""

from __future__ import annotations

from typing import Final

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF

__all__ = ["in_dtype_of", "is_float16", "lowered_to_fit", "saturated"]

#: The largest float16.
_LARGEST: Final = 65504.0


def in_dtype_of(logits: Array, backend: Backend, x: Array) -> Array:
    """``x`` in the dtype of the logits, which a processor must keep; in float16 numbers stay numbers."""
    if x.dtype == logits.dtype:
        return x
    return backend.xp.astype(saturated(backend, x, x) if is_float16(backend, logits) else x, logits.dtype)


def is_float16(backend: Backend, x: Array) -> bool:
    """Whether numbers of the size of logits can overflow in the dtype of ``x``; those of other dtypes reach 1e38."""
    return bool(x.dtype == getattr(backend.xp, "float16", None))


def lowered_to_fit(backend: Backend, x: Array) -> Array:
    """``x: [batch, vocab]``, each row lowered by the excess of its largest number over the largest float16."""
    xp = backend.xp
    return x - xp.clip(xp.max(x, axis=-1, keepdims=True) - _LARGEST, 0.0, None)


def saturated(backend: Backend, x: Array, y: Array) -> Array:
    """``y`` within the range of float16, and -inf where ``x`` is."""
    xp = backend.xp
    return xp.where(x == NEG_INF, xp.full_like(y, NEG_INF), xp.clip(y, -_LARGEST, _LARGEST))
