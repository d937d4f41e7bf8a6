"""Which positions of a pattern begin the same texts, up to a length.

The positions of a counted repeat such as ``[a-z]{400,600}`` begin the same short texts until the end of the repeat is
near, so the states of all earlier positions allow the same tokens. Positions are divided by their character sets first.
Each round then divides groups only where a next position moved to another group in the round before. So positions that
are together after ``n`` rounds begin the same texts of up to ``n + 1`` characters. Where a text may end is not looked
at.

References:
    E. F. Moore, "Gedanken-experiments on sequential machines", 1956 (division of states by what can be observed).
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import by_key
from logitloom.automata.patterns.nfa import END_POSITION, NextPositions

__all__ = ["position_beginnings"]


def position_beginnings(set_at: list[int], edges: NextPositions, length: int, most_asked: int) -> list[int] | None:
    """By position a number; positions with equal numbers begin the same texts of up to ``length`` characters.

    Args:
        set_at: by position the index of its character set.
        edges: which positions may come after each position; the end can be reached from all.
        length: the length of the longest texts.
        most_asked: the largest number of positions that all rounds together look at. ``None`` if there are more.

    Example:
        >>> from logitloom.automata.patterns.nfa import FollowSets
        >>> follow = FollowSets([frozenset(after) for after in ((), {2}, {3}, {4}, {0})])
        >>> position_beginnings([0, 1, 1, 1, 1], follow.edges(), 2, 100)
        [0, 2, 2, 2, 3]
    """
    count = len(set_at)
    alike = edges.alike.tolist()
    after, before, like = (
        _lists_by(keys, values, count)
        for keys, values in (
            (edges.sources, edges.targets),
            (edges.targets, edges.sources),
            (edges.alike, np.arange(count)),
        )
    )
    # The end of the text has a number of its own.
    block = [END_POSITION, *[1 + number for number in set_at[1:]]]
    sizes, fresh = Counter(block), max(block) + 1
    asked = set(range(1, count))
    for _ in range(length - 1):
        most_asked -= len(asked)
        if most_asked < 0:
            return None
        groups: dict[int, dict[frozenset[int], list[int]]] = {}
        blocks_after: dict[int, frozenset[int]] = {}
        for position in asked:
            same = alike[position]
            known = blocks_after.get(same)
            if known is None:
                known = blocks_after[same] = frozenset([block[each] for each in after[same] if each != END_POSITION])
            groups.setdefault(block[position], {}).setdefault(known, []).append(position)
        moved = []
        for number, parts in groups.items():
            found = sorted(parts.values(), key=len)
            # Positions outside this round have the same next positions as before, and keep the number of their group.
            if sum(map(len, found)) == sizes[number]:
                found.pop()
            for part in found:
                moved += [(position, fresh) for position in part]
                sizes[number] -= len(part)
                sizes[fresh] = len(part)
                fresh += 1
        for position, number in moved:
            block[position] = number
        origins = {origin for position, _ in moved for origin in before[position]}
        asked = {position for origin in origins for position in like[origin]} - {END_POSITION}
        if not asked:
            break
    return block


def _lists_by(keys: NDArray[np.int64], values: NDArray[np.int64], count: int) -> list[list[int]]:
    """By key the values of the key."""
    ordered, begins = (each.tolist() for each in by_key(keys, values, count))
    return [ordered[begin:end] for begin, end in pairwise(begins)]
