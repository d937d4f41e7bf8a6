"""The words that keep a text completable: one walk of a prefix trie from a state of the automaton.

A word is an entry of the trie: a token, or a rest of a token (:mod:`.string_rows`). The walk carries triples of a node,
a state and a stack, and drops a triple when its state is dead. It goes from node to node; inside strings it follows the
automaton of their content, and where that allows many bytes :mod:`.content_walk` does so below many nodes at once.
Where whitespace is allowed, the walk of a word begins at its first
character that is not whitespace.
"""

from __future__ import annotations

import bisect
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import joined, members
from logitloom.automata.lift.trie import Trie
from logitloom.constraints import TokenSet
from logitloom_plugins.json_schema.structure.string_states import (
    DEAD,
    DIGITS,
    NameContext,
    StringContext,
    TextContext,
)
from logitloom_plugins.json_schema.structure.value_reader import Stack
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk, Ends
from logitloom_plugins.json_schema.tokens.shared_token_sets import TokenSets
from logitloom_plugins.json_schema.values.moore_machine import UNESCAPED

__all__ = ["Found", "Pending", "TokenWalk", "Words"]

#: Where many bytes may come in a string, nodes with more children are not walked one by one.
_SIBLINGS: Final = 24
#: Nodes in a string that are walked one by one.
_MOST_VISITED: Final = 1 << 12
#: Up to so many nodes the words are listed node by node.
_LISTED: Final = 128
_BLANKS: Final = b" \n\t\r"
_WHITESPACE: Final = frozenset(_BLANKS)
_QUOTE, _BACKSLASH = b'"\\'

#: Nodes with a state and a stack each.
Pending = list[tuple[int, int, Stack]]
#: By string and stack nodes with a state of the content and a number of characters each.
Wide = dict[tuple[StringContext, Stack], list[tuple[int, int, int]]]


class _Following:
    """Nodes whose prefix is whitespace and then a certain byte.

    Args:
        nodes: the nodes.
        depths: the lengths of the whitespace, ascending.
        trie: the trie.
    """

    def __init__(self, nodes: NDArray[Any], depths: list[int], trie: Trie) -> None:
        self._nodes, self._depths, self._sizes = nodes, depths, trie.child_count
        self._known: dict[tuple[int, int], tuple[list[int], list[int]]] = {}

    def between(self, least: int, most: int) -> tuple[list[int], list[int]]:
        """The nodes after some lengths of whitespace, and those of them that have children."""
        known = self._known.get((least, most))
        if known is None:
            nodes = self._nodes[bisect.bisect_left(self._depths, least) : bisect.bisect_right(self._depths, most)]
            known = nodes.tolist(), nodes[self._sizes.take(nodes) > 0].tolist()
            self._known[least, most] = known
        return known


class Words:
    """A trie, and its nodes after leading whitespace.

    Attributes:
        trie: the trie.
        bytes: the last byte of each node's prefix.
        first, own, order, starts, sizes: the trie's ``first``, ``own``, ``order``, ``child_start`` and ``child_count``
            as memory views, which are faster for single entries.
        blank_nodes, blank_depths: the nodes whose prefix is only whitespace, and the lengths of these prefixes.
        after: by byte the nodes whose prefix is whitespace, or nothing, followed by that byte.
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        self.bytes = trie.byte.tobytes()
        self.first, self.own, self.order = trie.first.data, trie.own.data, trie.order.data
        self.starts, self.sizes = trie.child_start.data, trie.child_count.data
        blank = np.zeros(256, dtype=bool)
        blank[list(_BLANKS)] = True
        level, depth = np.zeros(1, dtype=np.int64), 0
        nodes, depths, after, before = [], [], [], []
        while len(level):
            children = members(trie.child_start[level], trie.child_count[level])
            is_blank = blank[trie.byte[children]]
            after.append(children[~is_blank])
            before.append(np.full(len(after[-1]), depth))
            level, depth = children[is_blank], depth + 1
            nodes.append(level)
            depths.append(np.full(len(level), depth))
        self.blank_nodes, self.blank_depths = np.concatenate(nodes), np.concatenate(depths).tolist()
        self._blank_words: dict[int, list[int]] = {}
        # Levels are visited in order, so depths are ascending.
        following, depths_before = joined(after), joined(before)
        read = trie.byte[following]
        self.after: dict[int, _Following] = {}
        for byte in np.unique(read).tolist():
            here = read == byte
            self.after[byte] = _Following(following[here], depths_before[here].tolist(), trie)

    def blank_words(self, count: int) -> list[int]:
        """The words at the first nodes of whitespace, as a new list."""
        if count not in self._blank_words:
            nodes = self.blank_nodes[:count]
            first = self.trie.first.take(nodes)
            own = members(first, self.trie.own.take(nodes) - first)
            self._blank_words[count] = sorted(self.trie.order.take(own).tolist())
        return self._blank_words[count].copy()

    def node(self, text: bytes) -> int:
        """The node whose prefix is ``text``, 0 if there is none."""
        trie, node = self.trie, 0
        for byte in text:
            first = int(trie.child_start[node])
            node = self.bytes.find(byte, first, first + int(trie.child_count[node]))
            if node < 0:
                return 0
        return node


class Found:
    """The words that a walk has allowed.

    Attributes:
        entered: nodes at which words are allowed.
        positions: positions of allowed words in the trie's order.
        blanks: the words at so many first nodes of whitespace are allowed.
    """

    __slots__ = ("blanks", "entered", "positions")

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.positions: list[NDArray[np.int32]] = []
        self.blanks = 0

    def listed(self, words: Words) -> list[int]:
        """The allowed words in no order, where they are few."""
        first, own, order = words.first, words.own, words.order
        found = words.blank_words(self.blanks)
        for node in self.entered:
            begin = first[node]
            end = own[node]
            if begin != end:
                found += order[begin:end]
        return found

    def allowed(self, words: Words) -> list[int]:
        """The allowed words in no order."""
        if self.positions or len(self.entered) > _LISTED:
            found: list[int] = self._ids(words).tolist()
            return found
        return self.listed(words)

    def token_set(self, words: Words, sets: TokenSets) -> TokenSet:
        """The allowed words."""
        if self.positions or len(self.entered) > _LISTED:
            return sets.many(self._ids(words))
        self.entered.sort()
        key = self.blanks, *self.entered
        return sets.once(key, lambda: sets.many(np.array(self.listed(words), dtype=np.int32)))

    def _ids(self, words: Words) -> NDArray[np.int32]:
        trie = words.trie
        nodes = np.array(self.entered, dtype=np.int64)
        if self.blanks:
            nodes = np.concatenate([nodes, words.blank_nodes[: self.blanks]])
        first = trie.first.take(nodes)
        return trie.order.take(joined([members(first, trie.own.take(nodes) - first), *self.positions]))


class TokenWalk:
    """Walks tries for one machine.

    Args:
        machine: the automaton over bytes.
        longest: no word adds more characters to a string.

    Attributes:
        content: the walk inside strings.
    """

    def __init__(self, machine: Any, longest: int) -> None:
        self._machine = machine
        self._longest = longest
        self.content = ContentWalk(UNESCAPED[machine.strings.escapes == "ascii"])

    def from_root(self, words: Words, state: int, stack: Stack) -> Found:
        """The words that are allowed in a state, if items and names may be repeated."""
        machine = self._machine
        sparse = machine.sparse_row(state)
        blank = DEAD if sparse is None else sparse.get(_BLANKS[0], DEAD)
        if blank < 0 or machine.states[blank][0] != "gap":
            return self.below(words, [(0, state, stack)])
        _, before, used = machine.states[blank]
        # Whitespace ends a number, so the bytes allowed after whitespace can differ from the bytes allowed before it.
        after = sparse if before == machine.states[state] else machine.sparse_row(machine.number(before))
        found, pending = Found(), []
        more = machine.whitespace.most - used
        found.blanks = bisect.bisect_right(words.blank_depths, more + 1)
        ranges = [(sparse, 0, more + 1)] if sparse is after else [(sparse, 0, 0), (after, 1, more + 1)]
        for codes, least, most in ranges:
            for byte, code in codes.items():
                follow = words.after.get(byte)
                if follow is None or byte in _BLANKS:
                    continue
                nodes, going = follow.between(least, most)
                found.entered += nodes
                if going:
                    reached, below = (code, stack) if code >= 0 else machine.applied(code, stack)
                    pending += [(node, reached, below) for node in going]
        return self.below(words, pending, found)

    def below(self, words: Words, pending: Pending, found: Found | None = None) -> Found:
        """The allowed words below nodes with a state each, without those at the nodes, beside what has been found.

        Nodes are walked one by one, and in strings nodes with many children all at once.
        """
        found = Found() if found is None else found
        machine, entered, known = self._machine, found.entered, self._machine.codes
        starts, sizes = words.starts, words.sizes
        texts, index_of = words.bytes, words.bytes.find
        wide: Wide = {}
        while pending or wide:
            if not pending:
                string, begun = wide.popitem()
                positions, ends = self.content(words.trie, string[0], begun)
                found.positions.append(positions)
                self._ended(words, string, ends, pending, entered)
                continue
            node, state, stack = pending.pop()
            size = sizes[node]
            if not size:
                continue
            first = starts[node]
            sparse = known.get(state)
            if sparse is None:
                kind = machine.states[state]
                if kind[0] == "text":
                    _, context, content_state, count = kind
                    ends = self._in_string(words, (context, stack), [(node, content_state, count)], wide, entered)
                    self._ended(words, (context, stack), ends, pending, entered)
                    continue
                if kind[0] == "escape" and 1 < len(kind[4]) < 6 and DIGITS.isdisjoint(texts[first : first + size]):
                    # None of the children is a hexadecimal digit, so the expensive row of the state is not needed.
                    continue
                # Without more whitespace a gap needs no row of its own.
                if kind[0] == "gap" and _WHITESPACE.isdisjoint(texts[first : first + size]):
                    state = machine.number(kind[1])
                sparse = machine.sparse_row(state)
            # Whichever are fewer: the children, or the bytes that may come.
            if size < len(sparse):
                here = [(child, sparse.get(texts[child], DEAD)) for child in range(first, first + size)]
            else:
                end = first + size
                here = [(index_of(byte, first, end), code) for byte, code in sparse.items()]
            for child, code in here:
                if child >= 0 and code != DEAD:
                    entered.append(child)
                    if sizes[child]:
                        pending.append((child, code, stack) if code >= 0 else (child, *machine.applied(code, stack)))
        return found

    def _in_string(
        self,
        words: Words,
        string: tuple[StringContext, Stack],
        inside: list[tuple[int, int, int]],
        wide: Wide,
        entered: list[int],
    ) -> Ends:
        """Walk inside a string, without a machine state per character.

        Args:
            words: the words.
            string: the string and the stack in it.
            inside: nodes with a state of the content and a number of characters each.
            wide: takes nodes with many children where many bytes may come, and what is left after many nodes.
            entered: takes the nodes at which words are allowed.

        Returns:
            Where the string has ended, or an escape has begun.
        """
        context, stack = string
        strings, content = self._machine.strings, context.content
        starts, sizes, texts, index_of = words.starts, words.sizes, words.bytes, words.bytes.find
        boundaries, counts = content.automaton.boundaries, content.counts
        below, mask = (context.below, context.mask) if isinstance(context, NameContext) else (None, 0)
        narrow = None if context.is_listed else content.automaton.narrow
        known, outputs = strings.steps_of(context), content.automaton.outputs
        ends: Ends = []
        visited = 0
        while inside:
            visited += 1
            if visited > _MOST_VISITED:
                wide.setdefault(string, []).extend(inside)
                break
            node, content_state, count = inside.pop()
            size = sizes[node]
            if narrow is not None and size > _SIBLINGS and not narrow[content_state]:
                # Far from its bounds a string is walked as one without.
                if isinstance(context, TextContext) and content.is_far(count, self._longest):
                    wide.setdefault((context.unbounded, stack), []).append((node, content_state, 0))
                else:
                    wide.setdefault(string, []).append((node, content_state, count))
                continue
            first = starts[node]
            end = first + size
            following = content.counted(count + boundaries[content_state]) if counts else 0
            steps = known.get(content_state)
            if steps is None:
                steps = strings.steps(context, content_state)
            for byte in texts[first:end] if size <= len(steps) else steps:
                child, target = index_of(byte, first, end), steps.get(byte, DEAD)
                if child < 0 or target < 0:
                    continue
                if not (below[target] & mask if below is not None else not counts or content.alive(target, following)):
                    continue
                entered.append(child)
                if sizes[child]:
                    inside.append((child, target, following))
            if not boundaries[content_state]:
                continue
            child = index_of(_QUOTE, first, end) if outputs[content_state] is not None else -1
            if child >= 0:
                ends.append((child, (content_state, count), True))
            child = index_of(_BACKSLASH, first, end) if context.escapes is not False else -1
            if child >= 0:
                ends.append((child, (content_state, count), False))
        return ends

    def _ended(
        self, words: Words, string: tuple[StringContext, Stack], ends: Ends, pending: Pending, entered: list[int]
    ) -> None:
        """Note where a walk inside a string has met quotes and backslashes that may come."""
        (context, before), machine = string, self._machine
        codes: dict[tuple[tuple[int, int], bool], int] = {}
        for node, at, ended in ends:
            code = codes.get((at, ended))
            if code is None:
                code = codes[at, ended] = context.end(*at) if ended else machine.strings.escape(context, *at)
            if code != DEAD:
                entered.append(node)
                if words.sizes[node]:
                    pending.append((node, code, before) if code >= 0 else (node, *machine.applied(code, before)))
