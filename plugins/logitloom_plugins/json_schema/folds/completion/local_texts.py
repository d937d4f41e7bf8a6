"""Short texts from a state to the end of the innermost open string, object or array."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    COPIED,
    NOTHING,
    CompletionMemory,
    Jump,
    Taken,
    Texts,
    ends_of,
)
from logitloom_plugins.json_schema.folds.completion.content_texts import ContentTexts
from logitloom_plugins.json_schema.folds.completion.shortest_ends import shortest_ends
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.moves import SchemaGrammar, moves_between
from logitloom_plugins.json_schema.grammar.states import ColonState, EscapeState, Move, Return, State, TextState
from logitloom_plugins.json_schema.grammar.string_moves import StringMoves

__all__ = ["LocalTexts", "Specialised", "Ways", "leading_on"]

#: Bytes of a colon, the shortest value, and a bracket.
_SHORTEST_VALUE: Final = 3
#: The work of a jump, and of looking for the jumps of a state.
_JUMP, _LOOK = 20, 40

#: The jumps of the states of one type: a function of the texts of other states, the state, and what is taken.
Specialised = Callable[["LocalTexts", State, Taken], list[Jump]]


class LocalTexts:
    """The texts of the states of one grammar, without whitespace.

    For most types of states a function is registered that finds jumps; the text of a state follows these jumps. For
    other states there is a search through the moves (:mod:`.shortest_ends`).

    Args:
        grammar: which moves states have outside strings.
        strings: which moves states have inside strings.
        memory: what was found.
        specialised: for each type of state the function that finds the jumps of such states.
        least: a lower bound on the bytes from a state on, as :func:`.bytes_from`.
    """

    def __init__(
        self,
        grammar: SchemaGrammar,
        strings: StringMoves,
        memory: CompletionMemory,
        specialised: Mapping[type[State], Specialised],
        least: Callable[[LocalTexts, State], int],
    ) -> None:
        self.grammar, self.values = grammar, grammar.values
        self.strings, self.memory = strings, memory
        self.contents = ContentTexts(grammar.escapes, memory)
        self._specialised = specialised
        self._least = partial(least, self)

    def of(self, state: State, wanted: Collection[TruthVector], taken: Taken = NOTHING) -> Texts:
        """By truth vector a short text that ends the innermost string, object or array; the whole text after it.

        Args:
            state: the state.
            wanted: the truth vectors that are asked for. Texts with others may be found, too.
            taken: what must not come again.

        Raises:
            WorkSpent: as :class:`.CompletionMemory` says.
        """
        jumps = self.jumps(state, taken)
        if jumps is None:
            return shortest_ends(self.moves, self.jumps, state, taken, wanted)
        self.memory.spend(_JUMP * len(jumps))
        ways = self.ways(jumps)
        found: Texts = {}
        missing = len(wanted)
        if not missing:
            return found
        for way in ways:
            if way.state is None:
                if way.truth not in found:
                    found[way.truth] = way.text
                    missing -= way.truth in wanted
                if not missing:
                    break
                continue
            self.memory.spend(_LOOK + len(way.text) // COPIED)
            jumps = self.jumps(way.state, way.taken)
            if jumps is None:
                jumps = ends_of(shortest_ends(self.moves, self.jumps, way.state, way.taken, wanted))
            self.memory.spend(_JUMP * len(jumps))
            ways.add(way.text, jumps)
        return found

    def ways(self, jumps: Iterable[Jump]) -> Ways:
        """The texts of some jumps in the order in which they are to be followed."""
        ways = Ways(self._least)
        ways.add(b"", jumps)
        return ways

    def moves(self, state: State) -> Iterator[Move]:
        """The moves of a state."""
        if isinstance(state, TextState | EscapeState):
            return self.strings.moves(state)
        return moves_between(self.grammar, state)

    def jumps(self, state: State, taken: Taken) -> list[Jump] | None:
        """The jumps of a state, from the function for its type; ``None`` if no function is registered."""
        special = self._specialised.get(type(state))
        return None if special is None else special(self, state, taken)


class BegunText(NamedTuple):
    """A text that ends what is open, or the beginning of such a text; the texts compare in the order of the search.

    Attributes:
        bound: a lower bound on the bytes of the text that ends what is open.
        text: the beginning of that text.
        order: a number that no other text has.
        state: the state after the beginning; ``None`` if it is the whole text.
        taken: what must not come again.
        truth: the truth vector of a whole text.
        is_exact: whether the bound is as large as it is known to be.
    """

    bound: int
    text: bytes
    order: int
    state: State | None
    taken: Taken
    truth: TruthVector
    is_exact: bool


class Ways:
    """Texts in the order of a lower bound on their length, and then of their bytes.

    Args:
        least: a lower bound on the bytes from a state on, which takes long to find.
    """

    def __init__(self, least: Callable[[State], int]) -> None:
        self._queue: list[BegunText] = []
        self._least = least
        self._order = itertools.count()
        self._seen = set[tuple[State, Taken]]()

    def add(self, text: bytes, jumps: Iterable[Jump]) -> None:
        """Add what follows a text."""
        for more, state, taken, truth in jumps:
            longer = text + more
            least = 0 if state is None else _SHORTEST_VALUE if isinstance(state, ColonState) else 1
            way = BegunText(len(longer) + least, longer, next(self._order), state, taken, truth, state is None)
            heapq.heappush(self._queue, way)

    def __iter__(self) -> Iterator[BegunText]:
        """The texts in order, and only the first that leads to a state. Texts may be added meanwhile."""
        while self._queue:
            way = heapq.heappop(self._queue)
            if way.state is None:
                yield way
                continue
            if not way.is_exact and self._queue:
                bound = max(way.bound, len(way.text) + self._least(way.state))
                if bound > way.bound:
                    heapq.heappush(self._queue, way._replace(bound=bound, is_exact=True))
                    continue
            place = way.state, way.taken
            if place not in self._seen:
                self._seen.add(place)
                yield way


def leading_on(back: Return, texts: Texts, taken: Taken) -> list[Jump]:
    """The jumps over a value to the object or array that the value is in."""
    return [Jump(text, back.states[truth], taken) for truth, text in texts.items() if truth in back.states]
