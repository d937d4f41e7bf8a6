"""Canonical names: values that mean the same in every process, for what a machine numbers in the order of visits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Chain", "ChainNumbers", "Name"]

Entry = TypeVar("Entry", bound=Hashable)


class Name:
    """A tuple whose hash is computed once. Its parts are plain values, or names.

    Example:
        >>> Name("object", 1) == Name("object", 1), Name("object", 1) == Name("array", 1)
        (True, False)
    """

    __slots__ = ("_hash", "parts")

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.parts)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Name) and hash(self) == hash(other) and self.parts == other.parts

    def __reduce__(self) -> tuple[Any, ...]:
        return Name, self.parts

    def state_parts(self) -> tuple[Any, ...]:
        """What :meth:`logitloom.Chain.save_state` writes."""
        return self.parts

    @staticmethod
    def from_state_parts(*parts: Any) -> Name:
        """The name of some parts."""
        return Name(*parts)

    def __repr__(self) -> str:
        return f"Name{self.parts}"


class Chain(Generic[Entry]):
    """A persistent list: an entry, and the chain of those before it; ``None`` is the empty chain.

    Comparing and pickling take no recursion, so a chain may have any length.

    Example:
        >>> Chain(2, Chain(1, None)) == Chain(2, Chain(1, None)), Chain(2, Chain(1, None)).entries()
        (True, (1, 2))
    """

    __slots__ = ("_hash", "before", "entry", "length")

    def __init__(self, entry: Entry, before: Chain[Entry] | None) -> None:
        self.entry = entry
        self.before = before
        self.length: int = 1 if before is None else before.length + 1
        self._hash: int = hash((entry, before and before._hash))

    def entries(self) -> tuple[Entry, ...]:
        """The entries, the first one first."""
        found: list[Entry] = []
        chain: Chain[Entry] | None = self
        while chain is not None:
            found.append(chain.entry)
            chain = chain.before
        return tuple(reversed(found))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Chain) or self._hash != other._hash or self.length != other.length:
            return False
        one: Chain[Entry] | None = self
        two: Chain[Entry] | None = other
        while one is not two and one is not None and two is not None:
            if one.entry != two.entry:
                return False
            one, two = one.before, two.before
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return _chain, (self.entries(),)

    def state_parts(self) -> tuple[Any, ...]:
        """What :meth:`logitloom.Chain.save_state` writes."""
        return self.entry, self.before

    @staticmethod
    def from_state_parts(entry: Any, before: Any) -> Chain[Any]:
        """The chain of its parts."""
        return Chain(entry, before)

    def __repr__(self) -> str:
        return f"Chain{self.entries()}"


def _chain(entries: Sequence[Any]) -> Chain[Any] | None:
    chain = None
    for entry in entries:
        chain = Chain(entry, chain)
    return chain


class ChainNumbers(Generic[Entry]):
    """Translates between numbered lists, each a number of a shorter one and one more entry, and chains.

    Args:
        shorter: from the number of a list to that of the list without its last entry; 0 is the empty list.
        entry: from the number of a list to the name of its last entry.
        longer: from a number and the name of an entry to the number of the longer list.
    """

    def __init__(
        self, shorter: Callable[[int], int], entry: Callable[[int], Entry], longer: Callable[[int, Entry], int]
    ) -> None:
        self._shorter, self._entry, self._longer = shorter, entry, longer
        self._chains: dict[int, Chain[Entry] | None] = {0: None}
        self._numbers: dict[Chain[Entry] | None, int] = {None: 0}

    def chain(self, number: int) -> Chain[Entry] | None:
        """The chain of a numbered list."""
        later = []
        while number not in self._chains:
            later.append(number)
            number = self._shorter(number)
        chain = self._chains[number]
        for number in reversed(later):
            chain = self._chains[number] = Chain(self._entry(number), chain)
        return chain

    def number(self, chain: Chain[Entry] | None) -> int:
        """The number of a chain."""
        later = []
        while chain not in self._numbers:
            assert chain is not None
            later.append(chain)
            chain = chain.before
        number = self._numbers[chain]
        for chain in reversed(later):
            number = self._numbers[chain] = self._longer(number, chain.entry)
        return number
