"""Search for many strings at once.

One automaton reads the text byte by byte. The automaton's state says which of the strings, if any, the last byte
completed. Three languages are derived from the search automaton: texts that contain one of the strings, texts that
avoid all strings, and texts that end when a string is complete.

References:
    A. V. Aho and M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.errors import OptionError

__all__ = ["AhoCorasick", "Match", "StopAutomaton", "search_table"]


class Match(NamedTuple):
    """An occurrence of a string: ``data[start:end]``, in bytes of the piece of text that was just read.

    ``start`` is negative if the string began in an earlier piece. ``string`` is the string's number.
    """

    string: int
    start: int
    end: int


class StopAutomaton(NamedTuple):
    """An automaton that accepts every byte string, and its states in which a stop string is complete.

    Attributes:
        dfa: the automaton; every transition from a state in ``closing`` leads back to that state.
        closing: for each state in which a stop string is complete, the number of the string that was completed first.
    """

    dfa: Dfa
    closing: dict[int, int]


def search_table(
    children: Sequence[dict[int, int]], found: list[int], width: int, tracker: BudgetTracker
) -> NDArray[np.int32]:
    """The transitions of a search automaton, from a prefix trie.

    Two nodes may share a child if two conditions hold: the subtree below the child is the same on every path to it, and
    both nodes reach the child by the same bytes.

    Args:
        children: per node its child per column; node 0 is the root.
        found: per node, the string that is complete at the node, or -1; changed in place to the longest string that
            ends at the node.
        width: number of columns.
        tracker: the limits.

    Returns:
        ``[nodes, width] int32``.
    """
    tracker.check_bytes(4 * len(children) * width)
    table = np.zeros((len(children), width), dtype=np.int32)
    fallback = [-1] * len(children)
    fallback[0] = 0
    queue = [0]
    for state in queue:
        # A state has the transitions of its longest proper suffix, except where it has a child in the trie.
        table[state] = table[fallback[state]]
        for column, child in children[state].items():
            if fallback[child] >= 0:
                continue
            fallback[child] = int(table[state, column]) if state else 0
            if found[child] < 0:
                found[child] = found[fallback[child]]
            queue.append(child)
        for column, child in children[state].items():
            table[state, column] = child
        if len(queue) % 1024 == 0:
            tracker.check_time()
    return table


class AhoCorasick:
    """An automaton that finds strings in a stream of bytes.

    Args:
        strings: the strings to find; a ``str`` is encoded in UTF-8.
        budget: the limits of the construction.

    Attributes:
        strings: the strings as bytes, in the given order without repetitions.
        byte_class: ``[256] uint8``.
        next: ``[states, classes] int32``; state 0 is the start and nothing is dead.
        found: ``[states] int32``, the longest string that is complete in a state, or -1.

    Raises:
        OptionError: if there are no strings, or one of them is empty.

    Example:
        >>> finder = AhoCorasick(["stop", "top hat"])
        >>> state, match = finder.scan(0, b"a st")
        >>> finder.scan(state, b"op here")[1]
        Match(string=0, start=-2, end=2)
    """

    def __init__(self, strings: Iterable[str | bytes], *, budget: Budget | None = None) -> None:
        try:
            given = [s.encode() if isinstance(s, str) else bytes(s) for s in strings]
        except UnicodeEncodeError as error:
            raise OptionError(f"A string to search for holds half a surrogate pair: {error.object!r:.100}.") from error
        self.strings: tuple[bytes, ...] = tuple(dict.fromkeys(given))
        if not self.strings:
            raise OptionError("No strings to search for were given. Give at least one.")
        if b"" in self.strings:
            raise OptionError(
                f"The string at index {given.index(b'')} is empty, and an empty string occurs before anything is "
                f"written. Leave it out."
            )
        tracker = BudgetTracker(budget, "the search automaton")
        used = sorted(set(b"".join(self.strings)))
        classes = np.full(256, len(used), dtype=np.int64)
        classes[used] = np.arange(len(used))
        width = len(used) + (len(used) < 256)
        self.byte_class: NDArray[np.uint8] = classes.astype(np.uint8)
        children, found = self._prefix_tree(classes.tolist(), tracker)
        self.next: NDArray[np.int32] = search_table(children, found, width, tracker)
        self.found: NDArray[np.int32] = np.array(found, dtype=np.int32)
        for array in (self.byte_class, self.next, self.found):
            array.setflags(write=False)

    def _prefix_tree(self, classes: list[int], tracker: BudgetTracker) -> tuple[list[dict[int, int]], list[int]]:
        children: list[dict[int, int]] = [{}]
        found = [-1]
        for index, string in enumerate(self.strings):
            state = 0
            for byte in string:
                row = children[state]
                if classes[byte] not in row:
                    row[classes[byte]] = len(children)
                    children.append({})
                    found.append(-1)
                state = row[classes[byte]]
            found[state] = index
            if index % 256 == 0:
                tracker.check_states(len(children))
        tracker.check_states(len(children))
        return children, found

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.found)

    def scan(self, state: int, data: bytes) -> tuple[int, Match | None]:
        """Read on from a state up to the first end of a match.

        Args:
            state: 0 at the beginning, later the state that the previous call returned.
            data: the next piece of the text.

        Returns:
            The state after the piece, or after the match if there is one, and the match. The match that ends first
            counts, and among matches with the same end the longest counts.
        """
        for position, byte in enumerate(data):
            state = int(self.next[state, self.byte_class[byte]])
            index = int(self.found[state])
            if index >= 0:
                end = position + 1
                return state, Match(index, end - len(self.strings[index]), end)
        return state, None

    def find(self, text: str | bytes) -> Match | None:
        """The first match in a whole text, or ``None``."""
        return self.scan(0, text.encode() if isinstance(text, str) else text)[1]

    def containing(self) -> Dfa:
        """Byte strings in which at least one of the strings occurs."""
        matched = self.found >= 0
        table = np.where(matched[self.next], self.states, self.next)
        table = np.append(table, np.full((1, table.shape[1]), self.states), axis=0)
        accepting = np.zeros(self.states + 1, dtype=bool)
        accepting[-1] = True
        return Dfa(self.byte_class, table, accepting).trimmed()

    def avoiding(self) -> Dfa:
        """Byte strings in which none of the strings occurs."""
        matched = self.found >= 0
        table = np.where(matched[self.next], DEAD, self.next)
        return Dfa(self.byte_class, table, ~matched).trimmed()

    def stopping(self) -> StopAutomaton:
        """The automaton of every byte string, with one absorbing state per string that may be completed first.

        With ``TokenAutomaton(stop.dfa, vocabulary, closing=list(stop.closing))`` only end-of-sequence is allowed after
        a match, also if the match ends inside a token.
        """
        strings = len(self.strings)
        found = self.found[self.next]
        table = np.where(found >= 0, self.states + found, self.next)
        stay = np.repeat(np.arange(strings)[:, None] + self.states, table.shape[1], axis=1)
        accepting = np.ones(self.states + strings, dtype=bool)
        dfa = Dfa(self.byte_class, np.append(table, stay, axis=0), accepting)
        return StopAutomaton(dfa, {self.states + index: index for index in range(strings)})
