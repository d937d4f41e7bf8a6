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

from logitloom.automata.array_ranges import by_key, distinct, members
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import END_POSITION, NextPositions
from logitloom.automata.patterns.position_distances import PositionDistances
from logitloom.contract import TextTokens

__all__ = ["BYTE_ORDER", "PositionCompletions"]

#: Different texts of positions whose tokens are counted; each takes some microseconds.
_MOST_TEXTS: Final = 4096
#: The most positions with texts of one length, and the most predecessors of them, that are handled one by one.
_MANY: Final = 64
_READABLE: Final = bytes([*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x20, 0x7F)])
#: ``BYTE_ORDER[byte]`` is the rank of a byte among all bytes: letters, digits and other printable characters come
#: first.
_IN_ORDER: Final = bytes(dict.fromkeys([*_READABLE, *range(256)]))
BYTE_ORDER: Final = bytes(_IN_ORDER.index(byte) for byte in range(256))


class PositionCompletions:
    """For each position, a shortest text that begins with a character of the position and leads to the end.

    Args:
        sets: the character sets.
        set_at: by position the index of its set.
        edges: which positions may come after each position; the end can be reached from all.

    Attributes:
        sets, set_at, edges: as given.
        used: the bytes of all texts, and the bytes that complete a character which a token has begun.
    """

    def __init__(self, sets: list[CharSet], set_at: list[int], edges: NextPositions) -> None:
        self.sets, self.set_at, self.edges = sets, np.array(set_at), edges
        characters = [_first_character(chars) if chars else b"" for chars in sets]
        #: The distinct characters in their order, and for each position the index of its character in this list.
        self._texts = sorted({*characters}, key=lambda each: each.translate(BYTE_ORDER))
        place = {text: at for at, text in enumerate(self._texts)}
        self._text_at = np.array([place[each] for each in characters]).take(self.set_at)
        #: The positions before each position (one of several that are alike), and the positions that are alike: each as
        #: a list, with the index at which the part of each position begins.
        self._before = by_key(edges.targets, edges.sources, len(set_at))
        self._alike = by_key(edges.alike, np.arange(len(set_at)), len(set_at))
        #: The positions in the order of their texts; and for each position its index in this order, the length of its
        #: text in bytes, and the position that reads the second character of the text.
        self._ranked: list[int] = []
        self._rank, self._size, self._next = (np.zeros(len(set_at), dtype=np.int64) for _ in range(3))
        #: Ranges of this order that have many positions each, whose texts have the same number of bytes.
        self._together: list[tuple[int, int]] = []
        self._find()
        above_ascii = any(chars.high.ranges for chars in sets)
        self.used = frozenset(byte for text in characters for byte in text)
        self.used |= frozenset(range(0x80, 0xC0) if above_ascii else ())
        self._rest_of_character = 3 if above_ascii else 0

    def _find(self) -> None:
        """Find the texts in the order of their lengths, from the end backwards."""
        lengths = np.array([len(text) for text in self._texts]).take(self._text_at)
        before, starts = (each.data for each in self._before)
        alike, begins = (each.data for each in self._alike)
        rank, size_of, after = (each.data for each in (self._rank, self._size, self._next))
        unseen = np.ones(len(lengths), dtype=bool)
        unseen[END_POSITION] = False
        ranked, text_at, length_of, is_unseen = self._ranked, self._text_at.data, lengths.data, unseen.data
        #: For each length in bytes, the positions whose text has this length. A position is added when the first
        #: position that it leads to is ranked.
        waiting: dict[int, list[int]] = {0: [END_POSITION]}
        while waiting:
            size = min(waiting)
            here = waiting.pop(size)
            if len(here) > _MANY or sum([starts[each + 1] - starts[each] for each in here]) > _MANY:
                leading = self._many(here, size, unseen)
                longer = size + lengths.take(leading)
                for each in np.unique(longer).tolist():
                    waiting.setdefault(each, []).extend(leading[longer == each].tolist())
                continue
            if len(here) > 1:
                here.sort(key=lambda each: (text_at[each], rank[after[each]], each))
            for position in here:
                rank[position], size_of[position] = len(ranked), size
                ranked.append(position)
                for each in before[starts[position] : starts[position + 1]]:
                    if is_unseen[each]:
                        is_unseen[each] = False
                        for one in alike[begins[each] : begins[each + 1]]:
                            after[one] = position
                            waiting.setdefault(size + length_of[one], []).append(one)

    def _many(self, positions: list[int], size: int, unseen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Rank positions whose texts have ``size`` bytes; return the unseen positions that lead to them."""
        ranked, (before, starts), after = self._ranked, self._before, self._next
        here = np.array(positions)
        here = here.take(np.lexsort((here, self._rank.take(after.take(here)), self._text_at.take(here))))
        begin = len(ranked)
        ranked += here.tolist()
        if len(here) > _MANY:
            self._together.append((begin, len(ranked)))
        self._rank[here], self._size[here] = np.arange(begin, len(ranked)), size
        counts = starts.take(here + 1) - starts.take(here)
        leading, leads_to = before.take(members(starts.take(here), counts)), here.repeat(counts)
        new = unseen.take(leading)
        leading, leads_to = leading[new], leads_to[new]
        # Of the next positions of a position, the first is the best. It is written last.
        after[leading[::-1]] = leads_to[::-1]
        unseen[leading] = False
        leading = distinct(leading, len(unseen))
        alike, begins = self._alike
        counts = begins.take(leading + 1) - begins.take(leading)
        found = alike.take(members(begins.take(leading), counts))
        after[found] = after.take(leading).repeat(counts)
        return found

    def distances(self, tokens: TextTokens) -> PositionDistances | None:
        """How many tokens the texts of positions need.

        Where positions have very many different texts, each byte counts as a token. ``None`` if tokens cannot write
        every text.
        """
        if not self.used <= tokens.single:
            return None
        needed, exact = self._tokens_of_texts(tokens)
        farthest, rest = self._farthest(needed), self._rest_of_character
        characters, apart = (self.sets, self.set_at), not self._begin_after_tails() & tokens.after_tails
        return PositionDistances(
            characters, self.edges, needed, exact, self._size, farthest, rest, tokens.longest, apart
        )

    def _begin_after_tails(self) -> frozenset[int]:
        """The first bytes of the shortest texts after characters above ASCII."""
        above = np.array([bool(chars.high.ranges) for chars in self.sets]).take(self.set_at)
        after = np.unique(self._text_at.take(self._next[above]))
        return frozenset(byte for place in after.tolist() for byte in self._texts[place][:1])

    def _farthest(self, needed: NDArray[np.int64]) -> list[int]:
        """By position the most tokens that any position reached from it needs."""
        (before, starts), (alike, begins) = ([each.tolist() for each in pair] for pair in (self._before, self._alike))
        sources, targets, same = self.edges
        # Often most positions need the most tokens. The positions that lead to these positions are found at once, not
        # one by one.
        largest = needed == needed.max()
        farthest: list[int] = np.where(largest, needed, -1).tolist()
        leading = np.zeros(len(needed), dtype=bool)
        leading[sources[largest.take(targets)]] = True
        is_asked: list[bool] = leading.tolist()
        above = (leading.take(same) & ~largest).nonzero()[0].tolist()
        others = (~largest).nonzero()[0]
        others = others[needed.take(others).argsort()[::-1]]
        most, waiting = int(needed.max()), above
        for following, each in [*zip(needed.take(others).tolist(), others.tolist(), strict=True), (0, END_POSITION)]:
            while waiting:
                at = waiting.pop()
                if farthest[at] < 0:
                    farthest[at] = most
                    for one in before[starts[at] : starts[at + 1]]:
                        if not is_asked[one]:
                            is_asked[one] = True
                            waiting += alike[begins[one] : begins[one + 1]]
            if farthest[each] < 0:
                most, waiting = following, [each]
        return farthest

    def _tokens_of_texts(self, tokens: TextTokens) -> tuple[NDArray[np.int64], bool]:
        """By position the fewest tokens that write its text, or its bytes; and whether tokens were counted."""
        text_at, after_of, ranked = self._text_at, self._next, np.array(self._ranked)
        number = np.zeros(len(text_at), dtype=np.int64)
        number_of, text_of, next_of = number.data, text_at.data, after_of.data
        #: The different texts by their first characters and the numbers of the rests.
        numbers: dict[tuple[int, int], int] = {(-1, 0): 0}
        rank = 1
        for begin, end in [*self._together, (len(ranked), len(ranked))]:
            for position in ranked[rank:begin].tolist():
                key = text_of[position], number_of[next_of[position]]
                number_of[position] = numbers.setdefault(key, len(numbers))
                if len(numbers) > _MOST_TEXTS:
                    return self._size, False
            group = ranked[begin:end]
            keys = text_at.take(group) * len(text_at) + number.take(after_of.take(group))
            each_key, which = np.unique(keys, return_inverse=True)
            for_each = [numbers.setdefault(divmod(key, len(text_at)), len(numbers)) for key in each_key.tolist()]
            number[group] = np.array(for_each, dtype=np.int64).take(which)
            rank = end
        if len(numbers) > _MOST_TEXTS:
            return self._size, False
        # For each text its first bytes, as many as a token may have, and the fewest tokens from each of these bytes on.
        known: list[tuple[bytes, list[int | None]]] = [(b"", [0])]
        for place, after in [*numbers][1:]:
            text, (rest, fewest) = self._texts[place], known[after]
            first = (text + rest)[: max(tokens.longest, len(text))]
            known.append((first, tokens.fewest(first, fewest[: len(first) - len(text) + 1])))
        return np.array([fewest[0] or 0 for _, fewest in known]).take(number), True

    def first(self, positions: Collection[int]) -> int:
        """The position whose text is the shortest of some positions."""
        return min(positions, key=self._rank.data.__getitem__)

    def shortest(self, positions: Collection[int]) -> bytes:
        """The shortest of the texts of some positions."""
        position, texts, text_at, after = self.first(positions), self._texts, self._text_at.data, self._next.data
        found = []
        while position != END_POSITION:
            found.append(texts[text_at[position]])
            position = after[position]
        return b"".join(found)


def _first_character(chars: CharSet) -> bytes:
    """The shortest character of a set in UTF-8; of several the first in the order of bytes."""
    for byte in _IN_ORDER if chars.ascii else ():
        if chars.ascii >> byte & 1:
            return bytes([byte])
    return chr(chars.high.ranges[0][0]).encode()
