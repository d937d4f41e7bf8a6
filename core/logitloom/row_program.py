"""Neighbouring processors of a chain as one compiled loop over rows in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.backend import Array, Backend
from logitloom.context import Context
from logitloom.link import Link
from logitloom.masks.kernels import KernelFailed, host_kernels
from logitloom.row_operations import LOWER_BY_COUNT, as_arrays
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
        tabled: the first of them, which have tables.
        highest: how many of the highest logits the others need, with those that tie.
        kinds, operands: the operations.
    """

    first: int
    tabled: tuple[Link, ...]
    highest: int
    kinds: NDArray[np.int64]
    operands: NDArray[np.float64]

    @classmethod
    def of(cls, links: Sequence[Link], whole: int, highest: int | None) -> RowProgram | None:
        """The program of the links that see survivors, and of the penalties before them; None if one has no operation.

        Args:
            links: of a chain.
            whole, highest: of :func:`logitloom.survivors.split`.
        """
        if highest is None:
            return None
        operations = [link.effect.operation for link in links[whole:]]
        first = whole
        while first and (before := links[first - 1].effect.operation) is not None and before.has_table:
            operations.insert(0, before)
            first -= 1
        known = [operation for operation in operations if operation is not None]
        if len(known) < len(operations) or any(operation.has_table for operation in known[whole - first :]):
            return None
        return cls(first, tuple(links[first:whole]), highest, *as_arrays(known))

    def address(self, backend: Backend, logits: Array) -> int | None:
        """Where the loop may read the logits; None if it cannot work on them, or there are no kernels."""
        if host_kernels(logits.shape[0] * logits.shape[-1]) is None or self.highest * _LEAST_RATIO > logits.shape[-1]:
            return None
        return backend.address(logits, "float32")

    def run(
        self, logits: Array, states: tuple[Any, ...], context: Context, after: list[Any]
    ) -> tuple[Survivors | None, tuple[Any, ...], Context]:
        """What the processors leave of each row, in host memory.

        Args:
            logits: ``[rows, vocab]``, which are not written to.
            states: of all processors of the chain.
            context: of the step.
            after: the new states; those of these processors are appended, if there is a result.

        Returns:
            The survivors, or None where the loop cannot work on the logits, or a row must be seen whole; and the states
            and the context with which to go on then.
        """
        backend, kernels, address = context.backend, host_kernels(), self.address(context.backend, logits)
        if kernels is None or address is None:
            return None, states, context
        first, behind = self.first, self.first + len(self.tabled)
        # Tables that may be overwritten are told the tokens by the loop.
        tokens = context.tokens if context.donate_state else None
        for link, state in zip(self.tabled, states[first:], strict=False):
            after.append(link.processor.next_state(state, context) if tokens is None else state)
        made = after[first:]
        at = [
            backend.address(table, "float32" if kind == LOWER_BY_COUNT else "bool", tokens is not None)
            for (table,), kind in zip(made, self.kinds.tolist(), strict=False)
        ]
        new, count = (0, 0) if tokens is None else (backend.address(tokens, "int32"), tokens.shape[1])
        rows, vocab = logits.shape
        width, most, told = 2 * self.highest + _MORE, -1, True
        ids, left = np.empty((rows, width), np.int64), np.empty((rows, width), np.float32)
        try:
            if new is None or None in at:
                raise KernelFailed("operate")
            tables = np.array(at, np.int64)
            most = kernels.operate(
                address, rows, vocab, self.highest, self.kinds, self.operands, tables, new, count, ids, left
            )
        except KernelFailed:
            told = tokens is None
        if most >= 0:
            after.extend(states[behind:])
            return Survivors(ids[:, :most], left[:, :most]), states, context
        del after[first:]
        if not told:
            return None, states, context
        return None, (*states[:first], *made, *states[behind:]), context.with_fields(tokens=None)
