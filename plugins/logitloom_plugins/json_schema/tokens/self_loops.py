"""Self-loop summaries: the characters that lead from a state inside a string back to the same state.

If every character that occurs below a node of the trie leads from a state back to itself, and the maximum length of the
string permits them, all tokens below the node are allowed without a walk. A state that allows most texts takes most of
its tokens from large subtrees in this way.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.above_ascii import EVERYTHING, marks_above_ascii
from logitloom.automata.row_walk import ascii_columns
from logitloom.automata.trie import MALFORMED, Trie
from logitloom_plugins.json_schema.structure.string_states import NameContext, StringContext, StringStates

__all__ = ["HIGH_SPECIAL", "LOW_SPECIAL", "SelfLoops", "self_loops"]

#: Characters that JSON does not allow unescaped in a string, as bits of the ASCII characters 0-63 and 64-127.
LOW_SPECIAL: Final = np.uint64((1 << 32) - 1 | 1 << ord('"'))
HIGH_SPECIAL: Final = np.uint64(1 << (ord("\\") - 64))
_MOST_STATES: Final = 20_000


class Leaving(NamedTuple):
    """Per state the characters that do not lead from the state back to itself.

    Attributes:
        low, high: ``[states] uint64``, the ASCII characters 0-63 and 64-127, as bits.
        marks: ``[states] uint8``, kinds of non-ASCII content, as bits of ``Trie.marks``.
    """

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    marks: NDArray[np.uint8]


def self_loops(targets: NDArray[np.int32], byte_class: NDArray[np.uint8], ascii_only: bool) -> Leaving:
    """The characters that leave each state of the automaton of a string's content.

    Args:
        targets: ``[states, classes] int32``, next states, -1 for none.
        byte_class: ``[256] uint8``, the byte class of each byte.
        ascii_only: whether non-ASCII characters must be escaped.
    """
    itself = np.arange(len(targets), dtype=np.int32)
    columns, _, bits = ascii_columns(byte_class[:128].tobytes())
    leaves = targets[:, columns] != itself[:, None]
    low, high = (np.bitwise_or.reduce(np.where(leaves, word, np.uint64(0)), axis=1) for word in bits)
    marks = np.full(len(targets), EVERYTHING) if ascii_only else marks_above_ascii(targets, byte_class, itself)
    return Leaving(low | LOW_SPECIAL, high | HIGH_SPECIAL, marks)


class SelfLoops:
    """The self-loop summaries of a machine's states.

    Args:
        strings: the machine's states inside strings.
    """

    def __init__(self, strings: StringStates) -> None:
        self._strings = strings
        self._contexts: dict[StringContext, Leaving | None] = {}
        self._names: dict[tuple[Any, bytes], Leaving] = {}
        self._known = 0
        self._leaving = Leaving(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint8))
        #: Per state the number of characters that the maximum length still permits; -1 without a summary.
        self._room: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def learn(self, states: list[Any]) -> None:
        """Add the summaries of the states that the machine has made since the last call."""
        more = len(states) - len(self._room)
        if more > 0:
            more = max(more, len(self._room), 64)
            self._leaving = Leaving(*(np.append(part, np.zeros(more, dtype=part.dtype)) for part in self._leaving))
            self._room = np.append(self._room, np.full(more, -1))
        low, high, marks = self._leaving
        for number in range(self._known, len(states)):
            kind, *rest = states[number]
            # A state between the bytes of one character has no self-loop.
            if kind != "text" or not rest[0].content.automaton.boundaries[rest[1]]:
                continue
            context, place, count = rest
            characters = self._strings.free(states[number])
            if characters:
                low[number], high[number], marks[number] = LOW_SPECIAL, HIGH_SPECIAL, MALFORMED
                self._room[number] = characters
            elif not context.content.free and not (isinstance(context, NameContext) and place >= context.outside):
                found = self._of(context)
                if found is not None:
                    low[number], high[number], marks[number] = found.low[place], found.high[place], found.marks[place]
                    self._room[number] = context.content.room(place, count)
        self._known = len(states)

    def _of(self, context: StringContext) -> Leaving | None:
        if context not in self._contexts:
            self._contexts[context] = self._found(context)
        return self._contexts[context]

    def _found(self, context: StringContext) -> Leaving | None:
        automaton, ascii_only = context.content.automaton, self._strings.escapes == "ascii"
        if (
            automaton.states > _MOST_STATES
            or all(automaton.narrow)
            or (isinstance(context, NameContext) and context.plain)
        ):
            return None
        if not isinstance(context, NameContext):
            return self_loops(automaton.next, automaton.byte_class, ascii_only)
        living = context.living()
        # Objects of one schema often allow the same names, so the summaries are cached by the allowed names.
        key = automaton, living.tobytes()
        if key not in self._names:
            self._names[key] = self_loops(automaton.among(living), automaton.byte_class, ascii_only)
        return self._names[key]

    def whole(self, trie: Trie, nodes: NDArray[Any], states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """For each pair of a node and a state, whether every token below the node is known to be allowed."""
        outside: NDArray[np.uint64] = trie.low.take(nodes) & self._leaving.low.take(states)
        outside |= trie.high.take(nodes) & self._leaving.high.take(states)
        outside |= trie.marks.take(nodes) & self._leaving.marks.take(states)
        whole: NDArray[np.bool_] = (outside == 0) & (trie.height.take(nodes) <= self._room.take(states))
        return whole
