"""How many tokens lead from the positions of a pattern to its end, and which characters lead nearer.

The fewest tokens of a state depend on what its positions still require, not on how many optional characters remain. So
near a limit on tokens most tokens of the vocabulary are decided together: every text of some characters fits, or no
text without some characters does.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import NextPositions
from logitloom.contract import UNKNOWN, Layers

__all__ = ["PositionDistances"]

#: How many characters before the positions that fit are looked at.
_LAYERS: Final = 5
_HALF: Final = (1 << 64) - 1


class PositionDistances:
    """The tokens that the shortest texts of positions need.

    Args:
        characters: the character sets, and by position the index of its set.
        edges: which positions may come after each position.
        needed: by position, the fewest tokens that write its text, or an upper bound.
        exact: whether there are no bounds in ``needed``.
        sizes: by position the bytes of its text.
        farthest: by position, a bound on the tokens for its text and for the text of every position that is reachable
            from it.
        rest: a bound on the tokens that complete a character which a token has begun.
        longest: the bytes of the longest token.
        apart: whether no token ends a character above ASCII and goes on with the text of a position.

    Attributes:
        needed, farthest, rest: as given.
        least: ``[positions]``: no fewer tokens write the text of a position.
    """

    def __init__(
        self,
        characters: tuple[list[CharSet], NDArray[np.int64]],
        edges: NextPositions,
        needed: NDArray[np.int64],
        exact: bool,
        sizes: NDArray[np.int64],
        farthest: list[int],
        rest: int,
        longest: int,
        apart: bool,
    ) -> None:
        self._characters, self._edges = characters, edges
        self.farthest, self.rest, self._apart = farthest, rest, apart
        self.needed, self._sizes = needed, sizes
        self.least: NDArray[np.int64] = self.needed if exact else -(-self._sizes // longest)

    def nearer(self, most: int) -> Layers:
        """The characters before the positions whose texts fit, or may fit, in ``most`` tokens."""
        return self._layers(self.least <= most)

    def nearer_within(self, most: int) -> Layers | None:
        """:meth:`nearer` for texts after the end of a character, if a token of its own completes the character."""
        return self.nearer(most - 1) if self._apart else None

    def farther(self, most: int, size: int) -> Layers:
        """The characters before the positions whose texts of at most ``size`` bytes do not fit in ``most`` tokens."""
        return self._layers((self.needed > most) & (self._sizes <= size))

    def sizes_within(self, most: int) -> NDArray[np.int64]:
        """``[positions]``: the bytes of each text that fits in ``most`` tokens, :data:`UNKNOWN` for other texts."""
        return np.where(self.needed <= most, self._sizes, UNKNOWN)

    def _layers(self, reached: NDArray[np.bool_]) -> Layers:
        """The layers of characters that texts read shortly before the positions of ``reached``."""
        sources, targets, alike = self._edges
        sets, set_at = self._characters
        away = np.where(reached, 0, _LAYERS + 1)
        ascii_of, above_of = [], []
        for layer in range(1, _LAYERS + 1):
            before = np.zeros(len(away), dtype=bool)
            before[sources[reached.take(targets)]] = True
            reached = before.take(alike) & (away > _LAYERS)
            away[reached] = layer
            read = [sets[each] for each in np.unique(set_at[reached]).tolist()]
            ascii_of.append(reduce(or_, [chars.ascii for chars in read], 0))
            above_of.append(any(chars.high.ranges for chars in read))
        low = np.array([each & _HALF for each in ascii_of], dtype=np.uint64)
        high = np.array([each >> 64 for each in ascii_of], dtype=np.uint64)
        return Layers(away.tolist(), low, high, np.array(above_of))
