"""Which tokens lead to states from which few tokens complete a text: a walk of the vocabulary's trie near a limit.

The walk looks at tokens one by one only where they decide. It records a subtree as a whole if a run of characters
reads every token below its node and leads to states that are near enough, and its tokens lack the characters that lead
to others; it leaves a subtree out if its tokens lack the characters that lead nearer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import joined, members
from logitloom.automata.lift.default_paths import reads_on
from logitloom.automata.lift.run_paths import RunPaths
from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, Trie
from logitloom.automata.lift.trie_walk import bytes_at, children
from logitloom.automata.lift.visited import VisitedStates
from logitloom.contract import Layers, NearEnd, State

__all__ = ["tokens_within"]

#: A level with fewer nodes, and at most so many tokens below them, is walked node by node, without arrays.
_THIN: Final = 24
_THIN_TOKENS: Final = 191


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
        visited: no visited states yet.
        most_work: the largest :attr:`VisitedStates.work`. Transitions above it are left out, but not those of the first
            bytes of tokens.
        state: the state before the tokens.
        near: what the states tell about their distances.
        layers: :meth:`NearEnd.layers` for ``most``.
        most: the number of tokens.
        fits: whether the completion of a state takes at most so many tokens. States are asked for once, in an order
            that does not depend on what was visited before.
    """
    paths = RunPaths(lambda each: near.runs(each, most), trie, within_characters=False)
    away: dict[int, tuple[int, int]] = {}
    nearer, farther = layers
    nodes, states = np.zeros(1, dtype=np.int64), np.array([visited.number(state)])
    alive: list[NDArray[Any]] = []
    states_alive: list[NDArray[Any]] = []
    whole: list[NDArray[Any]] = []
    while len(nodes):
        below, counts = children(trie, nodes)
        if not len(below):
            break
        if len(below) < _THIN and _tokens_below(trie, nodes) <= _THIN_TOKENS:
            for kind, found in zip(
                (alive, states_alive), _one_by_one(trie, visited, most_work, nodes, states), strict=True
            ):
                kind.append(found)
            break
        bound = most_work if visited.work else None
        reached = visited.step(states.repeat(counts), bytes_at(trie, below), bound, cut=True)
        kept = (reached >= 0).nonzero()[0]
        nodes, states = below.take(kept), reached.take(kept)
        inner = trie.child_count.take(nodes) > 0
        alive.append(nodes[~inner])
        states_alive.append(states[~inner])
        nodes, states = nodes[inner], states[inner]
        some = np.unique(states)
        for number in some.tolist():
            if number not in away:
                value = visited.values[number]
                away[number] = near.away(value, nearer), near.away(value, farther)
        distances = np.array([away[number] for number in some.tolist()], dtype=np.int64).reshape(-1, 2)
        place = np.searchsorted(some, states)
        known = reads_on(paths.of(visited.values, some.tolist()), trie, nodes, states)
        known &= ~_leads(trie, nodes, distances[:, 1].take(place), farther)
        whole.append(nodes[known])
        nodes, states, place = nodes[~known], states[~known], place[~known]
        alive.append(nodes)
        states_alive.append(states)
        # Within a character another text may be shorter.
        going = _leads(trie, nodes, distances[:, 0].take(place), nearer) | (trie.marks.take(nodes) & HIGH_PARTIAL > 0)
        nodes, states = nodes[going], states[going]
    at, reached, all_below = joined(alive), joined(states_alive), joined(whole)
    numbers, first, which = np.unique(reached, return_index=True, return_inverse=True)
    chosen = np.zeros(len(numbers), dtype=bool)
    for index in first.argsort().tolist():
        value = visited.values[int(numbers[index])]
        known_to_fit = near.fits(value, most)
        chosen[index] = fits(value) if known_to_fit is None else known_to_fit
    at = at[chosen.take(which.ravel())]
    begin = trie.first.take(np.concatenate([at, all_below]))
    end = np.concatenate([trie.own.take(at), trie.last.take(all_below)])
    return trie.order.take(members(begin, end - begin))


def _leads(trie: Trie, nodes: NDArray[Any], away: NDArray[np.int64], layers: Layers) -> NDArray[np.bool_]:
    """For each node whether a token below it may lead as many characters on as its state is away."""
    low, high = trie.low.take(nodes), trie.high.take(nodes)
    above = trie.marks.take(nodes) & (HIGH_WORD | HIGH_OTHER) > 0
    found: NDArray[np.bool_] = trie.height.take(nodes) >= away
    for layer in range(len(layers.low)):
        reads = ((low & layers.low[layer]) | (high & layers.high[layer]) > 0) | (above & layers.above[layer])
        found &= reads | (away <= layer)
    return found


def _tokens_below(trie: Trie, nodes: NDArray[Any]) -> int:
    return int((trie.last.take(nodes) - trie.own.take(nodes)).sum())


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
