"""CuPy backend: NVIDIA (and AMD) devices, eagerly. No operation waits for the device.

Machines without a device run the tests on a stand-in for CuPy over NumPy. CuPy neither sorts bfloat16 nor adds it at
indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import array_api_compat.cupy as compat
import cupy
import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF

__all__ = ["CupyBackend", "CupyPlugin"]

#: Creation functions of the array API; each backend binds them to its device.
_CREATION = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")


class CupyBackend(Backend):
    """CuPy arrays on one device.

    Args:
        device: number of the device; default: the current one.
    """

    name = "cupy"
    assignable = True

    def __init__(self, device: int | None = None) -> None:
        super().__init__(int(cupy.cuda.Device().id) if device is None else device)
        self.xp = _namespace(self.device)

    def _exact_device(self, device: Any) -> int:
        return int(getattr(device, "id", device))

    def device_of(self, array: Array) -> Any:
        """The number of the array's device."""
        return array.device.id

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """One transfer to the device."""
        with cupy.cuda.Device(self.device):
            return cupy.array(np.asarray(host, dtype=dtype))

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """One transfer from the device."""
        result: NDArray[Any] = cupy.asnumpy(array)
        return result.astype(np.float32) if result.dtype.name == "bfloat16" else result

    def is_floating(self, array: Array) -> bool:
        """By dtype."""
        return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")

    def synchronize(self, *arrays: Array) -> None:
        """Wait for the device."""
        del arrays
        cupy.cuda.Device(self.device).synchronize()

    def is_view(self, x: Array, of: Array) -> bool:
        """By the memory of both."""
        return bool(cupy.may_share_memory(x, of))

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """In place when donated."""
        if not donate:  # bfloat16 has no selection and takes that of float32
            return cupy.where(mask, x.dtype.type(value), x).astype(x.dtype, copy=False)
        cupy.copyto(x, value, where=cupy.broadcast_to(mask, x.shape))
        return x

    def scale(self, x: Array, factor: float, donate: bool = False) -> Array:
        """In place when donated."""
        return cupy.multiply(x, x.dtype.type(factor), out=x if donate else None)

    def divide(self, x: Array, divisor: float, donate: bool = False) -> Array:
        """In place when donated."""
        return cupy.divide(x, x.dtype.type(divisor), out=x if donate else None)

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """In place when donated."""
        return cupy.add(x, y.astype(x.dtype, copy=False), out=x if donate else None)

    def kth_largest(self, x: Array, k: int) -> Array:
        """Selection."""
        if k == 1:
            return x.max(axis=-1, keepdims=True)
        position = x.shape[-1] - k
        return cupy.partition(x, position, axis=-1)[..., position : position + 1]

    def take_rows(self, x: Array, index: Array) -> Array:
        """The native selection."""
        if not isinstance(index, cupy.ndarray):
            index = self.asarray(index, "int32")
        return cupy.take(x, index, axis=0)

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """One scatter; skipped tokens add nothing to token 0."""
        target = x if donate else x.copy()
        valid, index = _valid(tokens, x.shape[-1])
        amount = cupy.where(valid, x.dtype.type(value), x.dtype.type(0))
        cupy.add.at(target, (_row_numbers(x), index), amount)
        return target

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """One scatter; a skipped token repeats the write of another token of its row."""
        target = x if donate else x.copy()
        if tokens.size == 0:
            return target
        valid, index = _valid(tokens, x.shape[-1])
        # index is 0 where it is not valid, so the maximum is a valid index of the row unless the row has none.
        anchor = index.max(axis=1, keepdims=True)
        written = cupy.where(valid.any(axis=1, keepdims=True), x.dtype.type(value), x[:, :1])
        target[_row_numbers(x), cupy.where(valid, index, anchor)] = written
        return target

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """One scatter; a skipped entry repeats the write of another entry of its row."""
        target = x if donate else x.copy()
        if index.size == 0:
            return target
        rows = _row_numbers(x)
        valid, position = _valid(index, x.shape[-1])
        first = valid.argmax(axis=1)[:, None]
        position = cupy.where(valid, position, position[rows, first])
        values = cupy.where(valid, values, values[rows, first]).astype(x.dtype, copy=False)
        target[rows, position] = cupy.where(valid.any(axis=1, keepdims=True), values, x[rows, position])
        return target

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """Word by word, without a gather."""
        vocab, (batch, words) = logits.shape[-1], bits.shape
        allowed = (bits[:, :, None] >> cupy.arange(32, dtype=bits.dtype)) & 1
        return self.masked_fill(logits, allowed.reshape(batch, words * 32)[:, :vocab] == 0, NEG_INF, donate)


def _row_numbers(x: Array) -> Array:
    return cupy.arange(x.shape[0])[:, None]


def _valid(tokens: Array, vocab: int) -> tuple[Array, Array]:
    """Which tokens are in the row, and their indices, with 0 in place of all other tokens."""
    valid = (tokens >= 0) & (tokens < vocab)
    return valid, cupy.where(valid, tokens, 0)


def _namespace(device: int) -> SimpleNamespace:
    names = [name for name in dir(compat) if not name.startswith("_")]
    functions = {name: getattr(compat, name) for name in names} | {"clip": _clip}
    functions.update({name: _on_device(functions[name], device) for name in _CREATION})
    return SimpleNamespace(**functions)


def _clip(x: Array, /, min: Array | float | None = None, max: Array | float | None = None) -> Array:
    """``clip`` of the array API; that of array_api_compat selects by a mask, for which CuPy waits for the device."""
    for bound, choose in ((min, cupy.maximum), (max, cupy.minimum)):
        if bound is not None:
            x = choose(x, bound.astype(x.dtype, copy=False) if isinstance(bound, cupy.ndarray) else x.dtype.type(bound))
    return x


def _on_device(create: Callable[..., Any], default: int) -> Callable[..., Any]:
    def creating(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is not None:
            return create(*args, device=device, **kwargs)
        with cupy.cuda.Device(default):
            return create(*args, **kwargs)

    creating.__name__, creating.__doc__ = create.__name__, create.__doc__
    return creating


class CupyPlugin:
    """Entry point: makes the CuPy backend of the current device, if there is a device."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The CuPy backend for ``"cupy"``, or None on a machine without a device."""
        return CupyBackend() if library == "cupy" and cupy.is_available() else None
