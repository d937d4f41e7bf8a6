"""The shortest texts of patterns with boundaries: the positions and contexts as a position automaton without contexts.

The characters that may follow a position depend on the kind of the character that was read at the position. This class
makes one position for each kind. Contexts then decide nothing more, and the shortest texts are those of
:class:`logitloom.automata.patterns.position_completions.PositionCompletions`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logitloom.automata.patterns.boundaries import (
    AFTER,
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
from logitloom.automata.patterns.nfa import (
    END_POSITION,
    FollowSets,
    PositionAutomaton,
    Positions,
    RedundantCopies,
)

__all__ = ["PlainPositions", "without_contexts"]

#: The bits of the kinds after a character, for one kind before.
_AFTER_ANY: Final = (1 << AFTER) - 1
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
    newline, at_end = kind_sets()[NEWLINE].ascii, context_bit(NEWLINE, END)
    #: By position and the kinds, as bits, of the character that may be read at it.
    reached: dict[tuple[int, int], list[int]] = {}
    for p, following in enumerate(nfa.follow):
        different = [*set(following.values())]
        # Of most positions the contexts do not depend on the kind of the character before.
        known: dict[tuple[int, ...], Positions] = {}
        for kind in range(KINDS) if p != END_POSITION else (BEGIN,):
            at, is_end = kind * AFTER, bool(nfa.accept[p] & context_bit(kind, END))
            mark = is_end, *[contexts >> at & _AFTER_ANY for contexts in different]
            if mark not in known:
                found = {END_POSITION} if is_end else set()
                for q, contexts in following.items():
                    read = q, contexts >> at & _AFTER_ANY
                    if read not in reached:
                        readable = [number[q, then] for then in range(KINDS) if read[1] & alive[q] & 1 << then]
                        ends = nfa.chars[q].ascii & newline and nfa.accept[q] & at_end
                        reached[read] = [*readable, last_newline] if read[1] >> LAST_NEWLINE and ends else readable
                    found.update(reached[read])
                known[mark] = frozenset(found)
            after[p, kind] = known[mark]
    follow = FollowSets([frozenset[int](), *(after[key] for key in number), frozenset((END_POSITION,))])
    order = RedundantCopies([None] * len(set_at))
    return PlainPositions(PositionAutomaton([*sets], set_at, after[END_POSITION, BEGIN], follow, order), after)
