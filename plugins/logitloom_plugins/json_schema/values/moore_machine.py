"""Automata over bytes whose accepting states say what has been read: several languages decided in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, BudgetTracker, Dfa
from logitloom.automata.product import product
from logitloom.automata.reach import ends_reachable

__all__ = ["BEGINNING", "CONTINUING", "LEADING", "UNESCAPED", "MooreMachine", "Output", "joint"]

Output = Any

_NARROW: Final = 20
_LISTED: Final = 100
_FEW_ASKED: Final = 64
#: Bytes of characters that may stand for themselves in a string: all, and those of ASCII.
UNESCAPED: Final = tuple(
    np.array([0x20 <= byte < most and byte not in b'"\\' for byte in range(256)]) for most in (0x100, 0x80)
)
#: First bytes of characters above ASCII, first bytes of any, and the others.
LEADING: Final = tuple(range(0xC2, 0xF5))
BEGINNING: Final = (*range(0x80), *LEADING)
CONTINUING: Final = tuple(range(0x80, 0xC0))
_CODE_POINTS: Final = 0x110000 - 0x800
#: By length in UTF-8: how many bytes follow the first, the range of that, and the code point of its lowest value.
_LENGTHS: Final = ((0, 0x00, 0x80, 0), (1, 0xC2, 0xE0, 0x80), (2, 0xE0, 0xF0, 0), (3, 0xF0, 0xF5, 0))


class Columns:
    """The columns of an automaton that bytes have which may stand for themselves in a string.

    Attributes:
        classes: their numbers.
        of_byte: ``[256]``, which of them a byte has, from 1 on; 0 for none.
    """

    def __init__(self, byte_class: NDArray[np.uint8], ascii_only: bool) -> None:
        plain = UNESCAPED[ascii_only]
        self.of_byte: NDArray[np.intp] = np.zeros(256, dtype=np.intp)
        self.classes, found = np.unique(byte_class[plain], return_inverse=True)
        self.of_byte[plain] = found.ravel() + 1
        self._members: dict[int, list[int]] = {}

    def members(self, place: int) -> list[int]:
        """The bytes of one."""
        known = self._members.get(place)
        if known is None:
            known = self._members[place] = (self.of_byte == place + 1).nonzero()[0].tolist()
        return known


class MooreMachine:
    """A deterministic automaton with a label per state.

    Args:
        byte_class: ``[256] uint8``.
        next: ``[states, classes] int32``, ``DEAD`` where there is none.
        labels: per state what a text that ends there is, ``None`` if nothing.
        start: the first state.
    """

    def __init__(
        self, byte_class: NDArray[np.uint8], next: NDArray[np.int32], labels: Sequence[Output], start: int = 0
    ) -> None:
        self.byte_class = byte_class
        self.next = next
        self.outputs = list(labels)
        self.start = start
        self._intervals: dict[int, list[tuple[int, int, int]]] = {}
        self._partial: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        self._columns: dict[bool, Columns] = {}
        self._columns_of: dict[tuple[int, ...], NDArray[np.uint8]] = {}

    @classmethod
    def of(cls, dfa: Dfa, label: Output) -> MooreMachine:
        """An automaton whose texts all have one label."""
        labels = [label if end else None for end in dfa.accepting.tolist()]
        found = frozenset([label] if label is not None and dfa.accepting.any() else ())
        return cls(dfa.byte_class, dfa.next, labels, dfa.start)._knowing(found, dfa.accepting)

    def _knowing(self, found: frozenset[Output], accepting: NDArray[np.bool_]) -> MooreMachine:
        """With what would take a while to see."""
        self.found, self.accepting = found, accepting
        return self

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.outputs)

    def restricted(self, wanted: Callable[[Output], bool]) -> MooreMachine:
        """The same automaton with only some of the labels, and no steps from which none of them can be reached."""
        decided = {label: wanted(label) for label in self.found}
        labels = [label if label is not None and decided[label] else None for label in self.outputs]
        goal = np.array([label is not None for label in labels], dtype=bool)
        alive = ends_reachable(self.next, goal)
        found = frozenset(label for label, wanted_one in decided.items() if wanted_one)
        return MooreMachine(self.byte_class, self.among(alive), labels, self.start)._knowing(found, goal)

    def among(self, living: NDArray[np.bool_]) -> NDArray[np.int32]:
        """``[states, classes] int32``: the next states that are among some, ``DEAD`` elsewhere."""
        return np.where((self.next >= 0) & living[self.next], self.next, np.int32(DEAD))

    def row(self, state: int) -> NDArray[np.int32]:
        """``[256] int32``: where each byte leads."""
        result: NDArray[np.int32] = self.next[state].take(self.byte_class)
        return result

    @cached_property
    def found(self) -> frozenset[Output]:
        """The labels."""
        return frozenset(label for label in self.outputs if label is not None)

    @cached_property
    def accepting(self) -> NDArray[np.bool_]:
        """``[states] bool``: whether a text that ends there is anything."""
        return np.array([label is not None for label in self.outputs], dtype=bool)

    # Bytes, because single entries of arrays are slow to read.

    @cached_property
    def _leading_on(self) -> NDArray[np.float32]:
        """``[states, 2]``: how many bytes lead on, and how many of those that begin a character."""
        width = self.next.shape[1]
        reads = (range(256), BEGINNING)
        kinds = [np.bincount(self.byte_class[list(read)], minlength=width) for read in reads]
        # One product is several times faster than looking at the columns of each kind.
        leading: NDArray[np.float32] = (self.next >= 0).astype(np.float32) @ np.stack(kinds, axis=1).astype(np.float32)
        return leading

    @cached_property
    def boundaries(self) -> bytes:
        """Per state whether it stands between two characters."""
        return (self.accepting | (self._leading_on[:, 1] > 0)).tobytes()

    @cached_property
    def narrow(self) -> bytes:
        """Per state whether few bytes lead on, or each of not too many elsewhere, as where many texts are listed."""
        bytes_on = self._leading_on[:, 0]
        narrow = np.asarray(bytes_on <= _NARROW)
        asked = np.flatnonzero((bytes_on > _NARROW) & (bytes_on <= _LISTED))
        if len(asked) <= _FEW_ASKED:
            targets = np.sort(self.next[asked], axis=1)
            distinct = (targets[:, 1:] != targets[:, :-1]).sum(axis=1)
            narrow[asked] = 2 * distinct > bytes_on[asked]
        return narrow.tobytes()

    def columns(self, ascii_only: bool) -> Columns:
        """Those of bytes that may stand for themselves, or of those below 0x80."""
        known = self._columns.get(ascii_only)
        if known is None:
            known = self._columns[ascii_only] = Columns(self.byte_class, ascii_only)
        return known

    def columns_of(self, read: tuple[int, ...]) -> NDArray[np.uint8]:
        """The columns of some bytes, each once."""
        known = self._columns_of.get(read)
        if known is None:
            known = self._columns_of[read] = np.unique(self.byte_class[list(read)])
        return known

    def reads_any(self, state: int) -> bool:
        """Whether every character leads somewhere."""
        return sum([high - low + 1 for low, high, _ in self.intervals(state)]) == _CODE_POINTS

    def intervals(self, state: int) -> list[tuple[int, int, int]]:
        """What one character leads to: ``(first code point, last, state)``, disjoint and in order."""
        found = self._intervals.get(state)
        if found is None:
            found = self._intervals[state] = [
                (base + low, base + high, target)
                for more, first, end, base in _LENGTHS
                for low, high, target in self._reads(state, first, end, more)
            ]
        return found

    def _reads(self, state: int, first: int, end: int, more: int) -> list[tuple[int, int, int]]:
        """What a byte of a range and some more that continue it lead to, counted from the first such character on."""
        known = self._partial.get((state, first, more))
        if known is not None:
            return known
        size = 1 << 6 * more
        found: list[tuple[int, int, int]] = []
        for low, high, target in _runs(self.row(state)[first:end]):
            inside = self._reads(target, 0x80, 0xC0, more - 1) if more else [(0, 0, target)]
            if len(inside) == 1 and inside[0][1] - inside[0][0] == size - 1:
                _append(found, low * size, (high + 1) * size - 1, inside[0][2])
                continue
            for byte in range(low, high + 1):
                for start, last, after in inside:
                    _append(found, byte * size + start, byte * size + last, after)
        self._partial[state, first, more] = found
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


def joint(
    dfas: Sequence[Dfa], universe: Dfa, label: Callable[[tuple[bool, ...]], Output], tracker: BudgetTracker
) -> MooreMachine:
    """The product of automata within a universe, trimmed; an output is made from who accepts.

    Args:
        dfas: automata over bytes.
        universe: texts outside of it are dead.
        label: from one flag per automaton to a label; asked where the universe accepts.
        tracker: the budget.
    """
    byte_class, table, start = universe.byte_class, universe.next, universe.start
    ends = universe.accepting
    members = np.zeros((len(table), 0), dtype=bool)
    for dfa in dfas:
        found = product((byte_class, table, start), (dfa.byte_class, dfa.next, dfa.start), (True, False), tracker)
        accepting = np.append(dfa.accepting, False)[found.second]
        members = np.concatenate([members[found.first], accepting[:, None]], axis=1)
        ends = ends[found.first]
        byte_class, table, start = found.byte_class, found.next, 0
    cache: dict[tuple[bool, ...], Output] = {}
    labels: list[Output] = []
    for row, end in zip(map(tuple, members.tolist()), ends.tolist(), strict=True):
        if not end:
            labels.append(None)
            continue
        if row not in cache:
            cache[row] = label(row)
        labels.append(cache[row])
    return MooreMachine(byte_class, table, labels, start).restricted(lambda output: True)
