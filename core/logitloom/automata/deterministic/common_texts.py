"""Texts that several automata over bytes accept together, made of their completions.

Most completions of one automaton satisfy the others, too. Where none does, the completions of several automata in turn
may, or the completion after a byte that differs from that of a completion (limited discrepancy search).

References:
    W. D. Harvey, M. L. Ginsberg, "Limited discrepancy search", 1995.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from logitloom.contract import ByteAutomaton, State

__all__ = ["CommonTexts", "States"]

#: The completions of at most this number of states near a state are tried, and of a completion that some automata do
#: not read to its end the states before this number of bytes.
_FEW_TRIED: Final = 64
_FEW_BYTES: Final = 16
#: Number of tuples whose texts are remembered.
_REMEMBERED: Final = 1 << 16

States = tuple[State, ...]


class CommonTexts:
    """The common texts of tuples of states.

    Args:
        automata: at least two.
        step: the tuple after one more byte; ``None`` if an automaton does not read it.
        letters: one byte of each class of bytes that no automaton tells apart.
    """

    def __init__(
        self, automata: Sequence[ByteAutomaton], step: Callable[[States, int], States | None], letters: Sequence[int]
    ) -> None:
        self._automata, self._step, self._letters = tuple(automata), step, letters
        self._force_ends = any(automaton.forces_ends for automaton in automata)
        #: Per tuple the results of :meth:`common` and :meth:`nearby`.
        self._common: dict[States, tuple[bytes, ...]] = {}
        self._next: dict[States, tuple[int | None, bool]] = {}

    def completions(self, states: States) -> tuple[bytes, ...]:
        """The common texts of a tuple; without any, the byte of :meth:`nearby` before those of the tuple after it."""
        written = bytearray()
        while not (texts := self.common(states)):
            byte, _ = self.nearby(states)
            after = None if byte is None else self._step(states, byte)
            if byte is None or after is None or len(written) >= _FEW_TRIED:
                return ()
            written.append(byte)
            states = after
        return tuple(bytes(written) + text for text in texts)

    def common(self, states: States) -> tuple[bytes, ...]:
        """Texts that all automata accept: completions of one automaton, or of several in turn.

        After some bytes of such a text the rest is a common text of the new tuple.
        """
        known = self._common.get(states)
        if known is None:
            found = dict[bytes, None]()
            for number, (automaton, part) in enumerate(zip(self._automata, states, strict=True)):
                for text in automaton.completions_of(part):
                    accepted = self._is_accepted(text, states, number)
                    whole = text if accepted else None if accepted is None else self._in_turn(text, states, number)
                    if whole is not None:
                        found[whole] = None
            self._common = {} if len(self._common) >= _REMEMBERED else self._common
            known = self._common[states] = tuple(found)
        return known

    def _is_accepted(self, text: bytes, states: States, number: int) -> bool | None:
        """Whether all automata accept a completion of one of them, which need not read it; ``None`` if one of the
        others does not read it.
        """
        accepted = True
        for at, (automaton, part) in enumerate(zip(self._automata, states, strict=True)):
            if at == number:
                continue
            for length, byte in enumerate(text, 1):
                after = automaton.step(part, byte)
                if after is None or (self._force_ends and length < len(text) and automaton.must_end(after)):
                    return None
                part = after
            accepted &= automaton.accepts(part)
        return accepted

    def _in_turn(self, text: bytes, states: States, number: int) -> bytes | None:
        """A completion of one automaton, and then those of the next ones, each at the state to which the text leads."""
        written, count = b"", len(self._automata)
        for at in (*range(number + 1, count), *range(number), None):
            way = [states, *self._along(text, states)]
            if len(way) <= len(text):
                return None
            written, states = written + text, way[-1]
            if all(one.accepts(part) for one, part in zip(self._automata, states, strict=True)):
                return written
            more = None if at is None else self._automata[at].completion(states[at])
            if more is None:
                return None
            text = more
        return None

    def nearby(self, states: States) -> tuple[int | None, bool]:
        """The byte after which common texts are near, and whether there certainly is none.

        The bytes on the way differ once from completions of the automata, and then more often. Where the others read
        much of a completion, the bytes differ late.
        """
        known = self._next.get(states)
        if known is None:
            self._next = {} if len(self._next) >= _REMEMBERED else self._next
            known = self._next[states] = self._find_nearby(states)
        return known

    def _find_nearby(self, states: States) -> tuple[int | None, bool]:
        reached, level, tried = {states}, [(states, b"")], 0
        while level:
            further = list[tuple[States, bytes]]()
            for state, written in level:
                for at, before in self._read_of_completions(state):
                    for byte in self._letters:
                        after = self._step(at, byte)
                        if after is None or after in reached:
                            continue
                        way = written + before + bytes((byte,))
                        if self.common(after):
                            return way[0], False
                        tried += 1
                        if tried >= _FEW_TRIED:
                            return None, False
                        reached.add(after)
                        further.append((after, way))
            level = further
        return None, True

    def _read_of_completions(self, states: States) -> list[tuple[States, bytes]]:
        """A tuple with an empty text, and before it the last tuples and texts that are read of the completions."""
        found = list[tuple[States, bytes]]()
        for automaton, part in zip(self._automata, states, strict=True):
            text = automaton.completion(part) or b""
            way = [*enumerate(self._along(text, states), 1)][-_FEW_BYTES:]
            found += [(reached, text[:length]) for length, reached in reversed(way)]
        return [*found, (states, b"")]

    def _along(self, text: bytes, states: States) -> Iterator[States]:
        """The tuples after each byte of a text, as far as all automata read it."""
        for byte in text:
            after = self._step(states, byte)
            if after is None:
                return
            yield (states := after)
