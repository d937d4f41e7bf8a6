"""The shortest texts of patterns with boundaries: the positions and contexts as a position automaton without contexts.

The characters that may follow a position depend on the kind of the character that was read at the position. This class
makes one position for each pair of a position and a kind. Contexts then decide nothing more, and the shortest texts are
those of :class:`logitloom.automata.patterns.position_completions.PositionCompletions`.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import by_key
from logitloom.automata.patterns.boundaries import (
    BEGIN,
    END,
    KINDS,
    LAST_NEWLINE,
    NEWLINE,
    context_bit,
    kind_sets,
)
from logitloom.automata.patterns.char_sets import NEVER, CharSet, intersect
from logitloom.automata.patterns.context_nfa import ContextAutomaton
from logitloom.automata.patterns.nfa import END_POSITION, NextPositions, Positions

__all__ = ["PlainPositions"]

#: The kinds of characters, and the begin of the text.
_BEFORE: Final = KINDS + 1


class PlainPositions:
    """The positions of a pattern, divided by kinds. From each position the end can be reached.

    Args:
        nfa: the pattern.
        alive: per position the kinds, as bits, of the character read there after which the text can be completed.

    Attributes:
        sets, set_at, edges: as for :class:`.PositionCompletions`.
    """

    def __init__(self, nfa: ContextAutomaton, alive: list[int]) -> None:
        living = (np.array(alive)[:, None] >> np.arange(KINDS)) & 1 > 0
        living[END_POSITION] = False
        places, kinds = living.nonzero()
        last_newline = len(places) + 1
        self._alike = _first_alike(nfa)
        #: By position and kind, the number of the position that is made for this pair.
        number = np.zeros((len(alive), KINDS), dtype=np.int64)
        number[places, kinds] = np.arange(1, last_newline)
        self.sets, self.set_at = _sets_by_kind(nfa.chars, places, kinds)
        read_from, leads_to = self._pairs(nfa, living, number, last_newline)
        #: The positions that may come after each position and the kind of its character: one list, and the index at
        #: which the part of each position and kind begins.
        self._after, self._begins = by_key(read_from, leads_to, _BEFORE * len(alive))
        self._known: dict[tuple[int, int], Positions] = {}
        source_of = np.zeros(_BEFORE * len(alive), dtype=np.int64)
        own = _BEFORE * self._alike.take(places) + kinds
        # The first of several positions that are alike represents all of them, so it is written last.
        source_of[own[::-1]] = np.arange(1, last_newline)[::-1]
        sources = source_of.take(read_from)
        self.edges = NextPositions(
            np.append(sources[sources > 0], last_newline),
            np.append(leads_to[sources > 0], END_POSITION),
            np.concatenate([[END_POSITION], source_of.take(own), [last_newline]]),
        )

    def _pairs(
        self, nfa: ContextAutomaton, living: NDArray[np.bool_], number: NDArray[np.int64], last_newline: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of a position with the kind before, as ``_BEFORE * position + kind``, and what may come after.

        If several positions are alike, only the first of these positions has pairs.
        """
        firsts = np.unique(self._alike)
        follow = [nfa.follow[nfa.follow_at[p]] for p in firsts.tolist()]
        origin = firsts.repeat([*map(len, follow)])
        target = np.fromiter(chain.from_iterable(follow), dtype=np.int64, count=len(origin))
        every = chain.from_iterable([following.values() for following in follow])
        contexts, accept = np.fromiter(every, dtype=np.int64, count=len(origin)), np.array(nfa.accept)
        newline, at_end = kind_sets()[NEWLINE].ascii, context_bit(NEWLINE, END)
        ends = (accept & at_end > 0) & np.array([chars.ascii & newline > 0 for chars in nfa.chars])
        begins = origin == END_POSITION
        sources, targets = [], []
        for before in range(_BEFORE):
            possible = begins == (before == BEGIN)
            for then in range(KINDS):
                here = possible & (contexts & context_bit(before, then) > 0) & living[target, then]
                sources.append(_BEFORE * origin[here] + before)
                targets.append(number[target[here], then])
            here = possible & (contexts & context_bit(before, LAST_NEWLINE) > 0) & ends[target]
            sources.append(_BEFORE * origin[here] + before)
            targets.append(np.full(len(sources[-1]), last_newline))
            at = firsts[accept.take(firsts) & context_bit(before, END) > 0]
            at = at[(at == END_POSITION) == (before == BEGIN)]
            sources.append(_BEFORE * at + before)
            targets.append(np.full(len(at), END_POSITION))
        return np.concatenate(sources), np.concatenate(targets)

    def after(self, position: int, before: int) -> Positions:
        """Which positions may come next after a position of the pattern that has read a character of a kind."""
        position = int(self._alike[position])
        known = self._known.get((position, before))
        if known is None:
            begin, end = self._begins[_BEFORE * position + before : _BEFORE * position + before + 2]
            known = self._known[position, before] = frozenset(self._after[begin:end].tolist())
        return known

    def largest_of_least(self, costs: NDArray[np.int64]) -> NDArray[np.int64]:
        """By position of the pattern the largest cost of all kinds; each costs the least of what may come after it.

        Args:
            costs: by position after the division.
        """
        found = np.zeros(_BEFORE * len(self._alike), dtype=np.int64)
        filled = np.diff(self._begins).nonzero()[0]
        if len(filled):
            found[filled] = np.minimum.reduceat(costs.take(self._after), self._begins.take(filled))
        largest: NDArray[np.int64] = found.reshape(-1, _BEFORE).max(axis=1).take(self._alike)
        return largest


def _first_alike(nfa: ContextAutomaton) -> NDArray[np.int64]:
    """By position the first one after which the same may come, or the text may end, in the same contexts."""
    keys = np.array(nfa.follow_at) * (max(nfa.accept) + 1) + np.array(nfa.accept)
    keys[END_POSITION] = -1
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return first.take(which)


def _sets_by_kind(
    chars: list[CharSet], places: NDArray[np.int64], kinds: NDArray[np.int64]
) -> tuple[list[CharSet], list[int]]:
    """The character sets of the positions after the division, and by position the index of its set."""
    of_kind, sets = kind_sets(), {NEVER: 0}
    objects = {id(one): one for one in chars}
    distinct, place_of = [*objects.values()], {key: number for number, key in enumerate(objects)}
    object_at = np.array([place_of[id(one)] for one in chars])
    keys, which = np.unique(object_at.take(places) * KINDS + kinds, return_inverse=True)
    numbers = []
    for number, kind in zip(*(each.tolist() for each in np.divmod(keys, KINDS)), strict=True):
        whole, part = distinct[number], of_kind[kind]
        part = CharSet(whole.ascii & part.ascii, intersect(whole.high, part.high))
        numbers.append(sets.setdefault(part, len(sets)))
    set_at = np.array(numbers, dtype=np.int64).take(which).tolist()
    newline = sets.setdefault(of_kind[NEWLINE], len(sets))
    return [*sets], [0, *set_at, newline]
