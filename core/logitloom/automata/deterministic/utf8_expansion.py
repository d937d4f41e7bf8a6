"""UTF-8 expansion of an automaton over character classes to an automaton over bytes.

A state that reads characters above ASCII needs states between the bytes of a character: up to some hundreds for
``\\w``, once per distinct tuple of targets. Such a group of states is a block. All states are numbered in advance, so
the size is known and the budget is checked. The rows of the table are filled on demand, because a first mask visits
only a small part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.utf8 import DEAD, HighPartition, Shape

__all__ = ["Utf8Expansion"]

#: Fewer states are told apart without arrays.
_FEW: Final = 64


class Utf8Expansion:
    """The table of a byte automaton, filled on demand.

    Args:
        high: the classes above ASCII.
        split: number of ASCII classes.
        characters: ``[states, classes] int32``, the automaton over character classes.
        tracker: the budget tracker.

    Attributes:
        characters: the argument; its states are the first states of the byte automaton.
        states: number of states of the byte automaton.
        width: number of byte classes.
        table: ``[states, width] int32``; only rows in ``ready`` are valid.
        ready: ``[states] bool``, which rows are filled.
    """

    def __init__(self, high: HighPartition, split: int, characters: NDArray[np.int32], tracker: BudgetTracker) -> None:
        self.high = high
        self.split = split
        self.characters = characters
        self.width = split + high.columns
        # With a single class all blocks have the same shape. Counted repeats have thousands of such blocks.
        alike = len(high.shape((0,)).nodes) if high.classes == 1 else None
        base = len(characters)
        #: The first state of each block; block 0 is empty, for states that read no character above ASCII.
        self._bases = [base]
        by_targets: dict[tuple[int, ...], int] = {(DEAD,) * high.classes: 0}
        #: The transitions of the first byte of a character, by block, for filled blocks.
        self._roots: dict[int, NDArray[np.int32]] = {0: np.full(high.columns, DEAD, dtype=np.int32)}
        block_of = []
        for targets in map(tuple, characters[:, split:].tolist()):
            block = by_targets.get(targets)
            if block is None:
                block = by_targets[targets] = len(self._bases)
                self._bases.append(base)
                base += alike or len(self._shape(targets)[0].nodes)
            block_of.append(block)
        self.states = base
        self._block_of = block_of
        #: The targets of the classes above ASCII, by block.
        self._targets = list(by_targets)
        tracker.check_states(self.states)
        tracker.check_bytes(4 * self.states * self.width)
        self.table: NDArray[np.int32] = np.empty((self.states, self.width), dtype=np.int32)
        self.table[: len(characters), :split] = characters[:, :split]
        self.ready: NDArray[np.bool_] = np.zeros(self.states, dtype=bool)

    @property
    def blocks(self) -> int:
        """The number of blocks, without the empty block 0."""
        return len(self._bases) - 1

    def prepare(self, states: NDArray[np.int32]) -> None:
        """Fill the rows of the given states and of the blocks that they lead to."""
        # A walk visits a small number of states, some of them hundreds of times.
        if len(states) < _FEW:
            missing = sorted([state for state in {*states.tolist()} if not self.ready[state]])
        else:
            missing = np.unique(states[~self.ready[states]]).tolist()
        if missing and missing[-1] >= len(self.characters):
            # A state inside a block that is not filled. The caller got it elsewhere, for instance from a file.
            self.filled_table()
            return
        for state in missing:
            self._fill(state)

    def filled_table(self) -> NDArray[np.int32]:
        """The whole table."""
        if not self.ready.all():
            roots = np.stack([self._root(number) for number in range(len(self._bases))])
            self.table[: len(self.characters), self.split :] = roots[self._block_of]
            self.ready[:] = True
        return self.table

    def _shape(self, targets: Sequence[int]) -> tuple[Shape, list[int]]:
        """The shape for the targets of the classes above ASCII; and the list of ``DEAD`` and each group's target."""
        distinct = list(dict.fromkeys((DEAD, *targets)))
        number = {target: index for index, target in enumerate(distinct, DEAD)}
        return self.high.shape(tuple([number[target] for target in targets])), distinct

    def _fill(self, state: int) -> None:
        self.table[state, self.split :] = self._root(self._block_of[state])
        # The flag is set last, so that another thread never uses a row that is partly filled.
        self.ready[state] = True

    def _root(self, number: int) -> NDArray[np.int32]:
        """``[columns]``: the transitions of the first byte of a character; fills the rows of the block first."""
        root = self._roots.get(number)
        if root is None:
            # The targets are indexed with the negative codes of the shape: -1 is dead, -2 - g the target of group g.
            shape, targets = self._shape(self._targets[number])
            base = self._bases[number]
            nodes, root = shape.moved(base, np.array(targets[::-1], dtype=np.int32))
            inside = self.table[base : base + len(nodes)]
            inside[:, : self.split] = DEAD
            inside[:, self.split :] = nodes
            self.ready[base : base + len(nodes)] = True
            self._roots[number] = root
        return root
