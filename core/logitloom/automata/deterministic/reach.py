"""Reachability in a transition table: forwards from a state, and backwards from a set of states."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import by_key, members

__all__ = ["distinct_steps", "ends_reachable", "first_steps", "reachable", "steps_to"]

#: Distances that are found by sweeps of the whole table, before edges are sorted by their targets: most automata have
#: few distances, and some have as many as states.
_SWEEPS: Final = 8
#: No sweep begins after so many entries of the table were read.
_MOST_SWEPT: Final = 1 << 16
#: If fewer states have the same distance, they are examined one by one, without arrays.
_FEW: Final = 16


def reachable(table: NDArray[np.int32], start: int) -> NDArray[np.bool_]:
    """``[states] bool``: the states that can be reached from ``start``; entries below 0 are dead."""
    seen = np.zeros(len(table), dtype=bool)
    frontier = np.array([start])
    while len(frontier):
        seen[frontier] = True
        targets = table[frontier]
        targets = targets[targets >= 0]
        # Only what was found is looked at: a long automaton has as many levels as states.
        frontier = np.unique(targets[~seen[targets]])
    return seen


def distinct_steps(table: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The pairs of a state and a next state, each once, in ascending order; entries below 0 are dead.

    Example:
        >>> source, target = distinct_steps(np.array([[1, 1, -1], [1, 0, 1]], dtype=np.int32))
        >>> source.tolist(), target.tolist()
        ([0, 1, 1], [1, 0, 1])
    """
    # To sort each row takes less time than to sort all pairs.
    targets = np.sort(table, axis=1)
    is_new = targets >= 0
    is_new[:, 1:] &= targets[:, 1:] != targets[:, :-1]
    source, column = is_new.nonzero()
    return source, targets[source, column]


def ends_reachable(table: NDArray[np.int32], goal: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[states] bool``: the states from which a state of ``goal`` can be reached; entries below 0 are dead."""
    return steps_to(table, goal) >= 0


def steps_to(table: NDArray[np.int32], goal: NDArray[np.bool_]) -> NDArray[np.int32]:
    """``[states] int32``: the least number of transitions from each state to a state of ``goal``, -1 for none."""
    # The last entry stands for the dead state.
    steps = np.append(np.where(goal, 0, -1), -1).astype(np.int32)
    left = (~goal).nonzero()[0]
    distance = swept = 0
    while len(left) and distance < _SWEEPS and swept < _MOST_SWEPT:
        distance += 1
        swept += len(left) * table.shape[1]
        near = (steps[np.maximum(table[left], -1)] == distance - 1).any(axis=1)
        if not near.any():
            return steps[:-1]
        steps[left[near]] = distance
        left = left[~near]
    return _by_predecessors(table, left, steps, distance)[:-1]


def first_steps(table: NDArray[np.int32], steps: NDArray[np.int32]) -> NDArray[np.intp]:
    """``[states]``: the first column with which a shortest way to the goal begins; 0 where there is no such column.

    Args:
        table: ``[states, columns]``, the next states; entries below 0 are dead.
        steps: ``[states]``, as :func:`steps_to` gives them.
    """
    nearer = (table >= 0) & (steps.take(np.maximum(table, 0)) == steps[:, None] - 1)
    first: NDArray[np.intp] = nearer.argmax(axis=1)
    return first


def _one_by_one(
    source: NDArray[np.int64], bounds: NDArray[np.int64], steps: NDArray[np.int32], frontier: list[int], distance: int
) -> tuple[list[int], int]:
    """Search on without arrays until a distance has many states or none; its states, and the distance."""
    sources, begins, found = source.data, bounds.data, steps.data
    while frontier and len(frontier) < _FEW:
        distance += 1
        nearer, frontier = frontier, []
        for state in nearer:
            for before in sources[begins[state] : begins[state + 1]]:
                if found[before] < 0:
                    found[before] = distance
                    frontier.append(before)
    return frontier, distance


def _by_predecessors(
    table: NDArray[np.int32], left: NDArray[np.int64], steps: NDArray[np.int32], distance: int
) -> NDArray[np.int32]:
    """:func:`steps_to` for the states that are left once the first distances are known."""
    source, column = (table[left] >= 0).nonzero()
    source = left.take(source)
    source, bounds = by_key(table[source, column], source, len(table))
    frontier = (steps[:-1] == distance).nonzero()[0]
    while len(frontier):
        if len(frontier) < _FEW:
            few, distance = _one_by_one(source, bounds, steps, frontier.tolist(), distance)
            frontier = np.array(few, dtype=np.int64)
        distance += 1
        counts = bounds[frontier + 1] - bounds[frontier]
        # Only what was found is looked at: a long automaton has as many levels as states.
        before = source[members(bounds[frontier], counts)]
        frontier = np.unique(before[steps[before] < 0])
        steps[frontier] = distance
    return steps
