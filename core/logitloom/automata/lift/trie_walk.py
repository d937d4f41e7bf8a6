"""What stands at the nodes of a vocabulary's trie: bytes, children, tokens and texts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import members
from logitloom.automata.lift.trie import Trie

__all__ = [
    "begins_longer_token",
    "bytes_at",
    "characters_before",
    "characters_below",
    "children",
    "fewest_tokens",
    "nodes_along",
    "tokens_at",
    "tokens_below",
]


def children(trie: Trie, nodes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The children of nodes, and the number of children of each node.

    Args:
        trie: the trie of a vocabulary.
        nodes: ``[n]``, node numbers.
    """
    counts: NDArray[np.int32] = trie.child_count.take(nodes)
    if len(nodes) == 1:
        start = int(trie.child_start[nodes[0]])
        return np.arange(start, start + int(counts[0])), counts
    return members(trie.child_start.take(nodes), counts), counts


def bytes_at(trie: Trie, nodes: NDArray[Any]) -> NDArray[np.uint8]:
    """The last byte of the prefix of each of ``nodes``."""
    found: NDArray[np.uint8] = trie.byte.take(nodes)
    return found


def tokens_at(trie: Trie, nodes: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The ids of the tokens that end at ``nodes``, and for each the index of its node in ``nodes``."""
    first = trie.first.take(nodes)
    counts = trie.own.take(nodes) - first
    return trie.order.take(members(first, counts)), np.arange(len(nodes)).repeat(counts)


def tokens_below(trie: Trie, nodes: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The ids of the tokens that begin with the prefix of a node, and for each the index of its node in ``nodes``."""
    first = trie.first.take(nodes)
    counts = trie.last.take(nodes) - first
    return trie.order.take(members(first, counts)), np.arange(len(nodes)).repeat(counts)


def nodes_along(trie: Trie, text: bytes) -> list[int]:
    """The nodes whose prefixes are ``text[:1]``, ``text[:2]`` and so on, as far as tokens begin with these prefixes."""
    child_start, child_count, byte = trie.views
    found, node = [], 0
    for each in text:
        start = child_start[node]
        stop = start + child_count[node]
        node = bisect_left(byte, each, start, stop)
        if node == stop or byte[node] != each:
            break
        found.append(node)
    return found


def begins_longer_token(trie: Trie, text: bytes) -> bool:
    """Whether a token begins with ``text``, which is not empty, and has more bytes."""
    path = nodes_along(trie, text)
    return len(path) == len(text) and bool(trie.child_count[path[-1]])


def characters_below(
    trie: Trie, roots: NDArray[np.int64], nodes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The root above each node, and how many characters begin between the two.

    Args:
        trie: the trie of a vocabulary.
        roots: ``[m]``, nodes of which none is below another.
        nodes: ``[n]``, nodes below roots.

    Returns:
        ``[n]``, the index of the root of each node, and ``[n]``, the number of characters that begin after the root's
        prefix and before the last byte of the node's prefix.
    """
    first = trie.first.take(roots)
    order = first.argsort(kind="stable")
    which = order.take(np.searchsorted(first.take(order), trie.first.take(nodes), side="right") - 1)
    # Numbers of characters are unsigned.
    return which, characters_before(trie, nodes) - trie.characters.take(roots.take(which)).astype(np.int64)


def characters_before(trie: Trie, nodes: NDArray[Any]) -> NDArray[np.int64]:
    """``[n]``: how many characters begin before the last byte of each node's prefix."""
    return trie.characters.take(trie.parent.take(nodes)).astype(np.int64)


def fewest_tokens(trie: Trie, text: bytes, after: Sequence[int | None] = (0,)) -> list[int | None]:
    """The least number of tokens that write ``text[i:]`` for each ``i``, ``None`` where none do.

    Args:
        trie: the trie of a vocabulary.
        text: the text.
        after: the result for an end of the text, by default for the empty one.
    """
    child_start, child_count, byte = trie.views
    unknown = len(text) + 1 - len(after)
    fewest: list[int | None] = [*[None] * unknown, *after]
    for begin in reversed(range(unknown)):
        least: int | None = None
        node = 0
        for end in range(begin, len(text)):
            start = child_start[node]
            stop = start + child_count[node]
            node = bisect_left(byte, text[end], start, stop)
            if node == stop or byte[node] != text[end]:
                break
            rest = fewest[end + 1]
            if rest is not None and trie.own[node] > trie.first[node] and (least is None or rest < least):
                least = rest
        fewest[begin] = None if least is None else least + 1
    return fewest
