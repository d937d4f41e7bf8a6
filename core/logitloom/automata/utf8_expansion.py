"""From an automaton over character classes to one over bytes, state by state.

A state that reads characters above ASCII needs states between their bytes: up to a few hundred for ``\\w``, and again
for every place of the pattern. All states are numbered at once, so the size is known (and the budget checked) from the
start, but the table is filled where it is read: a first mask touches few of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.budget import BudgetTracker
from logitloom.automata.utf8 import DEAD, HighPartition, Shape

__all__ = ["Utf8Expansion"]


class Utf8Expansion:
    """The table of a byte automaton, filled on demand.

    Args:
        high: the classes above ASCII.
        split: how many classes of characters are ASCII.
        characters: ``[states, classes] int32``, the automaton over character classes.
        tracker: the budget.

    Attributes:
        characters: as given; its states are the first states of the byte automaton.
        states: states in all.
        width: byte classes.
        table: ``[states, width] int32``; read only what was prepared.
        ready: ``[states]``, which rows are.
    """

    def __init__(self, high: HighPartition, split: int, characters: NDArray[np.int32], tracker: BudgetTracker) -> None:
        self.high = high
        self.split = split
        self.characters = characters
        self.width = split + high.columns
        # A class by itself is always read alike, whatever follows it: counted repeats have thousands of such blocks.
        alike = len(high.shape((0,)).nodes) if high.classes == 1 else None
        base = len(characters)
        #: By block its first state; the first block stands for none.
        self._bases = [base]
        by_targets: dict[tuple[int, ...], int] = {(DEAD,) * high.classes: 0}
        #: By block where its first bytes lead, if that was asked.
        self._roots: dict[int, NDArray[np.int32]] = {0: np.full(high.columns, DEAD, dtype=np.int32)}
        block_of = []
        for targets in map(tuple, characters[:, split:].tolist()):
            block = by_targets.get(targets)
            if block is None:
                block = by_targets[targets] = len(self._bases)
                self._bases.append(base)
                base += alike or len(self._shape(targets)[0].nodes)
                tracker.check_states(base)
            block_of.append(block)
        self.states = base
        self._block_of = block_of
        #: By block where the classes above ASCII lead.
        self._targets = list(by_targets)
        tracker.check_states(self.states)
        tracker.check_bytes(4 * self.states * self.width)
        self.table: NDArray[np.int32] = np.empty((self.states, self.width), dtype=np.int32)
        self.table[: len(characters), :split] = characters[:, :split]
        self.ready: NDArray[np.bool_] = np.zeros(self.states, dtype=bool)

    @property
    def blocks(self) -> int:
        """How many blocks of states between bytes there are."""
        return len(self._bases) - 1

    def prepare(self, states: NDArray[np.int32]) -> None:
        """Fill the rows of some states and of all states between bytes that follow them."""
        missing = states[~self.ready[states]]
        if len(missing):
            if missing.max() >= len(self.characters):
                # A state between bytes that nobody came to by reading: it was carried here from elsewhere.
                self.filled_table()
                return
            # A walk comes to few states, to some of them with hundreds of tokens.
            marked = np.zeros(len(self.characters), dtype=bool)
            marked[missing] = True
            for state in marked.nonzero()[0].tolist():
                self._fill(state)

    def filled_table(self) -> NDArray[np.int32]:
        """The whole table."""
        if not self.ready.all():
            roots = np.stack([self._root(number) for number in range(len(self._bases))])
            self.table[: len(self.characters), self.split :] = roots[self._block_of]
            self.ready[:] = True
        return self.table

    def _shape(self, targets: Sequence[int]) -> tuple[Shape, list[int]]:
        """How characters above ASCII are read that lead to some targets; and ``DEAD`` and where each group leads."""
        distinct = list(dict.fromkeys((DEAD, *targets)))
        number = {target: place for place, target in enumerate(distinct, DEAD)}
        return self.high.shape(tuple([number[target] for target in targets])), distinct

    def _fill(self, state: int) -> None:
        self.table[state, self.split :] = self._root(self._block_of[state])
        # Last, so that another thread never trusts a row that is half filled.
        self.ready[state] = True

    def _root(self, number: int) -> NDArray[np.int32]:
        """``[columns]``: where the first byte of a character leads, once the states inside the block can be read."""
        root = self._roots.get(number)
        if root is None:
            # Looked up with the negative codes of the shape: -1 is dead, -2 - g the target of group g.
            shape, targets = self._shape(self._targets[number])
            base = self._bases[number]
            nodes, root = shape.moved(base, np.array(targets[::-1], dtype=np.int32))
            inside = self.table[base : base + len(nodes)]
            inside[:, : self.split] = DEAD
            inside[:, self.split :] = nodes
            self.ready[base : base + len(nodes)] = True
            self._roots[number] = root
        return root
