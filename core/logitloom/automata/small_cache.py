"""A bounded memory for what is made under a budget, which functools cannot tell from the key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """At most so many values; the oldest goes first. Threads may use it together.

    Example:
        >>> cache = Cache[str, int](1)
        >>> cache.add("a", 1), cache.add("b", 2), cache.get("a"), cache.get("b")
        (1, 2, None, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of a key, if it is still there."""
        return self._values.get(key)

    def add(self, key: K, value: V) -> V:
        """Remember a value, and return it."""
        if len(self._values) >= self._most:
            # Another thread may be doing the same.
            for oldest in list(self._values)[:1]:
                self._values.pop(oldest, None)
        self._values[key] = value
        return value
