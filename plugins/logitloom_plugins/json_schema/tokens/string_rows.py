"""Rows of states inside free strings, put together from the tables of the vocabulary.

Free are strings of which only the length matters, and names of members where any name may stand: of those, the tokens
that complete a name which the schema mentions are looked at one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.trie import members
from logitloom_plugins.json_schema.structure.machine import DEAD, Machine
from logitloom_plugins.json_schema.structure.stacks import name_of
from logitloom_plugins.json_schema.structure.string_states import NameContext, TextContext
from logitloom_plugins.json_schema.tokens.string_tables import StringTables, string_tables, words_of
from logitloom_plugins.json_schema.tokens.token_walk import TokenWalk
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["StringRows"]

_MOST_REMEMBERED: Final = 1 << 12
_MOST_ROWS: Final = 1 << 7


class StringRows:
    """The rows of free strings of one machine and vocabulary.

    Args:
        machine: the automaton over bytes.
        vocabulary: the tokens.
        walk: walks for the machine.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary, walk: TokenWalk) -> None:
        self._machine = machine
        self._walk = walk
        self._words = words_of(vocabulary)
        escapes = machine.strings.escapes
        self._values = string_tables(vocabulary, escapes, names=False)
        self._names = string_tables(vocabulary, escapes, names=True)
        #: Most characters that one token writes.
        self.longest = self._values.longest
        self._after: dict[tuple[bool, int, int], NDArray[np.bool_]] = {}
        self._far: dict[tuple[int, int, int, int], tuple[bool, NDArray[np.int32]]] = {}
        self._named: dict[tuple[NameContext, int, int, int], tuple[bool, NDArray[np.int32]]] = {}
        self._completed: dict[tuple[MooreMachine, int], list[tuple[int, int]]] = {}

    def row(self, state: int, stack: int, most: int) -> tuple[bool, NDArray[np.int32]] | None:
        """The tokens of a state, ``None`` if it is not inside a free string.

        Args:
            state: a state of the machine.
            stack: what is remembered; names that must not come again are left to the caller.
            most: how many tokens may be allowed at most for the allowed ones to be listed.

        Returns:
            Whether the allowed tokens are listed (else the forbidden ones among those with bytes), and their ids.
        """
        kind, *rest = self._machine.states[state]
        if kind != "text":
            return None
        context, place, count = rest
        if isinstance(context, TextContext):
            if context.content.free and place == context.start:
                return self._value(context, place, count, stack, most)
        elif isinstance(context, NameContext) and context.free(place):
            return self._name(context, place, stack, most)
        return None

    def _value(
        self, context: TextContext, place: int, count: int, stack: int, most: int
    ) -> tuple[bool, NDArray[np.int32]]:
        tables, content = self._values, context.content
        room = content.free_from(place, count)
        if not content.counts or content.is_uniform(count, tables.longest):
            # Far from its bounds a string is the same wherever it is.
            code = context.end(place, count)
            key = (code, stack, min(room, tables.longest), most)
            known = self._far.get(key)
            if known is None:
                ends = self._allowed_rests(tables, code, stack).take(tables.rest)
                if len(self._far) >= _MOST_ROWS:
                    self._far.clear()
                known = self._far[key] = _written(tables, room, ends, most)
            return known
        ends = np.zeros(len(tables.ending), dtype=bool)
        for first, last, ahead in content.end_ranges(count, min(room, tables.longest)):
            code = context.end(place, content.counted(count + ahead))
            if code != DEAD:
                fits = (tables.lengths >= first) & (tables.lengths <= last)
                ends |= fits & self._allowed_rests(tables, code, stack).take(tables.rest)
        return _written(tables, room, ends, most)

    def _name(self, context: NameContext, place: int, stack: int, most: int) -> tuple[bool, NDArray[np.int32]]:
        key = (context, place, stack, most)
        known = self._named.get(key)
        if known is None:
            if len(self._named) >= _MOST_ROWS:
                self._named.clear()
            known = self._named[key] = self._find_name(context, place, stack, most)
        return known

    def _find_name(self, context: NameContext, place: int, stack: int, most: int) -> tuple[bool, NDArray[np.int32]]:
        tables, trie = self._names, self._words.trie
        ends = self._allowed_rests(tables, context.other_end(), stack).take(tables.rest)
        completed = self._completing(context.content.automaton, place, context)
        if completed:
            going: list[tuple[int, int]] = []
            for node, named in completed:
                first, own, last = int(trie.first[node]), int(trie.own[node]), int(trie.last[node])
                code = context.end(named, 0)
                if code in self._machine.naming:
                    code = self._machine.operations[-2 - code].target
                ends[tables.place[trie.order[first:own]]] = code != DEAD
                ends[tables.place[trie.order[own:last]]] = False
                if code != DEAD:
                    going.append((node, code))
            if going:
                nodes, codes = zip(*going, strict=True)
                ends[tables.place[self._walk.below(self._words, nodes, codes, stack).allowed()]] = True
        return _written(tables, 1 << 30, ends, most)

    def doubtful(self, written: bytes, names: frozenset[str]) -> NDArray[np.int32]:
        """The tokens that may write a name of some, inside another name: these, and few others, some more than once.

        Args:
            written: what is written of the name.
            names: those that must not come again.
        """
        tables, words, begun = self._names, self._words, name_of(written)
        found = [tables.ending[tables.naming]]
        if names:
            found.append(tables.ending[tables.escaped])
        for name in names:
            if name.startswith(begun):
                # What needs an escape is among those with one.
                node = words.node(name[len(begun) :].encode("utf-8", "surrogatepass") + b'"')
                if node:
                    found.append(words.trie.order[words.trie.first[node] : words.trie.last[node]])
        return np.concatenate(found)

    def _completing(self, automaton: MooreMachine, place: int, context: NameContext) -> list[tuple[int, int]]:
        """The nodes of closing quotes that complete a name of the schema, each with the name's state."""
        known = self._completed.get((automaton, place))
        if known is not None:
            return known
        found: list[tuple[int, int]] = []
        trie = self._words.trie
        nodes = np.zeros(1, dtype=np.int64)
        places = np.full(1, place, dtype=np.int64)
        labels, byte_class, following = automaton.outputs, automaton.byte_class, automaton.next
        while len(nodes) and place >= context.outside:
            counts = trie.child_count.take(nodes)
            children = members(trie.child_start.take(nodes), counts)
            before = places.repeat(counts)
            read = trie.byte.take(children)
            for i in (read == ord('"')).nonzero()[0].tolist():
                label = labels[before[i]]
                if label is not None and label[0] == "name":
                    found.append((int(children[i]), int(before[i])))
            after = following[before, byte_class.take(read)]
            kept = (after >= context.outside).nonzero()[0]
            nodes, places = children.take(kept), after.take(kept)
        if len(self._completed) >= _MOST_REMEMBERED:
            self._completed.clear()
        self._completed[automaton, place] = found
        return found

    def _allowed_rests(self, tables: StringTables, code: int, stack: int) -> NDArray[np.bool_]:
        """Per rest whether it may follow the closing quote."""
        if code == DEAD:
            return np.zeros(len(tables.rests), dtype=bool)
        state, stack = self._machine.stacks.applied(code, stack) if code < DEAD else (code, stack)
        key = (tables is self._names, state, stack)
        known = self._after.get(key)
        if known is None:
            known = np.zeros(len(tables.rests), dtype=bool)
            known[0] = True
            if tables.rest_words is not None:
                known[self._walk.from_root(tables.rest_words, state, stack).allowed()] = True
            if len(self._after) >= _MOST_REMEMBERED:
                self._after.clear()
            self._after[key] = known
        return known


def _written(tables: StringTables, room: int, ends: NDArray[np.bool_], most: int) -> tuple[bool, NDArray[np.int32]]:
    """A row the shorter way, given the characters that there is room for, and which ending tokens are allowed."""
    fitting = len(tables.inside) if room >= tables.longest else int(np.searchsorted(tables.needs, room, side="right"))
    if fitting + int(np.count_nonzero(ends)) > most:
        return False, np.concatenate([tables.dead, tables.inside[fitting:], tables.ending[~ends]])
    return True, np.concatenate([tables.inside[:fitting], tables.ending[ends]])
