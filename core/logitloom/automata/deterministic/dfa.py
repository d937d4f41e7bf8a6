"""Deterministic finite automata over bytes: an immutable transition table."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata.deterministic.reach import ends_reachable, reachable
from logitloom.automata.patterns.utf8 import DEAD

if TYPE_CHECKING:
    from logitloom.automata.deterministic.utf8_expansion import Utf8Expansion

__all__ = ["DEAD", "Dfa"]


class Dfa:
    """A deterministic automaton that reads bytes.

    Byte ``b`` leads from state ``s`` to ``next[s, byte_class[b]]``; ``DEAD`` (-1) means that no accepted text continues
    with this byte. Automata made by this package are trim: an accepting state can be reached from every state. The
    automaton of the empty language keeps its start state.

    Args:
        byte_class: ``[256] uint8``, the column of each byte.
        next: ``[states, classes] int32``, next states, ``DEAD`` where there is none.
        accepting: ``[states] bool``, whether a text may end in the state.
        start: the state before the first byte.
        trim: the caller asserts that every state is reachable and can reach acceptance; the assertion is not checked.
        characters: the automaton over characters from which this automaton was expanded, if any.
        expansion: fills the rows of ``next`` on demand, if they are not filled yet.

    Example:
        >>> digit = np.zeros(256, dtype=np.uint8)
        >>> digit[48:58] = 1
        >>> number = Dfa(digit, [[-1, 1], [-1, 1]], [False, True])
        >>> number.fullmatch("2024"), number.fullmatch("")
        (True, False)
    """

    def __init__(
        self,
        byte_class: ArrayLike,
        next: ArrayLike,
        accepting: ArrayLike,
        start: int = 0,
        *,
        trim: bool = False,
        characters: Utf8Expansion | None = None,
        expansion: Utf8Expansion | None = None,
    ) -> None:
        self._known_trim = trim
        self.characters = characters
        self._expansion = expansion
        self.byte_class: NDArray[np.uint8] = np.asarray(byte_class, dtype=np.uint8)
        self._next: NDArray[np.int32] = np.ascontiguousarray(next, dtype=np.int32)
        self.accepting: NDArray[np.bool_] = np.asarray(accepting, dtype=np.bool_)
        self.start = int(start)
        if self.byte_class.shape != (256,) or self._next.ndim != 2 or len(self._next) != len(self.accepting):
            raise ValueError(
                f"A Dfa takes byte_class [256], next [states, classes] and accepting [states], and shapes "
                f"{self.byte_class.shape}, {self._next.shape}, {self.accepting.shape} were given. Make them agree."
            )
        for array in (self.byte_class, self.accepting):
            array.setflags(write=False)
        if expansion is None:
            self._next.setflags(write=False)

    @cached_property
    def next(self) -> NDArray[np.int32]:
        """``[states, classes] int32``, next states, ``DEAD`` where there is none."""
        if self._expansion is not None:
            self._expansion.filled_table()
            self._expansion = None
            self._next.setflags(write=False)
        return self._next

    def rows(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """A table like :attr:`next` with some valid rows only: the rows of ``states`` and the rows in :attr:`ready`.

        Large tables are filled on demand, so a walk through a small number of states does not fill the whole table.
        """
        if self._expansion is not None:
            self._expansion.prepare(states)
        return self._next

    @property
    def ready(self) -> NDArray[np.bool_]:
        """``[states] bool``: which rows of the table from :meth:`rows` are valid."""
        return self._every_row if self._expansion is None else self._expansion.ready

    @cached_property
    def _every_row(self) -> NDArray[np.bool_]:
        return np.ones(self.states, dtype=bool)

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.accepting)

    @property
    def classes(self) -> int:
        """Number of byte classes."""
        return int(self._next.shape[1])

    @property
    def table_bytes(self) -> int:
        """Size of the tables in memory, in bytes."""
        return self._next.nbytes + self.accepting.nbytes + self.byte_class.nbytes

    def __repr__(self) -> str:
        return f"Dfa(states={self.states}, classes={self.classes}, table_bytes={self.table_bytes})"

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the tables; equal for equal tables in every process."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(np.array([self.start, *self.next.shape], dtype="<i8").tobytes())
        digest.update(self.byte_class.tobytes())
        digest.update(self.next.astype("<i4", copy=False).tobytes())
        digest.update(self.accepting.tobytes())
        return digest.hexdigest()

    @cached_property
    def by_byte(self) -> NDArray[np.int32]:
        """``[states, 256] int32``: the next state by byte instead of byte class."""
        table = self.next[:, self.byte_class]
        table.setflags(write=False)
        return table

    @cached_property
    def _lists(self) -> tuple[dict[int, list[int]], list[int]]:
        return {}, self.byte_class.tolist()

    def row_list(self, state: int) -> list[int]:
        """One row of :attr:`next` as a list, cached."""
        rows = self._lists[0]
        row = rows.get(state)
        if row is None:
            table = self._next if self._expansion is None else self.rows(np.array([state]))
            row = rows[state] = table[state].tolist()
        return row

    def walk(self, data: bytes, state: int | None = None) -> int:
        """The state after reading ``data`` from ``state`` (default: the start), or ``DEAD``."""
        current = self.start if state is None else state
        rows, classes = self._lists
        for byte in data:
            if current < 0:
                return DEAD
            row = rows.get(current) or self.row_list(current)
            current = row[classes[byte]]
        return current

    def fullmatch(self, text: bytes | str) -> bool:
        """Whether the whole text is accepted. A ``str`` that UTF-8 cannot encode is not accepted."""
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:
                return False
        state = self.walk(text)
        return state >= 0 and bool(self.accepting[state])

    @cached_property
    def is_empty(self) -> bool:
        """Whether no text is accepted."""
        if self._known_trim:  # from each state a text can be completed, unless there is none
            return not self.accepting.any()
        return not bool(ends_reachable(self.next, self.accepting)[self.start])

    def trimmed(self) -> Dfa:
        """An automaton of the same language without states that cannot be reached or cannot reach acceptance."""
        if self._known_trim:
            return self
        keep = reachable(self.next, self.start) & ends_reachable(self.next, self.accepting)
        if not keep[self.start]:
            return Dfa(np.zeros(256, dtype=np.uint8), [[DEAD]], [False], trim=True)
        if keep.all():
            self._known_trim = True
            return self
        number = np.append(np.where(keep, np.cumsum(keep) - 1, DEAD), DEAD).astype(np.int32)
        table = number[np.maximum(self.next[keep], DEAD)]
        return Dfa(self.byte_class, table, self.accepting[keep], int(number[self.start]), trim=True)

    def shortest(self) -> bytes | None:
        """One shortest accepted text, or ``None`` if there is none."""
        if self.is_empty:
            return None
        before: dict[int, tuple[int, int]] = {}
        queue = [self.start]
        for state in queue:
            if self.accepting[state]:
                text = bytearray()
                while state != self.start:
                    state, byte = before[state]
                    text.append(byte)
                return bytes(reversed(text))
            row = self.by_byte[state]
            for target in dict.fromkeys(row[row >= 0].tolist()):
                if target != self.start and target not in before:
                    before[target] = (state, int(np.argmax(row == target)))
                    queue.append(target)
        return None
