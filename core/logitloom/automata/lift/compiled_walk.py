"""Which tokens a state allows, with compiled loops: the walk of :mod:`.level_walk` with kernels of a plug-in."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.automaton_kernels import ENDLESS, NO_PATHS, SHORT, AutomatonKernels, Notes, WalkProgress
from logitloom.automata.lift.level_walk import WalkTable, one_by_one
from logitloom.automata.lift.trie import Trie
from logitloom.automata.lift.trie_walk import bytes_at
from logitloom.automata.lift.walk_arrays import ARRAYS, note
from logitloom.contract import TokenSet

__all__ = ["compiled_positions", "compiled_set"]

#: The fixed cost of a compiled walk, expressed as a number of nodes.
_SETUP: Final = 1000
#: If fewer tokens than this remain below the nodes of a walk, the walk continues node by node, which is faster.
_THIN: Final = 512


def compiled_positions(
    kernels: AutomatonKernels, trie: Trie, table: WalkTable, begun: list[tuple[int, int]]
) -> tuple[NDArray[Any], list[list[int]]]:
    """The tokens below some nodes, and what is left to the caller.

    Args:
        kernels: the compiled loops.
        trie: the trie of a vocabulary.
        table: an automaton with a table.
        begun: nodes, each with the state at the node.

    Returns:
        The positions of the tokens in ``Trie.order``, in no order, and the pairs of :attr:`.level_walk.Walked.left`.
    """
    pairs, notes = ARRAYS.of(trie.nodes, len(trie.order))
    at, _ = _walk(kernels, trie, table, begun, pairs, notes)
    listed, marked = notes
    positions = listed[: at.found].copy() if at.found <= len(listed) else marked.view(bool).nonzero()[0]
    return positions, pairs[at.special :].tolist()


def compiled_set(
    kernels: AutomatonKernels,
    trie: Trie,
    table: WalkTable,
    state: int,
    free: NDArray[np.int32],
    textless: NDArray[np.int32],
    size: int,
) -> tuple[TokenSet, int]:
    """The token set of a state, with further ids as in :func:`.level_walk.walked_set`, and the cost in nodes."""
    with ARRAYS.room(trie.nodes, len(trie.order)) as (pairs, notes):
        at, visited = _walk(kernels, trie, table, [(0, state)], pairs, notes)
        return TokenSet(*kernels.collect(notes, trie.order, at.found, free, textless, size)), visited + _SETUP


def _walk(
    kernels: AutomatonKernels,
    trie: Trie,
    table: WalkTable,
    begun: list[tuple[int, int]],
    pairs: NDArray[np.int32],
    notes: Notes,
) -> tuple[WalkProgress, int]:
    """Walk until nothing is left, or only what the table leaves to the caller; and the number of visited nodes."""
    pairs[: len(begun)] = begun
    at, paths, limit, visited = WalkProgress(0, len(begun), 0, len(pairs), 0), NO_PATHS, SHORT, 0
    if table.has_paths:
        paths, limit = table.paths(trie), ENDLESS
    # A loop that meets a row that is not filled ends, and begins again with the row.
    table.fill(pairs[: len(begun), 1])
    while (automaton := table.automaton) is not None:
        at = kernels.walk(automaton, trie.records, trie.byte, paths, pairs, notes, at, limit)
        table.reads(pairs[: at.end, 1])
        if at.begin < at.end and limit == SHORT:
            # Earlier walks may have computed the transitions of a large part of the trie.
            paths, limit = table.paths(trie), ENDLESS
            continue
        if at.begin < at.end:
            nodes, states = pairs[at.begin : at.end].T
            below, *_ = one_by_one(trie, table, nodes, states, [])
            found = note(notes, trie.first.take(below), trie.own.take(below), at.found)
            at = at._replace(begin=at.end, found=found)
        if at.waiting:
            # All waiting states are expanded together, so the loop runs at most once per byte of the longest token.
            visited += at.end
            table.fill(pairs[: at.waiting, 1])
            at = at._replace(begin=0, end=at.waiting, waiting=0)
            continue
        left = pairs[at.special :]
        nodes = left[:, 0]
        reached = table.computed(-2 - left[:, 1], bytes_at(trie, nodes)) if len(left) else None
        if reached is None:
            return at, visited + at.end
        further = int((trie.last.take(nodes) - trie.own.take(nodes)).sum(where=reached >= 0))
        if paths.known >= 0 or further > table.least_tokens:
            paths = table.paths(trie)
        limit = 0 if further < _THIN else ENDLESS
        at = WalkProgress(0, 0, 0, len(pairs), at.found, at.special)
    raise ValueError(f"{table!r} has no table for compiled loops.")
