"""A prefix trie read node by node: the words of the trie, and where a walk of single nodes goes on.

A word is an entry of the trie: a token, or any other text that a trie was made of. Callers hold nodes as numbers; the
methods of :class:`Words` return words and nodes at and below a node.
"""

from __future__ import annotations

import bisect
from collections.abc import Container, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import joined, members
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.automata.lift.trie_walk import bytes_at, children, tokens_at
from logitloom.vocabulary import Vocabulary, kept_with_vocabulary

__all__ = ["Words", "vocabulary_words"]

_BLANKS: Final = b" \n\t\r"
#: Nodes; and, by their last byte, the nodes among them that have children.
_NodesByByte = tuple[list[int], list[tuple[int, list[int]]]]
#: The most sets of bytes for which the nodes after whitespace are kept.
_MOST_SETS: Final = 1 << 12


class Words:
    """The words of a trie.

    Args:
        trie: the trie.

    Attributes:
        trie: the trie.
        order: the ids of the words, sorted by their bytes; positions of words are indices into it.
        blank_depths: the length of each prefix that is whitespace alone, in the order of the nodes.

    Example:
        >>> from logitloom.automata.lift.trie import vocabulary_trie
        >>> from logitloom.vocabulary import Vocabulary, kept_with_vocabulary
        >>> words = Words(vocabulary_trie(Vocabulary([b"a", b"ab", b" a", b"c"])))
        >>> node = words.node(b"a")
        >>> words.bytes_below(node), words.ids(words.span(node)), words.reads(0, {97: 5, 99: -1, 100: 7})
        (b'b', [0], [(2, 5, True)])
        >>> words.has_any_below(node, 1 << ord("b")), words.has_any_below(node, 1 << ord("a"))
        (True, False)
        >>> words.text_from({node}, words.node(b"ab")) == (node, b"b"), words.text_from({0}, node)
        (True, (0, b'a'))
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        self.order: NDArray[np.int32] = trie.order
        # Single entries are read faster from bytes and memory views than from arrays.
        self._bytes = trie.byte.tobytes()
        self._first, self._own, self._last = trie.first.data, trie.own.data, trie.last.data
        self._starts, self._sizes, self._ids = trie.child_start.data, trie.child_count.data, trie.order.data
        self._heights, self._parents = trie.height.data, trie.parent.data
        self._low, self._high = trie.low.data, trie.high.data
        blank = np.zeros(256, dtype=bool)
        blank[list(_BLANKS)] = True
        level, depth = np.zeros(1, dtype=np.int64), 0
        nodes, depths, after, before = [], [], [], []
        while len(level):
            below, _ = children(trie, level)
            is_blank = blank[bytes_at(trie, below)]
            after.append(below[~is_blank])
            before.append(np.full(len(after[-1]), depth))
            level, depth = below[is_blank], depth + 1
            nodes.append(level)
            depths.append(np.full(len(level), depth))
        self._blank_nodes: NDArray[np.int64] = np.concatenate(nodes)
        self.blank_depths: list[int] = np.concatenate(depths).tolist()
        self._blank_words: dict[int, list[int]] = {}
        # Levels are visited in order, so depths are ascending.
        following, depths_before = joined(after), joined(before)
        read = bytes_at(trie, following)
        #: By byte the nodes whose prefix is whitespace, or nothing, followed by that byte, and the lengths of the
        #: whitespace, ascending.
        self._after: dict[int, tuple[NDArray[Any], list[int]]] = {}
        for byte in np.unique(read).tolist():
            here = read == byte
            self._after[byte] = following[here], depths_before[here].tolist()
        self._after_blanks: dict[tuple[tuple[int, ...], int, int], _NodesByByte] = {}

    # --- one node -------------------------------------------------------------------------------------------------

    def reads(self, node: int, row: Mapping[int, int]) -> list[tuple[int, int, bool]]:
        """The children of a node that a row of codes reads.

        Args:
            node: a node.
            row: codes by byte; -1, like no entry, says that the byte is not read.

        Returns:
            The children, each with its code and whether it has children.
        """
        texts, sizes, first = self._bytes, self._sizes, self._starts[node]
        size = sizes[node]
        # Most nodes have one child.
        if size == 1:
            code = row.get(texts[first], -1)
            return [] if code == -1 else [(first, code, sizes[first] > 0)]
        end, found = first + size, []
        # Either the children or the bytes of the row are looked through, whichever are fewer.
        if size < len(row):
            for child, byte in enumerate(texts[first:end], first):
                code = row.get(byte, -1)
                if code != -1:
                    found.append((child, code, sizes[child] > 0))
        else:
            for byte, code in row.items():
                child = texts.find(byte, first, end)
                if child >= 0 and code != -1:
                    found.append((child, code, sizes[child] > 0))
        return found

    def after_blanks(self, read: tuple[int, ...], least: int, most: int) -> _NodesByByte:
        """The nodes after ``least`` to ``most`` characters of whitespace and one of some bytes, which is no whitespace.

        Returns:
            The nodes; and, by their last byte, the nodes among them that have children.
        """
        known = self._after_blanks.get((read, least, most))
        if known is None:
            every: list[int] = []
            going: list[tuple[int, list[int]]] = []
            for byte in read:
                if byte in self._after:
                    nodes, depths = self._after[byte]
                    nodes = nodes[bisect.bisect_left(depths, least) : bisect.bisect_right(depths, most)]
                    every += nodes.tolist()
                    below: list[int] = nodes[self.trie.child_count.take(nodes) > 0].tolist()
                    going += [(byte, below)] if below else []
            if len(self._after_blanks) >= _MOST_SETS:
                self._after_blanks.clear()
            known = self._after_blanks[read, least, most] = every, going
        return known

    def read_by_byte(self, nodes: list[int], row: Mapping[int, int]) -> dict[bytes, list[int]]:
        """The children of some nodes that a row of codes reads, by their bytes."""
        texts, found = self._bytes, dict[bytes, list[int]]()
        for node in nodes:
            for child, _, _ in self.reads(node, row):
                found.setdefault(texts[child : child + 1], []).append(child)
        return found

    def bytes_below(self, node: int) -> bytes:
        """The bytes of the children of a node, ascending."""
        first = self._starts[node]
        return self._bytes[first : first + self._sizes[node]]

    def children(self, node: int) -> range:
        """The children of a node, in the order of :meth:`bytes_below`."""
        first = self._starts[node]
        return range(first, first + self._sizes[node])

    def child(self, node: int, byte: int) -> int:
        """The child of a node at a byte, -1 if there is none."""
        first = self._starts[node]
        return self._bytes.find(byte, first, first + self._sizes[node])

    def has_children(self, node: int) -> bool:
        """Whether longer words begin with the prefix of a node."""
        return self._sizes[node] > 0

    def is_word(self, node: int) -> bool:
        """Whether words end at a node."""
        return self._own[node] > self._first[node]

    def longest_below(self, node: int) -> int:
        """The most characters that words add to the prefix of a node."""
        return self._heights[node]

    def has_any_below(self, node: int, characters: int) -> bool:
        """Whether words add one of some ASCII characters to the prefix of a node.

        Args:
            node: a node.
            characters: bit ``n`` for character ``n``.
        """
        return bool((self._high[node] << 64 | self._low[node]) & characters)

    def byte(self, node: int) -> bytes:
        """The last byte of the prefix of a node."""
        return self._bytes[node : node + 1]

    def text_from(self, nodes: Container[int], node: int) -> tuple[int, bytes]:
        """The last of ``nodes`` on the path to ``node``, and the bytes from there to ``node``. There must be one."""
        text = bytearray()
        while node not in nodes:
            text += self.byte(node)
            node = self._parents[node]
        return node, bytes(reversed(text))

    def node(self, text: bytes) -> int:
        """The node whose prefix is ``text``, 0 if there is none."""
        node = 0
        for byte in text:
            node = self.child(node, byte)
            if node < 0:
                return 0
        return node

    def span(self, node: int) -> tuple[int, int]:
        """The positions of the words that end at a node: the first, and the first after them."""
        return self._first[node], self._own[node]

    def span_below(self, node: int) -> tuple[int, int]:
        """The positions of the words below a node, which do not include the words that end at the node."""
        return self._own[node], self._last[node]

    def ids(self, span: tuple[int, int]) -> list[int]:
        """The words at a range of positions."""
        found: list[int] = self._ids[span[0] : span[1]].tolist()
        return found

    # --- many nodes -----------------------------------------------------------------------------------------------

    def listed_at(self, nodes: list[int], blanks: int = 0) -> list[int]:
        """The words that end at nodes and at the first ``blanks`` nodes of whitespace, for few nodes."""
        first, own, ids = self._first, self._own, self._ids
        if blanks not in self._blank_words:
            self._blank_words[blanks] = sorted(tokens_at(self.trie, self._blank_nodes[:blanks])[0].tolist())
        found = self._blank_words[blanks].copy()
        for node in nodes:
            begin = first[node]
            end = own[node]
            if begin != end:
                found += ids[begin:end]
        return found

    def all_at(self, nodes: list[int], blanks: int, positions: list[NDArray[Any]]) -> NDArray[np.int32]:
        """The words of :meth:`listed_at`, for many nodes, and those at the given positions."""
        trie, at = self.trie, np.array(nodes, dtype=np.int64)
        if blanks:
            at = np.concatenate([at, self._blank_nodes[:blanks]])
        first = trie.first.take(at)
        return trie.order.take(joined([members(first, trie.own.take(at) - first), *positions]))

    def ids_of(self, ended: list[int], whole: list[int]) -> NDArray[np.int32]:
        """The words that end at the nodes ``ended``, and the words at and below the nodes ``whole``."""
        trie = self.trie
        first, first_whole = trie.first.take(ended), trie.first.take(whole)
        positions = [
            members(first, trie.own.take(ended) - first),
            members(first_whole, trie.last.take(whole) - first_whole),
        ]
        found: NDArray[np.int32] = trie.order.take(np.concatenate(positions))
        return found


@kept_with_vocabulary
def vocabulary_words(vocabulary: Vocabulary) -> Words:
    """The words of a vocabulary's trie, made once per vocabulary object and kept as long as that object."""
    return Words(vocabulary_trie(vocabulary))
