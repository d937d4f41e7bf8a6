"""Arrays whose items must all be different (``uniqueItems``): whether the text can still be completed.

An item must not end as a value that equals an earlier item. The *candidates* of an unfinished item are the earlier
items that it can still become. Without candidates every completion that the machine allows is legal. The same holds in
a string or number that has more completions than candidates. Otherwise a search looks for a completion that differs
from all candidates.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.text_reader import Position, TextReader
from logitloom_plugins.json_schema.folds.value_reader import (
    BACKSLASH,
    BLANKS,
    COMMA,
    NUMBER,
    QUOTE,
    Container,
    ItemPosition,
    ItemReader,
    goes_on,
)
from logitloom_plugins.json_schema.folds.visited_states import DEAD, ByteCodes, Numbering
from logitloom_plugins.json_schema.grammar.contexts import StringContext, TextContext
from logitloom_plugins.json_schema.grammar.names import Linked
from logitloom_plugins.json_schema.grammar.states import EscapeState, GapState, NumberState, TextState
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["DistinctItems", "SearchTooLong"]

_ENDS: Final = b"]},"
_DIGITS: Final = b"0123456789"
_NUMBERS: Final = tuple([bytes([byte]) for byte in NUMBER])
#: The most further digits of a number for which different numbers are counted.
_MOST_FURTHER: Final = 16
#: Names of :attr:`DistinctItems._names`, and contents of :attr:`StringContents._members`.
_MOST_REMEMBERED: Final = 1 << 16
#: Results of :meth:`DistinctItems.has_completion`: enough for one mask, because another asks about other positions.
_MOST_COMPLETIONS: Final = 1 << 10
#: The most positions that one search for a completion visits.
_MOST_SEARCHED: Final = 1 << 15
#: The largest count of the contents of a string, the most bytes of a counted content, and the most entries of the table
#: of counts.
_MOST_COUNTED: Final = 1 << 40
_MOST_BYTES: Final = 256
_MOST_ENTRIES: Final = 1 << 20
#: Above so many entries the last numbers of characters stand for the smaller ones.
_MOST_COUNTED_ENTRIES: Final = 1 << 17


class SearchTooLong(Exception):
    """Searches have taken more work than they may."""


class _BegunStrings(NamedTuple):
    """Strings that begin with the same bytes: a range of a list in ascending order.

    Attributes:
        strings: the list.
        first, end: the range.
        size: how many bytes they begin with.
    """

    strings: list[bytes]
    first: int
    end: int
    size: int

    def by_character(self) -> Iterator[bytes]:
        """A string that ends here, if there is one, and a string for each next character."""
        strings, first, end, size = self
        while first < end:
            string = strings[first]
            yield string
            character = string[size:].decode("utf-8", "surrogatepass")[:1].encode("utf-8", "surrogatepass")
            # No byte of UTF-8 is as large.
            first = bisect_left(strings, string[:size] + character + b"\xff", first, end) if character else first + 1

    def all(self) -> list[bytes]:
        """The strings."""
        return self.strings[self.first : self.end]

    def next_bytes(self) -> Iterator[int]:
        """The next bytes of the strings; of a string that ends here, the closing quote."""
        strings, first, end, size = self
        while first < end:
            string = strings[first]
            if len(string) == size:
                first += 1
                yield QUOTE
            else:
                byte = string[size]
                first = bisect_left(strings, string[:size] + bytes([byte + 1]), first, end)
                yield byte


class DistinctItems:
    """The items of the arrays with ``uniqueItems`` in the texts of one grammar.

    Args:
        items: the values that texts have written.
        reader: reads texts.
        codes: the codes of the states.
        numbering: of the states.

    Attributes:
        left: how many bytes searches may still read. What is remembered counts again each time.
    """

    def __init__(self, items: ItemReader, reader: TextReader, codes: ByteCodes, numbering: Numbering) -> None:
        self._items = items
        self._reader = reader
        self._codes = codes
        self._numbering = numbering
        #: By open object the names that can recur.
        self._names: dict[Linked[Container], list[bytes]] = {}
        self._remembered = 0
        self._contents: dict[StringContext, StringContents] = {}
        #: Results of :func:`different_numbers`.
        self._different: dict[tuple[MooreMachine, bool], list[float]] = {}
        #: With the number of bytes that the search has read.
        self._completions: dict[Position, tuple[bool, int]] = {}
        self.left = math.inf

    def can_recur(self, position: ItemPosition) -> bool:
        """Whether an unfinished value or member name can end so that its item may equal an earlier item.

        For an unfinished number it is enough that an earlier item can recur with some number.
        """
        frame, phase, text, escape = position
        assert frame is not None
        if text[:1] == b'"':
            begun = self._begun(position)
            if escape:
                return any(goes_on(position, string) for string in begun.by_character())
            return begun.first < begun.end
        if phase == "name":
            return bool(self._strings(frame, True))
        if not text and phase != "value":
            return bool(frame.entry.candidates)
        recurring = self._items.recurring(frame.entry)
        if not text:
            return recurring.some
        if text[0] in NUMBER:
            return recurring.numbers > 0
        return any(literal.startswith(text) for literal in recurring.literals)

    def _begun(self, position: ItemPosition) -> _BegunStrings:
        """The strings with which an earlier item can recur, and which begin with the characters read so far."""
        frame, phase, text, _ = position
        assert frame is not None
        strings, begun = self._strings(frame, phase == "name"), text[1:]
        first = bisect_left(strings, begun)
        # No byte of UTF-8 is as large.
        return _BegunStrings(strings, first, bisect_left(strings, begun + b"\xff", first), len(begun))

    def _strings(self, frame: Linked[Container], names: bool) -> list[bytes]:
        """The strings, in order, with which an earlier item can recur as the next value, or name, in a container."""
        if not names:
            return self._items.recurring(frame.entry).strings
        known = self._names.get(frame)
        if known is None:
            here = [name for name, _ in self._items.listed(frame.entry.done)]
            known = sorted({*here, *self._items.names(frame.entry.candidates)})
            if self._remembered > _MOST_REMEMBERED:
                self._names, self._remembered = {}, 0
            self._names[frame] = known
            self._remembered += len(known) + 1
        return known

    def next_bytes(self, position: ItemPosition) -> frozenset[int] | None:
        """The bytes after which a string or name can still recur or has recurred; ``None`` for any byte."""
        if position.text[:1] != b'"' or position.escape:
            return None
        return frozenset([BACKSLASH, *self._begun(position).next_bytes()])

    def has_other_strings(self, position: Position) -> bool | None:
        """Whether a string value has a completion with which no earlier item recurs; ``None`` if a search must tell."""
        frame, state = position.items.frame, self._numbering.states[position.state]
        if frame is None or not isinstance(state, TextState) or not isinstance(state.context, TextContext):
            return None
        context, content_state, count, _ = state
        container, begun = frame.entry, self._begun(position.items)
        contents = self._contents_of(context)
        possible = contents.number(content_state, count)
        if possible > begun.end - begun.first:
            return True
        if not contents.exact or container.kind != "distinct" or container.candidates:
            return None
        # A string that is an item itself must not be any of the earlier ones.
        return possible > sum(map(contents.has, begun.all()))

    def characters_left(self, position: Position) -> float:
        """How many characters can follow in a string value so that :meth:`has_other_strings` is true after each.

        ``inf`` for any number; -1 in other states, or if the number is not known.
        """
        state = self._numbering.states[position.state]
        if position.items.text[:1] != b'"' or not isinstance(state, TextState):
            return -1
        return self._contents_of(state.context).left(state.characters) if isinstance(state.context, TextContext) else -1

    def _contents_of(self, context: StringContext) -> StringContents:
        contents = self._contents.get(context)
        if contents is None:
            contents = self._contents[context] = StringContents(context)
        return contents

    def strings_from(self, state: int) -> float:
        """How many contents a string value has in a state within the string, at least; 0 for other states."""
        kind = self._numbering.states[state]
        if not isinstance(kind, TextState) or not isinstance(kind.context, TextContext):
            return 0
        return self._contents_of(kind.context).number(kind.content_state, kind.characters)

    def _has_other_numbers(self, position: Position) -> bool:
        """Whether further digits surely make more different numbers than there are earlier items to be different from.

        Of an exponent that is not known, because zero stays zero.
        """
        state, text = self._numbering.states[position.state], position.items.text
        if not isinstance(state, NumberState) or text[:1] not in _NUMBERS or b"e" in text.lower():
            return False
        frame, key = position.items.frame, (state.numbers.automaton, b"." in text)
        assert frame is not None
        if key not in self._different:
            self._different[key] = different_numbers(*key)
        return self._different[key][state.content_state] > self._items.recurring(frame.entry).numbers

    def has_completion(self, reached: Position) -> bool:
        """Whether a text inside an array with ``uniqueItems`` can be completed without a repeated item.

        Raises:
            BudgetExceeded: if the search visits more than 32768 positions.
            SearchTooLong: if it reads more bytes than searches may still read.
        """
        if not self.can_recur(reached.items):
            return True
        if reached.items.text[:1] == b'"':
            decided = self.has_other_strings(reached)
            if decided is not None:
                return decided
        elif self._has_other_numbers(reached):
            return True
        # Whitespace does not change the value, so positions inside whitespace share the state after it.
        state = self._numbering.states[reached.state]
        if isinstance(state, GapState):
            reached = reached._replace(state=self._numbering.number(state.before))
        known = self._completions.get(reached)
        if known is None:
            if len(self._completions) >= _MOST_COMPLETIONS:
                self._completions.clear()
            known = self._completions[reached] = self._find_completion(reached)
        found, read = known
        self.left -= read
        if self.left < 0:
            raise SearchTooLong
        return found

    def _find_completion(self, reached: Position) -> tuple[bool, int]:
        """Search the texts first that few earlier items go on like.

        Of these come the longest strings first, and the shortest numbers, because zeros can follow without end.
        """
        seen = {reached}
        order, read = itertools.count(), 0
        queue: list[tuple[bool, int, int, int, Position]] = [(False, 0, 0, next(order), reached)]
        while queue:
            if len(seen) > _MOST_SEARCHED:
                raise BudgetExceeded(
                    f"Whether another item can follow in an array with uniqueItems was not found out in "
                    f"{_MOST_SEARCHED} steps, because few different values are possible and most have come. Bound the "
                    f"array with maxItems."
                )
            if read > self.left:
                self.left = -1
                raise SearchTooLong
            *_, current = heapq.heappop(queue)
            position = current.items
            in_string = position.text[:1] == b'"'
            if in_string:
                decided = self.has_other_strings(current)
                if decided:
                    return True, read
                if decided is not None:
                    continue
            elif self._has_other_numbers(current):
                return True, read
            wanted = self.next_bytes(position)
            read += 1
            if wanted is not None:
                state = self._numbering.states[current.state]
                assert isinstance(state, TextState | EscapeState)
                others = (*self._codes.strings.moves.steps(state.context, state.content_state), QUOTE)
                if any(byte not in wanted and self._goes_on(current, byte) for byte in others):
                    return True, read
                codes = [byte for byte in sorted(wanted) if self._codes.code(current.state, byte) != DEAD]
            else:
                codes = [*self._codes.every_code(current.state)]
            if not in_string:
                # Whitespace that may be left out is skipped. Bytes that end a value decide most searches at once.
                codes = [byte for byte in codes if byte not in BLANKS or not self._is_in_gap(current, byte)]
                codes.sort(key=lambda byte: byte not in _ENDS)
            for byte in codes:
                read += 1
                following = self._reader.read(current, bytes([byte]))
                if following is None:
                    continue
                after = following.items
                if byte == COMMA and not in_string:
                    # The comma ends a number. ``check_distinct`` has ensured that another item can follow.
                    after = after._replace(phase="next")
                if not after.frame or not self.can_recur(after):
                    return True, read
                key = following._replace(items=self._alike(following.items))
                if key not in seen:
                    seen.add(key)
                    # An escape sequence is another spelling of a character and seldom leads to another value.
                    is_escape = in_string and bool(position.escape or byte == BACKSLASH)
                    size = -len(after.text) if after.text[:1] == b'"' else len(after.text)
                    heapq.heappush(queue, (is_escape, _alike_items(after), size, next(order), following))
        return False, read

    def _goes_on(self, current: Position, byte: int) -> bool:
        """Whether a byte may come."""
        code = self._codes.code(current.state, byte)
        return code != DEAD and self._reader.read(current, bytes([byte])) is not None

    def _is_in_gap(self, current: Position, byte: int) -> bool:
        """Whether whitespace may be left out.

        Whitespace that begins a line of an indented text may not, because the line decides what may follow on it.
        """
        code = self._codes.code(current.state, byte)
        return code >= 0 and isinstance(self._numbering.states[code], GapState)

    def _alike(self, position: ItemPosition) -> ItemPosition:
        """An equivalent position with fewer digits, so that the search visits finitely many prefixes of numbers.

        Zero is zero with any exponent, so the digits of its exponent are dropped. If a fraction ends with more zeros
        than any earlier number has digits, a further non-zero digit makes a new number, so further zeros are dropped.
        """
        text = position.text
        if not text or text[0] not in NUMBER:
            return position
        mantissa, mark, exponent = text.lower().partition(b"e")
        if mark:
            zero = not mantissa.strip(b"-0.")
            return position._replace(text=mantissa + mark + exponent.rstrip(_DIGITS)) if zero else position
        fraction = mantissa.partition(b".")[2]
        zeros = len(fraction) - len(fraction.rstrip(b"0"))
        return position._replace(text=text[: len(text) - max(zeros - self._items.digits - 1, 0)])


def _alike_items(position: ItemPosition) -> int:
    """How many earlier items the innermost open array or object can still become, or has."""
    assert position.frame is not None
    _, done, _, candidates = position.frame.entry
    return len(candidates) or (0 if done is None else done.length)


def different_numbers(automaton: MooreMachine, is_fraction: bool) -> list[float]:
    """Per state of an automaton of numbers how many different numbers further digits make, at least.

    Digits before the point make different numbers, and so do digits behind the point of which the last is not zero.

    Args:
        automaton: of the numbers.
        is_fraction: whether the point has come.
    """
    # ``[states, 10]``: where each digit leads.
    following = automaton.next[:, automaton.byte_class[list(_DIGITS)]]
    alive = following >= 0
    ends = (automaton.accepting.take(following, mode="clip") & alive)[:, int(is_fraction) :].sum(axis=1)
    found = np.zeros(automaton.states)
    for _ in range(_MOST_FURTHER):
        found = np.minimum(ends + (found.take(following, mode="clip") * alive).sum(axis=1), _MOST_COUNTED)
    counted: list[float] = found.tolist()
    return counted


class StringContents:
    """The contents of a string, counted.

    Args:
        context: the string.

    Attributes:
        exact: whether all numbers below 2**40 are exact; otherwise there may be more contents.
    """

    def __init__(self, context: StringContext) -> None:
        self._context = context
        self._members: dict[bytes, bool] = {}
        content, automaton = context.content, context.content.automaton
        self._states = automaton.states if content.counts else 0
        self._first = content.last_counts(_MOST_COUNTED_ENTRIES)
        counts = range(self._first, content.points[-1] + 1) if content.counts else range(1)
        self.exact = False
        #: The numbers of contents by count and state; ``None`` if the table would be too large.
        self._numbers: NDArray[np.float64] | None = None
        if len(counts) * automaton.next.size > _MOST_ENTRIES:
            return
        following = content.counted_steps(self._first) if content.counts else automaton.next
        sizes = np.bincount(automaton.byte_class, minlength=following.shape[1])
        ends = np.array([self._may_end(at, count) for count in counts for at in range(automaton.states)])
        alive, found = following >= 0, ends.astype(np.float64)
        for _ in range(_MOST_BYTES):
            more = np.minimum(ends + (found.take(following, mode="clip") * alive) @ sizes, _MOST_COUNTED)
            is_exact = np.array_equal(more, found)
            self.exact = is_exact and not self._first
            if is_exact:
                break
            found = more
        self._numbers = found

    def _may_end(self, content_state: int, count: int) -> bool:
        content = self._context.content
        return bool(content.automaton.boundaries[content_state]) and content.ends(content_state, count) is not None

    def number(self, content_state: int, count: int) -> float:
        """How many contents go on from a state, with some characters, at least."""
        if self._numbers is None or (self._first and count < self._context.content.least):
            return 0.0
        return float(self._numbers[max(count - self._first, 0) * self._states + content_state])

    @cached_property
    def _left(self) -> list[float]:
        """By count how many characters can follow so that more contents than are counted go on after each."""
        assert self._numbers is not None
        many = self._numbers.reshape(-1, self._states or len(self._numbers)).min(axis=1) >= _MOST_COUNTED
        # The last count stands for the larger ones.
        left = math.inf
        return [left := left + 1 if enough else -1 for enough in many[::-1].tolist()][::-1]

    def left(self, count: int) -> float:
        """:meth:`DistinctItems.characters_left` after some characters."""
        if self._numbers is None or (self._first and count < self._context.content.least):
            return -1
        return self._left[max(count - self._first, 0) if self._states else 0]

    def has(self, string: bytes) -> bool:
        """Whether some characters are a content."""
        known = self._members.get(string)
        if known is None:
            content = self._context.content
            state, count = self._context.start, 0
            for byte in string:
                count += content.automaton.boundaries[state]
                state = int(content.automaton.next[state, content.automaton.byte_class[byte]])
                if state < 0:
                    break
            known = state >= 0 and self._may_end(state, content.counted(count) if content.counts else 0)
            if len(self._members) >= _MOST_REMEMBERED:
                self._members.clear()
            self._members[string] = known
        return known
