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
from numpy.typing import NDArray

from logitloom.automata.array_ranges import members
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import END_POSITION, PositionAutomaton
from logitloom.automata.patterns.position_distances import PositionDistances
from logitloom.contract import TextTokens

__all__ = ["BYTE_ORDER", "PositionCompletions"]

#: Different texts of positions whose tokens are counted; each takes some microseconds.
_MOST_TEXTS: Final = 4096
#: From so many positions before a position on, these are looked at together.
_MANY: Final = 64
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
        self._before = sources.take(order), np.append(0, np.bincount(targets, minlength=count).cumsum())
        #: The positions in the order of their texts; by position its place in this order, the bytes of its text, and
        #: the position that reads the second character of the text.
        self._ranked: list[int] = []
        #: Ranges of this order: many positions each, with one first character, after positions that come before them.
        self._together: list[tuple[int, int]] = []
        self._find(characters)
        above_ascii = any(chars.high.ranges for chars in nfa.sets)
        #: The bytes of all texts, and the bytes that complete a character which a token has begun.
        self._used = frozenset(byte for text in characters for byte in text)
        self._used |= frozenset(range(0x80, 0xC0) if above_ascii else ())
        self._rest_of_character = 3 if above_ascii else 0

    def _find(self, characters: list[bytes]) -> None:
        place = {
            text: at for at, text in enumerate(sorted(set(characters), key=lambda each: each.translate(BYTE_ORDER)))
        }
        set_at = np.array(self._nfa.set_at)
        length_at = np.array([len(text) for text in characters]).take(set_at)
        place_at = np.array([place[text] for text in characters]).take(set_at)
        before, starts, lengths, places = (each.tolist() for each in (*self._before, length_at, place_at))
        found = np.zeros((3, len(set_at)), dtype=np.int64)
        all_ranks, all_sizes, all_next = found
        ranks, sizes, after = (each.data for each in found)
        unseen = np.ones(len(set_at), dtype=bool)
        is_unseen, ranked = unseen.data, self._ranked
        is_unseen[END_POSITION] = False
        #: Per size the places of texts, the ranks of the positions after them, and the positions: one, or many with
        #: this text whose next positions have consecutive ranks.
        by_size: dict[int, list[tuple[int, int, int, NDArray[np.int64] | None]]] = {0: [(0, 0, END_POSITION, None)]}
        size = 0
        while by_size:
            # The first way to a position is the best one, because texts are found in their order.
            entries = sorted(by_size.pop(size, ()))
            for _, _, position, group in entries:
                rank = len(ranked)
                if group is None:
                    ranked.append(position)
                    ranks[position], sizes[position] = rank, size
                    begin, end = starts[position], starts[position + 1]
                    # Positions one after the other, with nothing beside them, are followed at once.
                    while end - begin == len(entries) == 1 and not by_size and is_unseen[before[begin]]:
                        after[before[begin]], position = position, before[begin]
                        is_unseen[position] = False
                        size += lengths[position]
                        ranks[position], sizes[position] = len(ranked), size
                        ranked.append(position)
                        begin, end = starts[position], starts[position + 1]
                    rank = len(ranked) - 1
                    if end - begin < _MANY:
                        for each in before[begin:end]:
                            if is_unseen[each]:
                                is_unseen[each], after[each] = False, position
                                entry = places[each], rank, each, None
                                by_size.setdefault(size + lengths[each], []).append(entry)
                        continue
                    group = np.array([position])
                else:
                    ranked += group.tolist()
                    self._together.append((rank, len(ranked)))
                    all_ranks[group], all_sizes[group] = np.arange(rank, len(ranked)), size
                leading, leads_to = self._leading(group, all_ranks, unseen)
                unseen[leading], all_next[leading] = False, leads_to
                text = place_at.take(leading)
                for one in np.unique(text).tolist():
                    part = leading[text == one]
                    begin = int(all_ranks[all_next[part[0]]])
                    by_size.setdefault(size + lengths[part[0]], []).append((one, begin, int(part[0]), part))
            size += 1
        self._rank, self._size, self._next = (each.tolist() for each in found)

    def _leading(
        self, group: NDArray[np.int64], ranks: NDArray[np.int64], unseen: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions before some positions that have no text yet, and the position that each leads to.

        Of several positions that one leads to, the first in the order of texts; in this order, too.
        """
        before, starts = self._before
        counts = starts.take(group + 1) - starts.take(group)
        leading, leads_to = before.take(members(starts.take(group), counts)), group.repeat(counts)
        new = unseen.take(leading)
        leading, leads_to = leading[new], leads_to[new]
        in_order = np.lexsort((leading, ranks.take(leads_to)))
        leading, leads_to = leading.take(in_order), leads_to.take(in_order)
        _, first = np.unique(leading, return_index=True)
        first.sort()
        return leading.take(first), leads_to.take(first)

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

    def _farthest(self, needed: NDArray[np.int64]) -> list[int]:
        """By position the most tokens that any position reached from it needs."""
        before, starts = (each.tolist() for each in self._before)
        sources, targets = self.edges
        # Often most positions need the most tokens. What leads to them is found without following each.
        largest = needed == needed.max()
        farthest: list[int] = np.where(largest, needed, -1).tolist()
        above = np.unique(sources[largest.take(targets) & ~largest.take(sources)]).tolist()
        others = (~largest).nonzero()[0]
        others = others[needed.take(others).argsort()[::-1]]
        most, waiting = int(needed.max()), above
        for following, each in [*zip(needed.take(others).tolist(), others.tolist(), strict=True), (0, END_POSITION)]:
            while waiting:
                at = waiting.pop()
                if farthest[at] < 0:
                    farthest[at] = most
                    waiting += before[starts[at] : starts[at + 1]]
            if farthest[each] < 0:
                most, waiting = following, [each]
        return farthest

    def _tokens_of_texts(self, tokens: TextTokens) -> tuple[NDArray[np.int64], bool]:
        """By position the fewest tokens that write its text, or the bytes of the text; and whether it is the former."""
        text_of, after_of, ranked = self._text, self._next, self._ranked
        number = np.zeros(len(text_of), dtype=np.int64)
        number_of = number.data
        numbers: dict[tuple[bytes, int], int] = {(b"", 0): 0}
        rank = 1
        for begin, end in [*self._together, (len(ranked), len(ranked))]:
            for position in ranked[rank:begin]:
                key = text_of[position], number_of[after_of[position]]
                number_of[position] = numbers.setdefault(key, len(numbers))
                if len(numbers) > _MOST_TEXTS:
                    return np.array(self._size), False
            if begin < end:
                group = np.array(ranked[begin:end])
                after_each = number.take(np.array(after_of).take(group))
                for each in np.unique(after_each).tolist():
                    key = text_of[ranked[begin]], each
                    number[group[after_each == each]] = numbers.setdefault(key, len(numbers))
            rank = end
        # For each text its first bytes, as many as a token may have, and the fewest tokens from each of these bytes on.
        known: list[tuple[bytes, list[int | None]]] = []
        for text, after in numbers:
            rest, fewest = known[after] if known else (b"", [0])
            first = (text + rest)[: tokens.longest]
            known.append((first, tokens.fewest(first, fewest[: len(first) - len(text) + 1])))
        return np.array([fewest[0] or 0 for _, fewest in known]).take(number), True

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
