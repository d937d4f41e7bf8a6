"""Memory for compiled walks of tries, which is used again and again: getting it costs more than a short walk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.kernels import Notes
from logitloom.automata.trie import members

__all__ = ["MEMORY", "note"]


#: So many tokens are listed; sorting more takes longer than marking them.
_LISTED: Final = 1024


class _Room:
    """One set, as large as the largest trie."""

    def __init__(self) -> None:
        self._pairs = np.zeros((0, 2), dtype=np.int32)
        self._listed = np.zeros(_LISTED, dtype=np.int32)
        self._marked = np.zeros(0, dtype=np.uint8)

    def of(self, nodes: int, tokens: int) -> tuple[NDArray[np.int32], Notes]:
        """Room for as many pairs, and for what is found of as many tokens."""
        if len(self._pairs) < nodes:
            self._pairs = np.empty((nodes, 2), dtype=np.int32)
        size = -(-tokens // 8) * 8
        if len(self._marked) < size:
            self._marked = np.empty(size, dtype=np.uint8)
        return self._pairs, Notes(self._listed, self._marked[:size])


class _WalkMemory(threading.local):
    """The sets of one thread: mostly one, and more while a walk begins within another."""

    def __init__(self) -> None:
        self._spare = [_Room()]

    def of(self, nodes: int, tokens: int) -> tuple[NDArray[np.int32], Notes]:
        """Room for as many pairs, and for what is found of as many tokens, until the next walk of the thread."""
        return self._spare[-1].of(nodes, tokens)

    @contextmanager
    def room(self, nodes: int, tokens: int) -> Iterator[tuple[NDArray[np.int32], Notes]]:
        """The same for the time of a ``with`` statement, whatever walks begin meanwhile."""
        used = self._spare.pop()
        if not self._spare:
            self._spare.append(_Room())
        try:
            yield used.of(nodes, tokens)
        finally:
            self._spare = [used]


MEMORY: Final = _WalkMemory()


def note(notes: Notes, first: NDArray[Any], own: NDArray[Any], found: int) -> int:
    """Note tokens as a compiled walk does.

    Args:
        notes: as for :meth:`logitloom.masks.kernels.AutomatonKernels.walk`.
        first, own: ``[n]``, the tokens are ``first[i] .. own[i] - 1``.
        found: how many are noted already.

    Returns:
        How many are noted then.
    """
    places = members(first, own - first)
    listed, marked = notes
    before, found = found, found + len(places)
    if found <= len(listed):
        listed[before:found] = places
        return found
    if before <= len(listed):
        marked[:] = 0
        marked[listed[:before]] = 1
    marked[places] = 1
    return found
