"""Memory for compiled walks of tries, which is used again and again: getting it costs more than a short walk."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["MEMORY"]


class _WalkMemory(threading.local):
    """One set per thread, as large as the largest trie."""

    def __init__(self) -> None:
        self.pairs = np.zeros((0, 2), dtype=np.int32)
        self.bytes = np.zeros((2, 0), dtype=np.uint8)

    def of(self, nodes: int, *counts: int) -> tuple[NDArray[Any], ...]:
        """Room for as many pairs, and bytes for each of the (at most two) counts, rounded up to whole words."""
        if len(self.pairs) < nodes:
            self.pairs = np.empty((nodes, 2), dtype=np.int32)
        sizes = [-(-count // 8) * 8 for count in counts]
        if self.bytes.shape[1] < max(sizes):
            self.bytes = np.empty((len(self.bytes), max(sizes)), dtype=np.uint8)
        return self.pairs, *(line[:size] for line, size in zip(self.bytes, sizes, strict=False))


MEMORY: Final = _WalkMemory()
