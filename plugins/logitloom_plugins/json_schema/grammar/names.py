"""Values with cached hashes, of which states are made: they mean the same in every process with an equal schema."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

__all__ = ["Linked", "Name"]

Entry = TypeVar("Entry", bound=Hashable)


class Name(frozenset[tuple[object, ...]]):
    """A value that is identified by its parts, which are plain values and other names.

    A subclass also holds what an automaton has made from the parts. An object of a subclass equals the plain name of
    the same parts, and is pickled as the plain name. A name is a frozen set of one element, the tuple of its parts,
    because Python caches the hash of a frozen set.

    Example:
        >>> Name(("object", 1)) == Name(("object", 1)), Name(("object", 1)) == Name(("array", 1))
        (True, False)
    """

    parts: tuple[object, ...]

    def __new__(cls, parts: tuple[object, ...], *made: object) -> Name:
        """A name of some parts; further arguments are for the constructor of a subclass."""
        name = super().__new__(cls, (parts,))
        name.parts = parts
        return name

    def __reduce__(self) -> tuple[object, ...]:
        return Name, (self.parts,)

    def state_parts(self) -> tuple[object, ...]:
        """The value that :meth:`logitloom.Linked.save_state` writes."""
        return self.parts

    @staticmethod
    def from_state_parts(*parts: object) -> Name:
        """The name of some parts."""
        return Name(parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.parts}"


class Linked(frozenset[int], Generic[Entry]):
    """A persistent list: an entry, and the chain of the earlier entries; ``None`` is the empty chain.

    Comparing and pickling take no recursion, so a chain may have any length. A chain is a frozen set of one number, the
    hash of its entries, because Python caches the hash of a frozen set.

    Example:
        >>> Linked(2, Linked(1, None)) == Linked(2, Linked(1, None)), Linked(2, Linked(1, None)).entries()
        (True, (1, 2))
    """

    __slots__ = ("before", "entry", "length")
    entry: Entry
    before: Linked[Entry] | None
    length: int

    def __new__(cls, entry: Entry, before: Linked[Entry] | None) -> Linked[Entry]:
        """A chain with one more entry."""
        chain = super().__new__(cls, (hash((entry, before)),))
        chain.entry, chain.before = entry, before
        chain.length = 1 if before is None else before.length + 1
        return chain

    def entries(self) -> tuple[Entry, ...]:
        """The entries, the first one first."""
        found: list[Entry] = []
        chain: Linked[Entry] | None = self
        while chain is not None:
            found.append(chain.entry)
            chain = chain.before
        return tuple(reversed(found))

    __hash__ = frozenset.__hash__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Linked) or hash(self) != hash(other) or self.length != other.length:
            return False
        one: Linked[Entry] | None = self
        two: Linked[Entry] | None = other
        while one is not two and one is not None and two is not None:
            if one.entry != two.entry:
                return False
            one, two = one.before, two.before
        return True

    def __reduce__(self) -> tuple[object, ...]:
        return _chain, (self.entries(),)

    def state_parts(self) -> tuple[object, ...]:
        """The value that :meth:`logitloom.Linked.save_state` writes."""
        return self.entry, self.before

    @staticmethod
    def from_state_parts(entry: Entry, before: Linked[Entry] | None) -> Linked[Entry]:
        """The chain of its parts."""
        return Linked(entry, before)

    def __repr__(self) -> str:
        return f"Linked{self.entries()}"


def _chain(entries: Sequence[Entry]) -> Linked[Entry] | None:
    chain: Linked[Entry] | None = None
    for entry in entries:
        chain = Linked(entry, chain)
    return chain
