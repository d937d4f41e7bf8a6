"""Buffers for masked logits that are used again: a mask that leaves few tokens costs those tokens, not the vocabulary.

Logits of which a mask leaves a few entries are -inf nearly everywhere. Whoever writes them into a fresh array, or over
the logits it got, writes the whole vocabulary for every row. A buffer that is known to be -inf but for the entries that
its last use left needs only those put back and the new ones written.

Two things must be certain before a buffer is used again, and both are asked at that moment, not promised:

* nobody holds it any more, neither what was handed out nor any view of it: the references to its memory are counted;
* nobody wrote to it: a NumPy buffer is handed out read-only, a PyTorch one counts its own changes.

A buffer that somebody holds is left to them, and one that somebody wrote to is filled anew.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.kernels import FORBIDDEN, KernelFailed, MaskKernels, bits_of, host_kernels
from logitloom.masks.mask_row import MaskBatch, MaskRow, MaskRows, buffer_cost_of, mask_rows, records_of

__all__ = ["HostBuffer", "LogitsPool"]

_NOWHERE: Final = np.zeros(0, dtype=np.int64)
#: Two, because the usual loop still has a name for the last result while it computes the next.
_BUFFERS: Final = 2


class HostBuffer:
    """Memory for masked logits in host memory, handed out as read-only NumPy arrays. Other libraries derive from it.

    Args:
        rows, vocab: its size.
        forbidden: the element that stands for -inf.
        kind: the library's dtype.
    """

    def __init__(self, rows: int, vocab: int, forbidden: Any, kind: Any) -> None:
        dtype = self.element(kind)
        self._forbidden = forbidden
        self.memory: NDArray[Any] = np.full((rows, vocab), forbidden, dtype=dtype)
        kernels, bits = host_kernels(), bits_of(dtype, forbidden)
        self._writer: _KernelWriter | _NumpyWriter
        if kernels is None or bits is None:
            self._writer = _NumpyWriter(self.memory, forbidden, _NOWHERE)
        else:
            self._writer = _KernelWriter(self.memory, kernels, *bits)
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
        """Logits of the library one row after the other in memory, and their address."""
        side_by_side = np.ascontiguousarray(logits)
        return side_by_side, side_by_side.__array_interface__["data"][0]

    def holders(self) -> int:
        """How many hold the memory. A view of a NumPy array holds the array, and so does a view of a view."""
        return sys.getrefcount(self.memory)

    def lend(self, rows: int) -> Any:
        """The first rows as an array of the library."""
        lent = self.memory[:rows]
        lent.flags.writeable = False
        return lent

    @property
    def is_back(self) -> bool:
        """Whether nobody holds what was handed out."""
        return self.holders() == self._alone

    @property
    def is_untouched(self) -> bool:
        """Whether nobody wrote to what was handed out. Nobody can: it was read-only."""
        return True

    def write(self, logits: Any, rows: MaskRows) -> None:
        """Make the first rows what the masks leave of ``logits: [rows, vocab]``."""
        try:
            self._writer.write(self, logits, rows)
        except KernelFailed:
            self._writer = _NumpyWriter(self.memory, self._forbidden, None)
            self._writer.write(self, logits, rows)


class _KernelWriter:
    """Writes a buffer with compiled kernels, and knows which masks it wrote last."""

    def __init__(self, memory: NDArray[Any], kernels: MaskKernels, kind: np.dtype[Any], forbidden: int) -> None:
        self._kernels, self._forbidden = kernels, forbidden
        self._words = memory.view(kind)
        # The records of the masks that were written last hold addresses, so per row what holds its mask is kept.
        self._held: list[Any] = [MaskRow(True, _NOWHERE, memory.shape[1])] * len(memory)
        self._written = records_of(self._held).copy()
        self._sound = True

    def write(self, buffer: HostBuffer, logits: Any, rows: MaskRows) -> None:
        masks, count = records_of(rows), len(rows)
        if not (self._sound and buffer.is_untouched):
            # Only after masks of few allowed ids is a row known to be forbidden elsewhere.
            self._written[:, 0] = FORBIDDEN
        # Until the end nothing is known, in case this is interrupted.
        self._sound = False
        logits, address = buffer.packed(logits)
        self._kernels.rewrite(self._words, address, self._written, masks, self._forbidden)
        self._held[:count] = [rows.holder] * count if isinstance(rows, MaskBatch) else rows
        self._sound = True


class _NumpyWriter:
    """Writes a buffer with NumPy, and knows the places where it may differ from -inf."""

    def __init__(self, memory: NDArray[Any], forbidden: Any, written: NDArray[np.integer[Any]] | None) -> None:
        self._memory, self._forbidden = memory, forbidden
        #: Which entries may differ from -inf: places in the flat memory, and whole rows. None: any.
        self._written = written
        self._full: set[int] = set()

    def write(self, buffer: HostBuffer, logits: Any, masks: MaskRows) -> None:
        rows, untouched, logits = list(masks), buffer.is_untouched, buffer.view(logits)
        memory, flat, forbidden = self._memory, self._memory.reshape(-1), self._forbidden
        # Until the end nothing is known, in case this is interrupted.
        written, self._written = self._written, None
        if written is None or not untouched:
            memory.fill(forbidden)
        else:
            flat[written] = forbidden
            for place in self._full:
                if place >= len(rows) or rows[place].sparse:
                    memory[place].fill(forbidden)
        if len(rows) == 1 and rows[0].sparse:
            self._full = set()
            written = rows[0].ids
            flat[written] = logits[0].take(written)
            self._written = written
            return
        self._full = {place for place, row in enumerate(rows) if not row.sparse}
        for place in self._full:
            _write_whole(logits[place], memory[place], rows[place], forbidden)
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
    row.forbid(after, forbidden)


class LogitsPool:
    """Buffers that the last processor of a chain may return its logits in; hand it over as ``context.pool``.

    Whoever sets it says that processed logits may be arrays that cannot be written to, and makes the most of it by
    dropping them before the next step. Nothing else changes: logits that are kept stay as they are. A pool
    belongs to one loop: threads must not share one. It keeps up to two buffers per width and dtype, each as large as
    the largest logits.

    Example:
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", b"a", b"b"], eos=[0])
        >>> chain = processors.load(("regex", {"pattern": "a+b"}), tokenizer=words)
        >>> logits = np.zeros((1, 3), dtype=np.float32)
        >>> context = Context.start(logits, pool=LogitsPool())
        >>> masked, state = chain.process(logits, chain.init_state(context), context)
        >>> masked.tolist()
        [[-inf, 0.0, -inf]]
    """

    def __init__(self) -> None:
        self._buffers: dict[Any, list[HostBuffer]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.memory.nbytes for kept in self._buffers.values() for buffer in kept)

    def masked(
        self,
        logits: Any,
        rows: Sequence[Any] | MaskBatch,
        forbidden: Any,
        donate: bool,
        kind: Any,
        make: type[HostBuffer],
    ) -> Any:
        """The masked logits in a buffer of the pool, or None where that is not the cheapest way or all are held.

        Args:
            logits: ``[batch, vocab]`` of the library, in host memory.
            rows: per row its mask; only :class:`logitloom.masks.mask_row.MaskRow` are for buffers.
            forbidden: the element that stands for -inf.
            donate: whether the caller may write into the logits instead, which suits masks that forbid little.
            kind: the library's own dtype.
            make: the library's buffers.
        """
        shape = logits.shape
        masks = mask_rows(rows, shape)
        if masks is None or (donate and buffer_cost_of(masks) >= 0):
            return None
        kept = self._buffers.setdefault((shape[1], kind), [])
        for buffer in kept:
            if buffer.is_back and len(buffer.memory) >= len(rows):
                break
        else:
            kept[:] = [buffer for buffer in kept if len(buffer.memory) >= len(rows)]
            if len(kept) == _BUFFERS:
                return None
            buffer = make(len(rows), shape[1], forbidden, kind)
            kept.append(buffer)
        buffer.write(logits, masks)
        return buffer.lend(len(rows))
