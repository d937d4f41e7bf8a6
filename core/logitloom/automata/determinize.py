"""Subset construction: from positions of a pattern to a deterministic automaton over character classes.

A state is the set of positions that may be read next. Most patterns people write are deterministic already,
so most sets have one element and cost one row each; only where sets grow is anything merged.

References:
    M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.boundaries import BEGIN, END, LAST_NEWLINE, NEWLINE, context_bit
from logitloom.automata.budget import Meter
from logitloom.automata.char_sets import CharSet
from logitloom.automata.context_nfa import ContextAutomaton
from logitloom.automata.nfa import END_POSITION, PositionAutomaton
from logitloom.automata.utf8 import DEAD
from logitloom.masks.kernels import HostKernels, host_kernels

__all__ = ["ClassTable", "determinize", "determinize_in_context", "without_dead_ends"]

_CHECK_EVERY = 64

#: Fewer places are sooner read one by one.
_FEW: Final = 16
#: A compiled search cannot be interrupted: so many states, so many steps from one place to another, and so many words
#: of bits to look at for one state. It takes some tenths of a second at most.
_MOST_STATES: Final = 1 << 12
_MOST_STEPS: Final = 1 << 14
_MOST_WORDS: Final = 1 << 15


class ClassTable(NamedTuple):
    """An automaton over character classes: ``rows[state][class]`` and whether each state accepts; start is 0."""

    rows: list[list[int]] | NDArray[np.int32]
    accepting: list[bool] | NDArray[np.bool_]


def determinize(
    nfa: PositionAutomaton, members: Mapping[CharSet, tuple[int, ...]], classes: int, meter: Meter
) -> ClassTable:
    """Subset construction for a pattern without boundaries.

    Args:
        nfa: the positions.
        members: the classes of each character set in ``nfa``.
        classes: number of classes.
        meter: the budget.
    """
    kernels = host_kernels()
    if kernels is not None and len(nfa.chars) >= _FEW:
        found = _compiled(nfa, members, classes, kernels, meter)
        if found is not None:
            return found
    follow = nfa.follow
    # Positions with equal sets read alike; what sets have in common is worked out once per combination of sets.
    sets, set_at = _numbered(nfa.chars)
    classes_of = [members[chars] for chars in sets]
    classes_at = [classes_of[number] for number in set_at]
    plans: dict[tuple[int, ...], _Plan] = {}
    number: dict[frozenset[int], int] = {nfa.first: 0}
    queue = [nfa.first]
    rows = []
    accepting = []
    countdown = _CHECK_EVERY
    for places in queue:
        accepts = END_POSITION in places
        accepting.append(accepts)
        if len(places) == 1 + accepts or len(places) == 1:
            row = [DEAD] * classes
            p = max(places)  # the end is position 0
            if p != END_POSITION:
                target = follow[p]
                state = number.get(target)
                if state is None:
                    state = number[target] = len(queue)
                    queue.append(target)
                for c in classes_at[p]:
                    row[c] = state
        else:
            read: dict[int, list[frozenset[int]]] = {}
            for p in places:
                s = set_at[p]
                if s in read:
                    read[s].append(follow[p])
                else:
                    read[s] = [follow[p]]
            combined = tuple(read)
            plan = plans.get(combined)
            if plan is None:
                plan = plans[combined] = _plan(combined, classes_of, classes)
            # One target per distinguishable group of classes; the last stands for "no set holds this class".
            targets = []
            for group in plan.groups:
                followers = read[group[0]]
                if len(group) > 1:
                    followers = [places for s in group for places in read[s]]
                target = followers[0] if len(followers) == 1 else followers[0].union(*followers[1:])
                state = number.get(target)
                if state is None:
                    state = number[target] = len(queue)
                    queue.append(target)
                targets.append(state)
            targets.append(DEAD)
            row = [targets[g] for g in plan.group_of]
            countdown -= len(places) // 16
        rows.append(row)
        countdown -= 1
        if countdown < 0:
            countdown = _CHECK_EVERY
            meter.check_states(len(queue))
    meter.check_states(len(queue))
    return ClassTable(rows, accepting)


def _compiled(
    nfa: PositionAutomaton,
    members: Mapping[CharSet, tuple[int, ...]],
    classes: int,
    kernels: HostKernels,
    meter: Meter,
) -> ClassTable | None:
    """The same by a compiled loop; ``None`` where that would take long, because then the budget has to be asked."""
    sizes = [*map(len, nfa.follow)]
    sets, set_at = _numbered(nfa.chars)
    words = len(sizes) // 64 + 1
    if sum(sizes) > _MOST_STEPS or len(sets) * classes * words > _MOST_WORDS:
        return None
    classes_of = [members[chars] for chars in sets]
    limit = min(meter.budget.states, _MOST_STATES)
    table, accepting = kernels.determinize(
        np.fromiter(nfa.first, dtype=np.int32, count=len(nfa.first)),
        *_flat(nfa.follow, sizes),
        np.array(set_at, dtype=np.int32),
        *_flat(classes_of, [*map(len, classes_of)]),
        classes,
        limit,
    )
    return ClassTable(table, accepting) if len(table) <= limit else None


def _numbered(chars: list[CharSet]) -> tuple[list[CharSet], list[int]]:
    """Distinct sets, and which of them each is. Counted repeats have the same object at each place."""
    numbers: dict[CharSet, int] = {}
    of_object = {key: numbers.setdefault(one, len(numbers)) for key, one in {id(one): one for one in chars}.items()}
    return list(numbers), [of_object[id(one)] for one in chars]


def _flat(parts: Iterable[Iterable[int]], sizes: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Some numbers one after the other, and where each part begins (and the last one ends)."""
    starts = np.array([0, *accumulate(sizes)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(parts), dtype=np.int32, count=int(starts[-1])), starts


class _Plan(NamedTuple):
    """How a combination of sets divides the classes: the sets of each group, and the group of each class."""

    groups: list[tuple[int, ...]]
    group_of: list[int]


def _plan(sets: tuple[int, ...], classes_of: list[tuple[int, ...]], classes: int) -> _Plan:
    holding: list[tuple[int, ...]] = [()] * classes
    for s in sets:
        for c in classes_of[s]:
            holding[c] = (*holding[c], s)
    groups = dict.fromkeys(group for group in holding if group)
    place = {group: i for i, group in enumerate(groups)}
    return _Plan(list(groups), [place.get(group, -1) for group in holding])


def determinize_in_context(
    nfa: ContextAutomaton,
    members: Mapping[CharSet, tuple[int, ...]],
    kind_of: list[int],
    classes: int,
    meter: Meter,
) -> ClassTable:
    """Subset construction for a pattern with anchors or word boundaries.

    A state is the kind of the character before, the positions just read, and those among them that were read
    as "a newline, and then the text ends": these may accept but not go on.

    Args:
        nfa: the positions and the contexts of their connections.
        members: the classes of each character set in ``nfa``.
        kind_of: the kind of each class.
        classes: number of classes.
        meter: the budget.
    """
    classes_at = [members[chars] for chars in nfa.chars]
    start = (BEGIN, frozenset([END_POSITION]), frozenset[int]())
    number = {start: 0}
    queue = [start]
    rows = []
    accepting = []
    for before, places, ending in queue:
        row = [DEAD] * classes
        at_end = context_bit(before, END)
        accepting.append(any(nfa.accept[p] & at_end for p in places) or any(nfa.accept[p] & at_end for p in ending))
        going: dict[int, set[int]] = {}
        stopping: dict[int, set[int]] = {}
        contexts = [context_bit(before, kind) for kind in range(LAST_NEWLINE)]
        at_last = context_bit(before, LAST_NEWLINE)
        for p in places:
            for q, mask in nfa.follow[p].items():
                for c in classes_at[q]:
                    kind = kind_of[c]
                    if mask & contexts[kind]:
                        going.setdefault(c, set()).add(q)
                    elif kind == NEWLINE and mask & at_last:
                        stopping.setdefault(c, set()).add(q)
        for c in going.keys() | stopping.keys():
            target = (kind_of[c], frozenset(going.get(c, ())), frozenset(stopping.get(c, ())))
            state = number.get(target)
            if state is None:
                state = number[target] = len(queue)
                queue.append(target)
                meter.check_states(len(queue))
            row[c] = state
        rows.append(row)
    return without_dead_ends(ClassTable(rows, accepting))


def without_dead_ends(table: ClassTable) -> ClassTable:
    """The same automaton without states from which nothing can be accepted; the start state stays."""
    rows = table.rows.tolist() if isinstance(table.rows, np.ndarray) else table.rows
    into: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            if target >= 0:
                into[target].append(state)
    stack = [state for state, accepts in enumerate(table.accepting) if accepts]
    alive = set(stack)
    while stack:
        for source in into[stack.pop()]:
            if source not in alive:
                alive.add(source)
                stack.append(source)
    if len(alive) == len(rows):
        return table
    kept = [state for state in range(len(rows)) if state in alive or state == 0]
    number = {old: new for new, old in enumerate(kept)}
    if 0 not in alive:
        return ClassTable([[DEAD] * len(rows[0])], [False])
    rows = [[number.get(target, DEAD) for target in rows[old]] for old in kept]
    return ClassTable(rows, [table.accepting[old] for old in kept])
