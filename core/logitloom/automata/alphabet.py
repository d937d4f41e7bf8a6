"""The classes of characters that a pattern distinguishes, and their expansion to classes of bytes.

Characters that are in exactly the same character sets of a pattern are equivalent. So the automaton is built over
classes of characters instead of a million code points, and is expanded to bytes at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.budget import BudgetTracker
from logitloom.automata.char_sets import ASCII_ALL, CharSet
from logitloom.automata.dfa import Dfa
from logitloom.automata.small_cache import Cache
from logitloom.automata.utf8 import HighPartition, high_partition
from logitloom.automata.utf8_expansion import Utf8Expansion

__all__ = ["Alphabet", "alphabet"]


class Alphabet:
    """Classes of characters: first the classes of ASCII, then the classes above ASCII.

    Attributes:
        ascii_classes: number of classes of ASCII characters.
        classes: number of all classes.
        members: for each set, the classes it consists of.
    """

    def __init__(self, sets: frozenset[CharSet], tracker: BudgetTracker) -> None:
        parts = [ASCII_ALL]
        for mask in {chars.ascii for chars in sets}:
            tracker.check_time()
            if mask and mask != ASCII_ALL:
                parts = [piece for part in parts for piece in (part & mask, part & ~mask) if piece]
        # Equal patterns must give equal tables, and the iteration order of a set of ints is not guaranteed.
        parts.sort(key=lambda part: part & -part)
        self.ascii_classes = len(parts)
        self.high: HighPartition = high_partition(frozenset([s.high for s in sets if s.high.ranges]), tracker)
        self.classes = len(parts) + self.high.classes
        self.members: dict[CharSet, tuple[int, ...]] = {}
        for chars in sets:
            low = [i for i, part in enumerate(parts) if part & chars.ascii]
            if chars.high.ranges:
                low += [len(parts) + c for c in self.high.members[chars.high]]
            self.members[chars] = tuple(low)
        raw = b"".join([part.to_bytes(16, "little") for part in parts])
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little").reshape(-1, 128)
        byte_class = np.empty(256, dtype=np.uint8)
        byte_class[:128] = bits.argmax(axis=0)
        byte_class[128:] = self.high.column_of + len(parts)
        byte_class.setflags(write=False)
        self.byte_class = byte_class

    def expand(
        self,
        rows: Sequence[Sequence[int]] | NDArray[np.int32],
        accepting: Sequence[bool] | NDArray[np.bool_],
        tracker: BudgetTracker,
    ) -> Dfa:
        """Expand a trim automaton over character classes, with start state 0, to an automaton over bytes.

        Args:
            rows: ``[states][classes]`` next states, ``DEAD`` where there is none.
            accepting: per state whether a text may end.
            tracker: the budget tracker.
        """
        table = np.asarray(rows, dtype=np.int32).reshape(len(rows), self.classes)
        expansion = Utf8Expansion(self.high, self.ascii_classes, table, tracker)
        accepts = np.zeros(expansion.states, dtype=bool)
        accepts[: len(rows)] = accepting
        if not expansion.blocks:
            return Dfa(self.byte_class, expansion.filled_table(), accepts, trim=True, characters=expansion)
        return Dfa(self.byte_class, expansion.table, accepts, trim=True, characters=expansion, expansion=expansion)


_alphabets: Cache[frozenset[CharSet], Alphabet] = Cache(256)


def alphabet(sets: Iterable[CharSet], tracker: BudgetTracker) -> Alphabet:
    """The (cached) alphabet of some character sets."""
    distinct = frozenset(sets)
    return _alphabets.get(distinct) or _alphabets.add(distinct, Alphabet(distinct, tracker))
