"""Runs of characters that the positions of a pattern read in any order.

A state of ``.{0,200}`` reads every text of up to 200 characters without a line feed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.alphabet import Alphabet
from logitloom.automata.deterministic.subsets import SubsetAutomaton
from logitloom.contract import UNKNOWN, Run

__all__ = ["HALF", "LEVELS", "PositionRuns"]

#: Runs of up to ``2 ** 7`` characters are distinguished. Tokens with more characters are read one by one.
LEVELS: Final = 8
#: Up to this number of positions, the largest runs are found without NumPy.
_FEW: Final = 8
#: The bits of 64 ASCII characters.
HALF: Final = (1 << 64) - 1


class PositionRuns:
    """The runs of each position of a pattern, 1, 2, 4, ... characters long.

    Args:
        subsets: the automaton over classes of characters.
        letters: its classes.
    """

    def __init__(self, subsets: SubsetAutomaton[Any], letters: Alphabet) -> None:
        sets, at, there = subsets.runs
        self._then = there
        self._known: dict[int, list[tuple[int, Run]]] = {}
        word, other = letters.high.kinds
        kinds_of = []
        for chars in sets:
            kinds_of.append(0)
            if chars.high.ranges:
                missing = np.ones(letters.high.classes + 1, dtype=bool)
                missing[[c - letters.ascii_classes for c in letters.members[chars] if c >= letters.ascii_classes]] = (
                    False
                )
                kinds_of[-1] = (not (missing & word).any()) + 2 * (not (missing & other).any())
        #: By length and position: the ASCII characters, 0-63 and 64-127, and whether there are word characters (1) and
        #: others (2) above ASCII.
        self._low = np.empty((LEVELS, len(at)), dtype=np.uint64)
        self._high = np.empty_like(self._low)
        self._kinds = np.empty((LEVELS, len(at)), dtype=np.uint8)
        parts: tuple[NDArray[Any], ...] = (self._low, self._high, self._kinds)
        of_set: tuple[list[int], ...] = (
            [chars.ascii & HALF for chars in sets],
            [chars.ascii >> 64 for chars in sets],
            kinds_of,
        )
        for part, values in zip(parts, of_set, strict=True):
            np.array(values, dtype=part.dtype).take(at, out=part[0])
        self._sizes = np.empty((LEVELS, len(at)), dtype=np.int16)
        for level, sizes in enumerate(self._sizes):
            if level:
                for part in parts:
                    np.bitwise_and(part[level - 1], part[level - 1].take(there), out=part[level])
                there = there.take(there)
            low, high, kinds = [np.bitwise_count(part[level]) for part in parts]
            np.add(low, high, out=sizes)
            sizes += kinds * np.int16(64)

    def farthest(self, costs: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[lengths, positions]``: the largest of the costs after the characters of a run of each position and length.

        Args:
            costs: by position, the cost after the first character of the position's run.
        """
        found, there = [costs], self._then
        for _ in range(LEVELS - 1):
            found.append(np.maximum(found[-1], found[-1].take(there)))
            there = there.take(there)
        return np.stack(found)

    def largest_of_widest(self, costs: NDArray[np.int64]) -> int:
        """The largest cost of the positions whose runs have the most characters, of those with a known cost.

        Args:
            costs: by position, :data:`UNKNOWN` for an unknown cost.
        """
        known = costs < UNKNOWN
        widths = np.where(known, self._sizes[0], -1)
        return int(costs.max(where=known & (widths == widths.max()), initial=0))

    def of(self, positions: list[int], chosen: NDArray[np.bool_] | None = None) -> list[Run]:
        """For each length the largest run of the given positions, of several the first.

        Args:
            positions: the positions.
            chosen: ``[lengths, positions of the pattern]``, which runs may be taken; by default all.
        """
        if len(positions) > _FEW:
            sizes = self._sizes[:, positions]
            sizes = sizes if chosen is None else np.where(chosen[:, positions], sizes, -1)
            positions = [positions[each] for each in sorted({*sizes.argmax(axis=1).tolist()})]
        runs = [(position, self._runs_at(position)) for position in positions]
        found = []
        for level in range(LEVELS):
            largest, best = 0, None
            for position, of_position in runs:
                size, run = of_position[level]
                if size > largest and (chosen is None or chosen[level, position]):
                    largest, best = size, run
            if best is not None:
                found.append(best)
        return found

    def _runs_at(self, position: int) -> list[tuple[int, Run]]:
        """By length the number of the characters of the run of one position, and the run."""
        known = self._known.get(position)
        if known is None:
            parts = self._sizes, self._low, self._high, self._kinds
            rows = zip(*[part[:, position].tolist() for part in parts], strict=True)
            known = self._known[position] = [
                (size, Run(1 << level, high << 64 | low, bool(kinds & 1), bool(kinds & 2)))
                for level, (size, low, high, kinds) in enumerate(rows)
            ]
        return known
