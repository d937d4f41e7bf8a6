"""MLX backend: Apple silicon, CUDA and CPU.

Arrays of MLX are values, and all devices share MLX's memory. So there is one backend, and donation changes nothing (MLX
itself reuses the memory of unreferenced arrays). Execution is lazy. The tests have run on MLX's CPU build alone; the
backend has never run on Apple silicon or CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import InvalidContext

__all__ = ["MlxBackend", "MlxPlugin"]


class MlxBackend(Backend):
    """MLX arrays."""

    name = "mlx"
    assignable = True
    compiles = True

    def __init__(self, device: Any = None) -> None:
        super().__init__(device)
        self.xp = _namespace()

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """A copy. float64 is stored as float32."""
        array = mx.array(np.asarray(host))
        return array if dtype is None else array.astype(getattr(self.xp, dtype))

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Evaluates the array.

        Raises:
            InvalidContext: the array is traced, so it has no values.
        """
        host = array.astype(mx.float32) if array.dtype == mx.bfloat16 else array
        try:
            mx.eval(host)  # within NumPy's reading, the error of a traced array ends the process in MLX 0.32.1
        except ValueError as error:  # nothing else tells that an array is traced
            raise InvalidContext(
                "An array that MLX traces (compile, vmap) has no values, and this step reads some. Start with "
                "Context.start(..., compiled=True), which refuses the processors that read values, or call the chain "
                "outside of the traced function."
            ) from error
        return np.array(host)

    def is_floating(self, array: Array) -> bool:
        """By dtype."""
        return bool(mx.issubdtype(array.dtype, mx.floating))

    def cast(self, array: Array, dtype: str) -> Array:
        """The array itself if it has the dtype."""
        wanted = getattr(self.xp, dtype)
        return array if array.dtype == wanted else array.astype(wanted)

    def synchronize(self, *arrays: Array) -> None:
        """Evaluate these arrays."""
        mx.eval(*arrays)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``mx.compile``."""
        compiled: Callable[..., Any] = mx.compile(function)
        return compiled

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """One pass; a Python number takes the dtype of the array."""
        del donate
        return mx.where(mask, value, x)

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """The sum."""
        del donate
        return x + (y if y.dtype == x.dtype else y.astype(x.dtype))

    def softmax(self, x: Array) -> Array:
        """The fused kernel; rows of -inf are mended lazily."""
        x = _wide(x)
        return mx.where(mx.max(x, axis=-1, keepdims=True) == NEG_INF, 0.0, mx.softmax(x, axis=-1))

    def log_softmax(self, x: Array) -> Array:
        """The fused kernel; a row of -inf has the total -inf, which is replaced before it is subtracted."""
        x = _wide(x)
        if 0 in x.shape:
            return x
        total = mx.logsumexp(x, axis=-1, keepdims=True)
        return x - mx.where(total == NEG_INF, 0.0, total)

    def sort_descending(self, x: Array) -> Array:
        """The ascending sort, read backwards."""
        return mx.sort(x, axis=-1)[..., ::-1]

    def argsort_descending(self, x: Array) -> Array:
        """The stable sort of the negated values. The indices are signed, so that callers can put -1 among them."""
        return mx.argsort(-x, axis=-1).astype(mx.int32)

    def kth_largest(self, x: Array, k: int) -> Array:
        """Selection."""
        if k == 1:
            return mx.max(x, axis=-1, keepdims=True)
        position = x.shape[-1] - k
        return mx.partition(x, position, axis=-1)[..., position : position + 1]

    def top_k(self, x: Array, k: int) -> tuple[Array, Array]:
        """Two selections: of values, then of the first indices that hold the smallest of them."""
        vocab = x.shape[-1]
        if k == 1 and x.shape[0]:
            index = mx.stop_gradient(mx.argmax(x, axis=-1, keepdims=True).astype(mx.int32))
            return mx.take_along_axis(x, index, axis=-1), index
        if k * 8 >= vocab:
            order = mx.stop_gradient(self.argsort_descending(x)[..., :k])
            return mx.take_along_axis(x, order, axis=-1), order
        # The selection orders equal values as it likes. Above the smallest selected value all are selected;
        # among those equal to it take the first.
        smallest = self.kth_largest(x, k)
        ids = mx.arange(vocab, dtype=mx.int32)
        rank = mx.where(x > smallest, ids - vocab, mx.where(x == smallest, ids, vocab))
        chosen = mx.sort(mx.partition(rank, k - 1, axis=-1)[..., :k], axis=-1)
        index = mx.sort(mx.minimum(mx.where(chosen < 0, chosen + vocab, chosen), vocab - 1), axis=-1)
        index = mx.stop_gradient(index)
        values = mx.take_along_axis(x, index, axis=-1)
        order = mx.stop_gradient(mx.argsort(-values, axis=-1))
        return mx.take_along_axis(values, order, axis=-1), mx.take_along_axis(index, order, axis=-1)

    def take_rows(self, x: Array, index: Array) -> Array:
        """The native selection."""
        if not isinstance(index, mx.array):
            index = mx.array(np.asarray(index, dtype=np.int32))
        return mx.take(x, index, axis=0)

    def concat_rows(self, arrays: Sequence[Array]) -> Array:
        """The native concatenation."""
        return mx.concatenate(list(arrays), axis=0)

    def gather(self, x: Array, index: Array) -> Array:
        """The native gather. Places have no gradient, and MLX asks for that to be said."""
        return mx.take_along_axis(x, mx.stop_gradient(index), axis=-1)

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """One scatter; skipped tokens add nothing to token 0."""
        del donate
        if 0 in tokens.shape:
            return x
        valid, index = _valid(tokens, x.shape[-1])
        amount = mx.where(valid, value, mx.zeros((), dtype=x.dtype))
        return x.at[mx.arange(x.shape[0])[:, None], index].add(amount)

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """One scatter; a skipped token repeats the write of another token of its row."""
        del donate
        if 0 in tokens.shape:
            return x
        valid, index = _valid(tokens, x.shape[-1])
        # index is 0 where it is not valid, so the maximum is a valid index of the row unless the row has none.
        anchor = mx.max(index, axis=1, keepdims=True)
        written = mx.where(mx.any(valid, axis=1, keepdims=True), value, x[:, :1])
        return _put(x, mx.where(valid, index, anchor), mx.broadcast_to(written.astype(x.dtype), index.shape))

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """One scatter; a skipped entry repeats the write of another entry of its row."""
        del donate
        if 0 in index.shape:
            return x
        valid, position = _valid(index, x.shape[-1])
        values = mx.broadcast_to(values.astype(x.dtype), position.shape)
        if position.shape[1] > 1:
            first = mx.argmax(valid.astype(mx.int32), axis=1, keepdims=True)
            position = mx.where(valid, position, mx.take_along_axis(position, first, axis=1))
            values = mx.where(valid, values, mx.take_along_axis(values, first, axis=1))
            valid = mx.any(valid, axis=1, keepdims=True)
        return _put(x, position, mx.where(valid, values, mx.take_along_axis(x, position, axis=1)))

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """Word by word, without a gather."""
        del donate
        vocab, (batch, words) = logits.shape[-1], bits.shape
        allowed = mx.bitwise_and(mx.right_shift(bits[:, :, None], mx.arange(32, dtype=bits.dtype)), 1)
        return mx.where(mx.reshape(allowed, (batch, words * 32))[:, :vocab] == 0, NEG_INF, logits)


def _written_along(x: Array, position: Array, values: Array) -> Array:
    """``x`` with values at some entries of each row."""
    return mx.put_along_axis(x, position, values, axis=1)


def _written_vjp(primals: tuple[Array, ...], cotangent: Array, output: Array) -> tuple[Array, ...]:
    """Writes of equal values to one entry share the gradient of the entry."""
    del output
    x, position, _ = primals
    times = mx.zeros_like(cotangent).at[mx.arange(x.shape[0])[:, None], position].add(1)
    shared = mx.take_along_axis(cotangent, position, axis=1) / mx.take_along_axis(times, position, axis=1)
    return mx.where(times > 0, 0, cotangent), mx.zeros_like(position), shared


_written = mx.custom_function(_written_along)
_written.vjp(_written_vjp)


def _put(x: Array, position: Array, values: Array) -> Array:
    """``x`` with values at some entries of each row, with gradients where there can be any."""
    position = mx.stop_gradient(position)
    if mx.issubdtype(x.dtype, mx.floating):
        return _written(x, position, values)
    return mx.put_along_axis(x, position, values, axis=1)


def _wide(x: Array) -> Array:
    return x if x.dtype in (mx.float32, mx.float64) else x.astype(mx.float32)


def _valid(tokens: Array, vocab: int) -> tuple[Array, Array]:
    """Which tokens are in the row, and their indices, with 0 for other tokens (MLX does not check bounds)."""
    valid = mx.logical_and(tokens >= 0, tokens < vocab)
    return valid, mx.where(valid, tokens, 0)


def _namespace() -> SimpleNamespace:
    """``mlx.core`` completed to the array API, as far as operations of fixed shape go."""
    functions = {name: getattr(mx, name) for name in dir(mx) if not name.startswith("_")}
    functions.update(
        all=_logical(mx.all, np.all),
        any=_logical(mx.any, np.any),
        arange=_arange,
        argmax=_argmax,
        argmin=_argmin,
        argsort=_argsort,
        astype=_astype,
        bool=mx.bool_,
        clip=_clip,
        cumulative_sum=_cumulative_sum,
        empty=_creating(mx.zeros),
        full=_creating(mx.full),
        isin=_isin,
        nonzero=_nonzero,
        ones=_creating(mx.ones),
        prod=_reducing(mx.prod),
        searchsorted=_searchsorted,
        signbit=_signbit,
        sort=_sort,
        sum=_reducing(mx.sum),
        zeros=_creating(mx.zeros),
    )
    return SimpleNamespace(**functions)


def _creating(create: Callable[..., Any]) -> Callable[..., Any]:
    def creating(*args: Any, dtype: Any = None, device: Any = None) -> Array:
        del device  # memory is shared by all devices
        return create(*args) if dtype is None else create(*args, dtype=dtype)

    return creating


def _arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Array:
    del device
    return mx.arange(0, start, step, dtype=dtype) if stop is None else mx.arange(start, stop, step, dtype=dtype)


def _argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    return mx.argmax(x, axis=axis, keepdims=keepdims).astype(mx.int32)


def _argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    return mx.argmin(x, axis=axis, keepdims=keepdims).astype(mx.int32)


def _argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    del stable  # it always is
    return mx.argsort(-x if descending else x, axis=axis).astype(mx.int32)


def _sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    del stable  # it always is
    return mx.flip(mx.sort(x, axis=axis), axis=axis) if descending else mx.sort(x, axis=axis)


def _astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    del copy, device  # arrays are values
    return x.astype(dtype)


def _clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    return x if min is None and max is None else mx.clip(x, min, max)


def _cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    axis = 0 if axis is None else axis
    total = mx.cumsum(x if dtype is None else x.astype(dtype), axis=axis)
    if not include_initial:
        return total
    shape = list(total.shape)
    shape[axis] = 1
    return mx.concatenate([mx.zeros(shape, dtype=total.dtype), total], axis=axis)


def _isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Array:
    found = mx.any(mx.expand_dims(x1, -1) == mx.reshape(mx.array(x2), (-1,)), axis=-1)
    return mx.logical_not(found) if invert else found


def _nonzero(x: Array, /) -> tuple[Array, ...]:
    """Indices of true elements. Evaluates the array: not for compiled functions."""
    return tuple(mx.array(index.astype(np.int32)) for index in np.nonzero(np.array(x)))


def _logical(reduce: Callable[..., Any], of_nothing: Callable[..., Any]) -> Callable[..., Any]:
    def reducing(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
        if x.size:
            return reduce(x, axis=axis, keepdims=keepdims)
        # MLX 0.32.4 may never return from these reductions of no elements.
        return mx.array(np.asarray(of_nothing(np.empty(x.shape, dtype=np.bool_), axis=axis, keepdims=keepdims)))

    return reducing


def _reducing(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def reducing(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        return reduce(x if dtype is None else x.astype(dtype), axis=axis, keepdims=keepdims)

    return reducing


def _searchsorted(x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None) -> Array:
    x1 = x1 if sorter is None else mx.take(x1, sorter)
    return mx.searchsorted(x1, x2, side=side).astype(mx.int32)


def _signbit(x: Array, /) -> Array:
    # A quotient tells -0.0 from 0.0.
    return mx.where(x == 0, 1.0 / x, x) < 0


class MlxPlugin:
    """Entry point: makes the MLX backend."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The MLX backend for ``"mlx"``."""
        return MlxBackend() if library == "mlx" else None
