"""Which tokens may come next in a JSON text: one walk of a prefix trie from a state of the automaton.

The walk finds the words after which the text can still be completed. A word is an entry of the trie: a token, or a rest
of a token (:mod:`.string_rows`). The walk goes from node to node with triples of a node, a state and a stack, and
drops a triple when its state is dead. Inside strings it follows the automaton of the content; where the content
allows many bytes, :mod:`.content_walk` walks below many nodes at once. Where whitespace is allowed, the walk of a word
begins at its first character that is not whitespace.

The work of a walk is bounded. Nodes, states (whose codes may have to be found) and walks inside strings are counted.
The count does not depend on what is remembered. Above the bound no further node is visited. Shorter words come first.
"""

from __future__ import annotations

import bisect
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.lift.words import Words
from logitloom.constraints import TokenSet
from logitloom_plugins.json_schema.folds.machine import DEAD, Machine
from logitloom_plugins.json_schema.grammar.contexts import NameContext, StringContext, TextContext
from logitloom_plugins.json_schema.grammar.states import EscapeState, GapState, NumberState, Stack, State, TextState
from logitloom_plugins.json_schema.grammar.string_moves import DIGITS
from logitloom_plugins.json_schema.tokens.content_walk import ContentWalk, Ends, Places
from logitloom_plugins.json_schema.tokens.shared_token_sets import TokenSets
from logitloom_plugins.json_schema.values.moore_machine import UNESCAPED

__all__ = ["Found", "Pending", "TokenWalk"]

#: Where many bytes may come in a string, nodes with more children than this are walked together.
_SIBLINGS: Final = 24
#: The most nodes in a string that are walked one by one.
_MOST_VISITED: Final = 1 << 12
#: The most work of one walk, in nodes; and the work of a state and of a walk inside strings.
_MOST_WORK: Final = 1 << 14
_STATE: Final = 32
_CONTENT: Final = 256
#: Up to so many nodes the words are listed node by node.
_LISTED: Final = 128
_BLANKS: Final = b" \n\t\r"
#: The bytes that may follow a byte of a number.
_IN_NUMBERS: Final = frozenset(b"0123456789.eE+-,]}" + _BLANKS)
_QUOTE, _BACKSLASH = b'"\\'

#: Nodes with a state and a stack each.
Pending = list[tuple[int, int, Stack]]
#: By string and stack nodes with a state of the content and a number of characters each.
Wide = dict[tuple[StringContext, Stack], list[tuple[int, int, int]]]


class Found:
    """The words that a walk has allowed.

    Attributes:
        entered: nodes at which words are allowed.
        positions: positions of allowed words in the trie's order.
        blanks: how many first nodes of whitespace have allowed words.
        whole: whether these are all allowed words; otherwise the walk has taken too much work.
    """

    __slots__ = ("blanks", "entered", "positions", "whole")

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.positions: list[Places] = []
        self.blanks = 0
        self.whole = True

    def listed(self, words: Words) -> list[int]:
        """The allowed words in no order; only for walks without ``positions``."""
        return words.listed_at(self.entered, self.blanks)

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
        return words.all_at(self.entered, self.blanks, self.positions)


def _read_in(state: State) -> frozenset[int] | None:
    """Bytes of which one comes next in a state whose codes take long to find; ``None`` for other states."""
    if isinstance(state, NumberState):
        return _IN_NUMBERS
    return DIGITS if isinstance(state, EscapeState) and 1 < len(state.written) < 6 else None


class TokenWalk:
    """Walks tries for one machine.

    Args:
        machine: the automaton over bytes.
        longest: no word adds more characters to a string.

    Attributes:
        content: the walk inside strings.
    """

    def __init__(self, machine: Machine, longest: int) -> None:
        self._machine = machine
        self._longest = longest
        self.content = ContentWalk(UNESCAPED[machine.grammar.escapes == "ascii"])

    def from_root(self, words: Words, state: int, stack: Stack) -> Found:
        """The words that are allowed in a state, if items and names may be repeated."""
        machine = self._machine
        sparse = machine.codes.sparse_row(state)
        blank = DEAD if sparse is None else sparse.get(_BLANKS[0], DEAD)
        gap = machine.states[blank] if blank >= 0 else None
        if sparse is None or not isinstance(gap, GapState):
            return self.below(words, [(0, state, stack)])
        # Whitespace ends a number, so the bytes allowed after whitespace can differ from the bytes allowed before it.
        is_before = gap.before == machine.states[state]
        after = sparse if is_before else machine.codes.every_code(machine.numbering.number(gap.before))
        found, pending = Found(), []
        more = machine.whitespace.most - gap.read
        found.blanks = bisect.bisect_right(words.blank_depths, more + 1)
        ranges = [(sparse, 0, more + 1)] if sparse is after else [(sparse, 0, 0), (after, 1, more + 1)]
        for codes, least, most in ranges:
            nodes, going = words.after_blanks(tuple(codes), least, most)
            found.entered += nodes
            for byte, begun in going:
                code = codes[byte]
                reached, below = (code, stack) if code >= 0 else machine.reader.applied(code, stack)
                pending += [(node, reached, below) for node in begun]
        return self.below(words, pending, found)

    def below(self, words: Words, pending: Pending, found: Found | None = None) -> Found:
        """The allowed words below nodes with a state each, in addition to words that have been found.

        Nodes are walked one by one, and in strings nodes with many children all at once. The words at the first nodes
        below are always found.
        """
        found = Found() if found is None else found
        machine, entered, known, reads = self._machine, found.entered, self._machine.codes.codes, words.reads
        applied, most_blanks = machine.reader.applied, machine.whitespace.most
        wide: Wide = {}
        visited: set[int] = set()
        following, work = deque(pending), 0
        while following or wide:
            if work > _MOST_WORK and (entered or found.positions):
                found.whole = False
                break
            if not following:
                string, begun = wide.popitem()
                work += _CONTENT
                positions, ends = self.content(words.trie, string[0], begun)
                found.positions.append(positions)
                self._ended(words, string, sorted(ends), following, entered)
                continue
            node, state, stack = following.popleft()
            if state not in visited:
                visited.add(state)
                work += _STATE
            sparse = known.get(state)
            if sparse is None:
                kind = machine.states[state]
                if isinstance(kind, TextState):
                    context, content_state, count, _ = kind
                    begun = [(node, content_state, count)]
                    ends, nodes = self._in_string(words, (context, stack), begun, wide, entered)
                    work += nodes
                    self._ended(words, (context, stack), ends, following, entered)
                    continue
                if isinstance(kind, GapState):
                    # If no word reaches the end of a gap, all states of the gap have the codes of the state before it.
                    if kind.read + words.longest_below(node) <= most_blanks:
                        state = machine.numbering.number(kind.before)
                        sparse = known.get(state)
                elif (few := _read_in(kind)) and few.isdisjoint(words.bytes_below(node)):
                    # None of the children can come, so the expensive row of the state is not needed.
                    continue
                if sparse is None:
                    sparse = machine.codes.every_code(state)
            below = reads(node, sparse)
            work += 1 + len(below)
            for child, code, goes_on in below:
                entered.append(child)
                if goes_on:
                    following.append((child, code, stack) if code >= 0 else (child, *applied(code, stack)))
        return found

    def _in_string(
        self,
        words: Words,
        string: tuple[StringContext, Stack],
        inside: list[tuple[int, int, int]],
        wide: Wide,
        entered: list[int],
    ) -> tuple[Ends, int]:
        """Walk inside a string, without a machine state per character.

        Args:
            words: the words.
            string: the string and the stack in it.
            inside: nodes with a state of the content and a number of characters each.
            wide: gets the nodes with many children at which many bytes may come; after many nodes, all that are left.
            entered: gets the nodes at which words are allowed.

        Returns:
            Where the string has ended, or an escape has begun; and how many nodes were visited.
        """
        context, stack = string
        strings, content = self._machine.codes.strings.moves, context.content
        boundaries, counts = content.automaton.boundaries, content.counts
        below, mask = (context.below, context.mask) if isinstance(context, NameContext) else (None, 0)
        narrow = None if context.is_listed else content.automaton.narrow
        known, outputs, reads = strings.steps_of(context), content.automaton.outputs, words.reads
        escapes = context.escapes is not False
        ends: Ends = []
        visited = 0
        while inside:
            visited += 1
            if visited > _MOST_VISITED:
                wide.setdefault(string, []).extend(inside)
                break
            node, content_state, count = inside.pop()
            if narrow is not None and not narrow[content_state] and len(words.children(node)) > _SIBLINGS:
                # A string that is far from its bounds is walked like a string without bounds.
                if isinstance(context, TextContext) and content.is_far(count, self._longest):
                    wide.setdefault((context.unbounded, stack), []).append((node, content_state, 0))
                else:
                    wide.setdefault(string, []).append((node, content_state, count))
                continue
            following = content.counted(count + boundaries[content_state]) if counts else 0
            steps = known.get(content_state)
            if steps is None:
                steps = strings.steps(context, content_state)
            for child, target, goes_on in reads(node, steps):
                if below[target] & mask if below is not None else not counts or content.alive(target, following):
                    entered.append(child)
                    if goes_on:
                        inside.append((child, target, following))
            if not boundaries[content_state]:
                continue
            if outputs[content_state] is not None and (child := words.child(node, _QUOTE)) >= 0:
                ends.append((child, (content_state, count), True))
            if escapes and (child := words.child(node, _BACKSLASH)) >= 0:
                ends.append((child, (content_state, count), False))
        return ends, visited

    def _ended(
        self,
        words: Words,
        string: tuple[StringContext, Stack],
        ends: Ends,
        pending: deque[tuple[int, int, Stack]],
        entered: list[int],
    ) -> None:
        """Note where a walk inside a string has met quotes and backslashes that may come."""
        (context, before), machine, strings = string, self._machine, self._machine.codes.strings
        codes: dict[tuple[tuple[int, int], bool], int] = {}
        for node, at, ended in ends:
            code = codes.get((at, ended))
            if code is None:
                code = codes[at, ended] = strings.end(context, *at) if ended else strings.escape(context, *at)
            if code != DEAD:
                entered.append(node)
                if words.has_children(node):
                    pending.append((node, code, before) if code >= 0 else (node, *machine.reader.applied(code, before)))
