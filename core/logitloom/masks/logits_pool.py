"""Reusable buffers for masked logits: in a buffer, a mask costs time in proportion to its allowed ids.

A mask that allows few ids sets almost every logit to -inf. Writing the result to a new array, or over the logits,
writes the whole vocabulary for every row. A buffer that holds -inf except at the entries of its last use needs less.

Two conditions are checked before a buffer is used again:

* No array that was lent, and no view of one, still exists. The references to the memory are counted.
* Nothing was written to the buffer. NumPy arrays are lent read-only; PyTorch counts the changes of a tensor.

A buffer that is still referenced is left alone. A buffer that was changed is filled anew. The backends of libraries in
host memory have the buffers; a pool keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom.masks.mask_row import MaskBatch, MaskRows, buffer_cost_of, mask_rows

__all__ = ["LogitsPool"]

#: Two, because a typical loop still refers to the last result while it computes the next.
_BUFFERS: Final = 2


class Buffer(Protocol):
    """A buffer of a backend.

    Attributes:
        memory: ``[rows, vocab]``.
    """

    memory: NDArray[Any]

    @property
    def is_back(self) -> bool:
        """Whether no array that was lent is still referenced."""

    def scatter(self, values: NDArray[Any], indices: NDArray[np.integer[Any]]) -> None:
        """Write values at indices of the flat buffer, and -inf everywhere else."""

    def write(self, logits: Any, rows: MaskRows) -> None:
        """Write ``logits: [rows, vocab]`` with their masks applied to the first rows of the buffer."""

    def lend(self, rows: int) -> Any:
        """The first rows as an array of the library."""


#: Makes a buffer from its numbers of rows and columns, the element that stands for -inf, and the library's dtype.
_Make = Callable[[int, int, Any, Any], Buffer]


class LogitsPool:
    """Buffers in which the last processor of a chain may return its logits; a loop passes the pool as ``context.pool``.

    With a pool, processed logits may be read-only arrays. A loop saves most if it drops the returned logits before the
    next step; logits that the loop keeps stay unchanged. A pool belongs to one loop; threads must not share one. A
    pool keeps up to two buffers per width and dtype, each as large as the largest logits.

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
        self._buffers: dict[Any, list[Buffer]] = {}

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
        make: _Make,
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
        make: _Make,
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

    def _free(self, key: tuple[str, int, Any], rows: int, forbidden: Any, make: _Make) -> Buffer | None:
        """A buffer without other references, with at least ``rows`` rows."""
        kept = self._buffers.setdefault(key, [])
        for buffer in kept:
            if buffer.is_back and len(buffer.memory) >= rows:
                return buffer
        kept[:] = [buffer for buffer in kept if len(buffer.memory) >= rows]
        if len(kept) == _BUFFERS:
            return None
        kept.append(make(rows, key[1], forbidden, key[2]))
        return kept[-1]
