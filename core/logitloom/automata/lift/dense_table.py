"""The rows of an automaton that has a whole table, as the walks of the trie read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import Paths
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.lift.default_paths import dense_paths
from logitloom.automata.lift.level_walk import WalkTable
from logitloom.automata.lift.trie import Trie
from logitloom.masks.kernels import ByteTable

__all__ = ["DenseTable"]

_NO_STATES: Final = np.zeros(0, dtype=np.int32)


class DenseTable(WalkTable):
    """The table of a trim automaton. Rows of large automata are filled when a walk reaches their states.

    Args:
        dfa: the automaton.
        trie: the trie of the walks.
    """

    # With fewer pairs, looking for whole subtrees costs more than it saves.
    least_pairs = 96
    least_tokens = 0
    reads_single = True

    def __init__(self, dfa: Dfa, trie: Trie) -> None:
        self._dfa, self._trie, self._width = dfa, trie, dfa.classes

    @cached_property
    def automaton(self) -> ByteTable:
        """The table with rows that may not be filled."""
        return ByteTable(self._dfa.rows(_NO_STATES), self._dfa.ready, self._dfa.byte_class)

    @cached_property
    def _entries(self) -> NDArray[np.int32]:
        return self.automaton.next.ravel()

    @cached_property
    def _column_of(self) -> NDArray[np.int64]:
        return self._dfa.byte_class.astype(np.int64)

    def step(self, states: NDArray[Any], read: NDArray[np.uint8]) -> NDArray[Any]:
        """The entries of the table."""
        found: NDArray[Any] = self._entries.take(states * self._width + self._column_of.take(read))
        return found

    def row(self, state: int) -> Sequence[int]:
        """One row of the table."""
        return self._dfa.row_list(state)

    @property
    def columns(self) -> Sequence[int]:
        """The column of each byte."""
        return self._dfa.byte_class.data

    def fill(self, states: NDArray[Any]) -> None:
        """Expand the rows of characters above ASCII."""
        self._dfa.rows(states)

    @property
    def has_paths(self) -> bool:  # type: ignore[override]
        """Whether a walk has asked for the paths."""
        return "_paths" in self.__dict__

    def paths(self, trie: Trie, states: NDArray[Any] | None = None) -> Paths:
        """The paths of all states, computed once."""
        return self._paths

    @cached_property
    def _paths(self) -> Paths:
        return dense_paths(self._dfa, self._trie)
