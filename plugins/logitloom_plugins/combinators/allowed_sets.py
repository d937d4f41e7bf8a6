"""Unions, intersections and differences of token sets.

A result lists the allowed or the forbidden ids, whichever list is shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct
from logitloom.constraints import TokenSet

__all__ = ["difference", "intersection", "nothing", "selected", "union"]


def _written(allowed: bool, ids: NDArray[Any], size: int) -> TokenSet:
    if 2 * len(ids) > size:
        ids, allowed = np.setdiff1d(np.arange(size), ids, assume_unique=True), not allowed
    ids = ids.astype(np.int32)
    ids.setflags(write=False)
    return TokenSet(allowed, ids)


def selected(ids: Iterable[int] | NDArray[Any]) -> TokenSet:
    """The token set of the given ids."""
    found = np.asarray(ids if isinstance(ids, np.ndarray) else [*ids], dtype=np.int32)
    found = distinct(found, int(found.max(initial=-1)) + 1).astype(np.int32)
    found.setflags(write=False)
    return TokenSet(True, found)


_NOTHING = selected(())


def nothing() -> TokenSet:
    """The empty set."""
    return _NOTHING


def union(sets: Sequence[TokenSet], size: int) -> TokenSet:
    """The union of token sets; ``size`` is the width of the logits.

    >>> union([selected([1]), TokenSet(False, np.array([1, 2], dtype=np.int32))], 5).listed(5).tolist()
    [0, 1, 3, 4]
    """
    found = [members for members in sets if len(members.ids) or not members.allowed]
    if len(found) < 2:
        return found[0] if found else _NOTHING
    listed = [members.ids for members in found if members.allowed]
    forbidden = [members.ids for members in found if not members.allowed]
    allowed = distinct(np.concatenate(listed), size) if listed else _NOTHING.ids
    if not forbidden:
        return _written(True, allowed, size)
    left = forbidden[0]
    for more in forbidden[1:]:
        left = np.intersect1d(left, more, assume_unique=True)
    return _written(False, np.setdiff1d(left, allowed, assume_unique=True), size)


def intersection(one: TokenSet, other: TokenSet, size: int) -> TokenSet:
    """The ids of both token sets; ``size`` is the width of the logits."""
    if one.allowed or other.allowed:
        listed, members = (one, other) if one.allowed else (other, one)
        return TokenSet(True, listed.ids[members.mask(size).take(listed.ids)])
    return _written(False, distinct(np.concatenate([one.ids, other.ids]), size), size)


def difference(members: TokenSet, removed: NDArray[Any], size: int) -> TokenSet:
    """The token set without the ids ``removed``; ``size`` is the width of the logits."""
    if members.allowed:
        return _written(True, np.setdiff1d(members.ids, distinct(removed, size), assume_unique=True), size)
    return _written(False, distinct(np.concatenate([members.ids, removed]), size), size)
