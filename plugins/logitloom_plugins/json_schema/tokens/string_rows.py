"""Rows of states inside free strings, combined from tables of the vocabulary.

A string is *free* if only its length matters, or if it is a member name where any name is allowed. In such a name the
tokens that complete a name which the schema mentions are treated one by one. Each token either stays inside a free
string, or ends it and continues with a *rest* (its bytes after the closing quote), or is forbidden. The tables hold the
number of characters of each token inside the string. Only the set of allowed rests depends on the schema, and a
vocabulary has a small number of different rests.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata import BudgetTracker
from logitloom.automata.trie import Trie, joined, members, vocabulary_trie
from logitloom_plugins.json_schema.structure.machine import DEAD, Machine, name_of, read
from logitloom_plugins.json_schema.structure.members import ValueConstraint
from logitloom_plugins.json_schema.structure.string_states import NameContext, TextContext
from logitloom_plugins.json_schema.structure.value_reader import Stack
from logitloom_plugins.json_schema.structure.whitespace import Whitespace
from logitloom_plugins.json_schema.tokens.token_walk import TokenWalk, Words, may_name_again
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["Row", "StringRows", "StringTables", "string_tables", "words_of"]

_MOST_REMEMBERED: Final = 1 << 12
_MOST_ROWS: Final = 1 << 7
_CACHE: Final[weakref.WeakKeyDictionary[Vocabulary, dict[Any, Any]]] = weakref.WeakKeyDictionary()
_LOCK: Final = threading.RLock()
_LEADS: Final = np.array([not 0x80 <= byte < 0xC0 for byte in range(256)])

Row = tuple[bool, NDArray[np.int32]]
"""Whether the ids are the allowed tokens (else the forbidden tokens that have bytes), and the ids."""


def words_of(vocabulary: Vocabulary) -> Words:
    """The trie of a vocabulary, prepared for walks and cached."""
    with _LOCK:
        known = _CACHE.setdefault(vocabulary, {})
        if "words" not in known:
            known["words"] = Words(vocabulary_trie(vocabulary))
        words: Words = known["words"]
        return words


def string_tables(vocabulary: Vocabulary, machine: Machine, names: bool) -> StringTables:
    """The tables of a vocabulary, cached.

    Args:
        vocabulary: the tokens.
        machine: an automaton over bytes; its escape rules are used.
        names: whether the string is the name of a member, where only characters that need an escape are escaped.
    """
    words, escapes = words_of(vocabulary), machine.strings.escapes
    with _LOCK:
        known = _CACHE[vocabulary]
        if (escapes, names) not in known:
            tracker = BudgetTracker(None, "any value")
            anything = Machine(machine.keywords, Whitespace("compact"), escapes, tracker, ValueConstraint(True))
            known[escapes, names] = StringTables(words.trie, vocabulary.token_bytes, anything, names)
        tables: StringTables = known[escapes, names]
        return tables


class StringTables:
    """The effect of each token of a vocabulary inside a free string.

    Attributes:
        dead: ids that are forbidden in every free string.
        inside, needs: ids that stay inside the string, and the number of characters that the maximum length must still
            permit; sorted by that number.
        ending: ids that end the string.
        lengths: for each of ``ending`` the number of characters before the closing quote.
        rest: for each of ``ending`` the number of its rest.
        rests: the bytes of each rest; rest 0 is empty.
        place: per id its index in ``ending``, -1 for others.
        longest: the largest number of characters that one token adds to the string.
        escaped: indices in ``ending`` of tokens with an escape sequence before the closing quote.
        naming: indices in ``ending`` of tokens whose rest may end another member name.
        rest_words: the trie of the rests, with rest numbers as ids; ``None`` if the only rest is empty.
    """

    def __init__(self, trie: Trie, token_bytes: tuple[bytes, ...], machine: Machine, names: bool) -> None:
        # The tables are read off the automaton of any JSON value, so no rule of JSON is implemented twice.
        begun = read(machine, b'{"' if names else b'"')
        assert begun is not None
        texts: list[bool] = []
        ends: list[bool] = []
        nodes = np.arange(1, 1 + int(trie.child_count[0]))
        states = np.full(len(nodes), begun.state, dtype=np.int32)
        counts = np.zeros(len(nodes), dtype=np.int32)
        dead, inside, needs = [], [], []
        ending, lengths, rests = [], [], []
        number: dict[bytes, int] = {b"": 0}
        depth = 1
        while len(nodes):
            table = machine.rows(states)
            codes = table.ravel().take(states.astype(np.int64) * 256 + trie.byte.take(nodes))
            for state in machine.states[len(texts) :]:
                texts.append(state[0] == "text")
                ends.append(state[0] == "colon")
            is_text, is_end = np.array(texts), np.array(ends)
            gone = codes == -1
            dead.append(_tokens(trie, nodes[gone], trie.last))
            closed = (codes < -1) | is_end.take(np.maximum(codes, 0))
            for node, count in zip(nodes[closed].tolist(), counts[closed].tolist(), strict=True):
                for token in trie.order[trie.first[node] : trie.last[node]].tolist():
                    ending.append(token)
                    lengths.append(count)
                    rests.append(number.setdefault(token_bytes[token][depth:], len(number)))
            kept = (~gone & ~closed).nonzero()[0]
            nodes, codes, states, counts = nodes.take(kept), codes.take(kept), states.take(kept), counts.take(kept)
            # A character is counted at its first byte, an escape sequence when it is complete.
            inside_text = is_text.take(codes)
            counts = counts + (inside_text & (~is_text.take(states) | _LEADS.take(trie.byte.take(nodes))))
            here = trie.own.take(nodes) - trie.first.take(nodes)
            inside.append(trie.order.take(members(trie.first.take(nodes), here)))
            needs.append((counts + ~inside_text).repeat(here))
            below = trie.child_count.take(nodes)
            nodes = members(trie.child_start.take(nodes), below)
            states, counts = codes.repeat(below), counts.repeat(below)
            depth += 1
        self.dead: NDArray[np.int32] = joined(dead).astype(np.int32)
        order = joined(needs).argsort(kind="stable")
        self.inside: NDArray[np.int32] = joined(inside)[order].astype(np.int32)
        self.needs: NDArray[np.int32] = joined(needs)[order].astype(np.int32)
        self.ending: NDArray[np.int32] = np.array(ending, dtype=np.int32)
        self.lengths: NDArray[np.int32] = np.array(lengths, dtype=np.int32)
        self.rest: NDArray[np.int32] = np.array(rests, dtype=np.int32)
        self.rests = list(number)
        self.place: NDArray[np.int32] = np.full(len(token_bytes), -1, dtype=np.int32)
        self.place[self.ending] = np.arange(len(ending))
        self.longest = int(max(self.needs.max(initial=0), self.lengths.max(initial=0)))
        before = (token_bytes[t].removesuffix(self.rests[r]) for t, r in zip(ending, rests, strict=True))
        self.escaped: NDArray[np.intp] = np.array([b"\\" in text for text in before], dtype=bool).nonzero()[0]
        again = np.array([may_name_again(rest) for rest in self.rests], dtype=bool)
        self.naming: NDArray[np.intp] = again[self.rest].nonzero()[0]
        self.rest_words = Words(Trie(Vocabulary(self.rests, name="rests"))) if len(self.rests) > 1 else None


class StringRows:
    """The rows of free strings of one machine and vocabulary.

    Args:
        machine: the automaton over bytes.
        vocabulary: the tokens.
        walk: the trie walk of the machine.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary, walk: TokenWalk) -> None:
        self._machine = machine
        self._walk = walk
        self._words = words_of(vocabulary)
        self._values = string_tables(vocabulary, machine, names=False)
        self._names = string_tables(vocabulary, machine, names=True)
        #: The largest number of characters that one token adds to a string.
        self.longest = self._values.longest
        self._after: dict[tuple[bool, int, Stack], NDArray[np.bool_]] = {}
        self._far: dict[tuple[Any, ...], Row] = {}
        self._named: dict[tuple[NameContext, int, Stack, int], Row] = {}
        self._completed: dict[tuple[MooreMachine, int], list[tuple[int, int]]] = {}

    def row(self, state: int, stack: Stack, most: int) -> Row | None:
        """The tokens of a state, ``None`` if the string is not free.

        Args:
            state: a state of the machine inside a string.
            stack: the stack; the caller handles member names that must not be repeated.
            most: the largest number of allowed tokens for which the row lists the allowed ones.
        """
        _, context, place, count = self._machine.states[state]
        if isinstance(context, TextContext):
            if context.content.free and place == context.start:
                return self._value(context, place, count, stack, most)
        elif context.is_free and context.content.automaton.boundaries[place]:
            return self._name(context, place, stack, most)
        return None

    def _value(self, context: TextContext, place: int, count: int, stack: Stack, most: int) -> Row:
        tables, content = self._values, context.content
        room = content.free_from(place, count)
        near = min(room, tables.longest)
        # Far from its length bounds the row does not depend on the exact count of characters.
        ranges = [
            (first, last, context.end(place, content.counted(count + first)))
            for first, last in content.end_ranges(count, near)
        ]
        key = (tuple(ranges), stack, near, most)
        known = self._far.get(key)
        if known is None:
            ends = np.zeros(len(tables.ending), dtype=bool)
            for first, last, code in ranges:
                fits = (tables.lengths >= first) & (tables.lengths <= last)
                ends |= fits & self._allowed_rests(tables, code, stack).take(tables.rest)
            if len(self._far) >= _MOST_ROWS:
                self._far.clear()
            known = self._far[key] = _written(tables, room, ends, most)
        return known

    def _name(self, context: NameContext, place: int, stack: Stack, most: int) -> Row:
        key = (context, place, stack, most)
        known = self._named.get(key)
        if known is not None:
            return known
        tables, trie = self._names, self._words.trie
        other = self._machine.number(("colon", context.frame, ("other", ()), context.used))
        ends = self._allowed_rests(tables, other, stack).take(tables.rest)
        completed = self._completing(context.content.automaton, place, context) if place >= context.outside else []
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
                ends[tables.place[self._walk.below(self._words, nodes, codes, stack).row(trie, trie.nodes)[1]]] = True
        if len(self._named) >= _MOST_ROWS:
            self._named.clear()
        known = self._named[key] = _written(tables, 1 << 30, ends, most)
        return known

    def doubtful(self, written: bytes, names: frozenset[str]) -> NDArray[np.int32]:
        """Ids that include every token that may complete a repeated member name; some occur twice.

        Args:
            written: the bytes of the unfinished name.
            names: the names that must not be repeated.
        """
        tables, words, begun = self._names, self._words, name_of(written)
        found = [tables.ending[tables.naming]]
        if names:
            found.append(tables.ending[tables.escaped])
        for name in names:
            if name.startswith(begun):
                # Spellings of the name with an escape sequence are among ``tables.escaped``.
                node = words.node(name[len(begun) :].encode("utf-8", "surrogatepass") + b'"')
                if node:
                    found.append(words.trie.order[words.trie.first[node] : words.trie.last[node]])
        return np.concatenate(found)

    def _completing(self, automaton: MooreMachine, place: int, context: NameContext) -> list[tuple[int, int]]:
        """The trie nodes whose closing quote completes a name of the schema, each with the state before the quote."""
        known = self._completed.get((automaton, place))
        if known is not None:
            return known
        found: list[tuple[int, int]] = []
        trie = self._words.trie
        nodes = np.zeros(1, dtype=np.int64)
        places: NDArray[Any] = np.array([place], dtype=np.int64)
        labels, byte_class, following = automaton.outputs, automaton.byte_class, automaton.next
        while len(nodes):
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

    def _allowed_rests(self, tables: StringTables, code: int, stack: Stack) -> NDArray[np.bool_]:
        """Per rest whether it may follow the closing quote."""
        if code == DEAD:
            return np.zeros(len(tables.rests), dtype=bool)
        state, stack = self._machine.applied(code, stack) if code < DEAD else (code, stack)
        key = (tables is self._names, state, stack)
        known = self._after.get(key)
        if known is None:
            known = np.zeros(len(tables.rests), dtype=bool)
            known[0] = True
            if tables.rest_words is not None:
                found = self._walk.from_root(tables.rest_words, state, stack)
                known[found.row(tables.rest_words.trie, len(known))[1]] = True
            if len(self._after) >= _MOST_REMEMBERED:
                self._after.clear()
            self._after[key] = known
        return known


def _written(tables: StringTables, room: int, ends: NDArray[np.bool_], most: int) -> Row:
    """The row in its shorter form.

    Args:
        tables: the tables of the vocabulary.
        room: the number of characters that the maximum length still permits.
        ends: per ending token whether it is allowed.
        most: the largest number of allowed tokens for which the row lists the allowed ones.
    """
    fitting = len(tables.inside) if room >= tables.longest else int(np.searchsorted(tables.needs, room, side="right"))
    if fitting + int(np.add.reduce(ends)) > most:
        return False, np.concatenate([tables.dead, tables.inside[fitting:], tables.ending[~ends]])
    return True, np.concatenate([tables.inside[:fitting], tables.ending[ends]])


def _tokens(trie: Trie, nodes: NDArray[Any], stop: NDArray[np.int32]) -> NDArray[np.int32]:
    first = trie.first.take(nodes)
    return trie.order.take(members(first, stop.take(nodes) - first))
