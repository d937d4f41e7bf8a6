"""Minimisation: merge equivalent states, and bytes that no state distinguishes.

Partition refinement on whole arrays. The initial blocks are states with equal distance to acceptance. A round splits
blocks by the blocks of the next states, until no block splits. Refinement from the accepting states alone takes many
rounds for chains (counted repeats); the distance separates their states at once.

References:
    E. F. Moore, "Gedanken-experiments on sequential machines", 1956.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.budget import Budget, BudgetTracker
from logitloom.automata.dfa import DEAD, Dfa

__all__ = ["minimize"]


def minimize(dfa: Dfa, *, budget: Budget | None = None, tracker: BudgetTracker | None = None) -> Dfa:
    """The smallest automaton of the same language, with states numbered in breadth-first order.

    Equal languages give equal tables, so the fingerprint of a minimal automaton identifies its language.

    Args:
        dfa: any automaton.
        budget: the limits of the computation; ``None`` for the default.
        tracker: the tracker of a compilation in progress, instead of ``budget``.

    Raises:
        BudgetExceeded: if the computation takes longer than the budget allows.
    """
    tracker = tracker if tracker is not None else BudgetTracker(budget)
    dfa = dfa.trimmed()
    # Columns are merged first: fewer columns make every round of refinement cheaper.
    columns, byte_class = _merged_columns(dfa.next, dfa.byte_class)
    block = _distances(columns, dfa.accepting, tracker)
    count = int(block.max(initial=0)) + 1
    weights = _mixed(np.arange(columns.shape[1], dtype=np.uint64) + np.uint64(1)) | np.uint64(1)
    while True:
        tracker.check_time()
        seen = np.append(block, DEAD)[columns]
        key = (_mixed(seen.astype(np.uint64)) * weights).sum(axis=1, dtype=np.uint64)
        key += _mixed(block.astype(np.uint64) + np.uint64(1 << 40))
        _, first, refined = np.unique(key, return_index=True, return_inverse=True)
        refined = refined.ravel()
        if len(first) == count:
            break
        block, count = refined.astype(np.int64), len(first)
    # Blocks were compared by 64-bit hashes. A collision would have merged states that are not equivalent.
    representative = first[refined]
    same = (seen == seen[representative]).all(axis=1) & (block == block[representative])
    if not same.all():  # pragma: no cover - one in 2**60
        raise ArithmeticError("Two different rows had one hash; this automaton cannot be minimised.")
    table = np.append(refined, DEAD)[columns[first]]
    accepting = dfa.accepting[first]
    return _numbered(byte_class, table, accepting, int(refined[dfa.start]))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter integers over 64 bits (the finaliser of splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _distances(table: NDArray[np.int32], accepting: NDArray[np.bool_], tracker: BudgetTracker) -> NDArray[np.int64]:
    """``[states]``: the bytes to the nearest accepting state; a value above all others if none is reachable."""
    states, columns = table.shape
    distance = np.where(accepting, 0, -1).astype(np.int64)
    flat = table.ravel()
    live = np.flatnonzero(flat >= 0)
    order = live[np.argsort(flat[live], kind="stable")]
    sources = order // max(columns, 1)
    starts = np.searchsorted(flat[order], np.arange(states + 1))
    frontier = np.flatnonzero(accepting)
    steps = 0
    while len(frontier):
        steps += 1
        if steps % 256 == 0:
            tracker.check_time()
        counts = starts[frontier + 1] - starts[frontier]
        ends = np.cumsum(counts)
        total = int(ends[-1])
        index = np.arange(total) + np.repeat(starts[frontier] - (ends - counts), counts)
        reached = np.unique(sources[index])
        frontier = reached[distance[reached] < 0]
        distance[frontier] = steps
    distance[distance < 0] = steps + 1
    return distance


def _merged_columns(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Merge equal columns and number them by the first byte that uses them."""
    index: dict[bytes, int] = {}
    kept: list[int] = []
    number: dict[int, int] = {}
    for old in dict.fromkeys(byte_class.tolist()):
        key = table[:, old].tobytes()
        if key not in index:
            index[key] = len(kept)
            kept.append(old)
        number[old] = index[key]
    renumbered = np.array([number[old] for old in byte_class.tolist()], dtype=np.uint8)
    return np.ascontiguousarray(table[:, kept]), renumbered


def _numbered(byte_class: NDArray[np.uint8], table: NDArray[np.int64], accepting: NDArray[np.bool_], start: int) -> Dfa:
    rows = table.tolist()
    number = {start: 0}
    queue = [start]
    for state in queue:
        for target in rows[state]:
            if target >= 0 and target not in number:
                number[target] = len(queue)
                queue.append(target)
    renumber = np.full(len(rows) + 1, DEAD, dtype=np.int32)
    renumber[queue] = np.arange(len(queue))
    columns, byte_class = _merged_columns(renumber[table[queue]], byte_class)
    return Dfa(byte_class, columns, accepting[queue])
