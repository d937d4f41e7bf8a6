"""Whether tokens can lead to a state of an automaton from which tokens cannot reach acceptance.

A vocabulary need not have every byte as a token. A state from which acceptance can be reached with bytes may then be a
trap for tokens: a text that gets there can neither end nor go on.
"""

from __future__ import annotations

import numpy as np

from logitloom.automata.dfa import Dfa
from logitloom.automata.reach import ends_reachable, reachable
from logitloom.automata.trie import Trie

__all__ = ["every_state_can_go_on"]


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
