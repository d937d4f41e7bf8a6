"""Counter-based random numbers: a pure function of (row seed, position), the same bits on every backend.

The random draws of a row depend on the row's own seed and length only, never on its row number, on the other rows or on
the number of earlier calls. So a row gets the same draws decoded alone, in a batch, forked, rolled back or replayed,
and on NumPy, PyTorch, MLX, CuPy and JAX alike.

The mixing function is an integer hash of the multiply / xor-shift family (M. O'Neill 2014, section 6; C.
Wellons' search of 2018 gave the constants), in wrapping 32-bit arithmetic, which every array library has.
Counter-based generation: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fold", "folded", "row_seeds", "uniform"]

#: An array of any supported library.
Array = Any

_MASK = 0xFFFFFFFF
_M1 = 0x7FEB352D
_M2 = 0x846CA68B
_GOLDEN = 0x9E3779B9


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value >= 1 << 31 else value


def _mix_int(x: int) -> int:
    x &= _MASK
    x ^= x >> 16
    x = x * _M1 & _MASK
    x ^= x >> 15
    x = x * _M2 & _MASK
    return x ^ x >> 16


def fold(seed: int, data: int = 0) -> int:
    """A new 32-bit seed from a seed (any integer) and a number, as a signed integer."""
    low, high = seed & _MASK, (seed >> 32) & _MASK
    return _signed(_mix_int(_mix_int(low ^ _GOLDEN) + _mix_int(high + data * _GOLDEN)))


def row_seeds(seed: int, rows: int) -> NDArray[np.int32]:
    """One seed per row, ``[rows] int32``, derived from the batch's seed and the row number."""
    return np.asarray([fold(seed, i + 1) for i in range(rows)], dtype=np.int32)


def _mix(x: Array, xp: Any) -> Array:
    # Arithmetic shifts copy the sign bit; the masks make them logical.
    x = xp.bitwise_xor(x, xp.bitwise_and(x >> 16, 0xFFFF))
    x = x * _M1
    x = xp.bitwise_xor(x, xp.bitwise_and(x >> 15, 0x1FFFF))
    x = x * _signed(_M2)
    return xp.bitwise_xor(x, xp.bitwise_and(x >> 16, 0xFFFF))


def folded(xp: Any, seeds: Array, data: Array) -> Array:
    """New seeds from seeds and numbers, on the device: ``[rows] int32`` each, or of shapes that fit together."""
    return _mix(xp.bitwise_xor(seeds, _mix(data * _signed(_GOLDEN) + 1, xp)), xp)


def uniform(xp: Any, seeds: Array, counter: Array, stream: int = 0) -> Array:
    """One number in [0, 1) per row, a multiple of 2**-23.

    Args:
        xp: the array API namespace of the arrays (``backend.xp``).
        seeds: ``[rows] int32``.
        counter: ``[rows] int32``, for example the length of each row.
        stream: tells several draws of one step apart; any Python integer.

    Returns:
        ``[rows] float32``.
    """
    x = _mix(seeds + _signed(_mix_int(stream + 1)), xp)
    x = _mix(xp.bitwise_xor(x, _mix(counter * _signed(_GOLDEN) + 1, xp)), xp)
    return xp.astype(xp.bitwise_and(x >> 9, 0x7FFFFF), xp.float32) * 2.0**-23
