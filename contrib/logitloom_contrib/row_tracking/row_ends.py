"""Separation of a row's new ids into tokens for the chain, and the end of the row with the padding after it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom_contrib.row_tracking.call_snapshot import CallSnapshot

__all__ = ["RowEnds"]


class RowEnds(NamedTuple):
    """Ids at which rows end."""

    eos: frozenset[int]
    #: Ids that stand behind the end of a row, the ids of ``eos`` included.
    padding: frozenset[int]

    def new_tokens(
        self, asked: CallSnapshot, fed: NDArray[np.int64], ended: NDArray[np.bool_], dead: NDArray[np.bool_]
    ) -> list[list[int]]:
        """The new tokens of each row for the chain; marks in ``ended`` the rows that end or go on."""
        new = asked.lengths - fed
        if bool((new == 1).all()):
            tokens = [[token] for token in asked.ids[:, -1].tolist()]
        else:
            ids, width = asked.ids, asked.width
            tokens = [ids[i, width - n :].tolist() if n else [] for i, n in enumerate(new.tolist())]
        if self.padding:
            for row, taken in enumerate(tokens):
                if taken and taken[-1] in self.padding:
                    kept = self.before_end(taken, bool(ended[row]))
                    if kept is not None:
                        tokens[row] = kept
                        ended[row] = True
                        continue
                if taken:
                    ended[row] = False
        if dead.any():
            for row in np.flatnonzero(dead):
                tokens[row] = []
        return tokens

    def before_end(self, tokens: list[int], ended: bool = False) -> list[int] | None:
        """The tokens before an end-of-sequence and its padding, if the tokens finish with an end."""
        at = len(tokens)
        while at and tokens[at - 1] in self.padding:
            at -= 1
        if at == 0 and ended:
            return []
        while at < len(tokens) and tokens[at] not in self.eos:
            at += 1
        return tokens[:at] if at < len(tokens) else None
