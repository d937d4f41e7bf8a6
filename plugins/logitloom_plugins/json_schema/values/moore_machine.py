"""Moore machines over bytes: automata whose accepting states say what has been read.

Several languages are decided in one pass: the output of a state tells which languages contain a text that ends in the
state.

References:
    E. F. Moore, "Gedanken-experiments on Sequential Machines", 1956.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, BudgetTracker, Dfa
from logitloom.automata.deterministic.product import product
from logitloom.automata.deterministic.reach import ends_reachable
from logitloom.automata.lift.above_ascii import states_above_ascii
from logitloom.automata.patterns.utf8 import byte_sequences

__all__ = [
    "BEGINNING",
    "CONTINUING",
    "LEADING",
    "UNESCAPED",
    "Columns",
    "MooreMachine",
    "Output",
    "encodable",
    "from_steps",
    "joint",
    "trie",
]

#: The label of a text. Each user of the automaton chooses the type of its labels, so ``Any``.
Output = Any
Number = TypeVar("Number", bound=np.generic)

_NARROW: Final = 20
_LISTED: Final = 100
#: Two arrays ``[256]``: which bytes may stand unescaped in a string, and which of them in a string of ASCII.
UNESCAPED: Final = tuple(
    np.array([0x20 <= byte < most and byte not in b'"\\' for byte in range(256)]) for most in (0x100, 0x80)
)
#: First bytes of characters above ASCII, first bytes of any, and the others.
LEADING: Final = tuple(range(0xC2, 0xF5))
BEGINNING: Final = (*range(0x80), *LEADING)
CONTINUING: Final = tuple(range(0x80, 0xC0))
#: The most bytes that end a character that has begun.
END_OF_CHARACTER: Final = 3
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> bool:
    """Whether a text can be written in UTF-8 at all (no lone surrogates)."""
    return _SURROGATE.search(text) is None


class Columns(NamedTuple):
    """The columns of an automaton for the bytes that may stand for themselves in a string.

    Attributes:
        classes: the numbers of the columns in the automaton's table.
        bytes_of: the bytes of each column.
    """

    classes: NDArray[np.uint8]
    bytes_of: list[list[int]]


class MooreMachine(Dfa):
    """A deterministic automaton with an output per state.

    Args:
        byte_class: ``[256] uint8``.
        next: ``[states, classes] int32``, ``DEAD`` where there is no next state.
        outputs: per state the label of the texts that end there; ``None`` if the state does not accept.
        start: the first state.
    """

    def __init__(
        self, byte_class: NDArray[np.uint8], next: NDArray[np.int32], outputs: Sequence[Output], start: int = 0
    ) -> None:
        super().__init__(byte_class, next, [output is not None for output in outputs], start)
        self.outputs = list(outputs)
        self._after: dict[tuple[int, int, int], frozenset[int]] = {}
        self._reads: dict[tuple[int, ...], bytes] = {}
        self._few: dict[int, list[tuple[int, int]] | None] = {}
        self._steps: dict[int, list[tuple[int, bytes]]] = {}

    @classmethod
    def of(cls, dfa: Dfa, output: Output) -> MooreMachine:
        """The Moore machine of a DFA, with one output for all accepted texts."""
        return cls(dfa.byte_class, dfa.next, [output if end else None for end in dfa.accepting.tolist()], dfa.start)

    def state_parts(self) -> tuple[object, ...]:
        """What is written to a file: the table, each output once, and per state the number of its output."""
        (_, *distinct), outputs = self.numbered
        return self.byte_class, self.next, self.start, tuple(distinct), (outputs - 1).astype(np.int32)

    @staticmethod
    def from_state_parts(
        byte_class: object, next: object, start: object, distinct: object, outputs: object
    ) -> MooreMachine:
        """The machine of these parts.

        Raises:
            ValueError: if a part is of another kind, or a number lies outside a table.
        """
        classes, numbers = _array(byte_class, np.uint8, 1), _array(outputs, np.int32, 1)
        table = _array(next, np.int32, 2)
        if not isinstance(start, int) or isinstance(start, bool) or not isinstance(distinct, tuple):
            raise ValueError("an automaton has a part of another kind")
        fits = (
            classes.shape == (256,)
            and classes.max() < table.shape[1]
            and DEAD <= table.min() <= table.max() < len(table) == len(numbers)
            and 0 <= start < len(table)
            and -1 <= numbers.min() <= numbers.max() < len(distinct)
        )
        if not fits:
            raise ValueError("an automaton has a number outside its tables")
        by_number = [*distinct, None]  # index -1
        return MooreMachine(classes, table, [by_number[i] for i in numbers.tolist()], start)

    @property
    def numbered(self) -> tuple[list[Output], NDArray[np.int64]]:
        """Each output once, ``None`` first, and per state the number of its output."""
        number: dict[Output, int] = {None: 0}
        of_state = [number.setdefault(output, len(number)) for output in self.outputs]
        return [*number], np.array(of_state, dtype=np.int64)

    @cached_property
    def found(self) -> frozenset[Output]:
        """The outputs of all states."""
        return frozenset(self.outputs) - {None}

    @cached_property
    def meanings(self) -> dict[Output, Output]:
        """Each output by itself."""
        return {output: output for output in self.found}

    def restricted(self, wanted: Callable[[Output], bool]) -> MooreMachine:
        """The automaton with only some of the outputs, without the steps after which none of these can be reached."""
        kept = {output: output if wanted(output) else None for output in self.found}
        outputs = [kept.get(output) for output in self.outputs]
        alive = ends_reachable(self.next, np.array([output is not None for output in outputs], dtype=bool))
        return MooreMachine(self.byte_class, self.among(alive), outputs, self.start)

    def among(self, living: NDArray[np.bool_]) -> NDArray[np.int32]:
        """``[states, classes] int32``: the next states, ``DEAD`` in place of those that are not ``living``."""
        return np.where((self.next >= 0) & living[self.next], self.next, np.int32(DEAD))

    def row(self, state: int) -> NDArray[np.int32]:
        """``[256] int32``: where each byte leads."""
        result: NDArray[np.int32] = self.next[state].take(self.byte_class)
        return result

    def steps(self, state: int) -> list[tuple[int, bytes]]:
        """The next states after a state, each with the bytes that lead there, ascending."""
        known = self._steps.get(state)
        if known is None:
            row = self.row_list(state)
            by_target: dict[int, bytes] = {}
            for column, read in _bytes_by_column(self._classes):
                if row[column] >= 0:
                    by_target[row[column]] = by_target.get(row[column], b"") + read
            known = self._steps[state] = [(target, bytes(sorted(read))) for target, read in by_target.items()]
        return known

    # --- columns -----------------------------------------------------------------------------------------------

    @cached_property
    def _leading_on(self) -> NDArray[np.float32]:
        """``[states, 2]``: the number of bytes that lead on, and how many of these begin a character."""
        width = self.next.shape[1]
        kinds = [np.bincount(self.byte_class[list(read)], minlength=width) for read in (range(256), BEGINNING)]
        # One product is several times faster than looking at the columns of each kind.
        leading: NDArray[np.float32] = (self.next >= 0).astype(np.float32) @ np.stack(kinds, axis=1).astype(np.float32)
        return leading

    @cached_property
    def boundaries(self) -> bytes:
        """Per state whether it stands between two characters; bytes, because entries of arrays are slow to read."""
        return (self.accepting | (self._leading_on[:, 1] > 0)).tobytes()

    @cached_property
    def narrow(self) -> bytes:
        """Per state whether few bytes lead on, so that a walk should go byte by byte."""
        return (self._leading_on[:, 0] <= _NARROW).tobytes()

    @cached_property
    def _classes(self) -> bytes:
        return self.byte_class.tobytes()

    def columns(self, ascii_only: bool) -> Columns:
        """The columns of the bytes that may stand unescaped in a string, or only of such bytes below 0x80."""
        return _columns(self._classes, ascii_only)

    def columns_of(self, read: tuple[int, ...]) -> NDArray[np.uint8]:
        """The columns of some bytes, each once."""
        return _columns_of(self._classes, read)

    def reads(self, read: tuple[int, ...]) -> bytes:
        """Per state whether one of some bytes leads on."""
        known = self._reads.get(read)
        if known is None:
            columns = np.zeros(self.next.shape[1], dtype=np.float32)
            columns[self.columns_of(read)] = 1
            known = self._reads[read] = ((self.next >= 0) @ columns > 0).tobytes()
        return known

    # --- characters --------------------------------------------------------------------------------------------

    def few_characters(self, state: int) -> list[tuple[int, int]] | None:
        """The code points that may come after a state between characters, each with the state after it.

        ``None`` if many bytes may come.
        """
        if state not in self._few:
            found: list[tuple[int, int]] | None = []
            # Characters in UTF-8: the code point so far, how many bytes are missing, and the state after the others.
            pending = [(0, -1, state)]
            while pending and found is not None:
                begun, left, at = pending.pop()
                row = self.row_list(at)
                read = [byte for byte, column in enumerate(self._classes) if row[column] >= 0]
                if len(read) > _NARROW or len(found) > _LISTED:
                    found = None
                    break
                for byte in read:
                    if left < 0:
                        more = (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
                        code = byte & (0x7F >> more + (more > 0))
                    else:
                        more, code = left - 1, begun << 6 | byte & 0x3F
                    target = row[self._classes[byte]]
                    if more:
                        pending.append((code, more, target))
                    else:
                        found.append((code, target))
            self._few[state] = found
        return self._few[state]

    @cached_property
    def _above_ascii(self) -> list[int]:
        """Per state the state after all characters above ASCII; negative if there is none."""
        found: list[int] = states_above_ascii(self.next, self.byte_class, np.arange(self.states)).tolist()
        return found

    def after_characters(self, state: int, low: int, high: int) -> frozenset[int]:
        """The states after one character of a range of code points; ``DEAD`` is one of them if some cannot come."""
        known = self._after.get((state, low, high))
        if known is None:
            found: set[int] = set()
            if high >= 0x80 and self._above_ascii[state] >= 0:
                # Most calls are for such states, and to follow the bytes of a range takes many steps.
                found, high = {self._above_ascii[state]}, 0x7F
            for sequence in byte_sequences(low, high):
                states = {state}
                for first, last in sequence:
                    columns = self.columns_of(tuple(range(first, last + 1))).tolist()
                    reached = {row[column] for row in map(self.row_list, states) for column in columns}
                    found.update(reached & {DEAD})
                    states = reached - {DEAD}
                found |= states
            known = self._after[state, low, high] = frozenset(found)
        return known


@lru_cache(maxsize=512)
def _columns(byte_class: bytes, ascii_only: bool) -> Columns:
    plain = UNESCAPED[ascii_only].nonzero()[0]
    classes, found = np.unique(np.frombuffer(byte_class, dtype=np.uint8)[plain], return_inverse=True)
    return Columns(classes, [plain[found == index].tolist() for index in range(len(classes))])


@lru_cache(maxsize=512)
def _bytes_by_column(byte_class: bytes) -> list[tuple[int, bytes]]:
    """The columns in the order of their first bytes, each with its bytes."""
    found: dict[int, bytearray] = {}
    for byte, column in enumerate(byte_class):
        found.setdefault(column, bytearray()).append(byte)
    return [(column, bytes(read)) for column, read in found.items()]


@lru_cache(maxsize=2048)
def _columns_of(byte_class: bytes, read: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.unique(np.frombuffer(byte_class, dtype=np.uint8)[list(read)])


def trie(children: Sequence[Mapping[int, int]], outputs: Sequence[Output], tracker: BudgetTracker) -> MooreMachine:
    """The machine of a prefix trie whose first state is its root.

    Args:
        children: per state the next states by byte.
        outputs: per state.
        tracker: the budget.

    Raises:
        BudgetExceeded: if the table takes too many bytes.
    """
    sources = np.repeat(np.arange(len(children)), [len(row) for row in children])
    read = np.fromiter((byte for row in children for byte in row), dtype=np.uint8, count=len(sources))
    reached = np.fromiter((target for row in children for target in row.values()), dtype=np.int32, count=len(sources))
    return from_steps(sources, read, reached, outputs, tracker)


def from_steps(
    sources: NDArray[np.int64],
    read: NDArray[np.uint8],
    reached: NDArray[np.integer],
    outputs: Sequence[Output],
    tracker: BudgetTracker,
) -> MooreMachine:
    """The machine with some steps, whose first state is 0.

    Args:
        sources, read, reached: ``[steps]``, the state before a step, its byte, and the state after it.
        outputs: per state.
        tracker: the budget.

    Raises:
        BudgetExceeded: if the table takes too many bytes.
    """
    # Column 0 is that of the bytes without any step.
    used = np.unique(read)
    byte_class: NDArray[np.uint8] = np.zeros(256, dtype=np.uint8)
    byte_class[used] = np.arange(1, len(used) + 1)
    tracker.check_bytes(4 * len(outputs) * (len(used) + 1))
    table = np.full((len(outputs), len(used) + 1), DEAD, dtype=np.int32)
    table[sources, byte_class[read]] = reached
    return MooreMachine(byte_class, table, outputs)


def _array(value: object, dtype: type[Number], axes: int) -> NDArray[Number]:
    """A value that is an array with entries of a type and so many axes; else a ``ValueError``."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != axes or not value.size:
        raise ValueError("an automaton has an array of another kind")
    return value


def joint(
    dfas: Sequence[Dfa],
    universe: Dfa,
    output: Callable[[tuple[Output, ...]], Output],
    tracker: BudgetTracker,
    listed: MooreMachine | None = None,
    required: Container[int] = (),
) -> MooreMachine:
    """The product of automata within a universe, trimmed.

    Args:
        dfas: automata over bytes.
        universe: texts outside of it are dead.
        output: a function from one flag per automaton (whether the automaton accepts) to an output, called where the
            universe accepts. After the flags comes the output of ``listed``.
        tracker: the budget.
        listed: one more automaton, whose outputs tell many finite languages apart.
        required: the indices of automata that must accept: where one of them rejects, the output is ``None``.
    """
    every = [
        _Labelled(dfa.byte_class, dfa.next, dfa.start, (index,), [(False,), (True,)], dfa.accepting.astype(np.int64))
        for index, dfa in enumerate([universe, *dfas])
    ]
    if listed is not None:
        labels, label_of = listed.numbered
        told = [(label,) for label in labels]
        every.append(_Labelled(listed.byte_class, listed.next, listed.start, (len(every),), told, label_of))
    found, *others = every
    # Required automata come first, because they leave few pairs, and small automata before large ones.
    first = sorted([each for index, each in enumerate(others) if index in required], key=_states)
    for factor in first:
        found = _multiplied(found, factor, (True, True), tracker)
    waiting = [(_states(each), index, each) for index, each in enumerate(others) if index not in required]
    heapq.heapify(waiting)
    # Required automata leave few pairs, with which products stay small. Without them the others are multiplied with one
    # another, the smallest first, because a product with all those before would be made hundreds of times.
    while len(waiting) > 1 and not first:
        (_, index, one), (_, _, other) = heapq.heappop(waiting), heapq.heappop(waiting)
        both = _multiplied(one, other, (False, False), tracker)
        heapq.heappush(waiting, (_states(both), index, both))
    for _, _, factor in sorted(waiting):
        found = _multiplied(found, factor, (True, False), tracker)
    known, order = list[Output](), np.argsort(found.asked).tolist()
    for label in found.labels:
        in_universe, *flags = [label[place] for place in order]
        known.append(output(tuple(flags)) if in_universe else None)
    outputs = [known[number] for number in found.label_of.tolist()]
    alive = ends_reachable(found.next, np.array([each is not None for each in outputs]))
    living = np.where((found.next >= 0) & alive[found.next], found.next, np.int32(DEAD))
    return MooreMachine(found.byte_class, living, outputs, found.start)


class _Labelled(NamedTuple):
    """An automaton over bytes whose states have labels.

    Attributes:
        byte_class, next, start: as of a :class:`.Dfa`.
        asked: the numbers of the automata that the labels tell of.
        labels: of each of these automata whether it accepts, or its output; the label of the dead state comes first.
        label_of: ``[states]``, the number of each state's label.
    """

    byte_class: NDArray[np.uint8]
    next: NDArray[np.int32]
    start: int
    asked: tuple[int, ...]
    labels: list[tuple[Output, ...]]
    label_of: NDArray[np.int64]


def _states(factor: _Labelled) -> int:
    return len(factor.next)


def _multiplied(one: _Labelled, other: _Labelled, needs: tuple[bool, bool], tracker: BudgetTracker) -> _Labelled:
    """The product of two automata; ``needs`` as of :func:`.product`."""
    found = product((one.byte_class, one.next, one.start), (other.byte_class, other.next, other.start), needs, tracker)
    width = len(other.labels)
    label = width * np.append(one.label_of, 0)[found.first] + np.append(other.label_of, 0)[found.second]
    # Two dead states have label 0.
    occurring, number = np.unique(np.append(0, label), return_inverse=True)
    labels = [one.labels[i // width] + other.labels[i % width] for i in occurring.tolist()]
    return _Labelled(found.byte_class, found.next, 0, (*one.asked, *other.asked), labels, number[1:])
