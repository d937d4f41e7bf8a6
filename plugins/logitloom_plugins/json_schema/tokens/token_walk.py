"""Which words keep a text completable: one walk of a prefix trie for a state of the machine.

The walk carries triples (node, state, stack) and drops one as soon as the state is dead: whole levels at once, but node
by node where few bytes may come. Below a node whose words hold no quotes, backslashes or control characters, free text
is allowed without looking; words that begin with whitespace, where whitespace may stand, are looked at from their first
other character on.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.trie import Trie, joined, members
from logitloom_plugins.json_schema.structure.machine import DEAD, Machine
from logitloom_plugins.json_schema.structure.string_states import DIGITS
from logitloom_plugins.json_schema.tokens.name_ends import end_name
from logitloom_plugins.json_schema.tokens.self_loops import SelfLoops

__all__ = ["Found", "TokenWalk", "Words"]

_FEW: Final = 64
_VERY_FEW: Final = 12
#: Children of one node that are looked at one by one, where any byte may come.
_SIBLINGS: Final = 24
#: So few of them need no whole row.
_TWINS: Final = 4
_BLANKS: Final = b" \n\t\r"


class Words:
    """A trie, and what of it is only whitespace.

    Attributes:
        trie: the trie.
        bytes: the last byte of each node's prefix.
        blank_nodes, blank_depths: nodes whose prefix is only whitespace, and its length.
        after: by their byte the children that are not, and the length of the whitespace before each.
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        self.bytes = trie.byte.tobytes()
        blank = np.zeros(256, dtype=bool)
        blank[list(_BLANKS)] = True
        first = np.arange(1, 1 + int(trie.child_count[0]))
        is_blank = blank[trie.byte[first]]
        level, depth = first[is_blank], 1
        nodes, depths, after, before = [level], [np.full(len(level), 1)], [], []
        while len(level):
            counts = trie.child_count[level]
            children = members(trie.child_start[level], counts)
            is_blank = blank[trie.byte[children]]
            after.append(children[~is_blank])
            before.append(np.full(len(after[-1]), depth))
            level, depth = children[is_blank], depth + 1
            nodes.append(level)
            depths.append(np.full(len(level), depth))
        self.blank_nodes, self.blank_depths = np.concatenate(nodes), np.concatenate(depths).tolist()
        # Levels come one after the other, so depths are in order.
        following, depths_before = joined(after), joined(before)
        read = trie.byte[following]
        self.after: dict[int, tuple[list[int], list[int]]] = {}
        for byte in np.unique(read).tolist():
            here = read == byte
            self.after[byte] = (following[here].tolist(), depths_before[here].tolist())

    def node(self, text: bytes) -> int:
        """The node that some text leads to, or 0."""
        trie, node = self.trie, 0
        for byte in text:
            first = int(trie.child_start[node])
            node = self.bytes.find(byte, first, first + int(trie.child_count[node]))
            if node < 0:
                return 0
        return node


class Found(NamedTuple):
    """What a walk has found, by nodes of the trie.

    Every word is below exactly one node of ``whole`` or ``dead``, at one of ``alive``, or below a child of one of
    ``opened`` that is none of ``entered``, which are alive.
    """

    trie: Trie
    whole: NDArray[Any]
    alive: NDArray[Any]
    dead: NDArray[Any]
    opened: NDArray[Any]
    entered: NDArray[Any]

    @property
    def size(self) -> int:
        """How many words are allowed."""
        trie = self.trie
        below = trie.last.take(self.whole) - trie.first.take(self.whole)
        here = trie.own.take(self.alive) - trie.first.take(self.alive)
        return int(below.sum()) + int(here.sum())

    def allowed(self) -> NDArray[np.int32]:
        """The allowed words, in no particular order."""
        trie = self.trie
        first = np.concatenate([trie.first.take(self.whole), trie.first.take(self.alive)])
        stop = np.concatenate([trie.last.take(self.whole), trie.own.take(self.alive)])
        return trie.order.take(members(first, stop - first))

    def forbidden(self) -> NDArray[np.int32]:
        """The other words."""
        trie, dead = self.trie, self.dead
        if len(self.opened):
            children = members(trie.child_start.take(self.opened), trie.child_count.take(self.opened))
            dead = np.concatenate([dead, np.setdiff1d(children, self.entered)])
        first = trie.first.take(dead)
        return trie.order.take(members(first, trie.last.take(dead) - first))


class _Parts(NamedTuple):
    """What a walk has found so far."""

    whole: list[NDArray[Any]]
    alive: list[NDArray[Any]]
    dead: list[NDArray[Any]]
    opened: list[int]
    entered: list[int]

    def living(
        self, nodes: NDArray[Any], codes: NDArray[np.int32], stacks: NDArray[np.int32]
    ) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int32]]:
        """Those whose code is not dead; the nodes of the others are noted."""
        gone = codes == DEAD
        if not gone.any():
            return nodes, codes, stacks
        self.dead.append(nodes[gone])
        kept = (~gone).nonzero()[0]
        return nodes.take(kept), codes.take(kept), stacks.take(kept)

    def found(self, trie: Trie) -> Found:
        """All of it."""
        entered = np.array(self.entered, dtype=np.int64)
        alive = joined([*self.alive, entered])
        opened = np.array(self.opened, dtype=np.int64)
        return Found(trie, joined(self.whole), alive, joined(self.dead), opened, entered)


class TokenWalk:
    """Walks tries for one machine.

    Args:
        machine: the automaton over bytes.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._stacks = machine.stacks
        self._loops = SelfLoops(machine.strings)

    def from_root(self, words: Words, state: int, stack: int, written: bytes = b"") -> Found:
        """The words that may come in a state."""
        machine = self._machine
        gap = machine.gap(machine.code(state, _BLANKS[0]))
        few = machine.few(state) if state not in machine.tracked else None
        if few is not None and gap is None:
            return self._walk_on(words, [(0, state, stack)], b"", _Parts([], [], [], [], []))
        if few is not None and gap is not None and machine.naming.isdisjoint(few.values()):
            return self._after_blanks(words, few, gap, stack)
        return self._walk(words, [(0, state, stack)], written, _Parts([], [], [], [], []))

    def _after_blanks(self, words: Words, few: dict[int, int], gap: tuple[int, int], stack: int) -> Found:
        """The words that may come where whitespace may: some of it, then what may come after it."""
        base, more = gap
        trie, applied = words.trie, self._stacks.applied
        fitting = words.blank_nodes[: bisect.bisect_right(words.blank_depths, more + 1)].tolist()
        parts = _Parts([], [], [], [0, *fitting], list(fitting))
        pending: list[tuple[int, int, int]] = []

        def enter(nodes: list[int], code: int) -> None:
            reached = (code, stack) if code >= 0 else applied(code, stack)
            parts.entered.extend(nodes)
            pending.extend([(node, *reached) for node in nodes])

        top = 1 + int(trie.child_count[0])
        for byte, code in few.items():
            node = words.bytes.find(byte, 1, top)
            if node >= 0 and byte not in _BLANKS:
                enter([node], code)
        for byte, code in (self._machine.few(base) or {}).items():
            nodes, depths = words.after.get(byte, ([], []))
            enter(nodes[: bisect.bisect_right(depths, more + 1)], code)
        return self._walk_on(words, pending, b"", parts)

    def below(self, words: Words, parents: Sequence[int], states: Sequence[int], stack: int) -> Found:
        """The words that go on from some nodes with a state each; of the nodes themselves nothing is said."""
        pending = [(node, state, stack) for node, state in zip(parents, states, strict=True)]
        walk = self._walk_on if len(pending) <= _VERY_FEW else self._walk
        return walk(words, pending, b"", _Parts([], [], [], [], []))

    def _walk(self, words: Words, pending: list[tuple[int, int, int]], written: bytes, parts: _Parts) -> Found:
        """The walk below many nodes, on whole levels."""
        triples = np.array(pending, dtype=np.int32)
        above, states, stacks = triples.T
        machine, trie = self._machine, words.trie
        while len(above):
            counts = trie.child_count.take(above)
            nodes = members(trie.child_start.take(above), counts)
            states, stacks = states.repeat(counts), stacks.repeat(counts)
            table = machine.rows(states)
            codes = table.ravel().take(states.astype(np.int64) * 256 + trie.byte.take(nodes))
            nodes, codes, stacks = parts.living(nodes, codes, stacks)
            special = (codes < DEAD).nonzero()[0]
            if len(special) and machine.naming:
                stacks = stacks.copy()
                for i in [i for i in special.tolist() if int(codes[i]) in machine.naming]:
                    codes[i], stacks[i] = end_name(
                        self._stacks, trie, int(nodes[i]), int(codes[i]), int(stacks[i]), written
                    )
                nodes, codes, stacks = parts.living(nodes, codes, stacks)
                special = (codes < DEAD).nonzero()[0]
            if len(special):
                stacks = stacks.copy()
                pairs = (codes[special].astype(np.int64) << 32) | stacks[special]
                unique, inverse = np.unique(pairs, return_inverse=True)
                results = [self._stacks.applied(int(pair >> 32), int(pair & 0xFFFFFFFF)) for pair in unique.tolist()]
                both = np.array(results, dtype=np.int32)[inverse.ravel()]
                codes[special], stacks[special] = both[:, 0], both[:, 1]
            states = codes
            if len(nodes) > _FEW:
                self._loops.learn(machine.states)
                done = self._loops.whole(trie, nodes, states)
                if done.any():
                    parts.whole.append(nodes[done])
                    left = (~done).nonzero()[0]
                    nodes, states, stacks = nodes.take(left), states.take(left), stacks.take(left)
            parts.alive.append(nodes)
            if len(nodes) <= _VERY_FEW:
                # Long words of blanks make deep levels of one node each, for which arrays do not pay.
                pending = list(zip(nodes.tolist(), states.tolist(), stacks.tolist(), strict=True))
                return self._walk_on(words, pending, written, parts)
            above = nodes
        return parts.found(trie)

    def _walk_on(self, words: Words, pending: list[tuple[int, int, int]], written: bytes, parts: _Parts) -> Found:
        """The walk below a few nodes, one by one; where it gets wide, on whole levels again."""
        machine, applied, trie = self._machine, self._stacks.applied, words.trie
        starts, sizes = trie.child_start.data, trie.child_count.data
        bytes_of, texts, place_of, naming = trie.byte, words.bytes, words.bytes.find, machine.naming
        opened, entered = parts.opened, parts.entered
        wide: list[tuple[int, int, int]] = []
        while pending:
            node, state, stack = pending.pop()
            size = sizes[node]
            if not size:
                continue
            first = starts[node]
            if machine.states[state][0] == "hex" and DIGITS.isdisjoint(texts[first : first + size]):
                # What may follow takes a while to find out, and words that are not JSON have letters there.
                opened.append(node)
                continue
            few = machine.few(state)
            if few is None:
                if size > _SIBLINGS:
                    wide.append((node, state, stack))
                    continue
                if size <= _TWINS:
                    codes = [machine.code(state, byte) for byte in texts[first : first + size]]
                else:
                    codes = machine.row(state)[bytes_of[first : first + size]].tolist()
                found = [(child, code) for child, code in enumerate(codes, first) if code != DEAD]
            elif size < len(few):
                siblings = enumerate(texts[first : first + size], first)
                found = [(child, few[byte]) for child, byte in siblings if byte in few]
            else:
                places = [(place_of(byte, first, first + size), code) for byte, code in few.items()]
                found = [pair for pair in places if pair[0] >= 0]
            if naming and any(code in naming for _, code in found):
                wide.append((node, state, stack))
                continue
            opened.append(node)
            for child, code in found:
                entered.append(child)
                if sizes[child]:
                    pending.append((child, code, stack) if code >= 0 else (child, *applied(code, stack)))
        if not wide:
            return parts.found(trie)
        return self._walk(words, wide, written, parts)
