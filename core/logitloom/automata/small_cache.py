"""A bounded cache for values whose construction takes a budget tracker, which must not be part of the key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of at most ``most`` values; the oldest is removed first. Several threads may use it at the same time.

    Example:
        >>> cache = BoundedCache[str, int](1)
        >>> cache.add("a", 1), cache.add("b", 2), cache.get("a"), cache.get("b")
        (1, 2, None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of a key; ``None`` if it is not in the cache."""
        return self._values.get(key)

    def add(self, key: K, value: V) -> V:
        """Add a value, and return it."""
        if len(self._values) >= self._most:
            # Another thread may remove the same key.
            for oldest in list(self._values)[:1]:
                self._values.pop(oldest, None)
        self._values[key] = value
        return value
