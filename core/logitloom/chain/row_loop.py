"""Processors whose effects are operations, one or several, as one compiled loop over rows in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend
from logitloom.arrays.row_operations import LOWER_BY_COUNT, as_arrays
from logitloom.chain.links import Link
from logitloom.chain.plan import Segment
from logitloom.chain.step_checks import note
from logitloom.context import Context
from logitloom.masks.kernels import KernelFailed, host_kernels

__all__ = ["RowLoop", "first_of_loop"]

#: At most twice the wanted tokens and this many more are listed: ties, and other tokens above the bound.
_MORE: Final = 64
#: At least so many ids per wanted token, or the plain way is as fast.
_LEAST_RATIO: Final = 4


def first_of_loop(links: Sequence[Link], whole: int) -> int | None:
    """The first link of the loop, among the processors that see survivors and the penalties before them.

    Args:
        links: of a chain.
        whole: how many links see whole rows.

    Returns:
        None if a processor of the loop has no operation that the loop knows.
    """
    survivors = [link.effect.operation for link in links[whole:]]
    if any(operation is None or operation.has_table for operation in survivors):
        return None
    first = whole
    while first and (before := links[first - 1].effect.operation) is not None and before.has_table:
        first -= 1
    return first


@dataclass(frozen=True)
class RowLoop:
    """The last processors of a chain, each of which declares its operation.

    Attributes:
        otherwise: the same processors, for logits that the loop cannot work on and rows that must be seen whole.
        tabled: the first processors, which have tables.
        highest: how many of the highest logits the processors without tables need, ties included.
        kinds, operands: the operations.
    """

    otherwise: Segment
    tabled: tuple[Link, ...]
    highest: int
    kinds: NDArray[np.int64]
    operands: NDArray[np.float64]
    fresh = True

    @classmethod
    def of(cls, links: Sequence[Link], tabled: int, highest: int, otherwise: Segment) -> RowLoop:
        """The loop of some links, the first of which have tables."""
        operations = [link.effect.operation for link in links]
        known = as_arrays([operation for operation in operations if operation is not None])
        return cls(otherwise, tuple(links[:tabled]), highest, *known)

    @property
    def count(self) -> int:
        """How many processors."""
        return len(self.kinds)

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """See :meth:`logitloom.chain.plan.Segment.run`."""
        backend, (rows, vocab) = context.backend, logits.shape
        kernels = host_kernels(rows * vocab) if self.highest * _LEAST_RATIO <= vocab else None
        address = None if kernels is None else backend.address(logits, "float32")
        if kernels is None or address is None:
            return self.otherwise.run(logits, states, context)
        # Tables that may be overwritten are told the tokens by the loop.
        tokens, made = context.tokens if context.donate_state else None, list(states)
        if tokens is None:
            for index, link in enumerate(self.tabled):
                try:
                    made[index] = link.processor.next_state(states[index], context)
                except Exception as error:
                    note(error, link.label, "process", context)
                    raise
        tables, new = self._tables(backend, made, tokens)
        width, most = 2 * self.highest + _MORE, -1
        ids, left = np.empty((rows, width), np.int64), np.empty((rows, width), np.float32)
        if tables is not None:
            try:
                most = kernels.operate(
                    address, rows, vocab, self.highest, self.kinds, self.operands, tables, *new, ids, left
                )
            except KernelFailed:
                tables = None
        if most >= 0:
            return backend.spread(left[:, :most], ids[:, :most], logits, context.donate, context.pool), made
        if tokens is None or tables is not None:  # the tables know the tokens
            context = context.with_fields(tokens=None)
        return self.otherwise.run(logits, made, context)

    def _tables(
        self, backend: Backend, states: Sequence[Any], tokens: Array | None
    ) -> tuple[NDArray[np.int64] | None, tuple[int, int]]:
        """The addresses of the tables, and the address and the number of columns of the tokens to enter into them.

        Without the former, an array has no address.
        """
        kinds = ["float32" if kind == LOWER_BY_COUNT else "bool" for kind in self.kinds[: len(self.tabled)].tolist()]
        at = [backend.address(table, kind, tokens is not None) for (table,), kind in zip(states, kinds, strict=False)]
        new, count = (0, 0) if tokens is None else (backend.address(tokens, "int32"), int(tokens.shape[1]))
        if new is None or None in at:
            return None, (0, 0)
        return np.array(at, np.int64), (new, count)
