"""Arrays for compiled trie walks, reused because their allocation takes longer than a short walk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import members
from logitloom.automata.automaton_kernels import Notes

__all__ = ["ARRAYS", "note"]


#: A walk lists at most this number of tokens. With more tokens, marking them is faster than sorting a list.
_LISTED: Final = 1024


class _Room:
    """The arrays of one walk, as large as the largest trie so far requires."""

    def __init__(self) -> None:
        self._pairs = np.zeros((0, 2), dtype=np.int32)
        self._listed = np.zeros(_LISTED, dtype=np.int32)
        self._marked = np.zeros(0, dtype=np.uint8)

    def of(self, nodes: int, tokens: int) -> tuple[NDArray[np.int32], Notes]:
        """Arrays for a trie with the given numbers of nodes and tokens."""
        if len(self._pairs) < nodes:
            self._pairs = np.empty((nodes, 2), dtype=np.int32)
        size = -(-tokens // 8) * 8
        if len(self._marked) < size:
            self._marked = np.empty(size, dtype=np.uint8)
        return self._pairs, Notes(self._listed, self._marked[:size])


class _WalkArrays(threading.local):
    """The arrays of one thread: one set, and another set while a walk runs inside a walk."""

    def __init__(self) -> None:
        #: The arrays for the next walk; ``None`` while a walk uses them, and after an interrupted walk.
        self._spare: _Room | None = None

    def of(self, nodes: int, tokens: int) -> tuple[NDArray[np.int32], Notes]:
        """Arrays for a trie with the given numbers of nodes and tokens; the next walk of the thread overwrites them."""
        if self._spare is None:
            self._spare = _Room()
        return self._spare.of(nodes, tokens)

    @contextmanager
    def room(self, nodes: int, tokens: int) -> Iterator[tuple[NDArray[np.int32], Notes]]:
        """Like :meth:`of`, but walks that begin inside the ``with`` block use other arrays."""
        used, self._spare = self._spare or _Room(), None
        try:
            yield used.of(nodes, tokens)
        finally:
            self._spare = used


ARRAYS: Final = _WalkArrays()


def note(notes: Notes, first: NDArray[Any], own: NDArray[Any], found: int) -> int:
    """Record tokens in the same form as a compiled walk.

    Args:
        notes: as for :meth:`logitloom.masks.kernels.AutomatonKernels.walk`.
        first, own: ``[n]``; the tokens are ``first[i] .. own[i] - 1`` for each ``i``.
        found: number of tokens recorded so far.

    Returns:
        Number of tokens recorded afterwards.
    """
    positions = members(first, own - first)
    listed, marked = notes
    before, found = found, found + len(positions)
    if found <= len(listed):
        listed[before:found] = positions
        return found
    if before <= len(listed):
        marked[:] = 0
        marked[listed[:before]] = 1
    marked[positions] = 1
    return found
