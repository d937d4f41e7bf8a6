"""How many tokens each token leaves to the end of a value.

The number is that of the fewest tokens that write the completion of a position (:mod:`..structure.completion`). One
walk of the vocabulary's trie finds where each token leads. Subtrees are taken as a whole where all characters of a
string lead to the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.trie import HIGH_PARTIAL, MALFORMED
from logitloom.constraints import UNKNOWN
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure.completion import Completions
from logitloom_plugins.json_schema.structure.value_reader import Position
from logitloom_plugins.json_schema.tokens.token_walk import Words

__all__ = ["TokenDistances"]

#: Characters that JSON does not allow unescaped in a string, as bits of the ASCII characters 0-63 and 64-127.
_LOW_SPECIAL: Final = np.uint64((1 << 32) - 1 | 1 << ord('"'))
_HIGH_SPECIAL: Final = np.uint64(1 << (ord("\\") - 64))
#: Tokens are no longer than this in the texts that are counted, so that a text is counted in a time like its length.
_LONGEST: Final = 24
#: So many bytes at the end of a text are counted once for all texts with the same end.
_SHARED: Final = 32
_MOST_REMEMBERED: Final = 1 << 14
#: Kinds of members of a schema that are looked at for a bound, and the bytes that end any number.
_MOST_LOOKED_AT: Final = 256
_FARTHEST_NUMBER: Final = 32


class TokenDistances:
    """The tokens from positions to the end of the value.

    Args:
        machine: the pushdown automaton of the schema.
        completions: of its positions.
        words: the trie of the vocabulary.
        vocabulary: the same tokens.
    """

    def __init__(self, machine: Any, completions: Completions, words: Words, vocabulary: Vocabulary) -> None:
        self.machine, self._completions, self._words = machine, completions, words
        self._texts, self._special, self._opened = _prepared(words, vocabulary)
        self._growth: int | None = None
        self._counts: dict[bytes, list[int]] = {b"": [0]}
        self._least: dict[Position, int | None] = {}

    def least(self, position: Position) -> int | None:
        """The fewest tokens that write the completion; ``None`` if there is none."""
        known = self._least.get(position, UNKNOWN)
        if known == UNKNOWN:
            if len(self._least) > _MOST_REMEMBERED:
                self._least.clear()
            text = self._completions.of(position)
            known = self._least[position] = None if text is None else self._fewest(text)
        return known

    def most_after(self, position: Position) -> int:
        """No more tokens than these are needed after any that may come; :data:`UNKNOWN` without a look at them."""
        if self._growth is None:
            self._growth = self._most_growth()
        found = self.least(position) if self._growth < UNKNOWN else None
        return UNKNOWN if found is None else found + self._growth

    def _most_growth(self) -> int:
        """By how much a token can at most move the end away: it opens some objects and arrays, and goes on in two."""
        inside, ends, begun = 0, 0, 0
        try:
            for within, end, members in self._completions.kinds(_MOST_LOOKED_AT):
                inside = max(inside, within)
                ends = max(ends, self._fewest(end) or 0)
                begun = max(begun, *[self._fewest(text) or len(text) for text in members], 0)
        except BudgetExceeded:
            return UNKNOWN
        return (self._opened + 2) * (ends + begun) + inside + _FARTHEST_NUMBER

    def after(self, position: Position) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The tokens that may come, and :meth:`least` after each; :data:`UNKNOWN` for ``None``."""
        trie, machine = self._words.trie, self.machine
        starts, sizes, texts = trie.child_start.data, trie.child_count.data, self._words.bytes
        first, own, last, order = trie.first, trie.own, trie.last, trie.order
        ids: list[NDArray[np.int32]] = []
        least: list[int] = []
        pending = [(0, position)]
        while pending:
            node, at = pending.pop()
            begin = starts[node]
            for child in range(begin, begin + sizes[node]):
                reached = machine.read(at, texts[child : child + 1])
                if reached is None:
                    continue
                whole = not self._special[child] and self._stays(reached, int(trie.height[child]))
                end = last[child] if whole else own[child]
                if end > first[child]:
                    found = self.least(reached)
                    ids.append(order[first[child] : end])
                    least.append(UNKNOWN if found is None else found)
                if sizes[child] and not whole:
                    pending.append((child, reached))
        counts = [len(each) for each in ids]
        every = np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32)
        needed = np.array(least, dtype=np.int32).repeat(counts)
        places = every.argsort(kind="stable")
        return every[places].astype(np.int32, copy=False), needed[places]

    def _stays(self, position: Position, characters: int) -> bool:
        """Whether the completion is the same after some more characters that need no escape."""
        machine = self.machine
        state = machine.states[position.state]
        if state[0] != "text" or position.items.frame or position.state in machine.tracked:
            return False
        if len(state[1].content.end_ranges(state[3], characters)) > 1:
            return False
        return bool(machine.strings.free(state) >= characters)

    def _fewest(self, text: bytes) -> int | None:
        """The fewest tokens that write a text, ``None`` if none do."""
        known, counts = 0, self._counts
        for size in range(len(text) - len(text) % _SHARED, 0, -_SHARED):
            if text[-size:] in counts:
                known = size
                break
        if len(counts) > _MOST_REMEMBERED:
            counts.clear()
            counts[b""], known = [0], 0
        # By how many bytes are left: the fewest tokens for them.
        fewest = counts[text[len(text) - known :]].copy()
        tokens = self._texts
        for left in range(known + 1, len(text) + 1):
            begin = len(text) - left
            best = UNKNOWN
            for size in range(1, min(left, _LONGEST) + 1):
                if fewest[left - size] < best and text[begin : begin + size] in tokens:
                    best = fewest[left - size] + 1
            fewest.append(best)
            if left % _SHARED == 0:
                counts[text[begin:]] = fewest.copy()
        return None if fewest[-1] >= UNKNOWN else fewest[-1]


@lru_cache(maxsize=8)
def _prepared(words: Words, vocabulary: Vocabulary) -> tuple[frozenset[bytes], NDArray[np.bool_], int]:
    """The texts of the tokens, as far as they are counted; per node whether what is below needs a look in a string;
    and the most objects and arrays that one token opens.
    """
    trie = words.trie
    special = (
        (trie.low & _LOW_SPECIAL != 0)
        | (trie.high & _HIGH_SPECIAL != 0)
        | (trie.marks & (MALFORMED | HIGH_PARTIAL) != 0)
    )
    texts = vocabulary.token_bytes
    opened = max(text.count(b"{") + text.count(b"[") for text in texts)
    return frozenset(text for text in texts if 0 < len(text) <= _LONGEST), special, opened
