"""Rows of states inside free strings, combined from tables of the vocabulary.

A string is *free* if only its length matters, or if it is a member name where any name is allowed. In a free name, the
tokens that complete a name which the schema mentions are treated one by one. Each token either stays inside a free
string, or ends it and continues with a *rest* (its bytes after the closing quote), or is forbidden. The tables hold the
number of characters of each token inside the string. Only the set of allowed rests depends on the schema, and a
vocabulary has a small number of different rests.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.array_ranges import joined
from logitloom.automata.automaton_kernels import automaton_kernels
from logitloom.automata.lift.above_ascii import kinds
from logitloom.automata.lift.trie import Trie, vocabulary_trie
from logitloom.automata.lift.trie_walk import bytes_at, children, tokens_at, tokens_below
from logitloom.automata.lift.words import Words, vocabulary_words
from logitloom.constraints import TokenSet
from logitloom.state_memory import StateMemory
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.folds.machine import DEAD, NO_NAMES, Machine, read
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.grammar.contexts import NameContext, TextContext
from logitloom_plugins.json_schema.grammar.layout import Whitespace
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.states import ColonState, Opened, Stack, TextState
from logitloom_plugins.json_schema.tokens.shared_token_sets import TokenSets
from logitloom_plugins.json_schema.tokens.token_walk import Pending, TokenWalk
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["StringRows", "StringTables", "string_tables"]

_QUOTE: Final = ord('"')
_LEADS: Final = np.array([not 0x80 <= byte < 0xC0 for byte in range(256)])

#: The texts that may follow the closing quote: the numbers of the rests, in ascending order.
Rests = tuple[int, ...]


@kept_with_vocabulary
def string_tables(vocabulary: Vocabulary, escapes: str, names: bool) -> StringTables:
    """The tables of a vocabulary.

    Args:
        vocabulary: the tokens.
        escapes: how characters may be written: ``any``, ``minimal`` or ``ascii``.
        names: whether the string is the name of a member, where only characters that need an escape are escaped.
    """
    if automaton_kernels() is not None:
        kinds()  # walks inside strings need them; here they are no part of a first mask
    anything = compile_schema(True, SchemaOptions(Whitespace("compact"), escapes))
    return StringTables(vocabulary_trie(vocabulary), vocabulary.token_bytes, anything, names)


class StringTables:
    """The effect of each token of a vocabulary inside a free string.

    Attributes:
        dead: ids that are forbidden in every free string.
        inside, needs: ids that stay inside the string, and for each the number of characters that the maximum length
            must still permit; sorted by that number.
        ending: ids that end the string.
        lengths: for each of ``ending`` the number of characters before the closing quote.
        rest: for each of ``ending`` the number of its rest.
        rests: the bytes of each rest; rest 0 is empty.
        index: per id its index in ``ending``, -1 for others.
        longest: the largest number of characters that one token adds to the string.
        rest_words: the trie of the rests, with rest numbers as ids; ``None`` if the only rest is empty.
    """

    def __init__(self, trie: Trie, token_bytes: tuple[bytes, ...], machine: Machine, names: bool) -> None:
        # The tables are read off the automaton of any JSON value, so no rule of JSON is implemented twice.
        begun = read(machine, b'{"' if names else b'"')
        assert begun is not None
        texts: list[bool] = []
        ends: list[bool] = []
        nodes, _ = children(trie, np.zeros(1, dtype=np.int64))
        states = np.full(len(nodes), begun.state, dtype=np.int32)
        counts = np.zeros(len(nodes), dtype=np.int32)
        dead, inside, needs = [], [], []
        ending, lengths = [], []
        rests: list[int] = []
        number: dict[bytes, int] = {b"": 0}
        depth = 1
        while len(nodes):
            here, row = np.unique(states, return_inverse=True)
            table = np.full((len(here), 256), DEAD, dtype=np.int32)
            for codes_of, state in zip(table, here.tolist(), strict=True):
                found = machine.codes.every_code(state)
                codes_of[[*found]] = [*found.values()]
            codes = table[row, bytes_at(trie, nodes)]
            for state in machine.states[len(texts) :]:
                texts.append(isinstance(state, TextState))
                ends.append(isinstance(state, ColonState))
            is_text, is_end = np.array(texts), np.array(ends)
            gone = codes == -1
            dead.append(tokens_below(trie, nodes[gone])[0])
            closed = (codes < -1) | is_end.take(np.maximum(codes, 0))
            ended, which = tokens_below(trie, nodes[closed])
            ending.append(ended)
            lengths.append(counts[closed].take(which))
            rests += [number.setdefault(token_bytes[token][depth:], len(number)) for token in ended.tolist()]
            kept = (~gone & ~closed).nonzero()[0]
            nodes, codes, states, counts = nodes.take(kept), codes.take(kept), states.take(kept), counts.take(kept)
            # A character is counted at its first byte, an escape sequence when it is complete.
            inside_text = is_text.take(codes)
            counts = counts + (inside_text & (~is_text.take(states) | _LEADS.take(bytes_at(trie, nodes))))
            staying, which = tokens_at(trie, nodes)
            inside.append(staying)
            needs.append((counts + ~inside_text).take(which))
            nodes, below = children(trie, nodes)
            states, counts = codes.repeat(below), counts.repeat(below)
            depth += 1
        self.dead: NDArray[np.int32] = joined(dead).astype(np.int32)
        order = joined(needs).argsort(kind="stable")
        self.inside: NDArray[np.int32] = joined(inside)[order].astype(np.int32)
        self.needs: NDArray[np.int32] = joined(needs)[order].astype(np.int32)
        self.ending: NDArray[np.int32] = joined(ending).astype(np.int32)
        self.lengths: NDArray[np.int32] = joined(lengths).astype(np.int32)
        self.rest: NDArray[np.int32] = np.array(rests, dtype=np.int32)
        self.rests = list(number)
        self.index: NDArray[np.int32] = np.full(len(token_bytes), -1, dtype=np.int32)
        self.index[self.ending] = np.arange(len(self.ending))
        self.longest = int(max(self.needs.max(initial=0), self.lengths.max(initial=0)))
        self.rest_words = Words(Trie(Vocabulary(self.rests, name="rests"))) if len(self.rests) > 1 else None

    def has_rest(self, rests: Rests) -> NDArray[np.bool_]:
        """Per token of ``ending`` whether its rest is one of ``rests``."""
        chosen = np.zeros(len(self.rests), dtype=bool)
        chosen[list(rests)] = True
        found: NDArray[np.bool_] = chosen.take(self.rest)
        return found


class StringRows:
    """The rows of free strings of one machine and vocabulary.

    Args:
        machine: the automaton over bytes.
        vocabulary: the tokens.
        walk: the trie walk of the machine.
        sets: the token sets of the vocabulary.
        memory: the memory of the constraint, whose tables of an earlier machine are emptied.
    """

    def __init__(
        self, machine: Machine, vocabulary: Vocabulary, walk: TokenWalk, sets: TokenSets, memory: StateMemory
    ) -> None:
        self._machine = machine
        self._walk = walk
        self._sets = sets
        self._words = vocabulary_words(vocabulary)
        self._values = string_tables(vocabulary, machine.grammar.escapes, names=False)
        self._names = string_tables(vocabulary, machine.grammar.escapes, names=True)
        #: The largest number of characters that one token adds to a string.
        self.longest = self._values.longest
        self._memory = memory
        self._after: dict[tuple[bool, int, Stack], tuple[Rests, bool]] = memory.table("rests of strings", renew=True)
        self._completed: dict[tuple[MooreMachine, int], list[tuple[int, int]]] = memory.table("names", renew=True)

    def row(self, state: int, stack: Stack) -> tuple[TokenSet, bool] | None:
        """The tokens of a state, and whether they are all; ``None`` if the string is not free.

        Args:
            state: a state of the machine inside a string.
            stack: the stack.
        """
        here = self._machine.states[state]
        assert isinstance(here, TextState)
        context, content_state, count, _ = here
        if isinstance(context, TextContext):
            if context.content.free and content_state == context.start:
                return self._value(context, content_state, count, stack)
        elif (
            isinstance(context, NameContext) and context.is_free and context.content.automaton.boundaries[content_state]
        ):
            return self._name(context, content_state, stack)
        return None

    def _value(self, context: TextContext, content_state: int, count: int, stack: Stack) -> tuple[TokenSet, bool]:
        tables, content = self._values, context.content
        room = content.free_from(content_state, count)
        near = min(room, tables.longest)
        # Far from its length bounds the row does not depend on the exact count of characters.
        ranges: list[tuple[int, int, Rests]] = []
        whole = True
        for first, last in content.end_ranges(count, near):
            end = self._machine.codes.strings.end(context, content_state, content.counted(count + first))
            rests, are_all = self._allowed_rests(tables, end, stack)
            ranges.append((first, last, rests))
            whole &= are_all

        def make() -> TokenSet:
            ends = np.zeros(len(tables.ending), dtype=bool)
            for first, last, rests in ranges:
                ends |= (tables.lengths >= first) & (tables.lengths <= last) & tables.has_rest(rests)
            return self._set(tables, room, ends)

        return self._sets.once((id(tables), near, *ranges), make), whole

    def _name(self, context: NameContext, content_state: int, stack: Stack) -> tuple[TokenSet, bool]:
        tables = self._names
        if stack is not None and stack.entry.names:
            stack = Linked(Opened(stack.entry.back, NO_NAMES), stack.before)
        other = self._machine.numbering.number(ColonState(context.frame, ("other", ()), context.layout))
        rests, whole = self._allowed_rests(tables, other, stack)
        completed: list[tuple[int, bool]] = []
        going: Pending = []
        if content_state >= context.outside:
            for node, named in self._completing(context.content.automaton, content_state, context):
                code = self._machine.codes.strings.end(context, named, 0)
                if code < DEAD:
                    code, _ = self._machine.reader.applied(code, stack)
                completed.append((node, code != DEAD))
                if code != DEAD and self._words.has_children(node):
                    going.append((node, code, stack))
        after: list[int] = []
        if going:
            walked = self._walk.below(self._words, going)
            after, whole = sorted(walked.allowed(self._words)), whole and walked.whole

        def make() -> TokenSet:
            ends, words = tables.has_rest(rests), self._words
            for node, lives in completed:
                ends[tables.index[words.ids(words.span(node))]] = lives
                ends[tables.index[words.ids(words.span_below(node))]] = False
            ends[tables.index[after]] = True
            return self._set(tables, 1 << 30, ends)

        return self._sets.once((id(tables), rests, *completed, *after), make), whole

    def _set(self, tables: StringTables, room: int, ends: NDArray[np.bool_]) -> TokenSet:
        """The tokens that may come in a free string.

        Args:
            tables: the tables of the vocabulary.
            room: the number of characters that the maximum length still permits.
            ends: per ending token whether it is allowed.
        """
        fitting = len(tables.inside)
        if room < tables.longest:
            fitting = int(np.searchsorted(tables.needs, room, side="right"))
        if fitting + int(np.add.reduce(ends)) > self._sets.most:
            return self._sets.without(np.concatenate([tables.dead, tables.inside[fitting:], tables.ending[~ends]]))
        return self._sets.many(np.concatenate([tables.inside[:fitting], tables.ending[ends]]))

    def _completing(self, automaton: MooreMachine, content_state: int, context: NameContext) -> list[tuple[int, int]]:
        """The trie nodes whose closing quote completes a name of the schema, each with the state before the quote."""
        known = self._completed.get((automaton, content_state))
        if known is not None:
            return known
        found: list[tuple[int, int]] = []
        words = self._words
        pending = [(0, content_state)]
        while pending:
            node, before = pending.pop()
            label = automaton.outputs[before]
            if label is not None and label[0] == "name":
                child = words.child(node, _QUOTE)
                if child >= 0:
                    found.append((child, before))
            for byte, after in context.keys.in_tree(before)[1].items():
                child = words.child(node, byte)
                if child >= 0:
                    pending.append((child, after))
        self._memory.note(entries=1 + len(found))
        self._completed[automaton, content_state] = found
        return found

    def _allowed_rests(self, tables: StringTables, code: int, stack: Stack) -> tuple[Rests, bool]:
        """The rests that may follow the closing quote, and whether all such rests were found."""
        if code == DEAD:
            return (), True
        state, stack = self._machine.reader.applied(code, stack) if code < DEAD else (code, stack)
        key = (tables is self._names, state, stack)
        known = self._after.get(key)
        if known is None:
            rests, whole = [0], True
            if tables.rest_words is not None:
                walked = self._walk.from_root(tables.rest_words, state, stack)
                rests, whole = [0, *walked.allowed(tables.rest_words)], walked.whole
            known = tuple(sorted(rests)), whole
            self._memory.note()
            self._after[key] = known
        return known
