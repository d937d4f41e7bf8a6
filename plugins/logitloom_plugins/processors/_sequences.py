"""Sequences of ids that processors watch for: the sequences that a row is about to complete."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logitloom import Array, Context, HostTable
from logitloom_plugins.occurrences import Recent, recent, slide

__all__ = ["Sequences"]


class Sequences:
    """Tables for some sequences of ids.

    Args:
        sequences: at least one id each.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.window = max((len(sequence) for sequence in sequences), default=1) - 1
        prefixes = np.full((len(sequences), self.window), -2, dtype=np.int32)
        for row, sequence in zip(prefixes, sequences, strict=True):
            row[self.window - len(sequence) + 1 :] = sequence[:-1]
        #: The ids before the last id of each sequence, right-aligned; -2 stands for any id.
        self.prefixes = HostTable(prefixes)
        self.last = np.asarray([sequence[-1] for sequence in sequences], dtype=np.int32)
        self.ends = HostTable(self.last)

    def start(self, context: Context) -> Recent:
        """The last tokens of each row, as state, at the start."""
        self.prefixes.on(context.backend)
        self.ends.on(context.backend)
        if not self.window:
            return Recent(context.backend.asarray(np.zeros((context.batch, 0), dtype=np.int32)))
        return recent(context, True, self.window)

    def advance(self, state: Recent, context: Context) -> Recent:
        """The last tokens after those of the context."""
        return slide(state, context) if self.window else state

    def completed(self, state: Recent, context: Context) -> Array:
        """``[rows, sequences]`` bool: whether a row stands before the last id of a sequence."""
        xp, prefixes = context.backend.xp, self.prefixes.on(context.backend)
        same = (state.tokens[:, None, :] == prefixes[None, :, :]) | (prefixes == -2)[None, :, :]
        return xp.all(same, axis=-1)
