"""Which tokens lead to states from which few tokens complete a text: a walk of the vocabulary's trie near a limit.

The walk examines tokens one by one only where no subtree is decided as a whole. A subtree is taken as a whole if a run
of characters reads every token below its node and leads to states that are near enough to the end, and if the tokens
lack the characters that lead to farther states. A subtree is left out if its tokens lack the characters that lead
nearer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct, in_order_of_appearance, members
from logitloom.automata.lift.default_paths import reads_on
from logitloom.automata.lift.level_walk import is_thin, one_by_one
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, Trie
from logitloom.automata.lift.trie_walk import bytes_at, children, tokens_at, tokens_below
from logitloom.automata.lift.visited import BoundedStates
from logitloom.contract import UNKNOWN, Layers, NearEnd, State

__all__ = ["tokens_within", "tokens_within_characters"]


def tokens_within(
    trie: Trie,
    table: BoundedStates,
    state: State,
    near: NearEnd,
    layers: tuple[Layers, Layers, Layers | None],
    most: int,
    fits: Callable[[State], bool],
) -> NDArray[np.int32]:
    """The ids after which at most so many tokens complete the text, in no order.

    Args:
        trie: the trie of a vocabulary.
        table: the visited states, with a bound on the work of the walk.
        state: the state before the tokens.
        near: what is known of the distances of states to the end.
        layers: :meth:`NearEnd.layers` for ``most``.
        most: the number of tokens.
        fits: whether the completion of a state takes at most so many tokens; asked where ``near`` does not tell.
    """
    known = _StatesNearEnd(table, near, most, fits)
    paths = RunPaths(lambda each: near.runs(each, most), trie)
    nodes, states = np.zeros(1, dtype=np.int64), np.array([table.visited.number(state)])
    found: list[NDArray[np.int32]] = []
    while len(nodes):
        below, counts = children(trie, nodes)
        if not len(below):
            break
        thin = is_thin(trie, nodes, below)
        if thin:
            nodes, states, _ = one_by_one(trie, table, nodes, states, [])
        elif table.visits(len(below)):
            reached = table.step(states.repeat(counts), bytes_at(trie, below))
            alive = (reached >= 0).nonzero()[0]
            nodes, states = below.take(alive), reached.take(alive)
        else:
            break
        numbers = known.numbered(states)
        ends = (trie.own.take(nodes) > trie.first.take(nodes)).nonzero()[0]
        ids, at = tokens_at(trie, nodes.take(ends))
        found.append(ids[known.fit(numbers.take(ends)).take(at)])
        if thin:
            break
        inner = (trie.child_count.take(nodes) > 0).nonzero()[0]
        nodes, states, numbers = nodes.take(inner), states.take(inner), numbers.take(inner)
        nearer, farther, within, begun = known.away(numbers, layers)
        partial = trie.marks.take(nodes) & HIGH_PARTIAL > 0
        if layers[2] is not None:
            # After a token that ends within a character, one more token is needed than for the text after the
            # character.
            at = partial.nonzero()[0]
            partial[at] = _leads(trie, nodes.take(at), within.take(at), layers[2], begun.take(at), HIGH_PARTIAL)
        # Any token leads to states at no distance.
        asked = (farther > 0).nonzero()[0]
        read = paths.of(known.values, distinct(numbers.take(asked), len(known.values)).tolist())
        asked = asked[reads_on(read, trie, nodes.take(asked), numbers.take(asked)) & ~partial.take(asked)]
        asked = asked[~_leads(trie, nodes.take(asked), farther.take(asked), layers[1], begun.take(asked))]
        whole = tokens_below(trie, nodes.take(asked))[0]
        found.append(whole[~trie.ends_within.take(whole)])
        going = nearer == 0
        doubtful = (~going).nonzero()[0]
        going[doubtful] = _leads(trie, nodes.take(doubtful), nearer.take(doubtful), layers[0], begun.take(doubtful))
        # Within a character another text may be shorter.
        going |= partial
        going[asked] = False
        nodes, states = nodes[going], states[going]
    return np.concatenate(found) if found else trie.order[:0]


def tokens_within_characters(
    trie: Trie, table: BoundedStates, state: State, near: NearEnd, most: int, fits: Callable[[State], bool]
) -> NDArray[np.int32]:
    """The ids of tokens that end within a character and after which at most ``most`` tokens complete the text.

    Args:
        trie, table, state, near, most, fits: as for :func:`tokens_within`.
    """
    known = _StatesNearEnd(table, near, most, fits)
    every, first, count = trie.ways_within
    places, states = np.zeros(1, dtype=np.int64), np.array([table.visited.number(state)])
    found: list[NDArray[np.int32]] = []
    while len(places):
        counts = count.take(places)
        places = members(first.take(places), counts)
        reached = table.step(states.repeat(counts), bytes_at(trie, every.take(places)))
        alive = (reached >= 0).nonzero()[0]
        places, states = places.take(alive), reached.take(alive)
        nodes = every.take(places)
        ends = trie.within.take(nodes).nonzero()[0]
        ids, at = tokens_at(trie, nodes.take(ends))
        found.append(ids[known.fit(known.numbered(states.take(ends))).take(at)])
    return np.concatenate(found)


class _StatesNearEnd:
    """What is known of the states of a walk, looked up once.

    Args:
        table, near, most, fits: as for :func:`tokens_within`.

    Attributes:
        values: the states of the walk, in the order of their first visit. The number of a state is its index in this
            list, so numbers are the same in every process.
    """

    def __init__(self, table: BoundedStates, near: NearEnd, most: int, fits: Callable[[State], bool]) -> None:
        self._table, self._near, self._most, self._ask = table, near, most, fits
        self.values: list[State] = []
        self._numbers = np.zeros(0, dtype=np.int64)
        #: Whether the work may be done that it takes to ask about a state. Nothing leads on from other states.
        self._may_ask: list[bool] = []
        self._fit: list[bool | None] = []
        self._away: list[tuple[int, int, int, int] | None] = []

    def numbered(self, states: NDArray[Any]) -> NDArray[np.int64]:
        """The numbers of some states, which are given by their numbers among the visited states."""
        values = self._table.visited.values
        if len(self._numbers) < len(values):
            more = np.full(2 * len(values) - len(self._numbers), -1)
            self._numbers = np.append(self._numbers, more)
        numbers = self._numbers.take(states)
        if (numbers < 0).any():
            new = in_order_of_appearance(states[numbers < 0], len(self._numbers))
            self._numbers[new] = np.arange(len(self.values), len(self.values) + len(new))
            self.values += [values[each] for each in new.tolist()]
            self._may_ask += [self._table.asks(values[each]) for each in new.tolist()]
            self._fit += [None] * len(new)
            self._away += [None] * len(new)
            numbers = self._numbers.take(states)
        return numbers

    def fit(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each state whether its completion takes at most so many tokens."""
        found, values, fit = np.empty(len(self.values), dtype=bool), self.values, self._fit
        for number in distinct(numbers, len(values)).tolist():
            known = fit[number]
            if known is None:
                told = self._near.fits(values[number], self._most) if self._may_ask[number] else False
                known = fit[number] = self._ask(values[number]) if told is None else told
            found[number] = known
        return found.take(numbers)

    def away(self, numbers: NDArray[np.int64], layers: tuple[Layers, Layers, Layers | None]) -> NDArray[np.int64]:
        """``[4, states]``: for each state the characters before the states of all layers, the same in each call, and 1
        if the state is within a character, which counts as one of them.
        """
        found, values, near = np.empty((4, len(self.values)), dtype=np.int64), self.values, self._near
        for number in distinct(numbers, len(values)).tolist():
            known = self._away[number]
            if known is None:
                state, (nearer, farther, within) = values[number], layers
                known = UNKNOWN, 0, UNKNOWN, 0
                if self._may_ask[number]:
                    last = 0 if within is None else near.away(state, within)
                    known = near.away(state, nearer), near.away(state, farther), last, int(near.is_within(state))
                self._away[number] = known
            found[:, number] = known
        return found.take(numbers, axis=1)


def _leads(
    trie: Trie,
    nodes: NDArray[Any],
    away: NDArray[np.int64],
    layers: Layers,
    begun: NDArray[np.int64],
    partial: int = 0,
) -> NDArray[np.bool_]:
    """For each node whether a token below it may lead as many characters on as its state is away.

    Args:
        trie, nodes: the trie and its nodes.
        away: by node the characters before the states of the layers.
        layers: the layers.
        begun: by node 1 if the state is within a character above ASCII, which counts as one of these, else 0.
        partial: ``HIGH_PARTIAL`` if a character within which a token ends counts, too.
    """
    low, high = trie.low.take(nodes), trie.high.take(nodes)
    above = (trie.marks.take(nodes) & (HIGH_WORD | HIGH_OTHER | partial) > 0) | (begun > 0)
    found: NDArray[np.bool_] = trie.height.take(nodes) + begun >= away
    # Of layers with equal characters the first decides.
    first = dict[tuple[Any, ...], int]()
    for layer, characters in enumerate(zip(layers.low, layers.high, layers.above, strict=True)):
        first.setdefault(characters, layer)
    for (in_low, in_high, in_above), layer in first.items():
        if not found.any():
            break
        found &= ((low & in_low) | (high & in_high) > 0) | (above & in_above) | (away <= layer)
    return found
