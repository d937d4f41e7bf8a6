"""The shortest texts from the positions of a pattern to its end.

Shortest texts are found in the order of their length (Dijkstra). Among texts of equal length the first in an order of
the bytes is taken, so every end of a shortest text is a shortest text from its position.

References:
    E. W. Dijkstra, "A note on two problems in connexion with graphs", 1959.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import END_POSITION, PositionAutomaton
from logitloom.automata.patterns.position_distances import PositionDistances
from logitloom.contract import TextTokens

__all__ = ["BYTE_ORDER", "PositionCompletions"]

#: Different texts of positions whose tokens are counted; each takes some microseconds.
_MOST_TEXTS: Final = 4096
_READABLE: Final = bytes([*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x20, 0x7F)])
#: ``BYTE_ORDER[byte]`` is the rank of a byte among all bytes: letters, digits and other printable characters come
#: first.
BYTE_ORDER: Final = bytes(tuple(dict.fromkeys([*_READABLE, *range(256)])).index(byte) for byte in range(256))


class PositionCompletions:
    """For each position a shortest text that begins with one of its characters and leads to the end.

    Args:
        nfa: the position automaton; the end of the text can be reached from each position.

    Attributes:
        edges: those of ``nfa.follow``.
    """

    def __init__(self, nfa: PositionAutomaton) -> None:
        characters = [_first_character(chars) if chars else b"" for chars in nfa.sets]
        self._text = [characters[number] for number in nfa.set_at]
        count = len(nfa.set_at)
        sources, targets = nfa.follow.edges()
        order = targets.argsort(kind="stable")
        self._nfa, self.edges = nfa, (sources, targets)
        #: The positions before each position, one after the other, and where those of each begin.
        self._before = sources.take(order).tolist(), np.searchsorted(targets.take(order), np.arange(count + 1)).tolist()
        #: The positions in the order of their texts; by position its place in this order, the bytes of its text, and
        #: the position that reads the second character of the text.
        self._ranked: list[int] = []
        self._rank, self._size = [0] * count, [0] * count
        self._next = [END_POSITION] * count
        self._find()
        above_ascii = any(chars.high.ranges for chars in nfa.sets)
        #: The bytes of all texts, and the bytes that complete a character which a token has begun.
        self._used = frozenset(byte for text in set(self._text) for byte in text)
        self._used |= frozenset(range(0x80, 0xC0) if above_ascii else ())
        self._rest_of_character = 3 if above_ascii else 0

    def _find(self) -> None:
        ordered = {text: (len(text), text.translate(BYTE_ORDER)) for text in set(self._text)}
        of_text = [ordered[text] for text in self._text]
        before, starts = self._before
        seen = bytearray(len(self._text))
        seen[END_POSITION] = True
        by_size: dict[int, list[tuple[bytes, int, int]]] = {0: [(b"", 0, END_POSITION)]}
        size = 0
        while by_size:
            # The first way to a position is the best one, because texts are found in their order.
            for _, _, position in sorted(by_size.pop(size, ())):
                rank = self._rank[position] = len(self._ranked)
                self._ranked.append(position)
                self._size[position] = size
                for each in before[starts[position] : starts[position + 1]]:
                    if not seen[each]:
                        seen[each], self._next[each] = True, position
                        length, text = of_text[each]
                        by_size.setdefault(size + length, []).append((text, rank, each))
            size += 1

    def distances(self, tokens: TextTokens) -> PositionDistances | None:
        """How many tokens the texts of positions need.

        Where positions have very many different texts, each byte counts as a token. ``None`` if tokens cannot write
        every text.
        """
        if not self._used <= tokens.single:
            return None
        needed, exact = self._tokens_of_texts(tokens)
        farthest, rest = self._farthest(needed), self._rest_of_character
        return PositionDistances(self._nfa, self.edges, needed, exact, self._size, farthest, rest, tokens.longest)

    def _farthest(self, needed: list[int]) -> list[int]:
        """By position the most tokens that any position reached from it needs."""
        before, starts = self._before
        sources, targets = self.edges
        # Often most positions need the most tokens. What leads to them is found without following each.
        largest = np.array(needed) == max(needed)
        farthest: list[int] = np.where(largest, max(needed), -1).tolist()
        above = np.unique(sources[largest.take(targets) & ~largest.take(sources)]).tolist()
        others = sorted([each for each in self._ranked if farthest[each] < 0], key=needed.__getitem__, reverse=True)
        for most, waiting in [(max(needed), above), *[(needed[each], [each]) for each in others]]:
            while waiting:
                at = waiting.pop()
                if farthest[at] < 0:
                    farthest[at] = most
                    waiting += before[starts[at] : starts[at + 1]]
        return farthest

    def _tokens_of_texts(self, tokens: TextTokens) -> tuple[list[int], bool]:
        """By position the fewest tokens that write its text, or the bytes of the text; and whether it is the former."""
        number = [0] * len(self._text)
        numbers: dict[tuple[bytes, int], int] = {(b"", 0): 0}
        for position in self._ranked[1:]:
            key = self._text[position], number[self._next[position]]
            number[position] = numbers.setdefault(key, len(numbers))
        if len(numbers) > _MOST_TEXTS:
            size = [0] * len(numbers)
            for of_text, (text, after) in enumerate(numbers):
                size[of_text] = len(text) + size[after]
            return [size[each] for each in number], False
        # For each text its first bytes, as many as a token may have, and the fewest tokens from each of these bytes on.
        known: list[tuple[bytes, list[int | None]]] = []
        for text, after in numbers:
            rest, fewest = known[after] if known else (b"", [0])
            begin = (text + rest)[: tokens.longest]
            known.append((begin, tokens.fewest(begin, fewest[: len(begin) - len(text) + 1])))
        return [known[each][1][0] or 0 for each in number], True

    def first(self, positions: Collection[int]) -> int:
        """The position whose text is the shortest of some positions."""
        return min(positions, key=self._rank.__getitem__)

    def shortest(self, positions: Collection[int]) -> bytes:
        """The shortest of the texts of some positions."""
        position = self.first(positions)
        found = []
        while position != END_POSITION:
            found.append(self._text[position])
            position = self._next[position]
        return b"".join(found)


def _first_character(chars: CharSet) -> bytes:
    """The shortest character of a set in UTF-8; of several the first in the order of bytes."""
    ascii_part = [byte for byte in range(128) if chars.ascii >> byte & 1]
    if ascii_part:
        return bytes([min(ascii_part, key=BYTE_ORDER.__getitem__)])
    return chr(chars.high.ranges[0][0]).encode()
