"""The token mask of one row in host memory, in the representation that is cheapest to apply."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.masks.kernels import ALLOWED, DENSE, FORBIDDEN

__all__ = ["MaskBatch", "MaskRow", "MaskRows", "buffer_cost_of", "mask_rows", "records_of"]

#: A list of more than ``vocab / n`` ids is applied by one pass over the whole row, because that is cheaper.
_DENSE_ALLOWED: Final = 16
_DENSE_FORBIDDEN: Final = 8

_PACKED: Final = attrgetter("packed")
_BUFFER_COST: Final = attrgetter("buffer_cost")


def _check_ids(ids: NDArray[np.integer[Any]], size: int) -> None:
    # Read as an unsigned number, a negative id is large, so one maximum finds negative ids and too large ones.
    if len(ids) and int(ids.view(f"u{ids.itemsize}").max()) >= size:
        raise IndexError(f"A mask of {size} ids names the ids {ids.min()} to {ids.max()}.")


class MaskRow:
    """The ids that one state allows or forbids, prepared for repeated use.

    A short list is kept as 64-bit indices, which NumPy uses without conversion. A long list is converted at its first
    use to an array with a bound per id, so that one vectorised pass applies it.

    Args:
        allowed: whether ``ids`` alone are allowed, or alone forbidden.
        ids: distinct ids below ``vocab``.
        vocab: width of the logits.

    Example:
        >>> allowed, ids = MaskRow(True, [3, 5], 8)
        >>> allowed, ids.tolist()
        (True, [3, 5])
    """

    __slots__ = (
        "_bounds",
        "allowed",
        "buffer_cost",
        "dense",
        "ids",
        "packed",
        "sparse",
        "vocab",
    )

    def __init__(self, allowed: bool, ids: ArrayLike, vocab: int) -> None:
        self.allowed = allowed
        self.vocab = vocab
        listed = np.asarray(ids)
        #: Whether one pass over the whole row is the cheapest way to apply the mask.
        self.dense = len(listed) * (_DENSE_ALLOWED if allowed else _DENSE_FORBIDDEN) > vocab
        #: Whether the mask is the list of its allowed ids.
        self.sparse = allowed and not self.dense
        #: Passes over a row of logits that writing the row in a buffer of a :class:`.backend.BufferPool` costs more
        #: than writing it in place. In place a sparse row takes 1 pass, a dense row 2, any other row 0. In a buffer a
        #: sparse row takes 0 passes, any other row 3.
        self.buffer_cost: int = -1 if self.sparse else 1 if self.dense else 3
        self.ids: NDArray[np.integer[Any]] = listed if self.dense else listed.astype(np.int64)
        #: Kind, address and length for :class:`~logitloom.masks.kernels.MaskKernels`, after :meth:`pack`.
        self.packed: bytes | None = None
        #: The bounds by dtype; under the key None, the mask of allowed ids that kernels read.
        self._bounds: dict[Any, tuple[NDArray[Any], ...]] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter((self.allowed, self.ids))

    def pack(self) -> None:
        """Make :attr:`packed`.

        Raises:
            IndexError: if an id is outside the vocabulary. A kernel, which gets an address, would not notice.
        """
        kind = ALLOWED if self.allowed else FORBIDDEN
        data: NDArray[Any] = self.ids
        if self.dense:
            # Threads that pack the mask at the same time get the same array, so no address outlives its array.
            kind, (data,) = DENSE, self._bounds.setdefault(None, (self._kept(),))
        else:
            _check_ids(data, self.vocab)
        self.packed = struct.pack("=3q", kind, data.__array_interface__["data"][0], len(data))

    def _kept(self) -> NDArray[np.bool_]:
        """``[vocab]``: which ids are allowed.

        Raises:
            IndexError: if an id is outside the vocabulary.
        """
        _check_ids(self.ids, self.vocab)
        mask = np.full(self.vocab, not self.allowed)
        # NumPy converts indices of other integer types one by one, which takes more than twice as long.
        mask[self.ids.astype(np.intp, copy=False)] = self.allowed
        return mask

    @property
    def nbytes(self) -> int:
        """Bytes of memory, including the bounds for 32-bit logits."""
        return self.ids.nbytes + (4 * self.vocab if self.dense else 0)

    def limit(self, before: NDArray[Any], after: NDArray[Any], forbidden: Any) -> None:
        """``after = before`` where an id is allowed, ``forbidden`` elsewhere: one pass for 32 and 64 bits.

        Args:
            before, after: ``[..., vocab]``, possibly the same.
            forbidden: the element that stands for -inf.

        The smaller of a number and a bound is ``fmin``. With the bound -inf the result is -inf, for NaN too. With the
        bound NaN the result is the number itself, to the bit (for +inf, -0.0 and NaN too). Narrower dtypes, for which
        there is no such instruction, take two passes over integer words.
        """
        bounds = self._bounds.get(before.dtype)
        if bounds is None:
            bounds = self._bounds[before.dtype] = self._bounds_for(before.dtype, forbidden)
        if len(bounds) == 1:
            np.fmin(before, bounds[0], out=after)
            return
        kept, written = bounds
        words = after.view(kept.dtype)
        np.bitwise_and(before.view(kept.dtype), kept, out=words)
        np.bitwise_or(words, written, out=words)

    def _bounds_for(self, dtype: np.dtype[Any], forbidden: Any) -> tuple[NDArray[Any], ...]:
        if dtype.kind == "f" and dtype.itemsize >= 4:
            bound = np.full(self.vocab, forbidden if self.allowed else np.nan, dtype=dtype)
            bound[self.ids] = np.nan if self.allowed else forbidden
            return (bound,)
        keep = self._kept()
        word = np.array(forbidden, dtype=dtype).view(f"i{dtype.itemsize}")
        return np.where(keep, word.dtype.type(-1), word.dtype.type(0)), np.where(keep, word.dtype.type(0), word)


class MaskBatch:
    """The masks of several rows, as a compiled step returns them. Iteration gives the :class:`MaskRow` of each row.

    Args:
        records: ``[rows, 3]``.
        buffer_cost: the sum of the rows' buffer costs.
        vocab: width of the logits.
        holder: the masks by state. The reference keeps the memory of the records alive.
        states: ``[rows]``.
    """

    __slots__ = ("buffer_cost", "holder", "records", "states", "vocab")

    def __init__(
        self,
        records: NDArray[np.int64],
        buffer_cost: int,
        vocab: int,
        holder: Mapping[int, MaskRow],
        states: NDArray[np.int32],
    ) -> None:
        self.records, self.buffer_cost, self.vocab = records, buffer_cost, vocab
        self.holder, self.states = holder, states

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[MaskRow]:
        return map(self.holder.__getitem__, self.states.tolist())


MaskRows = Sequence[MaskRow] | MaskBatch


def mask_rows(rows: Any, shape: tuple[int, ...]) -> MaskRows | None:
    """``rows``, if each is a :class:`MaskRow` for one row of logits of this shape; otherwise ``None``."""
    if len(rows) != shape[0]:
        return None
    if isinstance(rows, MaskBatch):
        return rows if rows.vocab == shape[1] else None
    for row in rows:
        if type(row) is not MaskRow or row.vocab != shape[1]:
            return None
    return rows or None


def buffer_cost_of(rows: MaskRows) -> int:
    """The sum of the buffer costs of some masks (:attr:`MaskRow.buffer_cost`)."""
    return rows.buffer_cost if isinstance(rows, MaskBatch) else sum(map(_BUFFER_COST, rows))


def records_of(rows: MaskRows) -> NDArray[np.int64]:
    """``[rows, 3]``: the records of some masks."""
    if isinstance(rows, MaskBatch):
        return rows.records
    for row in rows:
        if row.packed is None:
            row.pack()
    # Joining bytes is seven times faster than concatenating arrays.
    return np.frombuffer(b"".join(map(_PACKED, rows)), dtype=np.int64).reshape(-1, 3)
