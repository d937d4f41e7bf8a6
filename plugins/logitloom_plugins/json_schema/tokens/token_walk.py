"""The words that keep a text completable: one walk of a prefix trie from a state of the automaton.

A word is an entry of the trie: a token, or a rest of a token (:mod:`.string_rows`). The walk carries triples of a node,
a state and a stack, and drops a triple when its state is dead. In states that allow a small number of bytes it goes
from node to node, and inside strings it follows the automaton of their content: where that allows many bytes, by the
compiled loop (:mod:`.content_walk`). Without compiled loops, and inside names that must not come twice, it processes a
whole level of the trie at once then. It allows all words below a node without a visit if all their characters lead from
the state back to itself (:mod:`.self_loops`). Where whitespace is allowed, the walk of a word begins at its first
character that is not whitespace.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.trie import Trie, joined, members
from logitloom.constraints import TokenSet
from logitloom_plugins.json_schema.structure.string_states import DEAD, DIGITS, NameContext, StringContext
from logitloom_plugins.json_schema.structure.value_reader import Stack
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk, Ends
from logitloom_plugins.json_schema.tokens.self_loops import SelfLoops
from logitloom_plugins.json_schema.tokens.token_sets import TokenSets

__all__ = ["Found", "TokenWalk", "Words", "may_name_again"]

#: Above ``_MANY`` nodes a level is searched for self-loops; up to ``_VERY_FEW`` nodes are walked one by one.
_MANY: Final = 64
_VERY_FEW: Final = 12
#: In states without a short list of bytes, nodes with more than ``_SIBLINGS`` children are walked by levels, and nodes
#: with at most ``_TWINS`` children look their bytes up without the whole row of the state.
_SIBLINGS: Final = 24
_TWINS: Final = 4
#: Up to so many nodes the words are listed node by node.
_LISTED: Final = 128
_BLANKS: Final = b" \n\t\r"
_QUOTE, _BACKSLASH = b'"\\'
#: The least number of bytes from the end of one name to the end of the next (``:1,""``), and bytes that are among them.
_NEXT_NAME: Final = 5
_NAME_MARKS: Final = 1 << ord(":") | 1 << ord(",") | 1 << ord('"')

Pending = list[tuple[int, int, Stack]]


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
        first, own, order: the trie's, as memory views, which are faster for single entries.
        blank_nodes, blank_depths: the nodes whose prefix is only whitespace, and the lengths of these prefixes.
        after: by byte the nodes whose prefix is whitespace, or nothing, followed by that byte.
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        self.bytes = trie.byte.tobytes()
        self.first, self.own, self.order = trie.first.data, trie.own.data, trie.order.data
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
        whole: nodes below and at which all words are allowed.
        alive, entered: nodes at which words are allowed.
        places: places of allowed words in the trie's order.
        blanks: the words at so many first nodes of whitespace are allowed.
    """

    __slots__ = ("alive", "blanks", "entered", "places", "whole")

    def __init__(self) -> None:
        self.whole: list[NDArray[Any]] = []
        self.alive: list[NDArray[Any]] = []
        self.entered: list[int] = []
        self.places: list[NDArray[np.int32]] = []
        self.blanks = 0

    def listed(self, words: Words) -> list[int] | None:
        """The allowed words in no order; ``None`` if there may be many of them."""
        if self.alive or self.whole or self.places or len(self.entered) > _LISTED:
            return None
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
        found = self.listed(words)
        return found if found is not None else self._ids(words).tolist()

    def token_set(self, words: Words, sets: TokenSets) -> TokenSet:
        """The allowed words."""
        ids = self.listed(words)
        return sets.listed(ids) if ids is not None and len(ids) <= sets.most else sets.many(self._ids(words))

    def _ids(self, words: Words) -> NDArray[np.int32]:
        trie = words.trie
        alive = joined([*self.alive, np.array(self.entered, dtype=np.int64), words.blank_nodes[: self.blanks]])
        first = trie.first.take(alive)
        counts = trie.own.take(alive) - first
        if self.whole:
            whole = joined(self.whole)
            begun = trie.first.take(whole)
            first = np.concatenate([begun, first])
            counts = np.concatenate([trie.last.take(whole) - begun, counts])
        return trie.order.take(joined([members(first, counts), *self.places]))


class TokenWalk:
    """Walks tries for one machine.

    Args:
        machine: the automaton over bytes.
        longest: no word adds more characters to a string.
    """

    def __init__(self, machine: Any, longest: int) -> None:
        self._machine = machine
        self._longest = longest
        self._loops = SelfLoops(machine.strings)
        self._content = ContentWalk(machine.strings.plain)

    def from_root(self, words: Words, state: int, stack: Stack, written: bytes = b"") -> Found:
        """The words that are allowed in a state; ``written`` is an unfinished member name that must not be repeated."""
        machine, pending = self._machine, [(0, state, stack)]
        kind = machine.states[state]
        found = Found()
        if state in machine.tracked:
            return self._walk(words, pending, written, found)
        if kind[0] == "text":
            if not machine.strings.is_sparse(kind):
                return self._walk_on(words, pending, found)
            inside: Pending = []
            self._in_string(words, (0, kind, stack), inside, found)
            return self._walk_on(words, inside, found) if inside else found
        sparse = machine.codes.get(state) or machine.sparse_row(state)
        blank = sparse.get(_BLANKS[0], DEAD)
        if blank < 0 or machine.states[blank][0] != "gap":
            return self._walk_on(words, pending, found)
        if not machine.naming.isdisjoint(sparse.values()):
            return self._walk(words, pending, written, found)
        _, before, used = machine.states[blank]
        # Whitespace ends a number, so the bytes allowed after whitespace can differ from those allowed before it.
        after = sparse if before == kind else machine.sparse_row(machine.number(before))
        return self._after_blanks(words, (sparse, after), machine.whitespace.most - used, stack, found)

    def _after_blanks(
        self, words: Words, codes_of: tuple[dict[int, int], dict[int, int]], more: int, stack: Stack, found: Found
    ) -> Found:
        """The words that are allowed in a state that also allows whitespace.

        Args:
            words: the words.
            codes_of: by byte the codes without whitespace, and the codes after whitespace.
            more: the number of whitespace characters that may follow the first one.
            stack: the stack.
            found: the result to extend.
        """
        found.blanks = bisect.bisect_right(words.blank_depths, more + 1)
        entered, pending = found.entered, []
        before, after = codes_of
        ranges = [(before, 0, more + 1)] if before is after else [(before, 0, 0), (after, 1, more + 1)]
        for codes, least, most in ranges:
            for byte, code in codes.items():
                follow = words.after.get(byte)
                if follow is None or byte in _BLANKS:
                    continue
                nodes, going = follow.between(least, most)
                entered += nodes
                if going:
                    state, below = (code, stack) if code >= 0 else self._machine.applied(code, stack)
                    pending += [(node, state, below) for node in going]
        return self._walk_on(words, pending, found)

    def below(self, words: Words, parents: Sequence[int], states: Sequence[int], stack: Stack) -> Found:
        """The allowed words below nodes with one state each; words at the nodes themselves are not in the result."""
        pending: Pending = [(node, state, stack) for node, state in zip(parents, states, strict=True)]
        found = Found()
        if len(pending) <= _VERY_FEW:
            return self._walk_on(words, pending, found)
        return self._walk(words, pending, b"", found)

    def _walk(self, words: Words, pending: Pending, written: bytes, found: Found) -> Found:
        """Walk below many nodes, one whole level of the trie at a time."""
        machine, trie = self._machine, words.trie
        above, states = np.array([(node, state) for node, state, _ in pending], dtype=np.int32).T
        numbers: dict[Stack, int] = {}
        stacks = np.array([numbers.setdefault(stack, len(numbers)) for _, _, stack in pending], dtype=np.int32)
        held = list(numbers)

        def number(state: int, stack: Stack) -> tuple[int, int]:
            place = numbers.setdefault(stack, len(held))
            if place == len(held):
                held.append(stack)
            return state, place

        while len(above):
            counts = trie.child_count.take(above)
            nodes = members(trie.child_start.take(above), counts)
            states, stacks = states.repeat(counts), stacks.repeat(counts)
            table = machine.rows(states)
            codes = table.ravel().take(states.astype(np.int64) * 256 + trie.byte.take(nodes))
            nodes, codes, stacks = _living(nodes, codes, stacks)
            special = (codes < DEAD).nonzero()[0]
            if len(special) and machine.naming:
                stacks = stacks.copy()
                for i in [i for i in special.tolist() if int(codes[i]) in machine.naming]:
                    ended = self._end_name(trie, int(nodes[i]), int(codes[i]), held[stacks[i]], written)
                    codes[i], stacks[i] = number(*ended)
                nodes, codes, stacks = _living(nodes, codes, stacks)
                special = (codes < DEAD).nonzero()[0]
            if len(special):
                stacks = stacks.copy()
                pairs = (codes[special].astype(np.int64) << 32) | stacks[special]
                unique, inverse = np.unique(pairs, return_inverse=True)
                results = [number(*machine.applied(pair >> 32, held[pair & 0xFFFFFFFF])) for pair in unique.tolist()]
                both = np.array(results, dtype=np.int32)[inverse.ravel()]
                codes[special], stacks[special] = both[:, 0], both[:, 1]
            states = codes
            if len(nodes) > _MANY:
                self._loops.learn(machine.states)
                done = self._loops.whole(trie, nodes, states)
                if done.any():
                    found.whole.append(nodes[done])
                    left = (~done).nonzero()[0]
                    nodes, states, stacks = nodes.take(left), states.take(left), stacks.take(left)
            found.alive.append(nodes)
            if len(nodes) <= _VERY_FEW:
                # Long words of whitespace make deep levels of one node each, for which array operations are slower.
                left_stacks = [held[stack] for stack in stacks.tolist()]
                return self._walk_on(
                    words, list(zip(nodes.tolist(), states.tolist(), left_stacks, strict=True)), found, written
                )
            above = nodes
        return found

    def _walk_on(self, words: Words, pending: Pending, found: Found, written: bytes = b"") -> Found:
        """Walk below a small number of nodes, one by one, and below nodes with many children by whole levels."""
        machine, trie = self._machine, words.trie
        starts, sizes = trie.child_start.data, trie.child_count.data
        texts, place_of, naming, known = words.bytes, words.bytes.find, machine.naming, machine.codes
        entered = found.entered
        wide: Pending = []
        while pending:
            node, state, stack = pending.pop()
            size = sizes[node]
            if not size:
                continue
            first = starts[node]
            kind = machine.states[state]
            sparse = None
            if kind[0] != "text":
                if kind[0] == "hex" and DIGITS.isdisjoint(texts[first : first + size]):
                    # None of the children is a hexadecimal digit, so the expensive row of the state is not needed.
                    continue
                sparse = known.get(state) or machine.sparse_row(state)
            elif state not in machine.tracked and machine.strings.is_sparse(kind):
                self._in_string(words, (node, kind, stack), pending, found)
                continue
            codes: list[tuple[int, int]] = []
            if sparse is None:
                if size > _SIBLINGS:
                    wide.append((node, state, stack))
                    continue
                if size <= _TWINS:
                    row: Any = {byte: machine.code(state, byte) for byte in texts[first : first + size]}
                else:
                    row = machine.row(state).data
                for child in range(first, first + size):
                    code = row[texts[child]]
                    if code != DEAD:
                        codes.append((child, code))
            elif size < len(sparse):
                for child in range(first, first + size):
                    code = sparse.get(texts[child], DEAD)
                    if code != DEAD:
                        codes.append((child, code))
            else:
                for byte, code in sparse.items():
                    child = place_of(byte, first, first + size)
                    if child >= 0:
                        codes.append((child, code))
            if naming and any(code in naming for _, code in codes):
                wide.append((node, state, stack))
                continue
            for child, code in codes:
                entered.append(child)
                if sizes[child]:
                    pending.append((child, code, stack) if code >= 0 else (child, *machine.applied(code, stack)))
        if wide:
            wide = self._compiled(words, wide, found)
        return self._walk(words, wide, written, found) if wide else found

    def _compiled(self, words: Words, wide: Pending, found: Found) -> Pending:
        """Walk below nodes where many bytes may come by the compiled loop; what must be walked by levels instead."""
        machine = self._machine
        left: Pending = []
        inside: dict[tuple[StringContext, Stack], list[tuple[int, int, int]]] = {}
        for node, state, stack in wide:
            kind = machine.states[state]
            if kind[0] != "text" or kind[1].tracks:
                left.append((node, state, stack))
                continue
            _, context, place, count = kind
            if context.content.is_far(count, self._longest):
                context, count = context.unbounded, 0
            inside.setdefault((context, stack), []).append((node, place, count))
        for (context, stack), begun in inside.items():
            walked = self._content(words.trie, context, begun)
            if walked is None:
                left += [(node, context.text(place, count), stack) for node, place, count in begun]
            else:
                self._ended(words, context, stack, walked, found)
        return left

    def _ended(
        self, words: Words, context: StringContext, stack: Stack, walked: tuple[NDArray[Any], Ends], found: Found
    ) -> None:
        """Walk on where a compiled walk inside a string has met quotes and backslashes."""
        machine = self._machine
        places, ends = walked
        found.places.append(places)
        sizes = words.trie.child_count.data
        reached: dict[tuple[tuple[int, int], bool], tuple[int, Stack]] = {}
        pending: Pending = []
        for node, at, ended in ends:
            after = reached.get((at, ended))
            if after is None:
                code = context.end(*at) if ended else machine.strings.escape(context, *at)
                after = reached[at, ended] = machine.applied(code, stack) if code < DEAD else (code, stack)
            if after[0] != DEAD:
                found.entered.append(node)
                if sizes[node]:
                    pending.append((node, *after))
        if pending:
            self._walk_on(words, pending, found)

    def _in_string(self, words: Words, begun: tuple[int, Any, Stack], pending: Pending, found: Found) -> None:
        """Walk inside a string whose content allows a small number of bytes, without a machine state per character."""
        machine, strings, trie = self._machine, self._machine.strings, words.trie
        starts, sizes, texts, place_of = trie.child_start.data, trie.child_count.data, words.bytes, words.bytes.find
        node, (_, context, place, count), stack = begun
        entered = found.entered
        content = context.content
        boundaries, counts = content.automaton.boundaries, content.counts
        below, mask = (context.below, context.mask) if isinstance(context, NameContext) else (None, 0)
        narrow = None if below is not None and context.plain else content.automaton.narrow
        known, outputs = strings.steps_of(context), content.automaton.outputs
        inside = [(node, place, count)]
        while inside:
            node, place, count = inside.pop()
            first = starts[node]
            end = first + sizes[node]
            following = content.counted(count + boundaries[place]) if counts else 0
            steps = known.get(place)
            if steps is None:
                steps = strings.steps(context, place)
            for byte in texts[first:end] if end - first <= len(steps) else steps:
                child, target = place_of(byte, first, end), steps.get(byte, DEAD)
                if child < 0 or target < 0:
                    continue
                if not (below[target] & mask if below is not None else not counts or content.alive(target, following)):
                    continue
                entered.append(child)
                if not sizes[child]:
                    continue
                if narrow is None or narrow[target]:
                    inside.append((child, target, following))
                else:
                    pending.append((child, context.text(target, following), stack))
            if not boundaries[place]:
                continue
            child = place_of(_QUOTE, first, end) if outputs[place] is not None else -1
            code = context.end(place, count) if child >= 0 else DEAD
            if code != DEAD:
                entered.append(child)
                if sizes[child]:
                    pending.append((child, code, stack) if code >= 0 else (child, *machine.applied(code, stack)))
            child = place_of(_BACKSLASH, first, end) if context.escapes is not False else -1
            code = strings.escape(context, place, count) if child >= 0 else DEAD
            if code != DEAD:
                entered.append(child)
                pending.append((child, code, stack))

    def _end_name(self, trie: Trie, node: int, code: int, stack: Stack, written: bytes) -> tuple[int, Stack]:
        """State and stack after the end of a name that must not be repeated; the state is ``DEAD`` if it is repeated.

        Args:
            trie: the words.
            node: the node at the closing quote.
            code: the code of the closing quote.
            stack: the stack before the closing quote.
            written: the bytes of the name before the word.
        """
        assert stack is not None
        # Words that can end two names are rare. Only in those the first name must be kept for the second.
        again = int(trie.height[node]) >= _NEXT_NAME and int(trie.low[node]) & _NAME_MARKS == _NAME_MARKS
        if not again and not stack.entry[1]:
            return self._machine.after_name(code, stack, b"", remember=False)  # type: ignore[no-any-return]
        prefix = bytearray()
        while node:
            prefix.append(int(trie.byte[node]))
            node = int(trie.parent[node])
        text = written + bytes(reversed(prefix))[:-1]
        at = len(text)
        while at and (text[at - 1] != ord('"') or _is_escaped(text, at - 1)):
            at -= 1
        return self._machine.after_name(code, stack, text[at:], remember=again)  # type: ignore[no-any-return]


def _living(nodes: NDArray[Any], *columns: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
    """The nodes whose code, in the first column, is not ``DEAD``, and their columns."""
    kept = (columns[0] != DEAD).nonzero()[0]
    return (nodes, *columns) if len(kept) == len(nodes) else tuple([part.take(kept) for part in (nodes, *columns)])


def may_name_again(rest: bytes) -> bool:
    """Whether the bytes after the closing quote of a name may end another name."""
    return len(rest) >= _NEXT_NAME and b":" in rest and b"," in rest and rest.count(b'"') > 1


def _is_escaped(text: bytes, place: int) -> bool:
    """Whether an odd number of backslashes precedes the byte at index ``place``."""
    return (place - len(text[:place].rstrip(b"\\"))) % 2 == 1
