"""How many tokens write a shortest text from each state of an automaton with a whole table.

A bound on the fewest tokens to the end: a longer text may take fewer tokens. It takes a walk of the trie along one text
for each state, all states at once, and no table of tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.reach import first_steps, steps_to
from logitloom.automata.lift.trie import Trie
from logitloom.automata.patterns.utf8 import DEAD

__all__ = ["tokens_of_shortest_texts"]


def tokens_of_shortest_texts(
    trie: Trie, steps: NDArray[np.int32], read: NDArray[np.uint8], left: NDArray[np.int32]
) -> NDArray[np.int32]:
    """``[states] int32``: the fewest tokens that write a shortest text from each state, -1 if there is no text.

    The text of a state without its first byte is the text of the next state, so the numbers decrease along the text.

    Args:
        trie: the trie of a vocabulary that has the bytes ``read`` as tokens.
        steps: ``[states, n]``, the next state after each of the bytes, ``DEAD`` for none.
        read: ``[n]``, the bytes.
        left: ``[states]``, the bytes of a shortest text from each state, -1 if there is none.
    """
    first = first_steps(steps, left)
    byte, then = read.take(first), steps[np.arange(len(steps)), first]
    keys = (trie.parent[1:].astype(np.int64) << 8) | trie.byte[1:]
    origin = (left > 0).nonzero()[0]
    at, nodes = origin, np.zeros(len(origin), dtype=np.int64)
    after: list[NDArray[Any]] = [np.full(len(steps), DEAD, dtype=np.int32)]
    while len(at):
        asked = nodes << 8 | byte.take(at)
        # Children are numbered in the order of their parents and bytes.
        place = np.searchsorted(keys, asked)
        found = (keys.take(place, mode="clip") == asked).nonzero()[0]
        origin, at, nodes = origin.take(found), then.take(at.take(found)), place.take(found) + 1
        ends = (trie.own.take(nodes) > trie.first.take(nodes)).nonzero()[0]
        after.append(np.full(len(steps), DEAD, dtype=np.int32))
        after[-1][origin.take(ends)] = at.take(ends)
        going = (left.take(at) > 0).nonzero()[0]
        origin, at, nodes = origin.take(going), at.take(going), nodes.take(going)
    return steps_to(np.stack(after, axis=1), left == 0)
