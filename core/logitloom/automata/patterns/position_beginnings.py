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

from logitloom.automata.patterns.nfa import END_POSITION, PositionAutomaton, predecessors

__all__ = ["position_beginnings"]


def position_beginnings(nfa: PositionAutomaton, length: int, most_asked: int) -> list[int] | None:
    """By position a number; positions with equal numbers begin the same texts of up to ``length`` characters.

    Args:
        nfa: the position automaton; the end of the text can be reached from each position.
        length: the length of the longest texts.
        most_asked: the largest number of positions that all rounds together look at. ``None`` if there are more.

    Example:
        >>> from logitloom.automata.patterns.char_sets import ANY, NEVER
        >>> from logitloom.automata.patterns.nfa import FollowSets, RedundantCopies
        >>> follow = FollowSets([frozenset(after) for after in ((), {2}, {3}, {4}, {0})])
        >>> order = RedundantCopies([None] * 5)
        >>> four = PositionAutomaton([NEVER, ANY], [0, 1, 1, 1, 1], frozenset({1}), follow, order)
        >>> position_beginnings(four, 2, 100)
        [0, 2, 2, 2, 3]
    """
    follow = nfa.follow.sets()
    before = predecessors(follow)
    # The end of the text has a number of its own.
    block = [END_POSITION, *[1 + number for number in nfa.set_at[1:]]]
    sizes, fresh = Counter(block), max(block) + 1
    asked = set(range(1, len(block)))
    for _ in range(length - 1):
        most_asked -= len(asked)
        if most_asked < 0:
            return None
        groups: dict[int, dict[frozenset[int], list[int]]] = {}
        for position in asked:
            after = frozenset([block[each] for each in follow[position] if each != END_POSITION])
            groups.setdefault(block[position], {}).setdefault(after, []).append(position)
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
        asked = {origin for position, _ in moved for origin in before[position]} - {END_POSITION}
        if not asked:
            break
    return block
