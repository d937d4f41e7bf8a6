"""Which tokens lead to states from which few tokens complete a text: a walk of the vocabulary's trie near a limit.

The walk looks at tokens one by one only where tokens decide. A subtree is recorded as a whole if a run of
characters reads every token below its node and leads to states that are near enough, and its tokens lack the characters
that lead to others. A subtree is left out if its tokens lack the characters that lead nearer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct
from logitloom.automata.lift.default_paths import reads_on
from logitloom.automata.lift.level_walk import is_thin
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, Trie
from logitloom.automata.lift.trie_walk import bytes_at, children, tokens_at, tokens_below
from logitloom.automata.lift.visited import VisitedStates
from logitloom.contract import Layers, NearEnd, State

__all__ = ["tokens_within"]


def tokens_within(
    trie: Trie,
    visited: VisitedStates,
    most_work: int,
    state: State,
    near: NearEnd,
    layers: tuple[Layers, Layers],
    most: int,
    fits: Callable[[State], bool],
) -> NDArray[np.int32]:
    """The ids after which at most so many tokens complete the text, in no order.

    Args:
        trie: the trie of a vocabulary.
        visited: no visited states yet, so that their numbers are the same in every process.
        most_work: the largest :attr:`VisitedStates.work`. Transitions above it are left out, but not those of the first
            bytes of tokens.
        state: the state before the tokens.
        near: what the states tell about their distances.
        layers: :meth:`NearEnd.layers` for ``most``.
        most: the number of tokens.
        fits: whether the completion of a state takes at most so many tokens; asked where ``near`` does not tell.
    """
    known = _StatesNearEnd(visited, near, layers, most, fits)
    paths = RunPaths(lambda each: near.runs(each, most), trie, within_characters=False)
    nodes, states = np.zeros(1, dtype=np.int64), np.array([visited.number(state)])
    found: list[NDArray[np.int32]] = []
    while len(nodes):
        below, counts = children(trie, nodes)
        if not len(below):
            break
        thin = is_thin(trie, nodes, below)
        if thin:
            nodes, states = _one_by_one(trie, visited, most_work, nodes, states)
        else:
            bound = most_work if visited.work else None
            reached = visited.step(states.repeat(counts), bytes_at(trie, below), bound, cut=True)
            alive = (reached >= 0).nonzero()[0]
            nodes, states = below.take(alive), reached.take(alive)
        ends = (trie.own.take(nodes) > trie.first.take(nodes)).nonzero()[0]
        ids, at = tokens_at(trie, nodes.take(ends))
        found.append(ids[known.fit(states.take(ends)).take(at)])
        if thin:
            break
        inner = (trie.child_count.take(nodes) > 0).nonzero()[0]
        nodes, states = nodes.take(inner), states.take(inner)
        nearer, farther = known.away(states)
        read = paths.of(visited.values, distinct(states, len(visited.values)).tolist())
        whole = reads_on(read, trie, nodes, states) & ~_leads(trie, nodes, farther, layers[1])
        found.append(tokens_below(trie, nodes[whole])[0])
        # Within a character another text may be shorter.
        going = _leads(trie, nodes, nearer, layers[0]) | (trie.marks.take(nodes) & HIGH_PARTIAL > 0)
        going &= ~whole
        nodes, states = nodes[going], states[going]
    return np.concatenate(found) if found else trie.order[:0]


class _StatesNearEnd:
    """What is known of the visited states: by number, looked up once.

    Args:
        visited, near, layers, most, fits: as for :func:`tokens_within`.
    """

    def __init__(
        self,
        visited: VisitedStates,
        near: NearEnd,
        layers: tuple[Layers, Layers],
        most: int,
        fits: Callable[[State], bool],
    ) -> None:
        self._visited, self._near, self._layers = visited, near, layers
        self._most, self._ask = most, fits
        self._fit, self._fit_known = np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
        self._away, self._away_known = np.zeros((2, 0), dtype=np.int64), np.zeros(0, dtype=bool)

    def fit(self, states: NDArray[Any]) -> NDArray[np.bool_]:
        """For each state whether its completion takes at most so many tokens."""
        values = self._visited.values
        more = np.zeros(len(values) - len(self._fit), dtype=bool)
        self._fit, self._fit_known = np.append(self._fit, more), np.append(self._fit_known, more)
        some = distinct(states, len(values))
        for number in some[~self._fit_known.take(some)].tolist():
            told = self._near.fits(values[number], self._most)
            self._fit[number] = self._ask(values[number]) if told is None else told
            self._fit_known[number] = True
        return self._fit.take(states)

    def away(self, states: NDArray[Any]) -> NDArray[np.int64]:
        """``[2, states]``: for each state the characters before the states of the two layers."""
        values = self._visited.values
        more = np.zeros(len(values) - len(self._away_known), dtype=bool)
        self._away_known = np.append(self._away_known, more)
        self._away = np.append(self._away, np.zeros((2, len(more)), dtype=np.int64), axis=1)
        some = distinct(states, len(values))
        for number in some[~self._away_known.take(some)].tolist():
            self._away[:, number] = [self._near.away(values[number], each) for each in self._layers]
            self._away_known[number] = True
        return self._away.take(states, axis=1)


def _leads(trie: Trie, nodes: NDArray[Any], away: NDArray[np.int64], layers: Layers) -> NDArray[np.bool_]:
    """For each node whether a token below it may lead as many characters on as its state is away."""
    low, high = trie.low.take(nodes), trie.high.take(nodes)
    above = trie.marks.take(nodes) & (HIGH_WORD | HIGH_OTHER) > 0
    found: NDArray[np.bool_] = trie.height.take(nodes) >= away
    for layer in range(len(layers.low)):
        if not found.any():
            break
        reads = ((low & layers.low[layer]) | (high & layers.high[layer]) > 0) | (above & layers.above[layer])
        found &= reads | (away <= layer)
    return found


def _one_by_one(
    trie: Trie, visited: VisitedStates, most_work: int, nodes: NDArray[Any], states: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes below some pairs whose state is alive, and their states, node by node."""
    child_start, child_count, byte = trie.views
    alive, states_alive = list[int](), list[int]()
    stack = [*zip(nodes.tolist(), states.tolist(), strict=True)]
    while stack:
        node, state = stack.pop()
        for child in range(child_start[node], child_start[node] + child_count[node]):
            if visited.work > most_work:
                break
            target = visited.after(state, byte[child])
            if target >= 0:
                alive.append(child)
                states_alive.append(target)
                stack.append((child, target))
    return np.array(alive, dtype=np.int64), np.array(states_alive, dtype=np.int64)
