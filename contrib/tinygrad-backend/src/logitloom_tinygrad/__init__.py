"""tinygrad as an array backend of logitloom.

tinygrad computes a tensor only when somebody asks for it, and forgets what it computed on the way. So the backend
declares that it is lazy: the chain asks for its states after every step, and the reference model for its caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import DType

from logitloom import Array, Backend

__all__ = ["TinygradBackend", "TinygradPlugin"]


class TinygradBackend(Backend):
    """Tensors of tinygrad on one device.

    Args:
        device: the name of a device, such as ``"CPU"``; default: tinygrad's own.
    """

    name = "tinygrad"
    lazy = True

    def __init__(self, device: str | None = None) -> None:
        device = self._exact_device(Device.DEFAULT if device is None else device)
        super().__init__(device)
        self.xp = _namespace(device)

    def _exact_device(self, device: Any) -> str:
        return str(Device.canonicalize(device))

    def device_of(self, array: Array) -> Any:
        """The name of the tensor's device."""
        return array.device

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """A copy, made at once."""
        return Tensor(np.array(host, dtype=dtype), device=self.device).realize()

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Computes the tensor and downloads it."""
        found: NDArray[Any] = array.numpy()
        return found

    def synchronize(self, *arrays: Array) -> None:
        """Compute these tensors, together."""
        if arrays:
            Tensor.realize(*arrays)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its results computed before it returns: one schedule for all of them."""

        def computing(*arguments: Any) -> Any:
            results = function(*arguments)
            self.synchronize(*_tensors(results))
            return results

        return computing

    def sort_descending(self, x: Array) -> Array:
        """NumPy's sort."""
        return self._by_numpy(lambda host: -np.sort(-host, axis=-1), x)

    def argsort_descending(self, x: Array) -> Array:
        """NumPy's stable sort."""
        return self.asarray(np.argsort(-self.to_numpy(x), axis=-1, kind="stable").astype(np.int32))

    def kth_largest(self, x: Array, k: int) -> Array:
        """NumPy's selection."""
        index = x.shape[-1] - k
        return self._by_numpy(lambda host: np.partition(host, index, axis=-1)[..., index : index + 1], x)

    def _by_numpy(self, function: Callable[[NDArray[Any]], NDArray[Any]], x: Array) -> Array:
        return self.asarray(function(self.to_numpy(x)))


class TinygradPlugin:
    """The entry point: makes the backend."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The backend, if it is asked for."""
        return TinygradBackend() if library == "tinygrad" else None


def _tensors(tree: Any) -> list[Tensor]:
    """The tensors in nested tuples and lists."""
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for part in tree for tensor in _tensors(part)] if isinstance(tree, (tuple, list)) else []


def _namespace(device: str) -> SimpleNamespace:
    """What logitloom needs of the array API standard, in tinygrad's terms.

    Without bfloat16: on the CPU that depends on the compiler, and logitloom does not ask for it.
    """
    backend_dtypes = {name: getattr(dtypes, name) for name in ("bool", "int8", "int32", "int64", "uint8", "float16")}
    return SimpleNamespace(
        **backend_dtypes,
        float32=dtypes.float32,
        float64=dtypes.float64,
        abs=Tensor.abs,
        all=lambda x, /, *, axis: x.min(axis=axis),
        any=lambda x, /: x.max(),
        arange=lambda stop, /, *, dtype=dtypes.int32: Tensor.arange(stop, dtype=dtype).to(device),
        argmax=lambda x, /, *, axis: x.argmax(axis),
        argsort=partial(_argsort, device),
        asarray=lambda host, /, *, copy=True: Tensor(np.array(host), device=device),
        astype=lambda x, dtype, /: x.cast(dtype),
        bitwise_and=lambda x, y, /: x & y,
        bitwise_right_shift=_right_shift,
        bitwise_xor=lambda x, y, /: x ^ y,
        broadcast_to=lambda x, shape, /: x.expand(shape),
        clip=lambda x, least, most, /: x.clip(least, most),
        concat=_concat,
        cumulative_sum=lambda x, /, *, axis: x.cumsum(axis),
        empty=lambda shape, *, dtype=dtypes.float32: Tensor.zeros(shape, dtype=dtype, device=device),
        exp=Tensor.exp,
        finfo=_finfo,
        flip=lambda x, /, *, axis: x.flip(axis),
        floor=Tensor.floor,
        full=lambda shape, value, *, dtype: Tensor.full(shape, value, dtype=dtype, device=device),
        full_like=lambda x, value, /: x.full_like(value),
        isdtype=_isdtype,
        log=Tensor.log,
        logical_and=lambda x, y, /: x & y,
        logical_not=lambda x, /: x.logical_not(),
        logical_or=lambda x, y, /: x | y,
        matmul=lambda x, y, /: x @ y,
        max=_reduction(Tensor.max),
        maximum=lambda x, y, /: x.maximum(y),
        mean=_reduction(Tensor.mean),
        min=_reduction(Tensor.min),
        minimum=lambda x, y, /: x.minimum(y),
        ones_like=lambda x, /: x.ones_like(),
        permute_dims=lambda x, axes, /: x.permute(axes),
        reshape=lambda x, shape, /: x.reshape(shape),
        sort=partial(_sort, device),
        sqrt=Tensor.sqrt,
        sum=_reduction(Tensor.sum),
        take=_take,
        take_along_axis=_take_along_axis,
        tanh=Tensor.tanh,
        where=_where,
        zeros=lambda shape, *, dtype=dtypes.float32: Tensor.zeros(shape, dtype=dtype, device=device),
        zeros_like=lambda x, /: x.zeros_like(),
    )


def _reduction(reduce: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reducing(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return reduce(x, axis=axis, keepdim=keepdims)

    return reducing


# tinygrad sorts by a network of exchanges, which for the columns of a vocabulary are very many kernels.
def _sort(device: str, x: Tensor, /, *, axis: int) -> Tensor:
    return Tensor(np.sort(x.numpy(), axis=axis), device=device)


def _argsort(device: str, x: Tensor, /, *, axis: int, stable: bool = True) -> Tensor:
    order = np.argsort(x.numpy(), axis=axis, kind="stable" if stable else None)
    return Tensor(order.astype(np.int32), device=device)


def _concat(arrays: Sequence[Tensor], /, *, axis: int) -> Tensor:
    full = [x for x in arrays if x.shape[axis]]
    return Tensor.cat(*full, dim=axis) if len(full) > 1 else full[0] if full else arrays[0]


def _right_shift(x: Tensor, by: Tensor | int, /) -> Tensor:
    """Arithmetic: the floor of the quotient with a power of two."""
    if isinstance(by, int):
        return x >> by
    # 2 ** 31 is no int32, so the last place is shifted by itself.
    some = by.minimum(30)
    return (x // (Tensor.ones_like(some) << some)) >> (by - some)


def _take(x: Tensor, index: Tensor, /, *, axis: int) -> Tensor:
    return x[(*[slice(None)] * (axis % x.ndim), index)]


def _take_along_axis(x: Tensor, index: Tensor, /, *, axis: int) -> Tensor:
    axis %= x.ndim
    shape = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(x.shape, index.shape, strict=True)]
    source = x.expand([x.shape[axis] if n == axis else size for n, size in enumerate(shape)])
    return source.gather(axis, index.expand([index.shape[axis] if n == axis else s for n, s in enumerate(shape)]))


def _where(mask: Tensor, x: Any, y: Any, /) -> Tensor:
    return mask.where(x, y)


def _isdtype(dtype: DType, kind: str) -> bool:
    if kind != "real floating":
        raise ValueError(f"isdtype knows 'real floating', not {kind!r}.")
    return dtypes.is_float(dtype)


def _finfo(dtype: DType) -> SimpleNamespace:
    exponent, mantissa = dtypes.finfo(dtype)
    return SimpleNamespace(max=(2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1))
