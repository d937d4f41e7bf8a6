"""What is remembered of open strings, objects and arrays, as numbers.

For each of them that is where to go on after it, and of an object in which no name must come twice the names so far.
They are remembered here and not in states, because what a state says next is the same whichever they are: the machine
stays as large as its schema, however many texts are read.
"""

from __future__ import annotations

import json
from typing import Final

from logitloom_plugins.json_schema.structure.members import TruthVector
from logitloom_plugins.json_schema.structure.structure_states import DEAD, Operation

__all__ = ["EMPTY", "Stacks", "name_of"]

#: The number of nothing.
EMPTY: Final = 0
_NO_NAMES: Final[frozenset[str]] = frozenset()


def name_of(written: bytes) -> str:
    """The name of a member that is written like this between its quotes."""
    name: str = json.loads(b'"' + written + b'"')
    return name


class Stacks:
    """The stacks of one machine that have been reached.

    Args:
        operations, returns: those of the machine, which go on growing.
    """

    def __init__(self, operations: list[Operation], returns: list[dict[TruthVector, int]]) -> None:
        self._operations = operations
        self._returns = returns
        # A return, the number of what was remembered before, and names.
        self._entries: list[tuple[int, int, frozenset[str]]] = [(-1, -1, _NO_NAMES)]
        self._number: dict[tuple[int, int, frozenset[str]], int] = {}

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._entries)

    def entry(self, stack: int) -> tuple[int, int, frozenset[str]]:
        """A return, the number of the stack below, and the names that must not come again."""
        return self._entries[stack]

    def number(self, entry: tuple[int, int, frozenset[str]]) -> int:
        """The number of a stack with such an entry on top."""
        known = self._number.get(entry)
        if known is None:
            known = self._number[entry] = len(self._entries)
            self._entries.append(entry)
        return known

    def applied(self, code: int, stack: int) -> tuple[int, int]:
        """State and stack after a row's code that begins or ends something.

        Args:
            code: below -1.
            stack: the number of what is remembered before.
        """
        operation = self._operations[-2 - code]
        if operation.kind == "push":
            return operation.target, self.number((operation.value, stack, _NO_NAMES))
        back, below, _ = self._entries[stack]
        return self._returns[back][operation.value], below

    def names(self, stack: int) -> frozenset[str]:
        """The names that must not come again in what was begun last."""
        return self._entries[stack][2]

    def nameless(self, stack: int) -> int:
        """The same stack without these names."""
        back, below, names = self._entries[stack]
        return self.number((back, below, _NO_NAMES)) if names else stack

    def named(self, code: int, stack: int, written: bytes, remember: bool = True) -> tuple[int, int]:
        """State and stack after a name that must not come twice; the state is ``DEAD`` if it does.

        Args:
            code: what the row said.
            stack: the number of what is remembered before.
            written: the name as it is written, without quotes.
            remember: whether the stack knows that the name has come.
        """
        back, below, names = self._entries[stack]
        if names or remember:
            name = name_of(written)
            if name in names:
                return DEAD, stack
            if remember:
                stack = self.number((back, below, names | {name}))
        return self._operations[-2 - code].target, stack
