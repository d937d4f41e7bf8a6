"""The classes of characters that a pattern distinguishes, and their expansion to classes of bytes.

Characters that are in exactly the same character sets of a pattern are equivalent. So the automaton is built over
classes of characters instead of a million code points, and is expanded to bytes at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.utf8_expansion import Utf8Expansion
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.utf8 import HighPartition, high_partition
from logitloom.automata.small_cache import BoundedCache

__all__ = ["Alphabet", "alphabet"]


class Alphabet:
    """Classes of characters: first the classes of ASCII, then the classes above ASCII.

    Attributes:
        ascii_classes: number of classes of ASCII characters.
        classes: number of all classes.
        members: for each set, the classes it consists of.
    """

    def __init__(self, sets: frozenset[CharSet], tracker: BudgetTracker) -> None:
        masks = dict.fromkeys([0, *[chars.ascii for chars in sets]])
        raw = b"".join([mask.to_bytes(16, "little") for mask in masks])
        held = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little").reshape(-1, 128)
        # Characters with equal columns are one class. Classes are numbered in the order of their first characters.
        packed = np.ascontiguousarray(np.packbits(held, axis=0).T)
        columns: list[bytes] = packed.view(f"S{packed.shape[1]}").ravel().tolist()
        number = {column: index for index, column in enumerate(dict.fromkeys(columns))}
        class_of = [number[column] for column in columns]
        tracker.check_time()
        self.ascii_classes = len(number)
        every = range(len(number))
        first_of = dict(zip(reversed(class_of), reversed(range(128)), strict=True))
        of_class = held[:, [first_of[c] for c in every]].tolist()
        classes_of = {mask: tuple(compress(every, row)) for mask, row in zip(masks, of_class, strict=True)}
        self.high: HighPartition = high_partition(frozenset([s.high for s in sets if s.high.ranges]), tracker)
        self.classes = len(number) + self.high.classes
        self.members: dict[CharSet, tuple[int, ...]] = {}
        for chars in sets:
            classes = classes_of[chars.ascii]
            if chars.high.ranges:
                classes = (*classes, *[len(number) + c for c in self.high.members[chars.high]])
            self.members[chars] = classes
        byte_class = np.empty(256, dtype=np.uint8)
        byte_class[:128] = class_of
        byte_class[128:] = self.high.column_of + len(number)
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


_alphabets: BoundedCache[frozenset[CharSet], Alphabet] = BoundedCache(256)


def alphabet(sets: Iterable[CharSet], tracker: BudgetTracker) -> Alphabet:
    """The (cached) alphabet of some character sets."""
    # The copies of a counted repeat share one object, so sets are compared by identity first.
    distinct = frozenset({id(one): one for one in sets}.values())
    return _alphabets.get(distinct) or _alphabets.add(distinct, Alphabet(distinct, tracker))
