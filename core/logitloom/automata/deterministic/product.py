"""The product of two automata, whose states are the reachable pairs of states."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import Factor, automaton_kernels
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD
from logitloom.masks.kernels import KernelFailed

__all__ = ["ProductPairs", "product"]

#: The most pairs of a level that are processed one by one, and the most targets whose duplicates are removed with a
#: dictionary alone.
_FEW: Final = 4
_MANY: Final = 512
#: The kernel is used for at most this number of pairs, because it keeps an array with a number for each.
_MOST_PAIRS: Final = 1 << 22


class ProductPairs(NamedTuple):
    """Pairs of states, in breadth-first order.

    Attributes:
        byte_class: ``[256] uint8``, the column of each byte; bytes of one column are equivalent in both automata.
        next: ``[pairs, columns] int32``, next pairs, ``DEAD`` where there is none.
        first, second: ``[pairs]``, the states of each pair; the number of states stands for the dead state.
    """

    byte_class: NDArray[np.uint8]
    next: NDArray[np.int32]
    first: NDArray[np.int64]
    second: NDArray[np.int64]


def product(
    first: tuple[NDArray[np.uint8], NDArray[np.int32], int],
    second: tuple[NDArray[np.uint8], NDArray[np.int32], int],
    needs: tuple[bool, bool],
    tracker: BudgetTracker,
) -> ProductPairs:
    """The product of two automata.

    Args:
        first, second: ``[256]`` byte classes, ``[states, classes]`` next states, and the start of each.
        needs: per automaton whether pairs in which it is dead are dropped. Pairs in which both are dead always are.
        tracker: the budget tracker.

    Raises:
        BudgetExceeded: if there are too many pairs.
    """
    pairs, byte_class = np.unique(first[0].astype(np.int64) * 256 + second[0], return_inverse=True)
    tables = _padded(first[1], pairs >> 8), _padded(second[1], pairs & 255)
    factors = Factor(tables[0], first[2], needs[0]), Factor(tables[1], second[2], needs[1])
    compiled = _by_kernels(factors, tracker)
    of_first, of_second, table = compiled or _found(*tables, (first[2], second[2]), needs, tracker)
    return ProductPairs(byte_class.ravel().astype(np.uint8), table, of_first, of_second)


def _by_kernels(
    factors: tuple[Factor, Factor], tracker: BudgetTracker
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]] | None:
    """The states of both automata per pair, and the table of the pairs; ``None`` without kernels."""
    kernels = automaton_kernels()
    if kernels is None or len(factors[0].next) * len(factors[1].next) > _MOST_PAIRS:
        return None
    try:
        found, table = kernels.product(*factors, tracker.budget.states)
    except KernelFailed:
        return None
    tracker.check_states(len(found))
    of_first, of_second = found.T
    return of_first, of_second, table


def _padded(table: NDArray[np.int32], columns: NDArray[np.int64]) -> NDArray[np.int32]:
    """The given columns of a table, with an explicit dead state, which is the last one."""
    result = np.full((len(table) + 1, len(columns)), len(table), dtype=np.int32)
    rows = table[:, columns]
    result[:-1] = np.where(rows >= 0, rows, len(table))
    return result


def _found(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    start: tuple[int, int],
    needs: tuple[bool, bool],
    tracker: BudgetTracker,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    width = len(second)
    code = start[0] * width + start[1]
    number = {code: 0}
    fresh = [code]
    collected = []
    while fresh:
        # A bounded length gives hundreds of levels with a small number of pairs, for which arrays take longer.
        if len(fresh) <= _FEW:
            listed = _targets_one_by_one(first, second, fresh, needs)
            targets = np.array(listed, dtype=np.int64)
        else:
            targets = _targets(first, second, np.array(fresh, dtype=np.int64), needs).ravel()
            listed = targets.tolist() if len(targets) <= _MANY else _in_order_of_first(targets)
        collected.append(targets)
        fresh = [one for one in dict.fromkeys(listed) if one != DEAD and one not in number]
        number.update(zip(fresh, range(len(number), len(number) + len(fresh)), strict=True))
        tracker.check_states(len(number))
    codes = np.array(list(number), dtype=np.int64)
    every = np.concatenate(collected).reshape(len(codes), first.shape[1])
    order = codes.argsort()
    index = order[np.minimum(np.searchsorted(codes[order], every), len(codes) - 1)]
    of_first, of_second = np.divmod(codes, width)
    return of_first, of_second, np.where(every >= 0, index, DEAD).astype(np.int32)


def _targets(
    first: NDArray[np.int32], second: NDArray[np.int32], pairs: NDArray[np.int64], needs: tuple[bool, bool]
) -> NDArray[np.int64]:
    """The pairs after each column of some pairs, as numbers."""
    of_first, of_second = np.divmod(pairs, len(second))
    reached = first[of_first].astype(np.int64), second[of_second]
    alive = reached[0] < len(first) - 1, reached[1] < len(second) - 1
    kept = alive[0] | alive[1] if needs == (False, False) else (alive[0] | (not needs[0])) & (alive[1] | (not needs[1]))
    return np.where(kept, reached[0] * len(second) + reached[1], DEAD)


def _targets_one_by_one(
    first: NDArray[np.int32], second: NDArray[np.int32], pairs: list[int], needs: tuple[bool, bool]
) -> list[int]:
    """:func:`_targets` for few pairs, one after the other."""
    dead, other_dead, width, found = len(first) - 1, len(second) - 1, len(second), list[int]()
    needs_one, needs_other = needs
    for pair in pairs:
        of_first, of_second = divmod(pair, width)
        for one, other in zip(first[of_first].tolist(), second[of_second].tolist(), strict=True):
            if (one == dead and (needs_one or other == other_dead)) or (other == other_dead and needs_other):
                found.append(DEAD)
            else:
                found.append(one * width + other)
    return found


def _in_order_of_first(numbers: NDArray[np.int64]) -> list[int]:
    """The different numbers of an array in the order in which they first occur."""
    distinct, index = np.unique(numbers, return_index=True)
    found: list[int] = distinct[index.argsort()].tolist()
    return found
