"""The remembered results for the states of one constraint: tables with one common bound in bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import numpy as np

__all__ = ["StateMemory"]

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

#: The bound on the estimated bytes of the tables of one memory; and the bytes of an entry besides its arrays.
_CAPACITY: Final = 96 << 20
_ENTRY: Final = 256


class StateMemory:
    """All that is remembered about the states of one constraint. Dropping it changes speed, never a result.

    Each user of the memory has a table with a name. If the estimated size exceeds the bound, all tables are emptied.
    Several threads may use one memory. A memory that is copied or pickled is empty afterwards.

    Args:
        most_bytes: the bound; 96 MiB by default.

    Example:
        >>> memory = StateMemory(most_bytes=600)
        >>> squares = memory.remembering("squares", lambda state: state * state)
        >>> [squares(3), squares(3), squares(4)], memory.table("squares")
        ([9, 9, 16], {3: 9, 4: 16})
        >>> squares(5), memory.table("squares")
        (25, {5: 25})
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most_bytes = _CAPACITY if most_bytes is None else most_bytes
        #: The estimated bytes of all entries, and the bound on these bytes.
        self._noted, self._most_noted = 0, self.most_bytes
        self._tables: dict[str, dict[Any, Any]] = {}
        #: The counted arrays by identity, kept here so that no other array gets the same identity.
        self._counted: dict[int, np.ndarray[Any, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.most_bytes,)

    @property
    def nbytes(self) -> int:
        """Bytes that are held, estimated. An array that stands in several entries counts once."""
        return self._noted

    def table(self, name: str, *, renew: bool = False) -> dict[Any, Any]:
        """The table with a name, which is the same in each call.

        Args:
            name: of the table.
            renew: whether the table begins empty, because its keys are those of another numbering from now on.
        """
        table = self._tables.setdefault(name, {})
        if renew:
            table.clear()
        return table

    def clear(self) -> None:
        """Empty all tables. Other threads may use them meanwhile."""
        for table in self._tables.values():
            table.clear()
        self._counted.clear()
        self._noted = 0

    def note(self, result: Any = None, entries: int = 1, nbytes: int = 0) -> None:
        """Count entries before they are added to tables; the tables are emptied first if there is no room for them.

        Args:
            result: an array, or a tuple of arrays and other values, which the entries hold.
            entries: how many entries.
            nbytes: further bytes of the entries.
        """
        nbytes += _ENTRY * entries
        self._noted += nbytes if result is None else nbytes + self._new_bytes(result)
        if self._noted > self._most_noted:
            self.clear()
            self._noted = nbytes + self._new_bytes(result)

    def _new_bytes(self, result: Any) -> int:
        """The bytes of arrays that were not counted before."""
        if isinstance(result, np.ndarray):
            if id(result) in self._counted:
                return 0
            self._counted[id(result)] = result
            return result.nbytes
        return sum(map(self._new_bytes, result)) if isinstance(result, tuple) else 0

    def remembering(self, name: str, find: Callable[[Key], Result]) -> Callable[[Key], Result]:
        """A function whose results are remembered in a table.

        Args:
            name: of the table.
            find: a function of states, or of other hashable values.
        """
        table: dict[Key, Result] = self.table(name)

        def remembered(key: Key) -> Result:
            try:
                return table[key]
            except KeyError:
                found = find(key)
            self.note(found)
            table[key] = found
            return found

        return remembered
