"""Random integers and permutations of the Mersenne Twister, as PyTorch draws them on the CPU, without PyTorch.

M. Matsumoto, T. Nishimura, "Mersenne Twister", 1998; the permutation is the shuffle of R. Fisher and F. Yates, 1938,
where the remainder of a 32-bit draw tells which element to exchange with. Watermarks are those of transformers.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["draws", "first_of_permutation", "permutation", "stands_among_first"]

Ints = NDArray[np.int64]


def draws(seed: int, count: int) -> Ints:
    """The first 32-bit numbers of the generator with a seed (its lowest 32 bits count)."""
    raw = np.random.RandomState(seed & 0xFFFFFFFF).randint(0, 1 << 32, size=count, dtype=np.uint32)
    return np.asarray(raw, dtype=np.int64)


def first_of_permutation(seed: int, size: int, count: int) -> Ints:
    """The first ``count`` elements of a random permutation of ``0 .. size - 1``.

    Example:
        >>> sorted(first_of_permutation(1, 5, 5).tolist())
        [0, 1, 2, 3, 4]
    """
    targets, indices = _exchanges(seed, size, count), np.arange(count, dtype=np.int64)
    # Exchange i puts at index i what stands at its target: the element that the target had in the beginning, or, if an
    # earlier exchange had the same target, the element that stood at the index of the last such exchange before it.
    together = np.sort(targets << 32 | indices)
    at, by = together >> 32, together & 0xFFFFFFFF
    again = at[1:] == at[:-1]
    earlier = np.full(count, -1, dtype=np.int64)
    earlier[by[1:][again]] = by[:-1][again]
    # The element at index i before exchange i came from the index of the last exchange before with the target i, and
    # to that index in the same way.
    last = np.append(~again, True) & (at < count)
    source = indices.copy()
    source[at[last]] = by[last]
    source = np.where(targets == indices, np.where(earlier < 0, indices, earlier), source)
    while not np.array_equal(source, further := source[source]):
        source = further
    return np.where(earlier < 0, targets, source[earlier])


def stands_among_first(seed: int, size: int, count: int, element: int) -> bool:
    """Whether an element is among the first ``count`` of the permutation, without computing the others.

    Example:
        >>> first = first_of_permutation(7, 50, 20).tolist()
        >>> all(stands_among_first(7, 50, 20, i) == (i in first) for i in range(50))
        True
    """
    if not 0 <= element < size:
        return False
    targets = _exchanges(seed, size, count)
    position = element
    begin = 0
    while True:
        # The shuffle moves the element to the front if an earlier index is exchanged with its position ...
        end = min(position, count)
        if bool((targets[begin:end] == position).any()):
            return True
        if position >= count:
            return False
        # ... else the shuffle reaches the element's position, and the target drawn there moves the element further
        # back.
        target = int(targets[position])
        if target == position:
            return True
        position, begin = target, position + 1


@lru_cache(maxsize=8)
def permutation(seed: int, size: int) -> Ints:
    """The whole permutation, read-only."""
    whole = first_of_permutation(seed, size, size)
    whole.flags.writeable = False
    return whole


@lru_cache(maxsize=256)
def _exchanges(seed: int, size: int, count: int) -> Ints:
    """For each of the first ``count`` indices, the index that it is exchanged with."""
    first = np.arange(count, dtype=np.int64)
    # The last index is exchanged with itself, without a draw.
    targets: Ints = first + draws(seed, count) % (size - first)
    return targets
