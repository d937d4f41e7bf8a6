"""Shortest texts from any state to the end of the innermost open value, found through moves alone.

The search is Knuth's algorithm: texts are looked at in the order of their length. The texts of a value that a text
enters wait in the same queue as the others. The search knows what moves are, and nothing of the states.

References:
    D. Knuth, "A generalization of Dijkstra's algorithm", 1977 (the shortest text of each nonterminal).
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from logitloom_plugins.json_schema.folds.completion.completion_memory import NOTHING, Jump, Taken, Texts
from logitloom_plugins.json_schema.folds.completion.short_contents import ORDER
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.moves import BLANKS, may_end
from logitloom_plugins.json_schema.grammar.objects import counted
from logitloom_plugins.json_schema.grammar.states import (
    EndsName,
    Enters,
    EscapeState,
    GapState,
    Leaves,
    Move,
    Return,
    State,
    TextState,
    compacted,
    without_gap,
)

__all__ = ["shortest_ends"]

#: The most states that one search visits.
_MOST_REACHED: Final = 1 << 14
#: The first state of a text, and what must not come again in it.
_Begun = tuple[State, Taken]


class _ReachedText(NamedTuple):
    """A text, in the order in which texts are looked at.

    Attributes:
        size: the number of bytes.
        text: the bytes.
        order: a number that no other text has.
        begun: where the text begins.
        state: the state after the text; ``None`` if the text has ended what was open at its beginning.
        taken: what must not come again.
        truth: the truth vector of a text that has ended.
    """

    size: int
    text: bytes
    order: int
    begun: _Begun
    state: State | None
    taken: Taken = NOTHING
    truth: TruthVector = ()


class _TextSearch:
    """The texts that a search has reached. A text that has entered a value waits for the ends of this value."""

    def __init__(self) -> None:
        self.ends: dict[_Begun, Texts] = {}
        #: The truth vectors that are asked for.
        self.wanted: dict[_Begun, set[TruthVector]] = {}
        self.queue: list[_ReachedText] = []
        self._waiting: dict[_Begun, list[tuple[_Begun, bytes, Return, Taken]]] = {}
        self._order = itertools.count()

    def begin(self, begun: _Begun, wanted: Iterable[TruthVector]) -> None:
        """Look for the ends of a state with some truth vectors."""
        if begun not in self.ends:
            self.ends[begun], self._waiting[begun], self.wanted[begun] = {}, [], set()
            self.add(begun, b"", *begun)
        self.wanted[begun].update(wanted)

    def is_done(self, begun: _Begun) -> bool:
        """Whether all the ends are found that are asked for."""
        return len(self.ends[begun]) == len(self.wanted[begun])

    def add(
        self, begun: _Begun, text: bytes, state: State | None, taken: Taken = NOTHING, truth: TruthVector = ()
    ) -> None:
        """Add a text; the arguments are fields of :class:`_ReachedText`."""
        at = None if state is None else without_gap(state)
        heapq.heappush(self.queue, _ReachedText(len(text), text, next(self._order), begun, at, taken, truth))

    def enter(self, begun: _Begun, text: bytes, back: Return, inside: State, taken: Taken) -> None:
        """Add a text whose last byte begins a value."""
        value = compacted(inside), NOTHING
        self.begin(value, back.states)
        self._waiting[value].append((begun, text, back, taken))
        for truth, rest in self.ends[value].items():
            self._after_value(begun, text + rest, back, truth, taken)

    def end(self, reached: _ReachedText) -> None:
        """Note the end of a value, and go on with the texts that wait for it."""
        texts = self.ends[reached.begun]
        if reached.truth not in texts and reached.truth in self.wanted[reached.begun]:
            texts[reached.truth] = reached.text
            for begun, text, back, taken in self._waiting[reached.begun]:
                self._after_value(begun, text + reached.text, back, reached.truth, taken)

    def _after_value(self, begun: _Begun, text: bytes, back: Return, truth: TruthVector, taken: Taken) -> None:
        following = back.states.get(truth)
        if following is not None:
            self.add(begun, text, following, taken)


def shortest_ends(
    moves: Callable[[State], Iterable[Move]],
    jumps: Callable[[State, Taken], Iterable[Jump] | None],
    state: State,
    taken: Taken,
    wanted: Iterable[TruthVector],
) -> Texts:
    """By truth vector a shortest text that ends the innermost string, object or array; of the whole text after it.

    Whitespace is left out, and items that must be different are not compared.

    Args:
        moves: the moves of a state.
        jumps: the jumps of the states that need no search; ``None`` for others.
        state: the state.
        taken: what must not come again.
        wanted: the truth vectors of the texts.
    """
    search, seen, work = _TextSearch(), Counter[tuple[_Begun, State, Taken]](), 0
    search.begin((state, taken), wanted)
    while search.queue and work < _MOST_REACHED and not search.is_done((state, taken)):
        reached = heapq.heappop(search.queue)
        _, text, _, begun, at, now, _ = reached
        if at is None:
            search.end(reached)
            continue
        # If ``n`` names must not come again, ``n + 1`` ways to a state are followed.
        place = begun, at, now._replace(written=b"")
        seen[place] += 1
        if seen[place] > 1 + len(now.names):
            continue
        work += 1
        known = jumps(at, now)
        if known is not None:
            for jump in known:
                search.add(begun, text + jump.text, jump.state, jump.taken, jump.truth)
            continue
        if may_end(at):
            search.add(begun, text, None)
        for move in moves(at):
            _follow(search, begun, text, at, now, move)
    return search.ends[state, taken]


def _follow(search: _TextSearch, begun: _Begun, text: bytes, state: State, taken: Taken, move: Move) -> None:
    """Add what a move leads to."""
    byte = bytes([min(move.read, key=ORDER.__getitem__)])
    if isinstance(move, Enters):
        search.enter(begun, text + byte, move.back, move.target, taken)
    elif isinstance(move, Leaves):
        search.add(begun, text + byte, None, NOTHING, move.truth)
    elif isinstance(move, EndsName):
        name: str = json.loads(b'"' + taken.written + b'"')
        if name not in taken.names:
            target = move.target._replace(frame=counted(move.target.frame, move.target.label, taken.names))
            search.add(begun, text + byte, target, Taken(taken.names | {name}))
    elif isinstance(move.target, TextState | EscapeState):
        inside = isinstance(state, TextState | EscapeState)
        written = taken.written + byte if inside and move.target.context.tracks else b""
        search.add(begun, text + byte, move.target, taken._replace(written=written))
    elif not isinstance(move.target, GapState):
        is_blank = byte in BLANKS and not isinstance(state, TextState)
        search.add(begun, text if is_blank else text + byte, move.target, taken._replace(written=b""))
