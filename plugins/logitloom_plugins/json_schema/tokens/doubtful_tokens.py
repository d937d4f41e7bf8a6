"""The tokens that must be read one by one where an item or a member name must not come twice.

The walk of a trie does not know the text so far, so it allows some tokens that repeat a name or an item. The tokens
listed here include all of these. The work of reading them is bounded; tokens that would take more are left out.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.array_ranges import distinct
from logitloom.automata.lift.words import Words
from logitloom.constraints import TokenSet
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.folds.distinct_items import SearchTooLong
from logitloom_plugins.json_schema.folds.machine import DEAD, Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import (
    BACKSLASH,
    BLANKS,
    OUTSIDE,
    QUOTE,
    ItemPosition,
    characters_of,
)
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.states import EscapeState, ObjectState, Stack, TextState

__all__ = ["DoubtfulTokens"]

#: The work of one mask: bytes that are read here and in searches of :class:`.DistinctItems`.
_MOST_READ: Final = 1 << 12
#: Comparing so many names takes as long as reading one byte.
_COMPARED: Final = 32
#: The most states in strings of which the tokens that end the string are remembered.
_MOST_ENDING: Final = 1 << 10
#: The most whitespace before an item.
_MOST_BLANKS: Final = 1 << 8
#: The characters of a string that are no content, and the same as bits.
_SYNTAX: Final = bytes([QUOTE, BACKSLASH])
_ENDS: Final = 1 << QUOTE | 1 << BACKSLASH
#: The rest of a string, a comma, and no more than the beginning of the next string, without escapes.
_ENDS_ONE: Final = re.compile(rb'[^"\\]*"[ \t\r\n]*,[ \t\r\n]*("[^"\\]*)?', re.DOTALL)


class DoubtfulTokens:
    """The tokens of a vocabulary that may repeat an item or a name in a text of one machine.

    Args:
        machine: the automaton over bytes.
        words: the trie of the vocabulary.
        vocabulary: the bytes of each id.
        size: width of the model's logits.
    """

    def __init__(self, machine: Machine, words: Words, vocabulary: Vocabulary, size: int) -> None:
        self._machine = machine
        self._words = words
        self._vocabulary = vocabulary
        self._size = size
        self._lengths = np.diff(vocabulary.offsets)
        #: By state and stack the tokens of :meth:`_ending_strings`, and :meth:`_most_before` of each.
        self._ending: dict[tuple[int, Stack], tuple[NDArray[np.int32], NDArray[np.float64]]] = {}

    def left_out(self, row: TokenSet, position: Position, most: float | None = None) -> tuple[TokenSet, bool]:
        """A row without the tokens that the machine refuses when the tokens are read one by one.

        Args:
            row: the tokens that may come if items and names may be repeated.
            position: where they may come.
            most: the work after which the tokens that were not read are left out, too; ``None`` for the work of a mask.

        Returns:
            The rest of the row, and whether all tokens were read.
        """
        names = 0 if position.stack is None else len(position.stack.entry.names)
        work = _Work(_MOST_READ if most is None else most, 1 + names // _COMPARED)
        parts = [*self._at(row, position, work)]
        if not parts:
            return row, True
        asked = np.concatenate(parts)
        listed, ids = row
        in_ids = np.zeros(self._size, dtype=bool)
        in_ids[ids] = True
        allowed = asked[in_ids.take(asked) == listed]
        if len(allowed) > 1:
            allowed = distinct(allowed, self._size)
            if work.left >= 0:
                # Shorter tokens come first.
                allowed = allowed[self._lengths.take(allowed).argsort(kind="stable")]
        dead = [token for token in allowed.tolist() if not self._is_read(position, token, work)]
        if not dead:
            return row, True
        ids = ids[~np.isin(ids, dead)] if listed else np.sort(np.append(ids, np.array(dead, dtype=np.int32)))
        ids.setflags(write=False)
        return TokenSet(listed, ids), work.left >= 0

    def _is_read(self, position: Position, token: int, work: _Work) -> bool:
        """Whether the machine reads a token within the work that is left."""
        text, distinct = self._vocabulary.token_bytes[token], self._machine.distinct
        work.left -= work.byte * len(text)
        if work.left < 0:
            return False
        distinct.left = work.left
        try:
            return self._machine.read(position, text) is not None
        except SearchTooLong:
            return False
        finally:
            work.left, distinct.left = distinct.left, math.inf

    def _at(self, row: TokenSet, position: Position, work: _Work) -> Iterator[NDArray[np.int32]]:
        """Token ids ``[n] int32`` that include every token that repeats an item or a name; some occur twice."""
        machine, numbering = self._machine, self._machine.numbering
        if machine.may_repeat_items(position):
            # A token that ends an item which repeats an earlier item contains a comma, or goes on with the current
            # item.
            if not position.items.frame:
                yield _containing(self._vocabulary, rb"\[.*,")
            elif isinstance(machine.states[position.state], TextState | EscapeState):
                yield self._ending_strings(row, position)
            else:
                yield _containing(self._vocabulary, rb",")
        if numbering.tracked:
            # A token that begins a name has a quote. A token that also ends the name has two quotes.
            yield _containing(self._vocabulary, rb'"' if numbering.scarce else rb'".*"')
        if self._can_recur(position.items):
            yield self._alike(position, [], work)
        if position.state in numbering.tracked and position.stack is not None and position.stack.entry.names:
            yield self._alike(position, [name.encode() for name in position.stack.entry.names], work)

    def _ending_strings(self, row: TokenSet, position: Position) -> NDArray[np.int32]:
        """The tokens that may end a string, and an item or the beginning of an item after it, as an earlier item.

        A string that can be no string of an earlier item ends without a look at its characters. After the comma it
        matters for the next item only how many strings can still come, if it is one of the same array.
        """
        state, (frame, phase, _, _) = self._machine.states[position.state], position.items
        tokens = _containing(self._vocabulary, rb'".*,')
        if not isinstance(state, TextState) or phase == "name" or frame is None or self._can_recur(position.items):
            return tokens
        key = position.state, position.stack
        if key not in self._ending:
            if len(self._ending) >= _MOST_ENDING:
                self._ending.clear()
            in_row = tokens[row.mask(self._size).take(tokens)]
            enough = np.array([self._most_before(position, token) for token in in_row.tolist()])
            self._ending[key] = in_row, enough
        in_row, enough = self._ending[key]
        done = frame.entry.done
        return in_row[enough <= (1 if done is None else 1 + done.length)]

    def _most_before(self, position: Position, token: int) -> float:
        """How many strings the item after a token that ends a string can become, at least.

        If fewer items than these have come, the token need not be read, because the next item can differ from them.
        Infinite if no further item has to differ; 0 if the token has to be read in any case, as one of two values.

        Args:
            position: in the string.
            token: contains a quote, and a comma behind it.
        """
        text, machine = self._vocabulary.token_bytes[token], self._machine
        found, frame = _ENDS_ONE.fullmatch(text), position.items.frame
        reached = None if found is None else machine.reader.read(position._replace(items=OUTSIDE), text)
        if found is None or reached is None:
            return 0
        if frame is not None and frame.entry.kind != "distinct":
            return 0 if frame.entry.kind == "object" and self._names_can_run_out(reached.state) else math.inf
        state = reached.state if found[1] else self._in_next_string(reached)
        return 0 if state == DEAD else machine.distinct.strings_from(state)

    def _names_can_run_out(self, number: int) -> bool:
        """Whether finitely many names may come once in a state after a comma, or within a name."""
        machine = self._machine
        state = machine.states[machine.before_gap(number)]
        if isinstance(state, ObjectState):
            context, at = machine.grammar.name_context(state.frame, state.layout), state.frame.plan.keys.automaton.start
        elif isinstance(state, TextState) and isinstance(state.context, NameContext):
            context, at = state.context, state.content_state
        else:
            return True
        return context.can_run_out_from(at)

    def _in_next_string(self, reached: Position) -> int:
        """The state after the quote that begins a string, whitespace before it included; ``DEAD`` if none may begin."""
        machine, state = self._machine, reached.state
        for _ in range(_MOST_BLANKS):
            code = machine.codes.code(state, QUOTE)
            if code != DEAD:
                return code if code > DEAD else machine.reader.applied(code, reached.stack)[0]
            # Where the layout has lines, these come before the quote.
            state = max([machine.codes.code(state, blank) for blank in BLANKS])
            if state <= DEAD:
                break
        return DEAD

    def _next_bytes(self, before: Position, names: list[bytes]) -> frozenset[int] | None:
        """The bytes after which an unfinished item or name can go on as an earlier one; ``None`` for any byte.

        Args:
            before: the position in the unfinished item or name.
            names: the names that must not come again, for an unfinished name; empty for an item.
        """
        if not names:
            return self._machine.distinct.next_bytes(before.items)
        if not isinstance(self._machine.states[before.state], TextState):
            return None
        begun = characters_of(before.written)
        return frozenset([BACKSLASH, *[(*name, QUOTE)[len(begun)] for name in names if name.startswith(begun)]])

    def _can_recur(self, position: ItemPosition) -> bool:
        return bool(position.frame and self._machine.distinct.can_recur(position))

    def _alike(self, position: Position, names: list[bytes], work: _Work) -> NDArray[np.int32]:
        """The tokens after which an unfinished item or name can still repeat an earlier one, or is refused for that."""
        machine, words = self._machine, self._words
        here: list[int] = []
        ended: list[int] = []
        # With each node whether the token that ends there is to be read.
        pending = deque([(0, position, False)])
        while pending:
            node, before, is_asked = pending.popleft()
            if work.left < 0:
                # The tokens below the node are not read later either.
                ended.append(node)
                continue
            wanted = self._next_bytes(before, names)
            # As long as a string of many contents has not ended, it can become another one.
            free = -1 if names else machine.distinct.characters_left(before)
            for child, byte in zip(words.children(node), words.bytes_below(node), strict=True):
                code = DEAD if wanted is not None and byte not in wanted else machine.codes.code(before.state, byte)
                if code == DEAD:
                    continue
                if byte not in _SYNTAX and words.longest_below(child) < free and not words.has_any_below(child, _ENDS):
                    continue
                if not (names or before.items.text) and byte in BLANKS and machine.before_gap(code) != code:
                    # Whitespace does not change the item. The row already limits the amount of whitespace.
                    if is_asked:
                        here.append(child)
                    pending.append((child, before, is_asked))
                    continue
                work.left -= work.byte
                after = machine.read(before, bytes([byte]), can_end=False)
                if after is None:
                    ended.append(child)
                elif after.state in machine.numbering.tracked if names else self._can_recur(after.items):
                    may_repeat = bool(names) or not machine.distinct.has_other_strings(after)
                    if may_repeat:
                        here.append(child)
                    pending.append((child, after, may_repeat))
        return words.ids_of(here, ended)


@dataclass
class _Work:
    """The work of a mask.

    Attributes:
        left: the work that may still be done.
        byte: the work of reading a byte.
    """

    left: float
    byte: int


@kept_with_vocabulary
def _containing(vocabulary: Vocabulary, pattern: bytes) -> NDArray[np.int32]:
    """The tokens that contain a match of a pattern; the last character of the pattern must be a plain character."""
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == pattern[-1])
    found, texts = re.compile(pattern, re.DOTALL).search, vocabulary.token_bytes
    return tokens[[found(texts[token]) is not None for token in tokens.tolist()]]
