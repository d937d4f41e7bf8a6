"""A DFA with a whole table as an implementation of :class:`~logitloom.constraints.ByteAutomaton`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.reach import first_steps, steps_to
from logitloom.automata.patterns.position_completions import BYTE_ORDER
from logitloom.contract import ByteAutomaton, State, TextTokens
from logitloom.host.hookspecs import TextEnd

__all__ = ["DenseAutomaton", "preferred_bytes"]

_EVERY_BYTE: Final = tuple(range(256))


def preferred_bytes(byte_class: NDArray[np.uint8], among: Sequence[int] = _EVERY_BYTE) -> NDArray[np.uint8]:
    """``[n] uint8``: of each class the byte that completions prefer among some bytes, in the order of preference."""
    ordered = np.array(sorted(among, key=BYTE_ORDER.__getitem__), dtype=np.uint8)
    return ordered.take(np.sort(np.unique(byte_class.take(ordered), return_index=True)[1]))


class DenseAutomaton(ByteAutomaton):
    """A :class:`~logitloom.automata.Dfa` as a :class:`~logitloom.constraints.ByteAutomaton`; states are its numbers.

    Args:
        dfa: the automaton.
        closing: ``[states] bool``, whether the text must end at a token border in the state.
        hold: ``[states] int32``, the number of bytes at the end of the text that do not belong to it (in closing
            states) or may not belong to it (in other states).
        alphabet: the bytes of which completions are made; default: all.

    Example:
        >>> from logitloom.automata import compile_pattern
        >>> automaton = DenseAutomaton(compile_pattern("ab"))
        >>> state = automaton.step(automaton.start(), ord("a"))
        >>> automaton.accepts(state), automaton.step(state, ord("a"))
        (False, None)
    """

    def __init__(
        self,
        dfa: Dfa,
        closing: NDArray[np.bool_] | None = None,
        hold: NDArray[np.int32] | None = None,
        alphabet: Sequence[int] = _EVERY_BYTE,
    ) -> None:
        self.dfa, self.alphabet = dfa, alphabet
        self.closing = np.zeros(dfa.states, dtype=bool) if closing is None else closing
        self.hold = hold

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of the tables."""
        digest = hashlib.blake2b(digest_size=16, person=b"dense automaton")
        for part in (self.dfa.fingerprint.encode(), self.closing.tobytes()):
            digest.update(part)
        digest.update(b"" if self.hold is None else self.hold.tobytes())
        return digest.digest()

    def start(self) -> int:
        """The start state."""
        return self.dfa.start

    def step(self, state: State, byte: int) -> int | None:
        """The next state in the table, ``None`` if there is none."""
        number: int = state  # type: ignore[assignment]
        after = self.dfa.row_list(number)[self._columns[byte]]
        return None if after < 0 else after

    def completion(self, state: State) -> bytes | None:
        """A shortest text that leads to an accepting state; ``None`` if there is none."""
        number: int = state  # type: ignore[assignment]
        left, toward = self.shortest
        if left[number] < 0:
            return None
        text = bytearray()
        while left[number]:
            text.append(toward[number])
            number = self.dfa.row_list(number)[self._columns[toward[number]]]
        return bytes(text)

    def completed_with(self, used: frozenset[int]) -> DenseAutomaton | None:
        """The same automaton with completions that are made of some bytes; ``None`` if a state has none of them."""
        found = DenseAutomaton(self.dfa, self.closing, self.hold, sorted(used))
        return None if found.completion_bytes() is None else found

    def completion_bytes(self) -> frozenset[int] | None:
        """The first bytes of the completions of all states: the rest of a completion is that of another state."""
        left, toward = self.shortest
        if min(left) < 0:
            return None
        return frozenset(byte for size, byte in zip(left, toward, strict=True) if size)

    def completion_bound(self, tokens: TextTokens) -> Callable[[State], int | None] | None:
        """The bytes of the longest completion, for any state; ``None`` if tokens of one byte do not write them all."""
        used, most = self.completion_bytes(), max(self.shortest[0])
        return None if used is None or not used <= tokens.single else lambda state: most

    def always_read(self) -> frozenset[int] | None:
        """The bytes whose columns have a next state everywhere, if no state is closing."""
        if self.closing.any() or not self.dfa.accepting.all():
            return None
        read = (self.dfa.next >= 0).all(axis=0).take(self.dfa.byte_class)
        return frozenset(read.nonzero()[0].tolist())

    @cached_property
    def shortest(self) -> tuple[list[int], list[int]]:
        """Per state the bytes of a shortest text to the end, -1 if there is none, and the first byte of that text."""
        read = preferred_bytes(self.dfa.byte_class, self.alphabet)
        table = self.dfa.next[:, self.dfa.byte_class.take(read)]
        left = steps_to(table, self.dfa.accepting | self.closing)
        return left.tolist(), read.take(first_steps(table, left)).tolist()

    @cached_property
    def _columns(self) -> list[int]:
        columns: list[int] = self.dfa.byte_class.tolist()
        return columns

    def accepts(self, state: State) -> bool:
        """Whether the text may end."""
        number: int = state  # type: ignore[assignment]
        return bool(self.dfa.accepting[number] or self.closing[number])

    def byte_classes(self) -> NDArray[np.uint8]:
        """The byte classes of the table."""
        return self.dfa.byte_class

    def must_end(self, state: State) -> bool:
        """Whether the state is closing."""
        return bool(self.closing[state])  # type: ignore[call-overload]

    @property
    def forces_ends(self) -> bool:
        """Whether there are closing states."""
        return bool(self.closing.any())

    def text_end(self, state: State) -> TextEnd:
        """Whether the state is closing, and the entry of ``hold``."""
        if self.hold is None:
            return TextEnd(False, 0)
        return TextEnd(self.must_end(state), int(self.hold[state]))  # type: ignore[call-overload]
