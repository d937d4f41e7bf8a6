"""JAX backend: every operation is one jitted function, and takes tracers as it takes arrays.

Arrays of JAX cannot be written to, so donation changes nothing here; inside ``jax.jit`` the compiler reuses
memory by itself. Operations outside a compiled function cost one dispatch each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import InvalidContext

__all__ = ["JaxBackend", "JaxPlugin"]


class JaxBackend(Backend):
    """JAX arrays.

    Args:
        device: a ``jax.Device``, for arrays bound to a device other than the default one; None for the rest,
            which JAX lets meet arrays of any placement (a traced or sharded array has no device of its own).
    """

    name = "jax"
    compiles = True
    compiles_operations = True

    def __init__(self, device: Any = None) -> None:
        super().__init__(device)
        self.xp = _NAMESPACE

    def _exact_device(self, device: Any) -> Any:
        if isinstance(device, str):
            platform, _, number = device.partition(":")
            device = jax.devices(platform)[int(number or 0)]
        return None if device == _default_device() else device

    def device_of(self, array: Array) -> Any:
        """The device of an array bound to a single, non-default one; else None."""
        if isinstance(array, jax.core.Tracer):
            return None
        device = array.device
        return device if isinstance(device, jax.Device) and device != _default_device() else None

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """A copy, made at once also while JAX traces: an uploaded table must not belong to a trace."""
        host = np.asarray(host)
        wanted = None if dtype is None else jax.dtypes.canonicalize_dtype(getattr(jnp, dtype))
        with jax.ensure_compile_time_eval():
            if self.device is None:
                return jnp.array(host, dtype=wanted)
            return jax.device_put(host if wanted is None else host.astype(wanted), self.device, may_alias=False)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """A read-only view of host memory, or a transfer from the device.

        Raises:
            InvalidContext: the array is traced, so it has no values.
        """
        if not self.has_values(array):
            raise InvalidContext(
                "An array that JAX traces (jit, vmap, scan) has no values, and this step reads some. Start with "
                "Context.start(..., compiled=True), which refuses the processors that read values, or call the chain "
                "outside of the traced function."
            )
        return np.asarray(array.astype(jnp.float32) if array.dtype == jnp.bfloat16 else array)

    def has_values(self, array: Array) -> bool:
        """Not while it is traced (``jit``, ``grad``)."""
        return not isinstance(array, jax.core.Tracer)

    def is_floating(self, array: Array) -> bool:
        """By dtype; most types of 8 bits have no -inf."""
        return bool(jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize > 1)

    def cast(self, array: Array, dtype: str) -> Array:
        """The array itself if it has the dtype."""
        wanted = jax.dtypes.canonicalize_dtype(getattr(jnp, dtype))
        return array if array.dtype == wanted else array.astype(wanted)

    def synchronize(self, *arrays: Array) -> None:
        """Wait for these arrays."""
        jax.block_until_ready(arrays)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``jax.jit``."""
        return _jitted(function)

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """One fused pass."""
        del donate
        return _masked_fill(x, mask, value)

    def scale(self, x: Array, factor: float, donate: bool = False) -> Array:
        """The product; a Python number does not widen half types."""
        del donate
        return x * factor

    def divide(self, x: Array, divisor: float, donate: bool = False) -> Array:
        """The quotient; a Python number does not widen half types."""
        del donate
        return x / divisor

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """One fused pass."""
        del donate
        return x + y if y.dtype == x.dtype else _add(x, y)

    def softmax(self, x: Array) -> Array:
        """Fused."""
        return _softmax(x)

    def log_softmax(self, x: Array) -> Array:
        """Fused."""
        return _log_softmax(x)

    def sort_descending(self, x: Array) -> Array:
        """The native sort."""
        return _sort_descending(x)

    def argsort_descending(self, x: Array) -> Array:
        """The native stable sort."""
        return _argsort_descending(x)

    def kth_largest(self, x: Array, k: int) -> Array:
        """XLA's selection."""
        return _kth_largest(x, k)

    def top_k(self, x: Array, k: int) -> tuple[Array, Array]:
        """XLA's selection, which prefers the lower index."""
        values, index = _top_k(x, k)
        return values, index

    def take_rows(self, x: Array, index: Array) -> Array:
        """The native selection."""
        return _take_rows(x, index if isinstance(index, jax.Array) else np.asarray(index, dtype=np.int32))

    def gather(self, x: Array, index: Array) -> Array:
        """The native gather."""
        return _gather(x, index)

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """One scatter, which drops indices that are out of bounds."""
        del donate
        return _add_at(x, tokens, value)

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """One scatter, which drops indices that are out of bounds."""
        del donate
        return _set_at(x, tokens, value)

    def fill_columns(self, x: Array, columns: Array, value: float, donate: bool = False) -> Array:
        """The native indexed update."""
        return x.at[:, columns].set(value)

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """One scatter, which drops indices that are out of bounds."""
        del donate
        return _write_at(x, index, values)

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """Fused, word by word."""
        del donate
        return _apply_token_mask(logits, bits)


def _default_device() -> Any:
    chosen = jax.config.jax_default_device
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices()[0]


def _jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(function)
    return compiled


def _jitted_but_k(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(function, static_argnums=1)
    return compiled


def _wide(x: Array) -> Array:
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


@_jitted
def _masked_fill(x: Array, mask: Array, value: Any) -> Array:
    return jnp.where(mask, jnp.asarray(value).astype(x.dtype), x)


@_jitted
def _add(x: Array, y: Array) -> Array:
    return x + y.astype(x.dtype)


@_jitted
def _softmax(x: Array) -> Array:
    x = _wide(x)
    top = jnp.max(x, axis=-1, keepdims=True)
    e = jnp.exp(x - jnp.where(top == NEG_INF, 0, top))
    total = jnp.sum(e, axis=-1, keepdims=True)
    return e / jnp.where(total == 0, 1, total)


@_jitted
def _log_softmax(x: Array) -> Array:
    x = _wide(x)
    top = jnp.max(x, axis=-1, keepdims=True)
    shifted = x - jnp.where(top == NEG_INF, 0, top)
    total = jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True)
    return shifted - jnp.log(jnp.where(total == 0, 1, total))


@_jitted
def _sort_descending(x: Array) -> Array:
    return jnp.sort(x, axis=-1, descending=True)


@_jitted
def _argsort_descending(x: Array) -> Array:
    return jnp.argsort(x, axis=-1, stable=True, descending=True)


@_jitted_but_k
def _kth_largest(x: Array, k: int) -> Array:
    if k == 1:
        return jnp.max(x, axis=-1, keepdims=True)
    # A slice of the last column would make XLA replace the selection by a whole sort.
    return jnp.min(jax.lax.top_k(_wide(x), k)[0], axis=-1, keepdims=True).astype(x.dtype)


@_jitted_but_k
def _top_k(x: Array, k: int) -> Any:
    # XLA's selection distinguishes -0.0 from 0.0, but equal values must be ordered by index. In half types XLA sorts.
    _, index = jax.lax.top_k(_wide(jnp.where(x == 0, jnp.zeros((), x.dtype), x)), k)
    return jnp.take_along_axis(x, index, axis=-1), index


@_jitted
def _take_rows(x: Array, index: Array) -> Array:
    return jnp.take(x, index, axis=0, mode="clip")


@_jitted
def _gather(x: Array, index: Array) -> Array:
    return jnp.take_along_axis(x, index, axis=-1, mode="clip")


def _positions(x: Array, tokens: Array) -> tuple[Array, Array]:
    """Row and column of each token; negative columns, which JAX counts from the end, become columns beyond the row."""
    return jnp.arange(x.shape[0])[:, None], jnp.where(tokens < 0, x.shape[-1], tokens)


@_jitted
def _add_at(x: Array, tokens: Array, value: Any) -> Array:
    return x.at[_positions(x, tokens)].add(jnp.asarray(value).astype(x.dtype), mode="drop")


@_jitted
def _set_at(x: Array, tokens: Array, value: Any) -> Array:
    return x.at[_positions(x, tokens)].set(jnp.asarray(value).astype(x.dtype), mode="drop")


@_jitted
def _write_at(x: Array, index: Array, values: Array) -> Array:
    return x.at[_positions(x, index)].set(values.astype(x.dtype), mode="drop")


@_jitted
def _apply_token_mask(logits: Array, bits: Array) -> Array:
    vocab, (batch, words) = logits.shape[-1], bits.shape
    allowed = (bits[:, :, None] >> jnp.arange(32, dtype=bits.dtype)[None, None, :]) & 1
    return jnp.where(allowed.reshape(batch, words * 32)[:, :vocab] == 0, jnp.asarray(NEG_INF, logits.dtype), logits)


def _matmul(x1: Array, x2: Array, /) -> Array:
    """The product, in the precision of its arguments.

    On devices that have it, JAX's own default for float32 is a product of numbers of eleven bits.
    """
    return jnp.matmul(x1, x2, precision=jax.lax.Precision.HIGHEST)


_NAMESPACE = SimpleNamespace(
    **{name: getattr(jnp, name) for name in dir(jnp) if not name.startswith("_")} | {"matmul": _matmul}
)


class JaxPlugin:
    """Entry point: makes the JAX backend of the default device."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The JAX backend for ``"jax"``."""
        return JaxBackend() if library == "jax" else None
