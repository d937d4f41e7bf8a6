"""The precision in which thresholds and transformed logits are computed."""

from __future__ import annotations

from logitloom import Array, Backend

__all__ = ["at_least_float32", "in_dtype_of"]


def at_least_float32(backend: Backend, x: Array) -> Array:
    """``x`` in float32 if its dtype is narrower; float64 stays. A decision must not depend on rounding to 8 bits."""
    return x if x.dtype == backend.xp.float64 else backend.cast(x, "float32")


def in_dtype_of(logits: Array, backend: Backend, x: Array) -> Array:
    """``x`` in the dtype of the logits, which a processor must keep."""
    return x if x.dtype == logits.dtype else backend.xp.astype(x, logits.dtype)
