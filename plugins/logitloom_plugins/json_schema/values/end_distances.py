"""How many characters away the ends of texts are, for each state of an automaton.

Row ``k`` of a table says from which states an end is ``k`` characters away. Each row follows from the row before. So
when a row comes a second time, the rows after it come again, too. The table ends there, however large the bound on the
length is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.reach import ends_reachable
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.values.moore_machine import BEGINNING, CONTINUING, MooreMachine, Output

__all__ = ["FREE_FOREVER", "EndDistances"]

#: More characters than a text ever has.
FREE_FOREVER: Final = 1 << 30
#: The most entries of a table.
_MOST_ENTRIES: Final = 64_000_000
#: A number or an array of numbers, and the entry or the array of entries for it. The types depend on one another, so
#: ``Any``.
Numbers = Any
Entries = Any


class EndDistances:
    """The distances from each state of an automaton to the ends of texts.

    A character counts from its first byte on.

    Args:
        automaton: over UTF-8.
        limit: the largest distance that is asked for.
        or_more: whether a distance stands for itself and all larger distances.
        ending: the outputs of the texts that end; by default all outputs.

    Raises:
        BudgetExceeded: if the table takes too much memory.
    """

    def __init__(
        self, automaton: MooreMachine, limit: int, or_more: bool, ending: frozenset[Output] | None = None
    ) -> None:
        rows: list[bytes] = []
        number: dict[bytes, int] = {}
        accepting = automaton.accepting
        if ending is not None and not ending >= automaton.found:
            accepting = np.array([output in ending for output in automaton.outputs])
        for row in _rows(automaton, or_more, accepting):
            first = number.setdefault(row, len(rows))
            if first < len(rows) or len(rows) > limit:
                break
            rows.append(row)
            if len(rows) * len(row) > _MOST_ENTRIES:
                raise BudgetExceeded(
                    f"Strings of {limit} characters with {len(row)} states of a pattern take too much memory. Use a "
                    f"smaller bound or a simpler pattern."
                )
        self._rows = np.frombuffer(b"".join(rows), dtype=bool).reshape(len(rows), -1)
        #: The rows from ``first`` on come again after ``period`` rows. If no row comes again, all rows have been made.
        self._first, self._period = first, max(len(rows) - first, 1)

    @cached_property
    def _before(self) -> NDArray[np.int32]:
        """``[k + 1, states]``: how many distances below ``k`` there are."""
        before = np.zeros((len(self._rows) + 1, self._rows.shape[1]), dtype=np.int32)
        # Row by row, because a cumulated sum along this axis takes five times as long.
        for k, row in enumerate(self._rows):
            np.add(before[k], row, out=before[k + 1], casting="unsafe")
        return before

    @cached_property
    def _again(self) -> NDArray[np.int64]:
        """``[states]``: how many distances come again with the rows."""
        again: NDArray[np.int64] = self._rows[self._first :].sum(axis=0)
        return again

    @cached_property
    def nearest(self) -> NDArray[np.int64]:
        """``[states]``: the distance to the nearest end; very many if there is none."""
        return np.where(self._rows.any(axis=0), self._rows.argmax(axis=0), FREE_FOREVER)

    def at(self, distance: Numbers, state: Numbers) -> Entries:
        """Whether an end is at a distance from a state."""
        return self._rows[distance - self._times(distance) * self._period, state]

    def between(self, least: Numbers, most: Numbers, state: Numbers) -> Entries:
        """Whether an end is at a distance from a state that is between two bounds."""
        return self._below(most + 1, state) > self._below(least, state)

    def _times(self, distance: Numbers) -> Numbers:
        """How often the rows have come again before a distance."""
        beyond = distance - self._first
        return beyond * (beyond > 0) // self._period

    def _below(self, distance: Numbers, state: Numbers) -> Entries:
        times = self._times(distance)
        return self._before[distance - times * self._period, state] + times * self._again[state]


def _rows(automaton: MooreMachine, or_more: bool, accepting: NDArray[np.bool_]) -> Iterator[bytes]:
    """Row by row of ``[k, states]``: whether an end is ``k`` characters away, or ``k`` or more."""
    table = automaton.next
    # A state inside a character has the distances of the states to which the last bytes of the character lead.
    continuing = table.take(automaton.columns_of(CONTINUING), axis=1)
    inside = np.flatnonzero((continuing >= 0) @ np.ones(continuing.shape[1], dtype=np.float32))
    targets = np.sort(continuing[inside], axis=1)
    once = targets >= 0
    once[:, 1:] &= targets[:, 1:] != targets[:, :-1]
    counts = once.sum(axis=1)
    reached, begins = targets[once], counts.cumsum() - counts
    leading = np.where(table >= 0, table, len(table)).take(automaton.columns_of(BEGINNING), axis=1)
    current = ends_reachable(table, accepting) if or_more else accepting.copy()
    while True:
        for _ in range(3 if len(inside) else 0):
            current[inside] |= np.logical_or.reduceat(current[reached], begins)
        yield current.tobytes()
        current = np.append(current, False)[leading].any(axis=1)
