"""Walks of a trie by compiled loops: inside strings by tables of their own, elsewhere by the machine's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.trie import Trie, joined, members
from logitloom.automata.walk_memory import MEMORY
from logitloom.masks.kernels import ENDLESS, NO_COUNTING, HostKernels, Notes
from logitloom_plugins.json_schema.structure.machine import DEAD, Machine
from logitloom_plugins.json_schema.structure.string_states import DIGITS
from logitloom_plugins.json_schema.tokens.content_tables import ContentTable, ContentTables, Counting
from logitloom_plugins.json_schema.tokens.name_ends import end_name
from logitloom_plugins.json_schema.tokens.self_loops import UsualPaths

__all__ = ["CompiledWalk", "Few", "Marked"]

_EACH_BYTE: Final = np.arange(256, dtype=np.uint8)
_IS_DIGIT: Final = np.isin(_EACH_BYTE, sorted(DIGITS))


class Marked(NamedTuple):
    """Word by word: ``order`` in the order of the trie, and which of them are allowed."""

    order: NDArray[np.int32]
    kept: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """How many words are allowed."""
        return int(np.count_nonzero(self.kept))

    def allowed(self) -> NDArray[np.int32]:
        """The allowed words."""
        return self.order[self.kept]

    def forbidden(self) -> NDArray[np.int32]:
        """The other words."""
        return self.order[~self.kept]


class Few(NamedTuple):
    """The places of few allowed words in ``order``, each once."""

    order: NDArray[np.int32]
    places: NDArray[Any]

    @property
    def size(self) -> int:
        """How many words are allowed."""
        return len(self.places)

    def allowed(self) -> NDArray[np.int32]:
        """The allowed words."""
        return self.order.take(self.places)

    def forbidden(self) -> NDArray[np.int32]:
        """The other words."""
        return np.delete(self.order, self.places)


@dataclass(slots=True)
class _Walked:
    """A walk on its way.

    Attributes:
        pending: what is left to do, by what is remembered and the table that says what comes next (``None``: the
            machine's): pairs of a node and a state.
        entered: nodes that may be reached, of which the words are not noted yet.
        found: how many words are noted.
        written: what was written of a name before the words.
    """

    trie: Trie
    level_of: NDArray[np.int64]
    pairs: NDArray[np.int32]
    notes: Notes
    entered: list[NDArray[Any]]
    written: bytes
    pending: dict[tuple[int, ContentTable | None], list[NDArray[np.int32]]] = field(default_factory=dict)
    found: int = 0


class CompiledWalk:
    """Walks tries for one machine.

    Args:
        machine: the automaton over bytes.
        longest: characters of the longest word, at least.
        kernels: the loops.

    Attributes:
        contents: the tables of strings.
    """

    def __init__(self, machine: Machine, longest: int, kernels: HostKernels) -> None:
        self._machine = machine
        self._stacks = machine.stacks
        self._kernels = kernels
        self.contents = ContentTables(machine, longest)
        self._paths = UsualPaths(machine.strings, self.contents.has)

    def found(
        self,
        trie: Trie,
        level_of: NDArray[np.int64],
        triples: NDArray[np.int32],
        entered: list[int],
        written: bytes,
    ) -> Marked | Few:
        """The words below some nodes.

        Args:
            trie: the words.
            level_of: by the height of a subtree, from :func:`logitloom.automata.row_walk.levels_of`.
            triples: ``[n, 3]``: nodes, each with a state and what is remembered.
            entered: nodes that may be reached themselves.
            written: what was written of a name before the words.
        """
        pairs, notes = MEMORY.of(trie.nodes, len(trie.order))
        walked = _Walked(trie, level_of, pairs, notes, [np.array(entered, dtype=np.int64)], written)
        for stack in _distinct(triples[:, 2]):
            here = triples[:, 2] == stack
            self._enter(walked, triples[here, 0], triples[here, 1], stack)
        while walked.pending:
            (stack, table), groups = walked.pending.popitem()
            group = joined(groups)
            pairs[: len(group)] = group
            if table is None:
                nodes, codes = self._by_rows(walked, stack, len(group))
                self._go_on(walked, nodes, codes, stack, lambda code: code)
            else:
                nodes, codes = self._by_table(walked, table, len(group))
                self._go_on(walked, nodes, codes, stack, table.code)
        words_here = joined(walked.entered)
        first = trie.first.take(words_here)
        more = members(first, trie.own.take(words_here) - first)
        listed, marked = notes
        if walked.found <= len(listed):
            return Few(trie.order, np.concatenate([listed[: walked.found], more]))
        marked[more] = 1
        return Marked(trie.order, marked[: len(trie.order)].astype(bool))

    def _enter(self, walked: _Walked, nodes: NDArray[Any], states: NDArray[Any], stack: int) -> None:
        """Note that the children of some nodes are to be visited."""
        for state in _distinct(states):
            below = nodes[states == state]
            table, number = self.contents.find(state) if self.contents.covers(state) else (None, state)
            group = np.empty((len(below), 2), dtype=np.int32)
            group[:, 0], group[:, 1] = below, number
            walked.pending.setdefault((stack, table), []).append(group)

    def _go_on(
        self, walked: _Walked, nodes: NDArray[Any], codes: NDArray[Any], stack: int, meaning: Callable[[int], int]
    ) -> None:
        """Go on from nodes where something is remembered, forgotten or escaped."""
        trie = walked.trie
        for code in _distinct(codes):
            then = meaning(code)
            if then == DEAD:
                continue
            below = nodes[codes == code]
            if then in self._machine.naming:
                self._end_names(walked, below, then, stack)
                continue
            walked.entered.append(below)
            below = below[trie.child_count.take(below) > 0]
            if len(below):
                state, after = self._stacks.applied(then, stack) if then < DEAD else (then, stack)
                self._enter(walked, below, np.full_like(below, state), after)

    def _end_names(self, walked: _Walked, nodes: NDArray[Any], code: int, stack: int) -> None:
        """Go on from nodes where a name ends that must not come twice."""
        reached: dict[tuple[int, int], list[int]] = {}
        for node in nodes.tolist():
            after = end_name(self._stacks, walked.trie, node, code, stack, walked.written)
            reached.setdefault(after, []).append(node)
        for (state, following), group in reached.items():
            if state != DEAD:
                below = np.array(group, dtype=np.int64)
                walked.entered.append(below)
                below = below[walked.trie.child_count.take(below) > 0]
                self._enter(walked, below, np.full_like(below, state), following)

    def _by_table(self, walked: _Walked, table: ContentTable, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Visit what is below some pairs inside a string; returns nodes of quotes and backslashes, and codes."""
        pairs = walked.pairs
        paths = tuple(table.paths.paths._replace(row_of_height=walked.level_of))
        *_, special = self._walk(walked, table.automaton, paths, table.counting, (0, count, 0, len(pairs)))
        nodes, codes = pairs[special:].T.copy()
        return nodes, codes

    def _by_rows(self, walked: _Walked, stack: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Visit what is below some pairs elsewhere; returns nodes of codes below -1, and these."""
        machine, pairs = self._machine, walked.pairs
        begin, end, waiting, special = 0, count, 0, len(pairs)
        while True:
            self._paths.learn(machine.states)
            automaton, paths = (*machine.table, _EACH_BYTE), tuple(self._paths.of(walked.level_of))
            begin, end, waiting, special = self._walk(
                walked, automaton, paths, NO_COUNTING, (begin, end, waiting, special)
            )
            group = self._elsewhere(walked, pairs[:waiting].copy(), stack)
            if not len(group):
                nodes, codes = pairs[special:].T.copy()
                return nodes, codes
            machine.rows(group[:, 1])
            pairs[: len(group)] = group
            begin, end, waiting = 0, len(group), 0

    def _walk(
        self,
        walked: _Walked,
        automaton: tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]],
        paths: tuple[Any, ...],
        counting: Counting,
        places: tuple[int, int, int, int],
    ) -> tuple[int, int, int, int]:
        """Call the kernel."""
        trie = walked.trie
        begin, end, waiting, special, walked.found = self._kernels.walk(
            *(automaton, trie.records, trie.byte, trie.characters, paths, counting),
            *(walked.pairs, walked.notes, walked.found),
            *(*places, ENDLESS),
        )
        return begin, end, waiting, special

    def _elsewhere(self, walked: _Walked, group: NDArray[np.int32], stack: int) -> NDArray[np.int32]:
        """Those of some pairs for which the machine's rows are needed; the others are entered, or dropped."""
        trie = walked.trie
        needed = np.ones(len(group), dtype=bool)
        for state in _distinct(group[:, 1]):
            here = group[:, 1] == state
            if self.contents.covers(state):
                self._enter(walked, group[here, 0], group[here, 1], stack)
                needed &= ~here
            elif self._machine.states[state][0] == "hex":
                # What may follow takes a while to find out, and few words that are not JSON have digits there.
                nodes = group[here, 0]
                counts = trie.child_count.take(nodes)
                digits = _IS_DIGIT.take(trie.byte.take(members(trie.child_start.take(nodes), counts)))
                if not digits.any():
                    needed &= ~here
        left: NDArray[np.int32] = group[needed]
        return left


def _distinct(numbers: NDArray[Any]) -> list[int]:
    """Each number once, in order; there are few, and sorting arrays of few takes longer."""
    return sorted(set(numbers.tolist()))
