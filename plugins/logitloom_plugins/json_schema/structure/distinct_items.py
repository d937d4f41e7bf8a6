"""Arrays whose items must all be different (``uniqueItems``): whether the text can still be completed.

An item must not end as a value that equals an earlier item. The *candidates* of an unfinished item are the earlier
items that it can still become. If there are none, every completion that the machine allows is legal. Otherwise a search
looks for a completion that differs from all candidates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import takewhile
from typing import Any, Final

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure.names import Linked
from logitloom_plugins.json_schema.structure.value_reader import (
    BACKSLASH,
    BLANKS,
    COMMA,
    NUMBER,
    QUOTE,
    Container,
    ItemPosition,
    ItemReader,
    Position,
    goes_on,
)

__all__ = ["DistinctItems"]

_ENDS: Final = b"]},"
_DIGITS: Final = b"0123456789"
#: Strings in :meth:`DistinctItems.candidates`, and results of :meth:`DistinctItems.has_completion`.
_MOST_REMEMBERED: Final = 1 << 16
#: Positions that one search for a completion visits.
_MOST_SEARCHED: Final = 1 << 15

Candidates = frozenset[bytes | None]
_SOME: Final[Candidates] = frozenset([None])
_NONE: Final[Candidates] = frozenset()


class DistinctItems(ItemReader):
    """The items of the arrays with ``uniqueItems`` in the texts of one machine.

    Args:
        machine: the automaton over bytes.
    """

    def __init__(self, machine: Any) -> None:
        super().__init__()
        self._machine = machine
        #: By container, for names and for values.
        self._ordered: dict[tuple[Linked[Container], bool], list[bytes]] = {}
        self._remembered = 0
        self._completions: dict[Position, bool] = {}

    def candidates(self, position: ItemPosition) -> Candidates:
        """The values that an unfinished value or member name can become so that its item may equal an earlier item.

        For strings and names the candidates are their characters in UTF-8. For other values the single element ``None``
        says that there may be candidates; for numbers it is also returned where none of them is equal.
        """
        frame, phase, text, _ = position
        assert frame is not None
        if text[:1] == b'"':
            strings, begun = self._strings(frame, phase == "name"), text[1:]
            left = takewhile(lambda s: s.startswith(begun), strings[bisect_left(strings, begun) :])
            return frozenset([string for string in left if not position.escape or goes_on(position, string)])
        if phase == "name":
            return _SOME if self._strings(frame, True) else _NONE
        if not text and phase != "value":
            return _SOME if frame.entry.candidates else _NONE
        values = self.recurring(frame.entry)
        if not text:
            return _SOME if values else _NONE
        if text[0] in NUMBER:
            return _SOME if any(self.values[value][0] == "number" for value in values) else _NONE
        return _SOME if any(value.startswith(text) for value in values) else _NONE

    def _strings(self, frame: Linked[Container], names: bool) -> list[bytes]:
        """The strings, in order, with which an earlier item can recur as the next value, or name, in a container."""
        known = self._ordered.get((frame, names))
        if known is None:
            if names:
                members = [
                    *self.listed(frame.entry.done),
                    *[m for w in frame.entry.candidates for m in self.values[w][1]],
                ]
                known = sorted({name for name, _ in members})
            else:
                values = [self.values[value] for value in self.recurring(frame.entry)]
                known = sorted([content for kind, content in values if kind == "string"])
            if self._remembered > _MOST_REMEMBERED:
                self._ordered, self._remembered = {}, 0
            self._ordered[frame, names] = known
            self._remembered += len(known) + 1
        return known

    def next_bytes(self, position: ItemPosition) -> frozenset[int] | None:
        """The bytes after which a string or name still has candidates or is complete as one; ``None`` for any byte."""
        if position.text[:1] != b'"' or position.escape:
            return None
        length = len(position.text) - 1
        strings = [candidate for candidate in self.candidates(position) if candidate is not None]
        return frozenset([BACKSLASH, *[string[length] if len(string) > length else QUOTE for string in strings]])

    def has_completion(self, reached: Position) -> bool:
        """Whether a text inside an array with ``uniqueItems`` can be completed without a repeated item.

        Raises:
            BudgetExceeded: if the search visits more than 32768 positions.
        """
        if not self.candidates(reached.items):
            return True
        # Whitespace does not change the value, so positions inside whitespace share the state after it.
        reached = reached._replace(state=self._machine.before_gap(reached.state))
        known = self._completions.get(reached)
        if known is None:
            if len(self._completions) >= _MOST_REMEMBERED:
                self._completions.clear()
            known = self._completions[reached] = self._find_completion(reached)
        return known

    def _find_completion(self, reached: Position) -> bool:
        """Search breadth-first, because a number can be followed by zeros without end."""
        seen = {reached}
        pending = deque([reached])
        later: deque[Position] = deque()
        while pending or later:
            if len(seen) > _MOST_SEARCHED:
                raise BudgetExceeded(
                    f"Whether another item can follow in an array with uniqueItems was not found out in "
                    f"{_MOST_SEARCHED} steps, because few different values are possible and most have come. Bound the "
                    f"array with maxItems."
                )
            current = (pending or later).popleft()
            position = current.items
            in_string = position.text[:1] == b'"'
            codes = self._machine.possible(current.state)
            if not in_string:
                # Whitespace is skipped unless it is mandatory. Bytes that end a value decide most searches at once.
                codes = [byte for byte in codes if byte not in BLANKS] or codes
                codes.sort(key=lambda byte: byte not in _ENDS)
            for byte in codes:
                following = self._machine.read(current, bytes([byte]), can_end=False)
                if following is None:
                    continue
                after = following.items
                if byte == COMMA and not in_string:
                    # The comma ends a number. ``check_distinct`` has ensured that another item can follow.
                    after = after._replace(phase="next")
                if not after.frame or not self.candidates(after):
                    return True
                key = following._replace(items=self._alike(following.items))
                if key not in seen:
                    seen.add(key)
                    # An escape sequence is another spelling of a character and seldom leads to another value.
                    (later if in_string and (position.escape or byte == BACKSLASH) else pending).append(following)
        return False

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
        return position._replace(text=text[: len(text) - max(zeros - self.digits - 1, 0)])
