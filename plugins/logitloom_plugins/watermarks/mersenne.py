"""Random integers and permutations of the Mersenne Twister, as PyTorch draws them on the CPU, without PyTorch.

M. Matsumoto, T. Nishimura, "Mersenne Twister", 1998; the permutation is the shuffle of R. Fisher and F. Yates, 1938,
with the remainder of a 32-bit draw as the place to exchange with. Marks are those of transformers.
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
    """The first ``count`` places of a random permutation of ``0 .. size - 1``.

    Example:
        >>> sorted(first_of_permutation(1, 5, 5).tolist())
        [0, 1, 2, 3, 4]
    """
    places = _exchanges(seed, size, count).tolist()
    order = list(range(size))
    for i, j in enumerate(places):
        order[i], order[j] = order[j], order[i]
    return np.asarray(order[:count], dtype=np.int64)


def stands_among_first(seed: int, size: int, count: int, element: int) -> bool:
    """Whether an element is among the first places of the permutation, without computing the others.

    Example:
        >>> first = first_of_permutation(7, 50, 20).tolist()
        >>> all(stands_among_first(7, 50, 20, i) == (i in first) for i in range(50))
        True
    """
    if not 0 <= element < size:
        return False
    places = _exchanges(seed, size, count)
    at = element
    begin = 0
    while True:
        # The shuffle takes it to the front if a place before its own is exchanged with it ...
        end = min(at, count)
        if bool((places[begin:end] == at).any()):
            return True
        if at >= count:
            return False
        # ... else its own turn comes, and what is drawn there moves it further back.
        target = int(places[at])
        if target == at:
            return True
        at, begin = target, at + 1


@lru_cache(maxsize=8)
def permutation(seed: int, size: int) -> Ints:
    """The whole permutation, read-only."""
    whole = first_of_permutation(seed, size, size)
    whole.flags.writeable = False
    return whole


@lru_cache(maxsize=256)
def _exchanges(seed: int, size: int, count: int) -> Ints:
    """With which place each of the first ones is exchanged."""
    first = np.arange(count, dtype=np.int64)
    # The last place is exchanged with itself, without a draw.
    places: Ints = first + draws(seed, count) % (size - first)
    return places
