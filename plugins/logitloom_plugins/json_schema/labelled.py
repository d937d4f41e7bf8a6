"""Automata over bytes whose accepting states say what has been read: several languages decided in one pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, Dfa
from logitloom.automata.budget import Meter
from logitloom.automata.reach import ends_reachable

__all__ = ["Labelled", "explored", "joint"]

Label = Any

_NARROW: Final = 20
_MANY: Final = 512


class Labelled:
    """A deterministic automaton with a label per state.

    Args:
        byte_class: ``[256] uint8``.
        next: ``[states, classes] int32``, ``DEAD`` where there is none.
        labels: per state what a text that ends there is, ``None`` if nothing.
        start: the first state.
    """

    def __init__(
        self, byte_class: NDArray[np.uint8], next: NDArray[np.int32], labels: Sequence[Label], start: int = 0
    ) -> None:
        self.byte_class = byte_class
        self.next = next
        self.labels = list(labels)
        self.start = start
        self.found = frozenset(label for label in self.labels if label is not None)
        self._intervals: dict[int, list[tuple[int, int, int]]] = {}
        self._partial: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.labels)

    def restricted(self, wanted: Callable[[Label], bool]) -> Labelled:
        """The same automaton with only some of the labels, and no steps from which none of them can be reached."""
        decided = {label: wanted(label) for label in self.found}
        labels = [label if label is not None and decided[label] else None for label in self.labels]
        goal = np.array([label is not None for label in labels], dtype=bool)
        alive = ends_reachable(self.next, goal)
        table = np.where((self.next >= 0) & alive[self.next], self.next, DEAD).astype(np.int32)
        result = Labelled(self.byte_class, table, labels, self.start)
        # A label of a state that cannot be reached is none: states are numbered from the start, and all are reachable.
        return result

    def row(self, state: int) -> NDArray[np.int32]:
        """``[256] int32``: where each byte leads."""
        result: NDArray[np.int32] = self.next[state].take(self.byte_class)
        return result

    @cached_property
    def boundaries(self) -> list[bool]:
        """Per state whether it stands between two characters."""
        columns = np.unique(np.concatenate([self.byte_class[:0x80], self.byte_class[0xC2:0xF5]]))
        begins: Any = (self.next[:, columns] >= 0).any(axis=1).tolist()
        return [label is not None or begin for label, begin in zip(self.labels, begins, strict=True)]

    @cached_property
    def narrow(self) -> list[bool]:
        """Per state whether few bytes lead on."""
        sizes = np.bincount(self.byte_class, minlength=self.next.shape[1])
        narrow: list[bool] = (((self.next >= 0) @ sizes) <= _NARROW).tolist()
        return narrow

    @cached_property
    def leads(self) -> list[bool]:
        """Per state whether a character above ASCII may come, or its first byte."""
        columns = np.unique(self.byte_class[0xC2:0xF5])
        leads: Any = (self.next[:, columns] >= 0).any(axis=1).tolist()
        return [*leads]

    def intervals(self, state: int) -> list[tuple[int, int, int]]:
        """What one character leads to: ``(first code point, last, state)``, disjoint and in order."""
        found = self._intervals.get(state)
        if found is None:
            steps = self.row(state)
            found = _runs(steps[:0x80])
            for lead in (steps[0xC2:0xF5] >= 0).nonzero()[0].tolist():
                byte = lead + 0xC2
                more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
                base = (byte & (0x3F >> more)) << (6 * more)
                for low, high, target in self._inside(int(steps[byte]), more):
                    _append(found, base + low, base + high, target)
            self._intervals[state] = found
        return found

    def _inside(self, state: int, more: int) -> list[tuple[int, int, int]]:
        found = self._partial.get((state, more))
        if found is None:
            steps = self.row(state)[0x80:0xC0].tolist()
            found = []
            for i, target in enumerate(steps):
                if target >= 0 and more == 1:
                    _append(found, i, i, target)
                elif target >= 0:
                    for low, high, end in self._inside(target, more - 1):
                        _append(found, (i << 6 * (more - 1)) + low, (i << 6 * (more - 1)) + high, end)
            self._partial[state, more] = found
        return found

    def walk(self, data: bytes, state: int | None = None) -> int:
        """The state after some bytes, or ``DEAD``."""
        current = self.start if state is None else state
        for byte in data:
            if current < 0:
                return DEAD
            current = int(self.next[current, self.byte_class[byte]])
        return current


def _append(found: list[tuple[int, int, int]], low: int, high: int, target: int) -> None:
    if found and found[-1][2] == target and found[-1][1] == low - 1:
        found[-1] = (found[-1][0], high, target)
    else:
        found.append((low, high, target))


def _runs(steps: NDArray[np.int32]) -> list[tuple[int, int, int]]:
    borders = ((steps[1:] != steps[:-1]).nonzero()[0] + 1).tolist()
    targets = steps[[0, *borders]].tolist()
    runs = zip([0, *borders], [*borders, len(steps)], targets, strict=True)
    return [(first, end - 1, target) for first, end, target in runs if target >= 0]


def explored(
    start: Hashable,
    step: Callable[[Any, str], Hashable | None],
    label: Callable[[Any], Label],
    alphabet: str,
    meter: Meter,
) -> Labelled:
    """The automaton of a step function over ASCII characters."""
    number: dict[Hashable, int] = {start: 0}
    queue = [start]
    rows = []
    for state in queue:
        row = []
        for character in alphabet:
            target = step(state, character)
            if target is None:
                row.append(DEAD)
                continue
            place = number.get(target)
            if place is None:
                place = number[target] = len(queue)
                queue.append(target)
            row.append(place)
        row.append(DEAD)
        rows.append(row)
        if len(rows) % 256 == 0:
            meter.check_states(len(queue))
    byte_class = np.full(256, len(alphabet), dtype=np.uint8)
    byte_class[list(alphabet.encode())] = np.arange(len(alphabet))
    return Labelled(byte_class, np.array(rows, dtype=np.int32), [label(state) for state in queue])


def joint(dfas: Sequence[Dfa], universe: Dfa, label: Callable[[tuple[bool, ...]], Label], meter: Meter) -> Labelled:
    """All automata side by side, within a universe; labels are made from who accepts.

    Args:
        dfas: automata over bytes.
        universe: texts outside of it are dead.
        label: from one flag per automaton to a label; asked where the universe accepts.
        meter: the budget.
    """
    byte_class = universe.byte_class.astype(np.int64)
    table = universe.next.astype(np.int64)
    start = universe.start
    ends = universe.accepting
    members = np.zeros((len(table), 0), dtype=bool)
    for dfa in dfas:
        pairs, combined = np.unique(byte_class * 256 + dfa.byte_class, return_inverse=True)
        width = dfa.states + 1
        second = np.full((width, len(pairs)), dfa.states, dtype=np.int64)
        rows = dfa.next[:, pairs & 255]
        second[:-1] = np.where(rows >= 0, rows, dfa.states)
        first = table[:, pairs >> 8]
        code = start * width + dfa.start
        number = {code: 0}
        frontier = np.array([code])
        collected = []
        while len(frontier):
            of_first, of_second = np.divmod(frontier, width)
            reached = first[of_first]
            targets = np.where(reached >= 0, reached * width + second[of_second], DEAD)
            collected.append(targets)
            # A bound on the length makes hundreds of levels of few states, for which sorting as an array does not pay.
            found = np.unique(targets).tolist() if targets.size > _MANY else sorted(set(targets.ravel().tolist()))
            fresh = [one for one in found if one != DEAD and one not in number]
            number.update(zip(fresh, range(len(number), len(number) + len(fresh)), strict=True))
            frontier = np.array(fresh, dtype=np.int64)
            meter.check_states(len(number))
        codes = np.array(list(number), dtype=np.int64)
        every = np.concatenate(collected)
        order = codes.argsort()
        place = order[np.minimum(np.searchsorted(codes[order], every), len(codes) - 1)]
        table = np.where(every >= 0, place, DEAD)
        of_first, of_second = np.divmod(codes, width)
        accepting = np.append(dfa.accepting, False)[of_second]
        members = np.concatenate([members[of_first], accepting[:, None]], axis=1)
        ends = ends[of_first]
        byte_class = combined.ravel().astype(np.int64)
        start = 0
    cache: dict[tuple[bool, ...], Label] = {}
    labels: list[Label] = []
    for row, end in zip(map(tuple, members.tolist()), ends.tolist(), strict=True):
        if not end:
            labels.append(None)
            continue
        if row not in cache:
            cache[row] = label(row)
        labels.append(cache[row])
    return Labelled(byte_class.astype(np.uint8), table.astype(np.int32), labels, start)
