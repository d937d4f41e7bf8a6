"""Neighbouring processors of a chain as one compiled loop over rows in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.backend import Array, Backend
from logitloom.link import Link
from logitloom.masks.kernels import KernelFailed, host_kernels
from logitloom.row_operations import ADD_LISTED, LOWER_BY_COUNT, RowOperation, as_arrays
from logitloom.survivors import Survivors

__all__ = ["RowProgram"]

#: So many more than twice the wanted tokens are listed at most: those that tie, and others above the bound.
_MORE: Final = 64
#: At least so many ids per wanted token, or the plain way is as fast.
_LEAST_RATIO: Final = 4


class RowProgram(NamedTuple):
    """The last processors of a chain, each of which declares its operation.

    Attributes:
        first: the index of the first one.
        tables: how many of them, from the first, have tables.
        highest: how many of the highest logits the others need, with those that tie.
        kinds, operands: the operations.
        dtypes: of the tables.
    """

    first: int
    tables: int
    highest: int
    kinds: NDArray[np.int64]
    operands: NDArray[np.float64]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, links: Sequence[Link], whole: int, highest: int | None) -> RowProgram | None:
        """The program of the links that see survivors, and of the penalties before them; None if one has no operation.

        Args:
            links: of a chain.
            whole, highest: of :func:`logitloom.survivors.split`.
        """
        if highest is None:
            return None
        operations = [_operation(link) for link in links[whole:]]
        first = whole
        while first and (before := _operation(links[first - 1])) is not None and before.has_table:
            operations.insert(0, before)
            first -= 1
        known = [operation for operation in operations if operation is not None]
        if len(known) < len(operations) or any(operation.has_table for operation in known[whole - first :]):
            return None
        dtypes = tuple("float32" if one.kind == LOWER_BY_COUNT else "bool" for one in known[: whole - first])
        return cls(first, whole - first, highest, *as_arrays(known), dtypes)

    def address(self, backend: Backend, logits: Array) -> int | None:
        """Where the loop may read the logits; None if it cannot work on them, or there are no kernels."""
        if host_kernels() is None or self.highest * _LEAST_RATIO > logits.shape[-1]:
            return None
        return backend.address(logits, "float32")

    def run(
        self,
        address: int,
        shape: tuple[int, int],
        backend: Backend,
        tables: Sequence[Array] = (),
        tokens: Array | None = None,
    ) -> Survivors | None:
        """What the processors leave of each row, in host memory; None where a row must be seen whole.

        Args:
            address: of the logits, which are not written to (:meth:`address`).
            shape: of the logits, ``(rows, vocab)``.
            backend: of the logits.
            tables: of the first processors, ``[rows, vocab]`` each.
            tokens: ``[rows, n] int32``, of which the tables do not know yet: they are written to.

        Raises:
            KernelFailed: there are tokens, and the tables do not know them now either.
        """
        kernels, (rows, vocab) = host_kernels(), shape
        at = [
            backend.address(table, dtype, tokens is not None) for table, dtype in zip(tables, self.dtypes, strict=False)
        ]
        new, count = (0, 0) if tokens is None else (backend.address(tokens, "int32"), tokens.shape[1])
        width = 2 * self.highest + _MORE
        ids, left = np.empty((rows, width), np.int64), np.empty((rows, width), np.float32)
        try:
            if kernels is None or new is None or None in at:
                raise KernelFailed("operate")
            tables_at = np.array(at, np.int64)
            most = kernels.operate(
                address, rows, vocab, self.highest, self.kinds, self.operands, tables_at, new, count, ids, left
            )
        except KernelFailed:
            if tokens is None:
                return None
            raise
        return None if most < 0 else Survivors(ids[:, :most], left[:, :most])


def _operation(link: Link) -> RowOperation | None:
    """What a link declares; None where it writes to a row, which this loop does not."""
    found: RowOperation | None = link.declared("row_operation")
    return None if found is None or found.kind == ADD_LISTED else found
