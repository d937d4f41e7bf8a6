"""Memory for compiled walks of tries, which is used again and again: getting it costs more than a short walk."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.kernels import Notes

__all__ = ["MEMORY"]


#: So many tokens are listed; sorting more takes longer than marking them.
_LISTED: Final = 1024


class _WalkMemory(threading.local):
    """One set per thread, as large as the largest trie."""

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
        return self._pairs, (self._listed, self._marked[:size])


MEMORY: Final = _WalkMemory()
