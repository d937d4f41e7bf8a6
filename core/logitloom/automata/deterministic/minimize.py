"""Minimisation: merge equivalent states, and bytes that no state distinguishes.

Partition refinement on whole arrays. The initial blocks are states with equal distance to acceptance. A round splits
blocks by the blocks of the next states, until no block splits. Refinement from the accepting states alone takes many
rounds for chains (counted repeats); the distance separates their states at once. After the first rounds only the
predecessors of states that changed their block are examined. These are few states if a round splits one copy of a
repeat from the other copies.

References:
    E. F. Moore, "Gedanken-experiments on sequential machines", 1956.
    J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton", 1971.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import in_order_of_appearance, members
from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD, Dfa

__all__ = ["in_breadth_first_order", "minimize"]

#: Rounds that look at all states; the automata of most patterns are minimal after these.
_WHOLE_ROUNDS: Final = 4
#: Fewer states than these are numbered one by one.
_FEW: Final = 16


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
    before = _Before(columns)
    block = _distances(before, dfa.accepting, tracker)
    count = int(block.max(initial=0)) + 1
    for _ in range(_WHOLE_ROUNDS):
        tracker.check_time()
        _, first, refined = np.unique(_keys(block, columns), return_index=True, return_inverse=True)
        refined = refined.ravel().astype(np.int64)
        if len(first) == count:
            break
        coarse, block, count = block, refined, len(first)
    else:
        _refine(block, coarse, columns, before, tracker)
    _, first, refined = np.unique(block, return_index=True, return_inverse=True)
    refined = refined.ravel()
    # Blocks were compared by 64-bit hashes. A collision would have merged states that are not equivalent.
    representative, seen = first[refined], np.append(block, DEAD)[columns]
    same = (seen == seen[representative]).all(axis=1) & (dfa.accepting == dfa.accepting[representative])
    if not same.all():  # pragma: no cover - one in 2**60
        raise ArithmeticError("Two different rows had one hash; this automaton cannot be minimised.")
    table = np.append(refined, DEAD)[columns[first]]
    accepting = dfa.accepting[first]
    return _numbered(byte_class, table, accepting, int(refined[dfa.start]))


def in_breadth_first_order(dfa: Dfa) -> Dfa:
    """The automaton with its states numbered in breadth-first order, and with bytes merged that no state distinguishes.

    For an automaton that has no equivalent states already, the result is that of :func:`minimize`.
    """
    return _numbered(dfa.byte_class, dfa.next, dfa.accepting, dfa.start)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter integers over 64 bits (the finaliser of splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _keys(
    block: NDArray[np.int64], rows: NDArray[np.int32], own: NDArray[np.int64] | None = None
) -> NDArray[np.uint64]:
    """Hashes of the blocks of some states and of the states after them.

    Args:
        block: ``[states]``, the block of each state.
        rows: ``[n, columns]``, the next states of each of the states.
        own: ``[n]``, their blocks; default: all blocks, in order.
    """
    weights = _mixed(np.arange(rows.shape[1], dtype=np.uint64) + np.uint64(1)) | np.uint64(1)
    seen = np.where(rows < 0, DEAD, block.take(rows, mode="clip")) if len(block) else rows
    key: NDArray[np.uint64] = (_mixed(seen.astype(np.uint64)) * weights).sum(axis=1, dtype=np.uint64)
    return key + _mixed((block if own is None else own).astype(np.uint64) + np.uint64(1 << 40))


class _Before:
    """The states that lead to each state.

    Args:
        table: ``[states, columns]``, next states.
    """

    def __init__(self, table: NDArray[np.int32]) -> None:
        states, columns = table.shape
        flat = table.ravel()
        live = np.flatnonzero(flat >= 0)
        order = live[np.argsort(flat[live], kind="stable")]
        self._sources = order // max(columns, 1)
        self._starts = np.searchsorted(flat[order], np.arange(states + 1))

    def of(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """The distinct predecessors of the given states, in ascending order."""
        begin = self._starts[states]
        return np.unique(self._sources[members(begin, self._starts[states + 1] - begin)])


def _refine(
    block: NDArray[np.int64],
    coarse: NDArray[np.int64],
    table: NDArray[np.int32],
    before: _Before,
    tracker: BudgetTracker,
) -> None:
    """Split blocks in place until no block splits.

    The states of a block whose next states kept their blocks stay together. All other states of the block differ from
    these states, because they lead to a new block.

    Args:
        block: ``[states]``: the result of a round.
        coarse: the blocks before this round.
        table: next states.
        before: the states that lead to each state.
        tracker: the tracker of the compilation.
    """
    # The largest part of each former block keeps the number of the block.
    size = np.bincount(block)
    by_size = np.argsort(size[block], kind="stable")
    kept = np.zeros(int(coarse.max()) + 1, dtype=np.int64)
    kept[coarse[by_size]] = block[by_size]
    changed = np.flatnonzero(block != kept[coarse])
    count, rounds = len(size), 0
    while len(changed):
        rounds += 1
        if rounds % 64 == 0:
            tracker.check_time()
        asked = before.of(changed)
        own = block[asked]
        _, first, group = np.unique(_keys(block, table[asked], own), return_index=True, return_inverse=True)
        group = group.ravel()
        # If all states of a block are examined, the first group of the block keeps its number.
        former = own[first]
        whole = np.bincount(own, minlength=count)[former] == size[former]
        keeps = np.zeros(len(first), dtype=bool)
        keeps[np.unique(former, return_index=True)[1]] = True
        name = np.where(keeps & whole, former, DEAD)
        fresh = np.flatnonzero(name < 0)
        name[fresh] = count + np.arange(len(fresh))
        block[asked] = name[group]
        count += len(fresh)
        size = np.bincount(block, minlength=count)
        changed = asked[name[group] >= count - len(fresh)] if len(fresh) else asked[:0]


def _distances(before: _Before, accepting: NDArray[np.bool_], tracker: BudgetTracker) -> NDArray[np.int64]:
    """``[states]``: the bytes to the nearest accepting state; a value above all others if none is reachable."""
    distance = np.where(accepting, 0, -1).astype(np.int64)
    frontier = np.flatnonzero(accepting)
    steps = 0
    while len(frontier):
        steps += 1
        if steps % 256 == 0:
            tracker.check_time()
        reached = before.of(frontier)
        frontier = reached[distance[reached] < 0]
        distance[frontier] = steps
    distance[distance < 0] = steps + 1
    return distance


def _merged_columns(
    table: NDArray[np.int32], byte_class: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Merge equal columns; the merged columns are numbered in the order of their first bytes."""
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


def _numbered(byte_class: NDArray[np.uint8], table: NDArray[Any], accepting: NDArray[np.bool_], start: int) -> Dfa:
    is_seen = bytearray(len(table))
    seen = np.frombuffer(is_seen, dtype=bool)
    frontier, levels = np.array([start]), list[NDArray[Any]]()
    while len(frontier):
        seen[frontier] = True
        levels.append(frontier)
        rows = table[frontier]
        if len(frontier) < _FEW:
            found = (target for row in rows.tolist() for target in row if target >= 0 and not is_seen[target])
            frontier = np.array([*dict.fromkeys(found)], dtype=np.int64)
        else:
            targets = rows[rows >= 0]
            frontier = in_order_of_appearance(targets[~seen[targets]], len(table))
    queue = np.concatenate(levels)
    renumber = np.full(len(table) + 1, DEAD, dtype=np.int32)
    renumber[queue] = np.arange(len(queue))
    columns, byte_class = _merged_columns(renumber[table[queue]], byte_class)
    return Dfa(byte_class, columns, accepting[queue], trim=True)
