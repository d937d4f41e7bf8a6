"""The shortest texts from the positions of a pattern to its end.

They are found in the order of their length (Dijkstra). Among texts of equal length the first in an order of the bytes
is taken, so every end of a shortest text is a shortest text from its position.

References:
    E. W. Dijkstra, "A note on two problems in connexion with graphs", 1959.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import Final

from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import END_POSITION, PositionAutomaton, Positions, predecessors

__all__ = ["BYTE_ORDER", "PositionCompletions"]

_READABLE: Final = bytes([*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x20, 0x7F)])
#: ``BYTE_ORDER[byte]`` is the rank of a byte among all bytes: letters, digits and other printable characters come
#: first.
BYTE_ORDER: Final = bytes(tuple(dict.fromkeys([*_READABLE, *range(256)])).index(byte) for byte in range(256))


class PositionCompletions:
    """For each position a shortest text that begins with one of its characters and leads to the end.

    Args:
        nfa: the position automaton; the end of the text can be reached from each position.
    """

    def __init__(self, nfa: PositionAutomaton) -> None:
        characters = [_first_character(chars) if chars else b"" for chars in nfa.sets]
        self._text = [characters[number] for number in nfa.set_at]
        #: By position: the length of its text in bytes, the rank of the text in the order of all texts, and the
        #: position that reads the second character of the text.
        self._bytes = [-1] * len(nfa.set_at)
        self._rank = [0] * len(nfa.set_at)
        self._next = [END_POSITION] * len(nfa.set_at)
        follow = nfa.follow.sets()
        self._find(follow)
        above_ascii = any(chars.high.ranges for chars in nfa.sets)
        #: The bytes of all texts, and the bytes that complete a character which a token has begun.
        self._used = frozenset(byte for text in set(self._text) for byte in text)
        self._used |= frozenset(range(0x80, 0xC0) if above_ascii else ())
        self._rest_of_character = 3 if above_ascii else 0
        self._growth = max((self._most(after) - self._bytes[p] for p, after in enumerate(follow) if after), default=0)
        self._longest = max(self._bytes)

    def _find(self, follow: list[Positions]) -> None:
        before = predecessors(follow)
        heap = [(0, b"", 0, END_POSITION, END_POSITION)]
        rank = 0
        while heap:
            size, _, _, position, after = heapq.heappop(heap)
            if self._bytes[position] >= 0:
                continue
            self._bytes[position], self._rank[position], self._next[position] = size, rank, after
            for each in before[position]:
                if self._bytes[each] < 0:
                    text = self._text[each]
                    heapq.heappush(heap, (size + len(text), text.translate(BYTE_ORDER), rank, each, position))
            rank += 1

    def _most(self, positions: Iterable[int]) -> int:
        return max(self._bytes[position] for position in positions)

    def shortest(self, positions: Collection[int]) -> bytes:
        """The shortest of the texts of some positions."""
        position = min(positions, key=self._rank.__getitem__)
        found = []
        while position != END_POSITION:
            found.append(self._text[position])
            position = self._next[position]
        return b"".join(found)

    def longest(self, positions: Collection[int], read: int, writable: frozenset[int]) -> int | None:
        """A bound on the bytes of the shortest text after up to ``read`` more bytes from some positions.

        ``None`` if texts have other bytes than ``writable``.
        """
        if not self._used <= writable:
            return None
        bound = min(self._longest, self._most(positions) + read * max(self._growth, 0))
        return bound + self._rest_of_character


def _first_character(chars: CharSet) -> bytes:
    """The shortest character of a set in UTF-8; of several the first in the order of bytes."""
    ascii_part = [byte for byte in range(128) if chars.ascii >> byte & 1]
    if ascii_part:
        return bytes([min(ascii_part, key=BYTE_ORDER.__getitem__)])
    return chr(chars.high.ranges[0][0]).encode()
