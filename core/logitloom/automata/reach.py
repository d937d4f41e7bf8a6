"""Which states of a table can be reached, and from which states an end can be reached.

For tokens this is a question of its own: a vocabulary need not have every byte as a token. Then a state from
which acceptance can be reached with bytes may be a trap for tokens: a text that gets there can neither end nor go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from logitloom.automata.dfa import Dfa
    from logitloom.automata.trie import Trie

__all__ = ["ends_reachable", "every_state_can_go_on", "reachable"]


def every_state_can_go_on(dfa: Dfa, trie: Trie) -> bool:
    """Whether single-byte tokens alone show that no state that tokens can reach is a trap.

    True is certain; False means that only the table of all tokens can tell.
    """
    if trie.every_byte:
        return not dfa.is_empty
    live = (dfa.next >= 0).any(axis=0)
    single = np.zeros(dfa.classes, dtype=bool)
    single[dfa.byte_class[trie.single >= 0]] = True
    usable = live & single
    if np.array_equal(usable, live):
        return not dfa.is_empty
    # Steps on bytes that no single token writes, but longer tokens contain, need the full answer.
    contained = np.zeros(dfa.classes, dtype=bool)
    contained[dfa.byte_class[trie.byte[1:]]] = True
    if (live & ~single & contained).any():
        return False
    # The other missing bytes occur in no token: the automaton without them is what tokens can walk.
    table = dfa.next[:, usable]
    reached = reachable(table, dfa.start)
    return bool(ends_reachable(table, dfa.accepting)[reached].all())


def reachable(table: NDArray[np.int32], start: int) -> NDArray[np.bool_]:
    """``[states] bool``: which states of a table (-1 and below: no step) can be reached from one."""
    seen = np.zeros(len(table), dtype=bool)
    frontier = np.array([start])
    while len(frontier):
        seen[frontier] = True
        targets = np.zeros(len(table) + 1, dtype=bool)
        targets[np.maximum(table[frontier], -1)] = True
        frontier = (targets[:-1] & ~seen).nonzero()[0]
    return seen


def ends_reachable(table: NDArray[np.int32], goal: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[states] bool``: from which states of a table (below 0: no step) some state of ``goal`` can be reached."""
    source, column = (table >= 0).nonzero()
    target = table[source, column]
    by_target = target.argsort(kind="stable")
    source = source[by_target]
    bounds = np.searchsorted(target[by_target], np.arange(len(table) + 1))
    alive = goal.copy()
    frontier = goal.nonzero()[0]
    while len(frontier):
        counts = bounds[frontier + 1] - bounds[frontier]
        ends = counts.cumsum()
        index = np.arange(int(ends[-1])) + (bounds[frontier] - ends + counts).repeat(counts)
        found = np.zeros(len(table), dtype=bool)
        found[source[index]] = True
        frontier = (found & ~alive).nonzero()[0]
        alive[frontier] = True
    return alive
