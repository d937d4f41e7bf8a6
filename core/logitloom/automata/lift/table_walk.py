"""The walk of a trie with a whole table, some entries of which are left to the caller.

An entry below -1 stands for what a table cannot say, such as the end of a string in a larger automaton. The walk
reports the nodes at which it meets such entries, and does not go on there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Protocol

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
from logitloom.automata.lift.row_walk import ascii_columns, default_transitions, reads_on
from logitloom.automata.lift.trie import HIGH_PARTIAL, Trie
from logitloom.automata.lift.trie_walk import bytes_at, children
from logitloom.automata.lift.walk_memory import MEMORY
from logitloom.masks.kernels import ByteTable, KernelFailed

__all__ = ["WalkTable", "reached_positions", "walked_positions"]

#: Above this number of nodes a level is searched for subtrees that may be skipped.
_MANY: Final = 64


class WalkTable(Protocol):
    """An automaton for walks in which some next states are left to the caller."""

    @property
    def automaton(self) -> ByteTable | None:
        """The whole table, with every row ready; ``None`` if next states are computed."""

    def step(self, states: NDArray[Any], read: NDArray[np.uint8], /) -> NDArray[Any]:
        """The next states for arrays of states and bytes: -1 for none, below -1 for what is left to the caller."""

    def paths(self, trie: Trie) -> Paths:
        """The paths of the table, asked for where a walk becomes long."""


def walked_positions(
    trie: Trie, table: WalkTable, begun: list[tuple[int, int]]
) -> tuple[NDArray[Any], list[list[int]]]:
    """The tokens that an automaton reads below some nodes.

    Args:
        trie: the trie.
        table: the automaton.
        begun: nodes, each with the state at the node.

    Returns:
        ``[n]``, the positions of the tokens in the trie's order, in no order; and the nodes whose entry is below -1,
        each with its entry.
    """
    kernels = automaton_kernels()
    if kernels is not None and table.automaton is not None:
        with suppress(KernelFailed):
            return _compiled(kernels, trie, table, table.automaton, begun)
    positions, _, left = _by_levels(trie, table, begun, keep_states=False)
    return positions, left


def reached_positions(
    trie: Trie, table: WalkTable, begun: list[tuple[int, int]]
) -> tuple[NDArray[Any], NDArray[Any], list[list[int]]]:
    """The same, with the state after each token: ``(positions, states, left)``."""
    return _by_levels(trie, table, begun, keep_states=True)


def _compiled(
    kernels: AutomatonKernels, trie: Trie, table: WalkTable, automaton: ByteTable, begun: list[tuple[int, int]]
) -> tuple[NDArray[Any], list[list[int]]]:
    pairs, notes = MEMORY.of(trie.nodes, len(trie.order))
    pairs[: len(begun)] = begun
    at, paths, limit = WalkProgress(0, len(begun), 0, len(pairs), 0), NO_PATHS, SHORT
    while at.begin < at.end:
        at = kernels.walk(automaton, trie.records, trie.byte, paths, pairs, notes, at, limit)
        if at.begin < at.end:
            paths, limit = table.paths(trie), ENDLESS
    listed, marked = notes
    positions = listed[: at.found].copy() if at.found <= len(listed) else marked.view(bool).nonzero()[0]
    return positions, pairs[at.special :].tolist()


def _by_levels(
    trie: Trie, table: WalkTable, begun: list[tuple[int, int]], keep_states: bool
) -> tuple[NDArray[Any], NDArray[Any], list[list[int]]]:
    """The walk without compiled loops, and the state after each token if ``keep_states``."""
    nodes, states = np.array(begun).T
    positions: list[NDArray[Any]] = []
    after: list[NDArray[Any]] = []
    left: list[list[int]] = []
    if keep_states and table.automaton is not None:
        following, _, byte_class = table.automaton
        default = default_transitions(following, ascii_columns(byte_class[:128].tobytes()))
        loops = default == np.arange(len(following))
    while len(nodes):
        nodes, counts = children(trie, nodes)
        states = table.step(states.repeat(counts), bytes_at(trie, nodes))
        ended = states < -1
        left += np.stack([nodes[ended], states[ended]], axis=1).tolist()
        alive = states >= 0
        nodes, states = nodes[alive], states[alive]
        ends, whole = trie.own.take(nodes), None
        if len(nodes) > _MANY and table.automaton is not None:
            whole = reads_on(table.paths(trie), trie, nodes, states)
            if keep_states:
                # Most characters do not leave the state. A token that ends within a character does.
                whole &= loops.take(states) & (trie.marks.take(nodes) & HIGH_PARTIAL == 0)
            ends = np.where(whole, trie.last.take(nodes), ends)
        first = trie.first.take(nodes)
        positions.append(members(first, ends - first))
        if keep_states:
            after.append(states.repeat(ends - first))
        if whole is not None:
            nodes, states = nodes[~whole], states[~whole]
    return joined(positions), joined(after), left
