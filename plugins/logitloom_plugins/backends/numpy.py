"""NumPy backend: the reference of every named operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF, BufferPool, TokenIds
from logitloom_plugins.backends._highest_logits import kth_largest, survivors
from logitloom_plugins.backends._host_buffer import HostBuffer
from logitloom_plugins.backends._host_rows import mask_host_rows
from logitloom_plugins.backends._log_probability import log_probability
from logitloom_plugins.backends._nucleus import LEAST_VOCAB, mass_threshold, nucleus_threshold
from logitloom_plugins.backends._set_positions import set_positions, set_tokens, spread_positions

__all__ = ["NumpyBackend", "NumpyPlugin"]

#: Probabilities that a float cannot hold are 0, whatever the caller has NumPy do about numbers that become 0.
_to_zero: Final = np.errstate(under="ignore")
_READ: Final = {name: np.dtype(name) for name in ("bool", "float32", "int32")}


class NumpyBackend(Backend):
    """NumPy arrays in host memory."""

    name = "numpy"
    assignable = True
    int32 = np.dtype(np.int32)
    on_host = True
    uses_buffer_pool = True

    def __init__(self, device: Any = None) -> None:
        super().__init__(device)
        self.xp = _NAMESPACE

    def _exact_device(self, device: Any) -> Any:
        return None if device == "cpu" else super()._exact_device(device)

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """A copy: a donated array may be written to, the caller's may not."""
        return np.array(host, dtype=dtype)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """The array itself."""
        return np.asarray(array)

    def is_floating(self, array: Array) -> bool:
        """NumPy's own types in the machine's byte order: operations return no other order, and mix no other types."""
        return bool(array.dtype.kind == "f" and array.dtype.itemsize > 1 and array.dtype.isnative)

    def is_view(self, x: Array, of: Array) -> bool:
        """Arrays with memory of their own are views of nothing."""
        return x.base is not None and np.may_share_memory(x, of)

    def copied(self, x: Array, memory: Array | None = None) -> Array | None:
        """The given memory again, which spares the pages of a fresh array."""
        copy = np.empty(x.shape, dtype=x.dtype) if memory is None else memory[: len(x)]
        np.copyto(copy, x)
        return copy

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """One pass, which reads only the mask if ``x`` is donated and the mask is empty."""
        if not donate:
            return np.where(mask, x.dtype.type(value), x)
        np.copyto(x, value, where=mask)
        return x

    def scale(self, x: Array, factor: float, donate: bool = False) -> Array:
        """In place when donated, which spares the pages of a fresh array."""
        return np.multiply(x, x.dtype.type(factor), out=x if donate else None)

    def divide(self, x: Array, divisor: float, donate: bool = False) -> Array:
        """In place when donated."""
        return np.divide(x, x.dtype.type(divisor), out=x if donate else None)

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """In place when donated."""
        return np.add(x, y, out=x if donate else None, dtype=x.dtype, casting="same_kind")

    @_to_zero
    def softmax(self, x: Array) -> Array:
        """One buffer for shift, exponential and quotient."""
        x = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        e = x - _finite_top(x)
        np.exp(e, out=e)
        return np.divide(e, _mass(e), out=e)

    @_to_zero
    def log_softmax(self, x: Array) -> Array:
        """Two buffers: the shifted values become the result."""
        x = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        shifted = x - _finite_top(x)
        shifted -= np.log(_mass(np.exp(shifted)))
        return shifted

    def kth_largest(self, x: Array, k: int) -> Array:
        """Selection from the values that reach a bound, instead of a sort."""
        return kth_largest(x, k)

    @_to_zero
    def nucleus_threshold(self, x: Array, p: float) -> Array:
        """Without a sort of the vocabulary, if the vocabulary is large enough for a sort to cost more."""
        if x.dtype.itemsize < 4:
            return self.nucleus_threshold(x.astype(np.float32), p).astype(x.dtype)
        if x.shape[-1] < LEAST_VOCAB and len(x) > 1:
            return super().nucleus_threshold(x, p)
        return nucleus_threshold(x, p)

    @_to_zero
    def mass_threshold(self, keys: Array, mass: Array, p: float) -> Array:
        """Without a sort of the vocabulary, if the vocabulary is large enough for a sort to cost more."""
        if keys.shape[-1] < LEAST_VOCAB or keys.dtype.itemsize < 4:
            return super().mass_threshold(keys, mass, p)
        return mass_threshold(keys, mass, p)

    def survivors(self, x: Array, highest: int | None = None) -> Array | None:
        """Two passes over the logits."""
        return survivors(x, highest)

    def address(self, array: Array, dtype: str, written: bool = False) -> int | None:
        """The address of the array's memory."""
        flags = array.flags
        if array.dtype != _READ[dtype] or not (flags.c_contiguous and flags.aligned):
            return None
        if written and not flags.writeable:
            return None
        return int(array.__array_interface__["data"][0])

    def gather(self, x: Array, index: Array) -> Array:
        """Of one row without NumPy's own look at the axes."""
        if x.ndim == 2 and len(x) == 1 and len(index) == 1:
            return x.take(index[0], axis=1)
        return np.take_along_axis(x, index, axis=-1)

    @_to_zero
    def log_probability(self, x: Array, index: Array) -> Array:
        """Computed a few rows at a time, so that the exponentials stay in the cache."""
        return log_probability(x, index)

    def top_k(self, x: Array, k: int) -> tuple[Array, Array]:
        """Selection first, then a sort of k values only; equal values in order of their index."""
        if k * 8 >= x.shape[-1]:
            return super().top_k(x, k)
        threshold = self.kth_largest(x, k)
        if np.isnan(threshold).any():
            return super().top_k(x, k)
        values = np.empty((*x.shape[:-1], k), dtype=x.dtype)
        index = np.empty((*x.shape[:-1], k), dtype=np.int64)
        for row, line in enumerate(x):
            above = np.flatnonzero(line > threshold[row])
            ties = np.flatnonzero(line == threshold[row])[: k - len(above)]
            found = np.concatenate([above, ties])
            order = found[np.argsort(-line[found], kind="stable")]
            index[row], values[row] = order, line[order]
        return values, index

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """Touches only the named entries (after the copy, if not donated)."""
        if not donate:
            x = x.copy()
        row, column = _set((tokens >= 0) & (tokens < x.shape[-1]))
        np.add.at(x, (row, tokens[row, column]), x.dtype.type(value))
        return x

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """Touches only the named entries (after the copy, if not donated)."""
        if not donate:
            x = x.copy()
        set_tokens(x, tokens, value)
        return x

    def update_where(
        self, x: Array, table: Array, function: Callable[[Array, Array], Array], donate: bool = False
    ) -> Array:
        """Touches only the entries of the table that are set (after the copy, if not donated)."""
        x = x if donate and x.flags.c_contiguous else x.copy()
        flat, table = x.reshape(-1), table.reshape(-1)
        position = set_positions(table)
        flat[position] = function(flat.take(position), table.take(position))
        return x

    def fill_columns(self, x: Array, columns: Array, value: float, donate: bool = False) -> Array:
        """Touches only these columns (after the copy, if not donated)."""
        if not donate:
            x = x.copy()
        x[:, columns] = value
        return x

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """Touches only the named entries (after the copy, if not donated)."""
        if not donate:
            x = x.copy()
        valid = (index >= 0) & (index < x.shape[-1])
        if x.flags.c_contiguous and valid.all():
            positions = index + np.arange(len(x))[:, None] * x.shape[-1]
            x.reshape(-1)[positions.reshape(-1)] = np.broadcast_to(values, index.shape).reshape(-1)
            return x
        row, column = _set(valid)
        x[row, index[row, column]] = values[row, column]
        return x

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """Unpacks the bits in C, a byte at a time."""
        vocab = logits.shape[-1]
        octets = np.ascontiguousarray(bits).view(np.uint8)
        allowed = np.unpackbits(octets, axis=-1, count=vocab, bitorder="little").view(np.bool_)
        return self.masked_fill(logits, ~allowed, NEG_INF, donate)

    def apply_token_rows(
        self, logits: Array, rows: Sequence[TokenIds], donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """Touches what the mask changes; without a pool a row of allowed ids costs a fill."""
        if pool is not None:
            masked = pool.masked(logits, rows, NEG_INF, donate, logits.dtype, HostBuffer)
            if masked is not None:
                return masked
        return mask_host_rows(logits, rows, NEG_INF, donate)

    def spread(
        self, values: Array, ids: Array, like: Array, donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """Touches only the entries that differ from those of the buffer's last use; without a pool a fill."""
        kept, positions = spread_positions(values, ids, like.shape[1])
        if pool is not None:
            out = pool.spread(kept, positions, like.shape, NEG_INF, like.dtype, HostBuffer)
            if out is not None:
                return out
        out = like if donate and like.flags.c_contiguous else np.empty(like.shape, like.dtype)
        out.fill(NEG_INF)
        out.reshape(-1)[positions] = kept
        return out


def _set(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the set entries. NumPy finds these several times faster in a flat array than in two axes."""
    return np.divmod(mask.reshape(-1).nonzero()[0], mask.shape[1])


def _finite_top(x: Array) -> Array:
    """The largest value of each row, a finite one also for a row of -inf."""
    return np.maximum(np.maximum.reduce(x, axis=-1, keepdims=True), np.finfo(x.dtype).min)


def _mass(e: Array) -> Array:
    """The sum of each row of exponentials, whose largest is 1; that also for a row of zeros."""
    return np.maximum(np.add.reduce(e, axis=-1, keepdims=True), e.dtype.type(1))


class _Namespace(ModuleType):
    """NumPy's own names, each looked up once, beside the completed functions."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        setattr(self, name, found)
        return found

    # NumPy's reducing functions inspect their arguments for microseconds; the methods below call the same ufuncs
    # directly.

    @staticmethod
    def max(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
        """The largest value along an axis."""
        return np.maximum.reduce(x, axis=axis, keepdims=keepdims)

    @staticmethod
    def min(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
        """The smallest value along an axis."""
        return np.minimum.reduce(x, axis=axis, keepdims=keepdims)

    @staticmethod
    def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
        """Sorted values; descending, too. Equal values look alike, so the vectorised sort will do, ten times faster."""
        del stable
        values = np.sort(x, axis=axis)
        return np.flip(values, axis=axis) if descending else values

    @staticmethod
    def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
        """Indices that sort the values; in a descending sort, too, equal values keep their order."""
        if x.dtype == np.int32 and axis == -1 and not descending:
            # The stable sort of NumPy takes four times as long as a sort of the numbers together with their indices.
            together = x.astype(np.int64) << 32 | np.arange(x.shape[-1])
            together.sort(axis=-1)
            return together & 0xFFFFFFFF
        if not descending:
            return np.argsort(x, axis=axis, stable=stable or None)
        last = x.shape[axis] - 1
        return last - np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable or None), axis=axis)

    @staticmethod
    def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
        """Elements along an axis, the last by default."""
        return np.take_along_axis(x, indices, axis)


_NAMESPACE = _Namespace("numpy")


class NumpyPlugin:
    """Entry point: makes the NumPy backend."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The NumPy backend for ``"numpy"``."""
        return NumpyBackend() if library == "numpy" else None
