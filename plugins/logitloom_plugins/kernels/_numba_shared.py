"""Parts of the modules of compiled functions: types of arguments, addresses as pointers, and slots of hash tables.

The modules that share these parts are compiled in separate processes at the same time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

__all__ = ["alike", "bytes_at", "compiled", "elements_at", "integers_at", "read_only", "slot_of"]

compiled: Callable[..., Callable[[Callable[..., Any]], Any]] = numba.njit
_code: Callable[[Callable[..., Any]], Any] = intrinsic


def read_only(dtype: Any, dimensions: int = 1) -> Any:
    """The Numba type of a read-only array."""
    return types.Array(dtype, dimensions, "C", readonly=True)


@compiled(types.int64(types.uint64[:, ::1], types.int64, types.int32[::1]), cache=True, nogil=True)
def slot_of(rows: Any, row: int, numbers: Any) -> int:  # pragma: no cover - compiled
    """The slot of a hash table that has a row equal to the given row, or the free slot for this row."""
    value = np.uint64(0x9E3779B97F4A7C15)
    for word in range(rows.shape[1]):
        value = (value ^ rows[row, word]) * np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    mask = np.int64(len(numbers) - 1)
    slot = np.int64(value & np.uint64(mask))
    while numbers[slot] >= 0:
        other, same = numbers[slot], True
        for word in range(rows.shape[1]):
            same &= rows[other, word] == rows[row, word]
        if same:
            break
        slot = (slot + 1) & mask
    return int(slot)


@_code
def bytes_at(typing_context: Any, address: Any) -> Any:
    """Convert an address to a pointer to bytes."""
    return _pointer(types.uint8, address)


@_code
def integers_at(typing_context: Any, address: Any) -> Any:
    """Convert an address to a pointer to 64-bit integers."""
    return _pointer(types.int64, address)


@_code
def elements_at(typing_context: Any, address: Any, like: Any) -> Any:
    """Convert an address to a pointer to values of the type of ``like``."""
    return _pointer(like, address, like)


def _pointer(kind: Any, *given: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind)(*given), generate


def alike(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a compiled function so that it gets read-only views of all arrays, and plain tuples in place of named
    tuples.

    Numba takes milliseconds to resolve each new combination of writable and read-only arguments in a process.
    """

    @functools.wraps(function)
    def called(*values: Any) -> Any:
        return function(*map(_only_read, values))

    return called


def _only_read(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_only_read(part) for part in value])
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value
