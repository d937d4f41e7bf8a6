"""The shortest texts of patterns with boundaries: the positions and contexts as a position automaton without contexts.

The characters that may follow a position depend on the kind of the character that was read at the position. This class
makes one position for each kind. Contexts then decide nothing more, and the shortest texts are those of
:class:`logitloom.automata.patterns.position_completions.PositionCompletions`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logitloom.automata.patterns.boundaries import BEGIN, END, KINDS, LAST_NEWLINE, NEWLINE, context_bit, kind_sets
from logitloom.automata.patterns.char_sets import NEVER, CharSet, intersect
from logitloom.automata.patterns.context_nfa import ContextAutomaton
from logitloom.automata.patterns.nfa import (
    END_POSITION,
    FollowSets,
    PositionAutomaton,
    Positions,
    RedundantCopies,
)

__all__ = ["PlainPositions", "without_contexts"]

#: Transitions of the pattern above which its positions are not divided.
_MOST_EDGES: Final = 1 << 16


class PlainPositions(NamedTuple):
    """The positions of a pattern, divided by kinds.

    Attributes:
        nfa: the position automaton; from each position the end can be reached.
        after: which positions may come next after a position of the pattern that has read a character of a kind.
    """

    nfa: PositionAutomaton
    after: dict[tuple[int, int], Positions]


def without_contexts(nfa: ContextAutomaton, alive: list[int]) -> PlainPositions | None:
    """Divide the positions of a pattern by the kinds of their characters; ``None`` if there are too many transitions.

    Args:
        nfa: the pattern.
        alive: per position the kinds, as bits, of the character read there after which the text can be completed.
    """
    if sum(map(len, nfa.follow)) > _MOST_EDGES:
        return None
    sets, set_at, number = {NEVER: 0}, [0], dict[tuple[int, int], int]()
    parts: dict[tuple[int, int], int] = {}
    for p, some in enumerate(nfa.chars):
        for kind, of_kind in enumerate(kind_sets()):
            if p != END_POSITION and alive[p] >> kind & 1:
                key = (id(some), kind)
                if key not in parts:
                    part = CharSet(some.ascii & of_kind.ascii, intersect(some.high, of_kind.high))
                    parts[key] = sets.setdefault(part, len(sets))
                number[p, kind] = len(set_at)
                set_at.append(parts[key])
    last_newline = len(set_at)
    set_at.append(sets.setdefault(kind_sets()[NEWLINE], len(sets)))
    after: dict[tuple[int, int], Positions] = {}
    at_end = context_bit(NEWLINE, END)
    for p, following in enumerate(nfa.follow):
        for kind in range(KINDS) if p != END_POSITION else (BEGIN,):
            found = {END_POSITION} if nfa.accept[p] & context_bit(kind, END) else set()
            for q, contexts in following.items():
                found.update(
                    number[q, then]
                    for then in range(KINDS)
                    if contexts & context_bit(kind, then) and alive[q] >> then & 1
                )
                reads_newline = nfa.chars[q].ascii & kind_sets()[NEWLINE].ascii
                if reads_newline and contexts & context_bit(kind, LAST_NEWLINE) and nfa.accept[q] & at_end:
                    found.add(last_newline)
            after[p, kind] = frozenset(found)
    follow = FollowSets([frozenset[int](), *(after[key] for key in number), frozenset((END_POSITION,))])
    order = RedundantCopies([None] * len(set_at))
    return PlainPositions(PositionAutomaton([*sets], set_at, after[END_POSITION, BEGIN], follow, order), after)
