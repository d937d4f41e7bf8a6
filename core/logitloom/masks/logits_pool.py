"""Reusable buffers for masked logits. With one, a mask costs as much as it has allowed ids.

A mask that allows few ids sets almost every logit to -inf. Writing the result to a new array, or over the logits,
writes the whole vocabulary for every row. A buffer that holds -inf except at the entries of its last use needs less:
it resets those entries and writes the new ones.

Two conditions are checked before a buffer is used again:

* No array that was lent, and no view of one, still exists. The references to the memory are counted.
* Nothing was written to the buffer. NumPy arrays are lent read-only; PyTorch counts the changes of a tensor.

A buffer that is still referenced is left alone. A buffer that was changed is filled anew.
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
#: Two, because a typical loop still refers to the last result while it computes the next.
_BUFFERS: Final = 2


class HostBuffer:
    """A buffer for masked logits in host memory, lent as read-only NumPy arrays. Backends derive classes from it.

    Args:
        rows, vocab: the shape of the buffer.
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
        if not isinstance(self._writer, _NumpyWriter):
            self._writer = _NumpyWriter(self.memory, self._forbidden, _NOWHERE)
        self._writer.scatter(self.is_untouched, values, indices)

    def write(self, logits: Any, rows: MaskRows) -> None:
        """Write ``logits: [rows, vocab]`` with their masks applied to the first rows of the buffer."""
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
        self._sound = True

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


class LogitsPool:
    """Buffers that the last processor of a chain may return its logits in; hand it over as ``context.pool``.

    With a pool, processed logits may be read-only arrays. A loop saves most if it drops them before the next step;
    logits that it keeps stay unchanged. A pool belongs to one loop; threads must not share one. It keeps up to two
    buffers per width and dtype, each as large as the largest logits.

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
        """Bytes of memory in all buffers."""
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
        """The masked logits in a buffer of the pool; None if another way is cheaper or all buffers are referenced.

        Args:
            logits: ``[batch, vocab]`` of the library, in host memory.
            rows: the mask of each row; only masks of the class :class:`logitloom.masks.mask_row.MaskRow` use buffers.
            forbidden: the element that stands for -inf.
            donate: whether the caller may write to the logits instead, which is cheaper for masks that forbid few ids.
            kind: the library's own dtype.
            make: the library's class of buffers.
        """
        shape = logits.shape
        masks = mask_rows(rows, shape)
        if masks is None or (donate and buffer_cost_of(masks) >= 0):
            return None
        buffer = self._free(("masked", shape[1], kind), len(rows), forbidden, make)
        if buffer is None:
            return None
        buffer.write(logits, masks)
        return buffer.lend(len(rows))

    def spread(
        self,
        values: NDArray[Any],
        indices: NDArray[np.integer[Any]],
        shape: tuple[int, int],
        forbidden: Any,
        kind: Any,
        make: type[HostBuffer],
    ) -> Any:
        """Values at their indices, and -inf everywhere else, in a buffer; None if all buffers are referenced.

        Args:
            values: ``[n]``, of the buffer's elements.
            indices: ``[n]``, of the flat buffer.
            shape: ``(rows, vocab)``.
            forbidden, kind, make: as for :meth:`masked`.
        """
        buffer = self._free(("spread", shape[1], kind), shape[0], forbidden, make)
        if buffer is None:
            return None
        buffer.scatter(values, indices)
        return buffer.lend(shape[0])

    def _free(self, key: tuple[str, int, Any], rows: int, forbidden: Any, make: type[HostBuffer]) -> HostBuffer | None:
        """A buffer that nobody refers to, with so many rows at least."""
        kept = self._buffers.setdefault(key, [])
        for buffer in kept:
            if buffer.is_back and len(buffer.memory) >= rows:
                return buffer
        kept[:] = [buffer for buffer in kept if len(buffer.memory) >= rows]
        if len(kept) == _BUFFERS:
            return None
        kept.append(make(rows, key[1], forbidden, key[2]))
        return kept[-1]
