"""A lazy DFA: a deterministic automaton over bytes whose states are computed when they are visited.

A lazy DFA accepts the same texts as the whole automaton (:class:`logitloom.automata.Dfa`) of the same pattern. Only the
position automaton is built in advance, so patterns whose DFA would have millions of states are supported: each byte
adds at most one state.

Between two characters a state is a set of positions, packed as bytes. Between the bytes of one character a state is a
pair of the state before that character and a node of the trie of UTF-8 encodings.

References:
    K. Thompson, "Regular expression search algorithm", 1968: sets of positions, computed while the text is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import distinct
from logitloom.automata.deterministic.alphabet import Alphabet
from logitloom.automata.deterministic.near_end import PositionsNearEnd
from logitloom.automata.deterministic.position_runs import PositionRuns
from logitloom.automata.deterministic.subsets import SubsetAutomaton
from logitloom.automata.patterns.position_completions import BYTE_ORDER
from logitloom.automata.patterns.utf8 import DEAD
from logitloom.contract import ByteAutomaton, NearEnd, Run, State, TextTokens

__all__ = ["LazyDfa"]

#: The approximate size in bytes above which the cache of rows is cleared.
_MOST_BYTES: Final = 16 << 20
#: So few steps are faster one by one.
_FEW: Final = 32


class _TransitionRow(NamedTuple):
    """The transitions of a state between two characters.

    Attributes:
        codes: by class of bytes: a node, ``DEAD``, or ``-2 - n`` for the next state ``targets[n]``.
        nodes: the codes at each node, as in :class:`.utf8.Shape`.
        targets: the next states between two characters, each once.
        completions: by the index of a target, its completion, once it was requested.
    """

    codes: list[int]
    nodes: NDArray[np.intp]
    targets: list[bytes]
    completions: dict[int, bytes]


class LazyDfa(ByteAutomaton):
    """The lazy DFA of a pattern; made by :func:`logitloom.automata.compile_automaton`.

    Args:
        subsets: the automaton over classes of characters.
        letters: the classes of characters.
        name: the name in the ``repr``.

    Example:
        >>> from logitloom.automata import compile_automaton
        >>> lazy = compile_automaton(r"(?:.*a.{9}b){2}")
        >>> state = lazy.start()
        >>> for byte in b"xa123456789ba123456789b":
        ...     state = lazy.step(state, byte)
        >>> lazy.accepts(state)
        True
    """

    def __init__(self, subsets: SubsetAutomaton[Any], letters: Alphabet, name: str = "a pattern") -> None:
        self._subsets = subsets
        self._letters = letters
        self._name = name
        self._split = letters.ascii_classes
        self._column_of: list[int] = letters.byte_class.tolist()
        self._start = subsets.packed(subsets.start)
        self._known: dict[bytes, _TransitionRow] = {}
        self._known_bytes = 0
        self._tails_below: dict[tuple[int, int], tuple[NDArray[np.intp], list[tuple[bytes, int]]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_runs"} | {
            "_known": {},
            "_known_bytes": 0,
            "_tails_below": {},
        }

    def __repr__(self) -> str:
        return f"LazyDfa({self._name})"

    @property
    def fingerprint(self) -> bytes:
        """A hash of the position automaton."""
        return hashlib.blake2b(b"lazy" + self._subsets.fingerprint, digest_size=16).digest()

    def start(self) -> State:
        """The start state: the positions with which a text may begin."""
        return self._start

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte."""
        column = self._column_of[byte]
        if type(state) is bytes:
            origin, row = state, self._known.get(state) or self._row(state)
            code = row.codes[column]
        else:
            if column < self._split:
                return None
            origin, node = cast(tuple[bytes, int], state)
            row = self._known.get(origin) or self._row(origin)
            code = int(row.nodes[node, column - self._split])
        if code >= 0:
            return (origin, code)
        return None if code == DEAD else row.targets[-2 - code]

    def steps(
        self, states: Sequence[State], which: NDArray[np.intp], read: NDArray[np.uint8]
    ) -> tuple[list[State], NDArray[np.intp]]:
        """See :meth:`.ByteAutomaton.steps`."""
        if len(read) < _FEW:
            return super().steps(states, which, read)
        # By state its codes, and the number of the state before the current character.
        table = np.full((len(states), self._split + self._letters.high.columns), DEAD)
        rows: dict[bytes, tuple[int, _TransitionRow]] = {}
        origins = np.zeros(len(states), dtype=np.intp)
        for at, state in enumerate(states):
            origin, node = (state, None) if type(state) is bytes else cast(tuple[bytes, int], state)
            if origin not in rows:
                rows[origin] = len(rows), self._known.get(origin) or self._row(origin)
            origins[at], row = rows[origin]
            if node is None:
                table[at] = row.codes
            else:
                table[at, self._split :] = row.nodes[node]
        codes, index = table[which, self._letters.byte_class.take(read)], np.full(len(read), -1)
        alive = (codes != DEAD).nonzero()[0]
        # A next state is told by the state before the current character and a code: one number for both.
        least = int(table.min())
        width = int(table.max()) - least + 1
        pairs = origins.take(which.take(alive)) * width + (codes.take(alive) - least)
        found = distinct(pairs, width * len(rows))
        index[alive] = found.searchsorted(pairs)
        by_number, reached = [(origin, row.targets) for origin, (_, row) in rows.items()], list[State]()
        for pair in found.tolist():
            origin, targets = by_number[pair // width]
            code = pair % width + least
            reached.append((origin, code) if code >= 0 else targets[-2 - code])
        return reached, index

    def accepts(self, state: State) -> bool:
        """Whether the text may end here."""
        return type(state) is bytes and self._subsets.accepts(self._subsets.unpacked(state))

    def alternatives(self, state: State) -> Sequence[State]:
        """One state per position of the state; within a character the state itself."""
        if type(state) is not bytes:
            return (state,)
        return [self._subsets.packed(part) for part in self._subsets.members(self._subsets.unpacked(state))]

    def completion(self, state: State) -> bytes | None:
        """The shortest text to the end; ``None`` for patterns with boundaries and very many transitions."""
        completions = self._subsets.completions
        if completions is None:
            return None
        if type(state) is bytes:
            # There are no positions if the pattern matches no text.
            positions = self._subsets.read_next(self._subsets.unpacked(state))
            return completions.shortest(positions) if positions else None
        origin, node = cast(tuple[bytes, int], state)
        row = self._known.get(origin) or self._row(origin)
        found = []
        for tail, target in self._tails(row, node):
            if target not in row.completions:
                row.completions[target] = self.completion(row.targets[target]) or b""
            found.append(tail + row.completions[target])
        return min(found, key=lambda text: (len(text), text.translate(BYTE_ORDER)))

    def completion_bytes(self) -> frozenset[int] | None:
        """The bytes of the texts of all positions, and those that may end a character."""
        completions = self._subsets.completions
        return None if completions is None else completions.used

    def near_end(self, tokens: TextTokens) -> NearEnd | None:
        """By the positions of a state; ``None`` if tokens cannot write all completions."""
        completions = self._subsets.completions
        distances = None if completions is None else completions.distances(tokens)
        if completions is None or distances is None:
            return None
        return PositionsNearEnd(self._subsets, lambda: self._runs, completions, distances)

    def _tails(self, row: _TransitionRow, node: int) -> list[tuple[bytes, int]]:
        """For each target of a row below a node the first bytes, in the order of bytes, that end a character there."""
        # Rows of one shape share their array of nodes. The entry of the cache refers to the array, so that no other
        # array gets the same ``id``.
        known = self._tails_below.get((id(row.nodes), node))
        if known is None:
            known = self._tails_below[id(row.nodes), node] = row.nodes, [*self._ends_below(row.nodes, node)]
        return known[1]

    def _ends_below(self, nodes: NDArray[np.intp], node: int) -> Iterator[tuple[bytes, int]]:
        reached: set[int] = set()
        codes = nodes[node].tolist()
        for byte in range(0x80, 0xC0):
            code = codes[self._column_of[byte] - self._split]
            if code == DEAD or code in reached:
                continue
            reached.add(code)
            if code < 0:
                yield bytes([byte]), -2 - code
            else:
                yield from ((bytes([byte]) + tail, target) for tail, target in self._ends_below(nodes, code))

    def runs(self, state: State) -> Sequence[Run]:
        """The largest runs of single positions of the state; within a character none."""
        return self._runs.of(self._subsets.positions(self._subsets.unpacked(state))) if type(state) is bytes else ()

    def beginnings(self, state: State, length: int) -> State | None:
        """By the positions of the state; within a character ``None``."""
        if type(state) is not bytes:
            return None
        found = self._subsets.beginnings(self._subsets.unpacked(state), length)
        return None if found is None else self._subsets.packed(found)

    @cached_property
    def _runs(self) -> PositionRuns:
        return PositionRuns(self._subsets, self._letters)

    def byte_classes(self) -> NDArray[np.uint8]:
        """The byte classes of the pattern's character sets."""
        return self._letters.byte_class

    def fullmatch(self, text: bytes | str) -> bool:
        """Whether the whole text is accepted. A ``str`` that UTF-8 cannot encode is not accepted."""
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:
                return False
        state: State | None = self._start
        for byte in text:
            state = self.step(state, byte)
            if state is None:
                return False
        return self.accepts(state)

    def _row(self, state: bytes) -> _TransitionRow:
        subsets, split = self._subsets, self._split
        found, group_of = subsets.targets(subsets.unpacked(state))
        packed = [subsets.packed(target) for target in found]
        # Groups with the same target are merged.
        number: dict[bytes, int] = {}
        high = tuple([DEAD if g < 0 else number.setdefault(packed[g], len(number)) for g in group_of[split:]])
        shape = self._letters.high.shape(high) if number else None
        code_of = [*[-2 - number.setdefault(each, len(number)) for each in packed], DEAD]  # index -1
        row = _TransitionRow(
            [code_of[group] for group in group_of[:split]]
            + ([DEAD] * self._letters.high.columns if shape is None else shape.root.tolist()),
            np.zeros((0, 0), dtype=np.intp) if shape is None else shape.nodes,
            list(number),
            {},
        )
        if self._known_bytes > _MOST_BYTES:
            self._known, self._known_bytes, self._tails_below = {}, 0, {}
        self._known[state] = row
        self._known_bytes += len(state) + sum(map(len, packed)) + 8 * len(group_of) + 500
        return row
