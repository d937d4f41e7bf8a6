"""Subset construction: the whole automaton over classes of characters, by visiting all states from the start state.

References:
    M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import AutomatonKernels, PositionTables, Ragged, automaton_kernels
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.subsets import SubsetAutomaton, Subsets
from logitloom.automata.patterns.utf8 import DEAD
from logitloom.masks.kernels import KernelFailed

__all__ = ["ClassTable", "determinize"]

_CHECK_EVERY = 16
#: The approximate size in bytes of a state, of a position in its set, and of a class in its row.
_STATE_BYTES: Final = 400
_POSITION_BYTES: Final = 32
_CLASS_BYTES: Final = 8

#: Patterns with fewer positions are faster without the kernel.
_LEAST_POSITIONS: Final = 16
#: Limits of the compiled construction, which cannot be interrupted: states, transitions between positions, and words of
#: bits per state. Within these limits the construction takes some tenths of a second at most.
_MOST_STATES: Final = 1 << 12
_MOST_STEPS: Final = 1 << 14
_MOST_WORDS: Final = 1 << 15


class ClassTable(NamedTuple):
    """An automaton over character classes: ``rows[state][class]`` and whether each state accepts; start is 0."""

    rows: list[list[int]] | NDArray[np.int32]
    accepting: list[bool] | NDArray[np.bool_]


def determinize(
    automaton: SubsetAutomaton[Any], tracker: BudgetTracker, limit: int | None = None, most_held: int = sys.maxsize
) -> ClassTable | None:
    """The table of all reachable states of a subset automaton.

    Args:
        automaton: the subset automaton.
        tracker: the budget tracker.
        limit: the largest number of states; default: the budget's number, above which an error is raised.
        most_held: the largest number of positions of all states together.

    Returns:
        The table, with states in breadth-first order, class by class; ``None`` if there are more than ``limit`` states,
        or if these have more than ``most_held`` positions.
        The result depends on the pattern alone, not on the time.

    Raises:
        BudgetExceeded: if the construction exceeds the budget.
    """
    if isinstance(automaton, Subsets) and automaton.count >= _LEAST_POSITIONS and automaton.is_unordered:
        kernels = automaton_kernels()
        most = tracker.budget.states if limit is None else limit
        found = None if kernels is None else _compiled(automaton, kernels, most, most_held)
        if found is not None and len(found.rows):
            return found
        if found is not None and limit is not None:
            return None
    number = {automaton.start: 0}
    queue = [automaton.start]
    rows = []
    accepting = []
    countdown = _CHECK_EVERY
    size = held = 0
    for state in queue:
        accepting.append(automaton.accepts(state))
        targets, group_of = automaton.targets(state)
        numbers = []
        for target in targets:
            known = number.get(target)
            if known is None:
                known = number[target] = len(queue)
                queue.append(target)
            numbers.append(known)
        numbers.append(DEAD)  # index -1
        rows.append([numbers[group] for group in group_of])
        positions = automaton.size(state)
        held += positions
        size += _STATE_BYTES + _POSITION_BYTES * positions + _CLASS_BYTES * automaton.classes
        countdown -= 1 + positions // 16
        if held > most_held or (limit is not None and len(queue) > limit):
            return None
        if countdown < 0:
            countdown = _CHECK_EVERY
            tracker.check_states(len(queue))
            tracker.check_bytes(size, "its sets of positions")
    tracker.check_states(len(queue))
    return ClassTable(rows, accepting)


def _compiled(automaton: Subsets, kernels: AutomatonKernels, most: int, most_held: int) -> ClassTable | None:
    """:func:`determinize` by the kernel; ``None`` if it could take long, because the kernel cannot check the budget.

    The table is empty if there are more than ``most`` states or if these have more than ``most_held`` positions.
    """
    nfa, classes = automaton.nfa, automaton.classes
    if len(nfa.set_at) > _MOST_STEPS or len(nfa.sets) * classes * (len(nfa.set_at) // 64 + 1) > _MOST_WORDS:
        return None
    follow, classes_of = nfa.follow.sets(), automaton.classes_of
    sizes = [*map(len, follow)]
    if sum(sizes) > _MOST_STEPS:
        return None
    limit = min(most, _MOST_STATES)
    positions = PositionTables(
        np.fromiter(nfa.first, dtype=np.int32, count=len(nfa.first)),
        _ragged(follow, sizes),
        np.array(nfa.set_at, dtype=np.int32),
        _ragged(classes_of, [*map(len, classes_of)]),
        classes,
    )
    try:
        table, accepting = kernels.determinize(positions, limit, most_held)
    except KernelFailed:
        return None
    return ClassTable(table, accepting) if len(table) or limit == most else None


def _ragged(parts: Iterable[Iterable[int]], sizes: list[int]) -> Ragged:
    """Lists of numbers as a :class:`Ragged`; ``sizes`` are their lengths."""
    starts = np.array([0, *accumulate(sizes)], dtype=np.int64)
    return Ragged(np.fromiter(chain.from_iterable(parts), dtype=np.int32, count=int(starts[-1])), starts)
