"""The walk of a trie inside strings: one table of next states per content, and no machine state for each of them.

The compiled loop is that of patterns (:class:`.automaton_kernels.AutomatonKernels`); without it whole levels of
the trie are walked at once. All words below a node are allowed without a visit if their characters lead along a path
that is known. Quotes and backslashes are left to the caller, who knows what follows the string.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import joined, members
from logitloom.automata.automaton_kernels import (
    ENDLESS,
    NO_PATHS,
    SHORT,
    AutomatonKernels,
    Paths,
    WalkProgress,
    automaton_kernels,
)
from logitloom.automata.lift.above_ascii import marks_above_ascii
from logitloom.automata.lift.row_walk import ascii_columns, default_transitions, followed, levels_of, reads_on
from logitloom.automata.lift.trie import HIGH_PARTIAL, Trie
from logitloom.automata.lift.walk_memory import MEMORY
from logitloom.masks.kernels import ByteTable, KernelFailed
from logitloom_plugins.json_schema.structure.string_states import DEAD, NameContext, StringContext
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine
from logitloom_plugins.json_schema.values.strings import Content

__all__ = ["ContentWalk", "Ends"]

#: Entries of a table that is worth its memory.
_MOST_ENTRIES: Final = 1 << 22
#: Above this number of nodes a level is searched for subtrees that may be skipped.
_MANY: Final = 64
#: States from which all words have been walked.
_MOST_WALKED: Final = 4
#: States whose paths are followed for more than one character.
_MOST_FOLLOWED: Final = 1 << 13
_QUOTE, _BACKSLASH = b'"\\'

#: Where strings end or an escape begins: a node, state and number of characters before it, and whether it is the end.
Ends = list[tuple[int, tuple[int, int], bool]]
#: Positions of words; for each of them an index into a list; that list, of states with numbers of characters; and ends.
Reached = tuple[NDArray[Any], NDArray[np.int64], list[tuple[int, int]], Ends]


class _Table(NamedTuple):
    """The automaton of a content, with codes for quotes and backslashes: ``-2 - 2 * state``, and one less.

    Where characters are counted, its states are pairs: ``(count - first) * states + state``.

    Attributes:
        automaton: the table.
        states: number of states of the content.
        first: the least number of characters.
        paths: which subtrees may be skipped, by the height of a trie for which that is known.
    """

    automaton: ByteTable
    states: int
    first: int
    paths: dict[int, Paths]

    def pairs(self, begun: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Nodes with the table's states, of nodes with a state of the content and a number of characters each."""
        return [(node, (count - self.first) * self.states + content_state) for node, content_state, count in begun]


class ContentWalk:
    """Walks inside the strings of one machine.

    Args:
        plain: ``[256]``, whether a byte stands for itself.
    """

    def __init__(self, plain: NDArray[np.bool_]) -> None:
        self._plain = plain
        self._tables: dict[Any, _Table | None] = {}
        #: By trie, table, state and number of characters where all words lead.
        self._walked: dict[Any, tuple[Trie, Reached]] = {}

    def __call__(
        self, trie: Trie, context: StringContext, begun: list[tuple[int, int, int]]
    ) -> tuple[NDArray[Any], Ends] | None:
        """The words below nodes of a trie that stay inside a string.

        Args:
            trie: the words.
            context: the string.
            begun: nodes with the state of the content and the number of characters at each.

        Returns:
            The positions of the words in the trie's order, and where strings end; ``None`` if the table is too large.
        """
        table = self._table(context, trie, begun)
        if table is None:
            return None
        pairs = table.pairs(begun)
        kernels = automaton_kernels()
        walked = None
        if kernels is not None:
            with suppress(KernelFailed):
                walked = self._compiled(kernels, table, trie, pairs)
        if walked is None:
            positions, _, special = self._by_levels(table, trie, pairs)
            walked = positions, special
        return walked[0], _ends(table, walked[1])

    def reached(self, trie: Trie, context: StringContext, begun: list[tuple[int, int, int]]) -> Reached | None:
        """The same, and where each of the words leads.

        Returns:
            The positions of the words in the trie's order; for each of them an index into the list that comes next, of
            states of the content with the number of characters; and where strings end. ``None`` if the table is too
            large.
        """
        table = self._table(context, trie, begun)
        if table is None:
            return None
        if [node for node, _, _ in begun] == [0]:
            return self._from_root(trie, context, *begun[0][1:])
        return self._reached(table, trie, begun)

    def _from_root(self, trie: Trie, context: StringContext, state: int, count: int) -> Reached:
        """The same for all words, remembered: where any character may come, by the number of characters."""
        content, table = context.content, self._table(context, trie, [(0, state, count)])
        counts = content.counts and content.free
        if counts:
            # From how many characters on makes no difference to where the words lead.
            key: Any = content.automaton, context.escapes is not False
            if key not in self._tables:
                longest = int(trie.height[0]) + 1
                following = Content(content.automaton, [(0, {(): ()}), (longest, {(): ()})]).counted_steps()
                self._tables[key] = self._made(following, content.automaton, context.escapes is not False)
            table = self._tables[key]
        assert table is not None
        begun = 0, state, 0 if counts else count
        # The trie is kept, so that no other gets its identity.
        key = id(trie), id(table), begun
        if key not in self._walked:
            if len(self._walked) >= _MOST_WALKED:
                self._walked.clear()
            self._walked[key] = trie, self._reached(table, trie, [begun])
        known = self._walked[key][1]
        if not counts:
            return known
        positions, which, more, ends = known
        states = [(at, content.counted(count + each)) for at, each in more]
        alive = np.array([content.alive(at, count + each) for at, each in more], dtype=bool)
        if not alive.all():
            kept = alive.take(which)
            positions, which = positions[kept], which[kept]
        # Of other ends nobody could go on.
        ends = [(node, (at, content.counted(count + each)), is_end) for node, (at, each), is_end in ends
                if content.alive(at, count + each)]  # fmt: skip
        return positions, which, states, ends

    def _reached(self, table: _Table, trie: Trie, begun: list[tuple[int, int, int]]) -> Reached:
        pairs = table.pairs(begun)
        positions, states, special = self._by_levels(table, trie, pairs, keep_states=True)
        here = np.zeros(len(table.automaton.next), dtype=bool)
        here[states] = True
        different = here.nonzero()[0]
        which = (here.cumsum() - 1).take(states)
        counted = [divmod(state, table.states) for state in different.tolist()]
        reached = [(content_state, table.first + count) for count, content_state in counted]
        return positions, which, reached, _ends(table, special)

    def _compiled(
        self, kernels: AutomatonKernels, table: _Table, trie: Trie, begun: list[tuple[int, int]]
    ) -> tuple[NDArray[Any], list[list[int]]]:
        pairs, notes = MEMORY.of(trie.nodes, len(trie.order))
        pairs[: len(begun)] = begun
        at, paths, limit = WalkProgress(0, len(begun), 0, len(pairs), 0), NO_PATHS, SHORT
        while at.begin < at.end:
            at = kernels.walk(table.automaton, trie.records, trie.byte, paths, pairs, notes, at, limit)
            if at.begin < at.end:
                paths, limit = self._paths(table, trie), ENDLESS
        listed, marked = notes
        positions = listed[: at.found].copy() if at.found <= len(listed) else marked.view(bool).nonzero()[0]
        return positions, pairs[at.special :].tolist()

    def _by_levels(
        self, table: _Table, trie: Trie, begun: list[tuple[int, int]], keep_states: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any], list[list[int]]]:
        """The same without compiled loops, and the state after each word if they are to be kept."""
        following, _, byte_class = table.automaton
        nodes, states = np.array(begun).T
        positions: list[NDArray[Any]] = []
        after: list[NDArray[Any]] = []
        special: list[list[int]] = []
        if keep_states:
            default = default_transitions(following, ascii_columns(byte_class[:128].tobytes()))
            loops = default == np.arange(len(following))
        while len(nodes):
            counts = trie.child_count.take(nodes)
            nodes = members(trie.child_start.take(nodes), counts)
            states = following[states.repeat(counts), byte_class.take(trie.byte.take(nodes))]
            ended = states < DEAD
            special += np.stack([nodes[ended], states[ended]], axis=1).tolist()
            alive = states >= 0
            nodes, states = nodes[alive], states[alive]
            ends = trie.own.take(nodes)
            if len(nodes) > _MANY:
                whole = reads_on(self._paths(table, trie), trie, nodes, states)
                if keep_states:
                    # Most characters do not leave the state. A token that ends within a character does.
                    whole &= loops.take(states) & (trie.marks.take(nodes) & HIGH_PARTIAL == 0)
                ends = np.where(whole, trie.last.take(nodes), ends)
            first = trie.first.take(nodes)
            positions.append(members(first, ends - first))
            if keep_states:
                after.append(states.repeat(ends - first))
            if len(nodes) > _MANY:
                nodes, states = nodes[~whole], states[~whole]
        return joined(positions), joined(after), special

    def _table(self, context: StringContext, trie: Trie, begun: list[tuple[int, int, int]]) -> _Table | None:
        """The table of a content: of all numbers of characters, or of those that the words reach if these are many."""
        content, automaton = context.content, context.content.automaton
        first, last = 0, content.points[-1] if content.counts else 0
        if (last + 1) * automaton.next.size > _MOST_ENTRIES and begun:
            counts, height = [count for _, _, count in begun], int(trie.height[0])
            first, last = content.window(min(counts), min(max(counts) + height, last), height)
        key: Any = (content, first, last) if content.counts else automaton
        if isinstance(context, NameContext) and not context.is_free:
            living = context.living()
            key = automaton, living.tobytes()
        if key not in self._tables:
            known = None
            if (last - first + 1) * automaton.next.size <= _MOST_ENTRIES and automaton.classes < 0x100 - 3:
                if content.counts:
                    following = content.counted_steps(first, last)
                else:
                    following = automaton.among(living) if type(key) is tuple else automaton.next
                known = self._made(following, automaton, context.escapes is not False, first)
            self._tables[key] = known
        return self._tables[key]

    def _made(self, following: NDArray[np.int32], automaton: MooreMachine, escapes: bool, first: int = 0) -> _Table:
        pairs, classes = following.shape
        counts = pairs // automaton.states
        byte_class = automaton.byte_class.copy()
        byte_class[~self._plain] = classes
        byte_class[_QUOTE], byte_class[_BACKSLASH] = classes + 1, classes + 2
        table = np.full((pairs, classes + 3), -1, dtype=np.int32)
        table[:, :classes] = following
        codes = -2 - 2 * np.arange(pairs, dtype=np.int32)
        between = np.tile(np.frombuffer(automaton.boundaries, dtype=bool), counts)
        table[:, classes + 1] = np.where(np.tile(automaton.accepting, counts) & between, codes, -1)
        if escapes:
            table[:, classes + 2] = np.where(between, codes - 1, -1)
        return _Table(ByteTable(table, np.ones(pairs, dtype=bool), byte_class), automaton.states, first, {})

    def _paths(self, table: _Table, trie: Trie) -> Paths:
        """Which characters leave the path that most characters take, counting them where the content does."""
        following, _, byte_class = table.automaton
        heights = int(trie.height[0])
        if heights not in table.paths:
            kernels = automaton_kernels()
            columns = ascii_columns(byte_class[:128].tobytes())
            levels = max(heights - 1, 0).bit_length() if following.shape[0] <= _MOST_FOLLOWED else 0
            default = default_transitions(following, columns)
            given = marks_above_ascii(following, byte_class, default)
            low, high, marks = followed(kernels, following, columns, default, given, levels)
            rows = levels_of(trie, levels) * (len(following) + 1)
            table.paths[heights] = Paths(low, high, marks, rows, len(following))
        return table.paths[heights]


def _ends(table: _Table, special: list[list[int]]) -> Ends:
    """Nodes with the codes of quotes and backslashes, read."""
    ends: Ends = []
    for node, code in special:
        count, content_state = divmod((-2 - code) >> 1, table.states)
        ends.append((node, (content_state, table.first + count), not code & 1))
    return ends
