"""The prefix trie of a vocabulary, as arrays.

Nodes are numbered in breadth-first order, so the children of a node are contiguous, and so is every level. Tokens are
sorted by their bytes, so the tokens below a node are one range of the sorted order. A walk can allow or forbid a whole
subtree with this range. For this decision each node has the set of characters that occur below it.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import members
from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.patterns import char_sets
from logitloom.automata.patterns.utf8_states import BOUNDARY, BROKEN_ROWS
from logitloom.vocabulary import Vocabulary, kept_with_vocabulary

__all__ = [
    "HIGH_OTHER",
    "HIGH_PARTIAL",
    "HIGH_WORD",
    "MALFORMED",
    "NODE",
    "Trie",
    "vocabulary_trie",
]

#: Bit of ``Trie.marks``: below the node is a character above ASCII that ``\w`` matches.
HIGH_WORD: Final = 1
#: Bit of ``Trie.marks``: below the node is a character above ASCII that ``\w`` does not match.
HIGH_OTHER: Final = 2
#: Bit of ``Trie.marks``: below the node are bytes that are not UTF-8, if the node's prefix ends between characters.
MALFORMED: Final = 4
#: Bit of ``Trie.marks``: below the node is a token that ends inside a character.
HIGH_PARTIAL: Final = 8

#: One node; the fields are the attributes of :class:`Trie`.
NODE: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("low", "high")),
        *((name, np.int32) for name in ("child_start", "child_count", "first", "own", "last")),
        *(("height", np.uint16), ("marks", np.uint8), ("byte", np.uint8)),
    ]
)


@kept_with_vocabulary
def vocabulary_trie(vocabulary: Vocabulary) -> Trie:
    """The trie of a vocabulary, built once per vocabulary object and kept as long as that object."""
    # Most patterns need these sets. Computing them here keeps the first mask fast.
    for letter in "wds":
        char_sets.category(letter, 0)
    trie = Trie(vocabulary)
    if automaton_kernels() is not None:
        _ = trie.records
    return trie


class Trie:
    """Prefix trie of the tokens that have bytes.

    Attributes:
        order: ``[tokens] int32``, ids sorted by their bytes, the shorter first.
        byte: ``[nodes] uint8``, the last byte of each node's prefix; node 0 is the root.
        parent: ``[nodes] int32``; the root's is 0.
        child_start, child_count: ``[nodes] int32``, children of ``v`` are ``child_start[v] + 0..child_count[v]-1``.
        first, own, last: ``[nodes] int32``, tokens that equal the prefix are ``order[first : own]``, tokens that
            begin with it ``order[first : last]``.
        levels: ``[depth + 2] int64``, nodes of ``d`` bytes are ``levels[d] : levels[d + 1]``.
        low, high: ``[nodes] uint64``, ASCII characters 0-63 and 64-127 that occur below a node.
        marks: ``[nodes] uint8``, kinds of other contents below a node, as bits.
        within: ``[nodes] bool``, whether a token ends at a node within a character.
        height: ``[nodes] uint16``, the largest number of characters that begin on one path below a node.
        textless: ids without bytes, ``int32``, sorted.
        single: ``[256] int32``, an id of the token that is this byte alone, or -1.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        offsets = vocabulary.offsets
        flat = vocabulary.flat_bytes
        lengths = np.diff(offsets)
        ids = np.flatnonzero(lengths)
        order = _sorted_by_bytes(ids, offsets[ids], lengths[ids], flat)
        self.order: NDArray[np.int32] = order.astype(np.int32)
        self.textless: NDArray[np.int32] = np.flatnonzero(lengths == 0).astype(np.int32)
        starts, sizes = offsets[order], lengths[order]
        shared = _common_prefixes(starts, sizes, flat)
        self._build_nodes(starts, sizes, shared, flat)
        self._count_tokens(sizes)
        begins = (self.byte & 0xC0 != 0x80).astype(np.uint16)
        self._mark_contents(begins)
        self.single: NDArray[np.int32] = np.full(256, -1, dtype=np.int32)
        top = np.arange(self.levels[1], self.levels[2])
        top = top[self.own[top] > self.first[top]]
        self.single[self.byte[top]] = self.order[self.first[top]]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that were computed so far."""
        return sum(value.nbytes for value in [*vars(self).values()] if isinstance(value, np.ndarray))

    @cached_property
    def every_byte(self) -> bool:
        """Whether there is a token for each byte alone."""
        return bool((self.single >= 0).all())

    @property
    def longest(self) -> int:
        """Number of characters of the longest token."""
        return int(self.height[0])

    @property
    def nodes(self) -> int:
        """Number of nodes, the root included."""
        return len(self.byte)

    @cached_property
    def characters(self) -> NDArray[np.uint16]:
        """``[nodes]``: the number of characters that begin in each node's prefix."""
        found: NDArray[np.uint16] = (self.byte & 0xC0 != 0x80).astype(np.uint16)
        found[0] = 0
        for first, last in itertools.pairwise(self.levels[1:].tolist()):
            found[first:last] += found.take(self.parent[first:last])
        return found

    @cached_property
    def characters_of_words(self) -> NDArray[np.uint16]:
        """``[tokens]``: the number of characters that begin in each token, in the order of :attr:`order`."""
        nodes = (self.own > self.first).nonzero()[0]
        nodes = nodes.take(self.first.take(nodes).argsort())
        return self.characters.take(nodes).repeat(self.own.take(nodes) - self.first.take(nodes))

    @cached_property
    def views(self) -> tuple[memoryview, memoryview, memoryview]:
        """``child_start``, ``child_count`` and ``byte`` as memory views, which are faster for single entries."""
        return self.child_start.data, self.child_count.data, self.byte.data

    @cached_property
    def ways_within(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The nodes on ways to :attr:`within`, the root first; by place among them the first child, and how many."""
        chosen = (self.marks & HIGH_PARTIAL > 0) | self.within
        chosen[0] = True
        nodes, before = chosen.nonzero()[0], np.append(0, chosen.cumsum())
        start = self.child_start.take(nodes)
        first = before.take(start)
        return nodes, first, before.take(start + self.child_count.take(nodes)) - first

    @cached_property
    def ends_within(self) -> NDArray[np.bool_]:
        """``[largest id + 1]``: whether a token ends within a character."""
        found = np.zeros(int(self.order.max(initial=-1)) + 1, dtype=bool)
        nodes = self.within.nonzero()[0]
        found[self.order[members(self.first.take(nodes), self.own.take(nodes) - self.first.take(nodes))]] = True
        return found

    @cached_property
    def after_tails(self) -> frozenset[int]:
        """The bytes that follow the end of a character in a token that begins within the character."""
        at, found = np.zeros(1, dtype=np.int64), list[NDArray[np.uint8]]()
        for _ in range(4):
            # The nodes after nothing but bytes that go on with a character.
            at = members(self.child_start.take(at), self.child_count.take(at))
            found.append(self.byte.take(at))
            at = at[found[-1] & 0xC0 == 0x80]
        after = np.concatenate(found[1:])
        return frozenset(after[after & 0xC0 != 0x80].tolist())

    @cached_property
    def records(self) -> NDArray[Any]:
        """``[nodes]`` of :data:`NODE`: all attributes of a node in one record, for walks node by node."""
        records = np.empty(self.nodes, dtype=NODE)
        for name in NODE.names or ():
            records[name] = getattr(self, name)
        return records

    def _build_nodes(
        self,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        shared: NDArray[np.int64],
        flat: NDArray[np.uint8],
    ) -> None:
        # Each token adds a node for each prefix that it does not share with the previous token.
        added = sizes - shared
        total = int(added.sum())
        token = np.repeat(np.arange(len(sizes)), added)
        ends = np.cumsum(added)
        depth = np.arange(total) - np.repeat(ends - added - shared, added) + 1
        by_depth = np.argsort(depth.astype(np.uint16), kind="stable")
        depth_sorted, token_sorted = depth[by_depth], token[by_depth]
        deepest = int(depth_sorted[-1])
        counts = np.bincount(depth_sorted, minlength=deepest + 1)
        self.levels: NDArray[np.int64] = np.concatenate([[0, 1], 1 + np.cumsum(counts[1:])])
        self.byte: NDArray[np.uint8] = np.zeros(total + 1, dtype=np.uint8)
        self.byte[1:] = flat[starts[token_sorted] + depth_sorted - 1]
        self.first: NDArray[np.int32] = np.zeros(total + 1, dtype=np.int32)
        self.first[1:] = token_sorted
        # The parent of a node is the last node of the level above whose first token is not after the node's.
        self.parent: NDArray[np.int32] = np.zeros(total + 1, dtype=np.int32)
        for d in range(2, deepest + 1):
            here = slice(int(self.levels[d]), int(self.levels[d + 1]))
            above = slice(int(self.levels[d - 1]), int(self.levels[d]))
            index = np.searchsorted(self.first[above], self.first[here], side="right") - 1
            self.parent[here] = index + above.start
        children = np.bincount(self.parent[1:], minlength=total + 1)
        self.child_count: NDArray[np.int32] = children.astype(np.int32)
        self.child_start: NDArray[np.int32] = (1 + np.cumsum(children) - children).astype(np.int32)

    def _count_tokens(self, sizes: NDArray[np.int64]) -> None:
        own = np.zeros(self.nodes, dtype=np.int64)
        for d in range(1, len(self.levels) - 1):
            here = slice(int(self.levels[d]), int(self.levels[d + 1]))
            index = np.searchsorted(self.first[here], np.flatnonzero(sizes == d), side="right") - 1
            own[here] = np.bincount(index, minlength=here.stop - here.start)
        below = own.copy()
        for _, here, parents, starts in self._upwards():
            below[parents] += np.add.reduceat(below[here], starts)
        self.own: NDArray[np.int32] = (self.first + own).astype(np.int32)
        self.last: NDArray[np.int32] = (self.first + below).astype(np.int32)

    def _upwards(self) -> list[tuple[int, slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Levels from the deepest up: ``(depth, its nodes, their parents, index of each parent's first child)``."""
        result = []
        for d in range(len(self.levels) - 2, 0, -1):
            here = slice(int(self.levels[d]), int(self.levels[d + 1]))
            above = slice(int(self.levels[d - 1]), int(self.levels[d]))
            parents = np.flatnonzero(self.child_count[above]) + above.start
            result.append((d, here, parents, self.child_start[parents].astype(np.int64) - here.start))
        return result

    def _mark_contents(self, begins: NDArray[np.uint16]) -> None:
        byte = self.byte.astype(np.uint64)
        ascii_node = (byte < 128) & (np.arange(self.nodes) > 0)
        bit = np.uint64(1) << (byte & np.uint64(63))
        low = np.where(ascii_node & (byte < 64), bit, np.uint64(0))
        high = np.where(ascii_node & (byte >= 64), bit, np.uint64(0))
        marks = self._character_marks()
        # Bit u of `broken` is set if some path below a node is not UTF-8 when it is read from UTF-8 state u.
        broken = np.zeros(self.nodes, dtype=np.uint8)
        height = np.zeros(self.nodes, dtype=np.uint16)
        below_low, below_high, below_marks = (np.zeros_like(a) for a in (low, high, marks))
        for _, here, parents, starts in self._upwards():
            below_low[parents] = np.bitwise_or.reduceat(low[here] | below_low[here], starts)
            below_high[parents] = np.bitwise_or.reduceat(high[here] | below_high[here], starts)
            below_marks[parents] = np.bitwise_or.reduceat(marks[here] | below_marks[here], starts)
            seen = BROKEN_ROWS[self.byte[here], broken[here]]
            broken[parents] = np.bitwise_or.reduceat(seen, starts)
            height[parents] = np.maximum.reduceat(height[here] + begins[here], starts)
        below_marks[(broken >> BOUNDARY) & 1 == 1] |= MALFORMED
        self.low: NDArray[np.uint64] = below_low
        self.high: NDArray[np.uint64] = below_high
        self.marks: NDArray[np.uint8] = below_marks
        self.within: NDArray[np.bool_] = marks == HIGH_PARTIAL
        self.height: NDArray[np.uint16] = height

    def _character_marks(self) -> NDArray[np.uint8]:
        """Marks of nodes above ASCII: the kind of the character that ends there, or ``HIGH_PARTIAL``."""
        marks = np.zeros(self.nodes, dtype=np.uint8)
        above_ascii = np.flatnonzero(self.byte >= 0x80)
        word = np.array(char_sets.category("w", 0).high.ranges, dtype=np.int64)
        edges = np.column_stack([word[:, 0], word[:, 1] + 1]).ravel()
        continuation = above_ascii[self.byte[above_ascii] < 0xC0]
        point = (self.byte[continuation] & 0x3F).astype(np.int64)
        node = self.parent[continuation]
        for length in (2, 3, 4):
            lead = self.byte[node]
            begins = (lead >= (0xC0, 0xE0, 0xF0)[length - 2]) & (lead < (0xE0, 0xF0, 0xF8)[length - 2])
            whole = point | ((lead & (0x1F, 0x0F, 0x07)[length - 2]).astype(np.int64) << (6 * (length - 1)))
            is_word = np.searchsorted(edges, whole[begins], side="right") & 1
            marks[continuation[begins]] = np.where(is_word, HIGH_WORD, HIGH_OTHER)
            goes_on = (lead & 0xC0) == 0x80
            point = point[goes_on] | ((lead[goes_on] & 0x3F).astype(np.int64) << (6 * (length - 1)))
            continuation, node = continuation[goes_on], self.parent[node[goes_on]]
        ends_here = self.own[above_ascii] > self.first[above_ascii]
        marks[above_ascii[ends_here & (marks[above_ascii] == 0)]] = HIGH_PARTIAL
        return marks


def _sorted_by_bytes(
    ids: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64], flat: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """The ids sorted by their bytes; equal tokens in the order of ids."""
    padded = np.concatenate([flat, np.zeros(8, dtype=np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 8)
    # Eight bytes are compared as one integer; only tokens with more than eight bytes have a second integer, and so on.
    chunks = []
    active = np.arange(len(ids))
    position = 0
    while len(active):
        words = windows[starts[active] + position].view(">u8").ravel().astype(np.uint64)
        left = sizes[active] - position
        absent = (8 * np.maximum(8 - left, 0)).astype(np.uint64)
        chunks.append((active, left, (words >> absent) << absent))
        position += 8
        active = active[left > 8]
    rank = np.zeros(len(ids), dtype=np.int64)
    for chunk, left, words in reversed(chunks):
        # Zero bytes and missing bytes are equal in the integer. Then the length decides; the longer token comes later.
        rest = np.where(left <= 8, left, 9 + rank[chunk])
        by_both = np.lexsort((rest, words))
        word, rest = words[by_both], rest[by_both]
        changed = (word[1:] != word[:-1]) | (rest[1:] != rest[:-1])
        rank[chunk[by_both]] = np.concatenate([[0], np.cumsum(changed)])
    return ids[np.argsort(rank, kind="stable")]


def _common_prefixes(starts: NDArray[np.int64], sizes: NDArray[np.int64], flat: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The number of bytes that each token shares with the previous token in the order; 0 for the first."""
    shared = np.zeros(len(starts), dtype=np.int64)
    limit = np.minimum(sizes[1:], sizes[:-1])
    active = np.arange(1, len(starts))
    position = 0
    while len(active):
        active = active[limit[active - 1] > position]
        active = active[flat[starts[active] + position] == flat[starts[active - 1] + position]]
        position += 1
        shared[active] = position
    return shared
