"""Whether tokens can lead to a state of an automaton from which tokens cannot reach acceptance.

A vocabulary need not have every byte as a token. A state from which bytes can reach acceptance and tokens cannot is a
trap: a text in this state can neither end nor be completed.
"""

from __future__ import annotations

import numpy as np

from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.reach import ends_reachable, reachable
from logitloom.automata.lift.trie import Trie

__all__ = ["every_state_can_go_on"]


def every_state_can_go_on(dfa: Dfa, trie: Trie) -> bool:
    """Whether single-byte tokens alone prove that no state that tokens can reach is a trap.

    If False, only the table of all tokens can decide it.
    """
    if trie.every_byte:
        return not dfa.is_empty
    live = (dfa.next >= 0).any(axis=0)
    single = np.zeros(dfa.classes, dtype=bool)
    single[dfa.byte_class[trie.single >= 0]] = True
    usable = live & single
    if np.array_equal(usable, live):
        return not dfa.is_empty
    # Bytes that are not single-byte tokens, but occur in longer tokens, need the table of all tokens.
    contained = np.zeros(dfa.classes, dtype=bool)
    contained[dfa.byte_class[trie.byte[1:]]] = True
    if (live & ~single & contained).any():
        return False
    # The other missing bytes occur in no token, so tokens use only the transitions of the remaining bytes.
    table = dfa.next[:, usable]
    reached = reachable(table, dfa.start)
    return bool(ends_reachable(table, dfa.accepting)[reached].all())
