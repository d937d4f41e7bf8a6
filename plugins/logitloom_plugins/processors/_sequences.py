"""Sequences of ids that processors watch for: the sequences that a row is about to complete."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Context, HostTable
from logitloom.errors import OptionError
from logitloom_plugins.occurrences import Recent, recent, slide

__all__ = ["Sequences", "check_sequences"]


def check_sequences(sequences: Sequence[Sequence[int]], owner: str) -> None:
    """Raise unless there are sequences, and none of them is empty.

    Raises:
        OptionError: naming the place of the empty one.
    """
    empty = next((f"entry [{place}]" for place, sequence in enumerate(sequences) if not sequence), "")
    if empty or not sequences:
        raise OptionError(
            f"Option 'sequences' of {owner!r} must hold sequences of at least one id, but {empty or 'it'} is empty. "
            f"Leave {'the entry' if empty else 'the processor'} out."
        )


class Sequences:
    """Tables for some sequences of ids. Sequences of one length are compared together.

    Args:
        sequences: at least one id each.

    Attributes:
        order: ``[sequences]``: the sequences sorted by their length, as numbers of the given ones; the order in which
            the other members name them.
        last: ``[sequences] int32``: the last id of each.
        ends: ``last`` as a table.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        sizes = np.fromiter(map(len, sequences), dtype=np.int64)
        self.order: NDArray[np.int64] = np.argsort(sizes, kind="stable")
        self.last = np.asarray([sequences[n][-1] for n in self.order.tolist()], dtype=np.int32)
        self.ends = HostTable(self.last)
        self.window = int(sizes.max(initial=1)) - 1
        #: Per length the ids before the last ids, ``[length - 1, sequences of the length]``.
        self._before = [
            HostTable(np.asarray([sequences[n][:-1] for n in np.flatnonzero(sizes == size)], dtype=np.int32).T)
            for size in np.unique(sizes)
        ]

    def start(self, context: Context) -> Recent:
        """The last tokens of each row, as state, at the start."""
        for table in (self.ends, *self._before):
            table.on(context.backend)
        if not self.window:
            return Recent(context.backend.asarray(np.zeros((context.batch, 0), dtype=np.int32)))
        return recent(context, True, self.window)

    def advance(self, state: Recent, context: Context) -> Recent:
        """The last tokens after those of the context."""
        return slide(state, context) if self.window else state

    def completed(self, state: Recent, context: Context) -> Array:
        """``[rows, sequences]`` bool: whether a row stands before the last id of a sequence."""
        backend, xp = context.backend, context.backend.xp
        recently, found = xp.permute_dims(state.tokens, (1, 0)), []
        for table in self._before:
            before = table.on(backend)
            written = recently[self.window - before.shape[0] :, :]
            found.append(xp.all(written[:, :, None] == before[:, None, :], axis=0))
        return xp.concat(found, axis=1) if len(found) > 1 else found[0]
