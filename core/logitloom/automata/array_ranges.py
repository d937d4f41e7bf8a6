"""Concatenations of arrays and of ranges, the different numbers of an array, and values grouped by keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_key", "distinct", "in_order_of_appearance", "joined", "members"]

#: An array of flags with so many times the numbers is slower than sorting them.
_SPARSE: Final = 64


def by_key(keys: NDArray[Any], values: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values sorted by key; values with equal keys keep their order.

    Args:
        keys: ``[n]``, numbers below ``count``, not negative.
        values: ``[n]``.
        count: the number of keys.

    Returns:
        The values, ``[n]``, and where those of each key begin, ``[count + 1]`` with the end of the last.

    Example:
        >>> by_key(np.array([2, 0, 2]), np.array([7, 8, 9]), 3)
        (array([8, 7, 9]), array([0, 1, 1, 3]))
    """
    return values.take(keys.argsort(kind="stable")), np.append(0, np.bincount(keys, minlength=count).cumsum())


def distinct(numbers: NDArray[Any], size: int) -> NDArray[Any]:
    """The different numbers of an array, ascending.

    Args:
        numbers: numbers below ``size``, not negative.
        size: a bound above all numbers.
    """
    if size > _SPARSE * len(numbers):
        return np.unique(numbers)
    flags = np.zeros(size, dtype=bool)
    flags[numbers] = True
    return flags.nonzero()[0]


def in_order_of_appearance(numbers: NDArray[Any], size: int) -> NDArray[Any]:
    """The different numbers of an array, in the order in which they first appear.

    Args:
        numbers: numbers below ``size``, not negative.
        size: a bound above all numbers.
    """
    found = distinct(numbers, size)
    if len(found) < 2:
        return found
    first = np.empty(size, dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    ordered: NDArray[Any] = found[first.take(found).argsort()]
    return ordered


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The concatenation of arrays; an empty array of integers if there are none."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def members(first: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """The concatenation of the ranges ``first[i] .. first[i] + counts[i] - 1``."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.zeros(0, dtype=np.int64)
    found: NDArray[Any] = np.arange(total) + (first - ends + counts).repeat(counts)
    return found
