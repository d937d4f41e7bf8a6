"""The arithmetic that all guidance shares: a weighted difference of two distributions in log space."""

from __future__ import annotations

from typing import Any

from logitloom import Array, Backend, Context
from logitloom.backend import NEG_INF
from logitloom_plugins.processors._precision import at_least_float32

__all__ = ["contrast", "like"]

#: In host memory so many entries are combined at a time, so that what lies between two passes stays in the cache.
_BLOCK = 1 << 18


def contrast(
    first: Array, second: Array, gain: Any, against: Any, context: Context, *, normalize: bool = True
) -> Array:
    """``gain * log_softmax(first) - against * log_softmax(second)``, float32 (float64 stays), not normalised again.

    A token at -inf in ``first`` stays -inf. One that only ``second`` rules out counts as if both agreed on it:
    ``(gain - against) * log_softmax(first)``.

    Args:
        first: ``[rows, vocab]`` logits, any floating dtype; overwritten if the context says that logits may be.
        second: ``[rows, vocab]`` logits, possibly of another dtype.
        gain: a number, or ``[rows, 1]``.
        against: a number, or ``[rows, 1]``.
        context: of the step.
        normalize: whether to take log-softmaxes; else the logits are combined as they are, which differs by a
            constant per row.

    Returns:
        ``[rows, vocab]``.
    """
    backend = context.backend
    if not backend.on_host or context.compiled:
        return _combined(backend, *_branches(backend, first, second, normalize), gain, against)
    rows, vocab = first.shape
    block = max(1, _BLOCK // max(vocab, 1))
    if rows <= block and not context.donate:
        return _asking(backend, *_branches(backend, first, second, normalize), gain, against)
    wide = at_least_float32(backend, first[:0]).dtype
    donated = context.donate and first.dtype == wide and _overwritable(first)
    out = first if donated else backend.xp.empty(first.shape, dtype=wide)
    for begin in range(0, rows, block):
        part = slice(begin, begin + block)
        ours, other = _branches(backend, first[part], second[part], normalize)
        _asking(backend, ours, other, _rows_of(gain, part), _rows_of(against, part), out[part])
    return out


def like(out: Array, logits: Array, context: Context) -> Array:
    """The result in the dtype of the logits: the one rounding of half types."""
    return out if out.dtype == logits.dtype else context.backend.xp.astype(out, logits.dtype)


def _branches(backend: Backend, first: Array, second: Array, normalize: bool) -> tuple[Array, Array]:
    if normalize:
        return backend.log_softmax(first), backend.log_softmax(second)
    return at_least_float32(backend, _constant(first)), at_least_float32(backend, _constant(second))


def _rows_of(weight: Any, part: slice) -> Any:
    return weight if isinstance(weight, float) else weight[part]


def _constant(x: Array) -> Array:
    """The array without gradients, where a library keeps them."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def _overwritable(x: Array) -> bool:
    """Whether a donated array can be written to: not one that keeps gradients, or was made in an inference mode."""
    return not getattr(x, "requires_grad", False) and not getattr(x, "is_inference", bool)()


def _asking(backend: Backend, ours: Array, other: Array, gain: Any, against: Any, out: Array | None = None) -> Array:
    """The combination where values can be read: what holes in the vocabulary cost is paid only if there are any."""
    xp = backend.xp
    # Where the weights are 1 apart and the library has it, one fused pass. It keeps -inf of ours with a weight above 0.
    fused = getattr(xp, "lerp", None) if isinstance(gain, float) and gain > 0.0 and gain - against == 1.0 else None
    if fused is not None and float(xp.min(other)) > NEG_INF:
        return fused(other, ours, gain) if out is None else fused(other, ours, gain, out=out)
    if fused is None and float(xp.min(ours)) > NEG_INF and float(xp.min(other)) > NEG_INF:
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
