"""Buffers for masked logits in host memory, as the pool of a loop uses again.

A buffer holds -inf except at the entries of its last use; the next use resets these entries and writes the new ones.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import FORBIDDEN, KernelFailed, MaskKernels, host_kernels
from logitloom.masks.mask_row import MaskBatch, MaskRow, MaskRows, records_of
from logitloom_plugins.backends._host_rows import bits_of

__all__ = ["HostBuffer"]

_NOWHERE: Final = np.zeros(0, dtype=np.int64)


class HostBuffer:
    """A buffer for masked logits in host memory, lent as read-only NumPy arrays.

    Args:
        rows, vocab: the shape of the buffer.
        forbidden: the element that stands for -inf.
        kind: the library's dtype.
    """

    def __init__(self, rows: int, vocab: int, forbidden: Any, kind: Any) -> None:
        dtype = self.element(kind)
        self._forbidden = forbidden
        self.memory: NDArray[Any] = np.full((rows, vocab), forbidden, dtype=dtype)
        #: The bits of a compiled writer, until one is tried; None if there can be none.
        self._bits = bits_of(dtype, forbidden)
        self._writer: _KernelWriter | _NumpyWriter = _NumpyWriter(self.memory, forbidden, _NOWHERE)
        self._alone = self.holders()

    @staticmethod
    def element(kind: Any) -> np.dtype[Any]:
        """The element type of the memory: the library's, or bits of one that NumPy lacks."""
        element: np.dtype[Any] = np.dtype(kind)
        return element

    @staticmethod
    def view(logits: Any) -> NDArray[Any]:
        """Logits of the library as a NumPy array of the memory's element type."""
        seen: NDArray[Any] = logits
        return seen

    @staticmethod
    def packed(logits: Any) -> tuple[Any, int]:
        """The logits, C-contiguous, and their address."""
        side_by_side = np.ascontiguousarray(logits)
        return side_by_side, side_by_side.__array_interface__["data"][0]

    def holders(self) -> int:
        """Number of references to the memory. Each view of the array counts, and so does a view of a view."""
        return sys.getrefcount(self.memory)

    def lend(self, rows: int) -> Any:
        """The first rows as an array of the library."""
        lent = self.memory[:rows]
        lent.flags.writeable = False
        return lent

    @property
    def is_back(self) -> bool:
        """Whether no array that was lent is still referenced."""
        return self.holders() == self._alone

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was written to the lent arrays. NumPy's are read-only, so nothing was."""
        return True

    def scatter(self, values: NDArray[Any], indices: NDArray[np.integer[Any]]) -> None:
        """Write values at indices of the flat buffer, and -inf everywhere else."""
        self._bits = None
        if not isinstance(self._writer, _NumpyWriter):
            self._writer = _NumpyWriter(self.memory, self._forbidden, _NOWHERE)
        self._writer.scatter(self.is_untouched, values, indices)

    def write(self, logits: Any, rows: MaskRows) -> None:
        """Write ``logits: [rows, vocab]`` with their masks applied to the first rows of the buffer."""
        if self._bits is not None:
            kernels = host_kernels(len(rows) * self.memory.shape[1])
            if kernels is not None:
                self._writer, self._bits = _KernelWriter(self.memory, kernels, *self._bits), None
        try:
            self._writer.write(self, logits, rows)
        except KernelFailed:
            self._writer = _NumpyWriter(self.memory, self._forbidden, None)
            self._writer.write(self, logits, rows)


class _KernelWriter:
    """Write a buffer with compiled kernels, and remember the masks that were written last."""

    def __init__(self, memory: NDArray[Any], kernels: MaskKernels, kind: np.dtype[Any], forbidden: int) -> None:
        self._kernels, self._forbidden = kernels, forbidden
        self._words = memory.view(kind)
        # The records of the previous masks hold addresses, so a reference per row keeps each mask alive.
        self._held: list[Any] = [MaskRow(True, _NOWHERE, memory.shape[1])] * len(memory)
        self._written = records_of(self._held).copy()
        self._sound = False  # the content of the buffer is unknown

    def write(self, buffer: HostBuffer, logits: Any, rows: MaskRows) -> None:
        masks, count = records_of(rows), len(rows)
        if not (self._sound and buffer.is_untouched):
            # Nothing is known of the other entries of a row, so each row is filled as a whole.
            self._written[:, 0] = FORBIDDEN
        # If an exception interrupts this function, the content of the buffer is unknown.
        self._sound = False
        logits, address = buffer.packed(logits)
        self._kernels.rewrite(self._words, address, self._written, masks, self._forbidden)
        self._held[:count] = [rows.holder] * count if isinstance(rows, MaskBatch) else rows
        self._sound = True


class _NumpyWriter:
    """Write a buffer with NumPy, and remember the entries that may differ from -inf."""

    def __init__(self, memory: NDArray[Any], forbidden: Any, written: NDArray[np.integer[Any]] | None) -> None:
        self._memory, self._forbidden = memory, forbidden
        #: Which entries may differ from -inf: indices into the flat memory, and whole rows. None: any.
        self._written = written
        self._full: set[int] = set()

    def scatter(self, untouched: bool, values: NDArray[Any], indices: NDArray[np.integer[Any]]) -> None:
        flat = self._memory.reshape(-1)
        # As in write.
        written, self._written = self._written, None
        if written is None or not untouched:
            self._memory.fill(self._forbidden)
        else:
            flat[written] = self._forbidden
        flat[indices] = values
        self._written = indices

    def write(self, buffer: HostBuffer, logits: Any, masks: MaskRows) -> None:
        rows, untouched, logits = list(masks), buffer.is_untouched, buffer.view(logits)
        memory, flat, forbidden = self._memory, self._memory.reshape(-1), self._forbidden
        # If an exception interrupts this function, the content of the buffer is unknown.
        written, self._written = self._written, None
        if written is None or not untouched:
            memory.fill(forbidden)
        else:
            flat[written] = forbidden
            for row in self._full:
                if row >= len(rows) or rows[row].sparse:
                    memory[row].fill(forbidden)
        if len(rows) == 1 and rows[0].sparse:
            self._full = set()
            written = rows[0].ids
            flat[written] = logits[0].take(written)
            self._written = written
            return
        self._full = {n for n, row in enumerate(rows) if not row.sparse}
        for row in self._full:
            _write_whole(logits[row], memory[row], rows[row], forbidden)
        if len(rows) == len(self._full):
            self._written = _NOWHERE
            return
        lists = [row.ids for row in rows if row.sparse]
        columns = np.concatenate(lists)
        starts = np.arange(0, memory.size, memory.shape[1])[: len(rows)]
        if self._full:
            starts = np.delete(starts, list(self._full))
        written = columns + starts.repeat([*map(len, lists)])
        if logits.flags.c_contiguous:
            flat[written] = logits.reshape(-1).take(written)
        else:
            flat[written] = logits[written // memory.shape[1], columns]
        self._written = written


def _write_whole(before: NDArray[Any], after: NDArray[Any], row: MaskRow, forbidden: Any) -> None:
    if row.dense:
        row.limit(before, after, forbidden)
        return
    np.copyto(after, before)
    after[row.ids] = forbidden
