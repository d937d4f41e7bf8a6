"""The arithmetic that all guidance shares: a weighted difference of two distributions in log space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from logitloom import Array, Backend, Context
from logitloom.arrays.backend import NEG_INF

__all__ = ["contrast", "like", "plausible_contrast"]

#: Number of entries in host memory that are combined at a time, so that values between two passes stay in the cache.
_BLOCK = 1 << 18


def contrast(
    first: Array, second: Array, gain: Any, against: Any, context: Context, *, normalize: bool | None = None
) -> Array:
    """``gain * log_softmax(first) - against * log_softmax(second)``, float32 (float64 stays), not normalised again.

    A token at -inf in ``first`` stays -inf. A token at -inf in ``second`` alone is scored as if ``second`` gave it the
    same log-probability as ``first``: ``(gain - against) * log_softmax(first)``.

    A log-softmax subtracts a constant from each row, and costs more than all other operations. Where nothing depends on
    the constants they are left out: all scores of a row then differ from the above by the same number, which leaves the
    distribution unchanged. The score of a token at -inf in ``second`` alone would differ by another number, so the
    constants are subtracted if ``second`` is not finite throughout.

    Args:
        first: ``[rows, vocab]`` logits, any floating dtype; overwritten if the context says that logits may be.
        second: ``[rows, vocab]`` logits, possibly of another dtype.
        gain: a number, or ``[rows, 1]``.
        against: a number, or ``[rows, 1]``.
        context: of the step.
        normalize: whether to take log-softmaxes; if not, the logits are combined as they are, whatever they are. None:
            unless the context is free of shifts and ``second`` is known to be finite.

    Returns:
        ``[rows, vocab]``.
    """
    backend = context.backend
    if not first.shape[0]:
        return backend.at_least_float32(first)
    asking = backend.on_host and not context.compiled
    # If the host must wait for a device to check finiteness, the check costs more than it saves.
    finite = asking and not (normalize or (normalize is None and not context.shift_free)) and _finite(backend, second)
    if normalize is None:
        normalize = not finite
    if not asking:
        return _combined(backend, *_branches(backend, first, second, normalize), gain, against)
    wide = backend.at_least_float32(first[:0, :]).dtype
    donated = context.donate and first.dtype == wide and _overwritable(first)
    fused = _fused(backend, gain, against)
    if finite and fused is not None and first.dtype == second.dtype == wide:
        # The library's function makes one pass over all entries, so no blocks are needed for the cache.
        return fused(_constant(second), _constant(first), gain, **({"out": first} if donated else {}))
    rows, vocab = first.shape
    block = max(1, _BLOCK // max(vocab, 1))
    if rows <= block and not donated:
        return _asking(backend, *_branches(backend, first, second, normalize), gain, against, finite)
    out = first if donated else backend.xp.empty(first.shape, dtype=wide)
    for begin in range(0, rows, block):
        part = slice(begin, begin + block)
        ours, other = _branches(backend, first[part], second[part], normalize)
        _asking(backend, ours, other, _rows_of(gain, part), _rows_of(against, part), finite, out[part])
    return out


def plausible_contrast(
    logits: Array, other: Array, gain: float, against: float, alpha: float, context: Context
) -> Array:
    """The contrast in the dtype of the logits, with implausible tokens at -inf.

    A token is implausible if its probability under ``logits`` is below ``alpha`` times that of the likeliest token.

    Args:
        logits: ``[rows, vocab]``, any floating dtype; overwritten if the context says that logits may be.
        other: ``[rows, vocab]`` logits to contrast with.
        gain, against: weights as of :func:`contrast`.
        alpha: share of the highest probability, from 0 (no token is implausible) to 1.
        context: of the step.

    References:
        X. L. Li et al., "Contrastive Decoding: Open-ended Text Generation as Optimization", 2023.
    """
    if alpha == 0.0:
        return like(contrast(logits, other, gain, against, context), logits, context)
    backend = context.backend
    # Before the contrast, which may overwrite the logits.
    wide = backend.at_least_float32(logits)
    implausible = wide < backend.xp.max(wide, axis=-1, keepdims=True) + math.log(alpha)
    out = backend.masked_fill(contrast(logits, other, gain, against, context), implausible, NEG_INF, True)
    return like(out, logits, context)


def like(out: Array, logits: Array, context: Context) -> Array:
    """The result in the dtype of the logits: the one rounding of half types.

    A row whose best score is beyond the range of the dtype is shifted so that this score is 0; scores below the range
    become the lowest finite number of the dtype. So no finite score turns infinite.
    """
    if out.dtype == logits.dtype:
        return out
    xp = context.backend.xp
    most = float(xp.finfo(logits.dtype).max)
    if most < float(xp.finfo(out.dtype).max) / 2**16:  # float16, but not bfloat16
        best = xp.max(out, axis=-1, keepdims=True)
        out = xp.where(best > most, out - best, out)
        out = xp.where((out < -most) & (out > NEG_INF), -most, out)
    return xp.astype(out, logits.dtype)


def _branches(backend: Backend, first: Array, second: Array, normalize: bool) -> tuple[Array, Array]:
    if normalize:
        return backend.log_softmax(_constant(first)), backend.log_softmax(_constant(second))
    return backend.at_least_float32(_constant(first)), backend.at_least_float32(_constant(second))


def _rows_of(weight: Any, part: slice) -> Any:
    return weight if isinstance(weight, float) else weight[part]


def _constant(x: Array) -> Array:
    """The array, detached from its gradients if the library keeps gradients."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def _overwritable(x: Array) -> bool:
    """Whether a donated array can be written to: not one that keeps gradients, or was made in an inference mode."""
    return not getattr(x, "requires_grad", False) and not getattr(x, "is_inference", bool)()


def _finite(backend: Backend, x: Array) -> bool:
    """Whether ``[rows, vocab]`` has finite entries only; if not, a product of its rows with its first row is not
    finite.

    A matrix times a vector reads memory faster than sums or extremes do. The product may overflow; then the answer is
    no, and the slower way is taken.
    """
    x = backend.at_least_float32(_constant(x))
    if not isinstance(x, np.ndarray):
        return math.isfinite((x @ x[0]).sum())
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite((x @ x[0]).sum())


def _fused(backend: Backend, gain: Any, against: Any) -> Any:
    """The array library's function that combines two arrays in one pass; None unless ``gain - against`` is 1.

    The function keeps -inf of the first array if the weight is above 0.
    """
    apart = isinstance(gain, float) and gain > 0.0 and gain - against == 1.0
    return getattr(backend.xp, "lerp", None) if apart else None


def _asking(
    backend: Backend, ours: Array, other: Array, gain: Any, against: Any, finite: bool, out: Array | None = None
) -> Array:
    """The combination where values can be read; extra work for holes in the vocabulary is done only if there are holes.

    Args:
        finite: whether ``other`` is known to be.
    """
    xp = backend.xp
    fused = _fused(backend, gain, against) if ours.dtype == other.dtype else None
    if not finite and not float(backend.to_numpy(xp.min(other))) > NEG_INF:
        result = _combined(backend, ours, other, gain, against)
    elif fused is not None:
        return fused(other, ours, gain) if out is None else fused(other, ours, gain, out=out)
    elif float(backend.to_numpy(xp.min(ours))) > NEG_INF:
        result = ours * gain - other * against
    else:
        result = _combined(backend, ours, other, gain, against)
    if out is None:
        return result
    out[...] = result
    return out


def _combined(backend: Backend, ours: Array, other: Array, gain: Any, against: Any) -> Array:
    """``gain * ours - against * other`` without inf - inf anywhere."""
    xp = backend.xp
    closed = ours == NEG_INF
    ours = backend.masked_fill(ours, closed, 0.0)
    other = xp.where(closed | (other == NEG_INF), ours, other)
    return backend.masked_fill(ours * gain - other * against, closed, NEG_INF, True)
