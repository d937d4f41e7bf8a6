"""From an automaton over character classes to one over bytes, state by state.

A state that reads characters above ASCII needs states between their bytes: up to a few hundred for ``\\w``, and again
for every place of the pattern. All states are numbered at once, so the size is known (and the budget checked) from the
start, but the table is filled where it is read: a first mask touches few of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.budget import Meter
from logitloom.automata.utf8 import DEAD, HighPartition, Shape

__all__ = ["Lowering"]


class _Block(NamedTuple):
    """States between the bytes of one character: a shape, its first state, and ``DEAD`` and where its groups lead."""

    shape: Shape
    base: int
    targets: tuple[int, ...]


class Lowering:
    """The table of a byte automaton, filled on demand.

    Args:
        high: the classes above ASCII.
        split: how many classes of characters are ASCII.
        characters: ``[states, classes] int32``, the automaton over character classes.
        meter: the budget.

    Attributes:
        characters: as given; its states are the first states of the byte automaton.
        states: states in all.
        width: byte classes.
        table: ``[states, width] int32``; read only what was prepared.
        ready: ``[states]``, which rows are.
    """

    def __init__(self, high: HighPartition, split: int, characters: NDArray[np.int32], meter: Meter) -> None:
        self.high = high
        self.split = split
        self.characters = characters
        self.width = split + high.columns
        self._blocks: list[_Block | None] = [None]
        base = len(characters)
        by_targets: dict[tuple[int, ...], int] = {(DEAD,) * high.classes: 0}
        block_of = []
        for targets in map(tuple, characters[:, split:].tolist()):
            block = by_targets.get(targets)
            if block is None:
                block = by_targets[targets] = len(self._blocks)
                numbers: dict[int, int] = {DEAD: DEAD}
                groups = tuple([numbers.setdefault(target, len(numbers) - 1) for target in targets])
                shape = high.shape(groups)
                self._blocks.append(_Block(shape, base, tuple(numbers)))
                base += len(shape.nodes)
            block_of.append(block)
        self.states = base
        self._block_of = block_of
        meter.check_states(self.states)
        meter.check_bytes(4 * self.states * self.width)
        self.table: NDArray[np.int32] = np.empty((self.states, self.width), dtype=np.int32)
        self.table[: len(characters), :split] = characters[:, :split]
        self._done: set[int] = set()
        self.ready: NDArray[np.bool_] = np.zeros(self.states, dtype=bool)

    @property
    def blocks(self) -> int:
        """How many times the states between bytes are needed."""
        return len(self._blocks) - 1

    def prepare(self, states: NDArray[np.int32]) -> None:
        """Fill the rows of some states, and of all states between bytes that they lead to."""
        missing = states[~self.ready[states]]
        if len(missing):
            if missing.max() >= len(self.characters):
                # A state between bytes that nobody came to by reading: it was carried here from elsewhere.
                self.filled_table()
                return
            for state in dict.fromkeys(missing.tolist()):
                self._fill(state)

    def filled_table(self) -> NDArray[np.int32]:
        """The whole table."""
        for state in np.flatnonzero(~self.ready[: len(self.characters)]).tolist():
            self._fill(state)
        return self.table

    def _fill(self, state: int) -> None:
        number = self._block_of[state]
        block = self._blocks[number]
        row = self.table[state, self.split :]
        if block is None:
            row[:] = DEAD
            self.ready[state] = True
            return
        # Looked up with the negative codes of the shape: -1 is dead, -2 - g the target of group g.
        nodes, root = block.shape.moved(block.base, np.array(block.targets[::-1], dtype=np.int32))
        row[:] = root
        # Several states may lead to the same block.
        if number not in self._done:
            inside = self.table[block.base : block.base + len(nodes)]
            inside[:, : self.split] = DEAD
            inside[:, self.split :] = nodes
            self.ready[block.base : block.base + len(nodes)] = True
            self._done.add(number)
        # Last, so that another thread never trusts a row that is half filled.
        self.ready[state] = True
