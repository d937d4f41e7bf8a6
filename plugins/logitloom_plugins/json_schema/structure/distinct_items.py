"""Arrays whose items must all be different (``uniqueItems``): whether the text can still be completed.

An item must not end as a value that equals an earlier item. The *candidates* of an unfinished item are the earlier
items that it can still become. If there are none, every completion that the machine allows is legal. Otherwise a search
looks for a completion that differs from all candidates.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure.names import Chain
from logitloom_plugins.json_schema.structure.value_reader import (
    BACKSLASH,
    BLANKS,
    COMMA,
    NUMBER,
    QUOTE,
    Container,
    Place,
    Position,
    ValueReader,
    goes_on,
)

__all__ = ["DistinctItems"]

_ENDS: Final = b"]},"
_DIGITS: Final = b"0123456789"
#: Cached candidates, and cached results of :meth:`DistinctItems.has_completion`.
_MOST_REMEMBERED: Final = 1 << 16
#: Positions that one search for a completion visits.
_MOST_SEARCHED: Final = 1 << 15

Candidates = frozenset[bytes | None]
_SOME: Final[Candidates] = frozenset([None])
_NONE: Final[Candidates] = frozenset()
_NOTHING: Final[frozenset[bytes]] = frozenset()


class DistinctItems(ValueReader):
    """The items of the arrays with ``uniqueItems`` in the texts of one machine.

    Args:
        machine: the automaton over bytes.
    """

    def __init__(self, machine: Any) -> None:
        super().__init__()
        self._machine = machine
        self._candidates: dict[Place, Candidates] = {}
        self._wholes: dict[Chain[Container], frozenset[bytes]] = {}
        self._remembered = 0
        self._completions: dict[Position, bool] = {}

    def candidates(self, place: Place) -> Candidates:
        """The values that an unfinished value or member name can become so that its item may equal an earlier item.

        For strings and names the candidates are their characters in UTF-8. For other values the single element ``None``
        says that there may be candidates; for numbers it is also returned where none of them is equal.
        """
        known = self._candidates.get(place)
        if known is None:
            known = self._find_candidates(place)
            self._make_room(len(known))
            self._candidates[place] = known
        return known

    def _make_room(self, more: int) -> None:
        if self._remembered > _MOST_REMEMBERED:
            self._candidates.clear()
            self._wholes.clear()
            self._remembered = 0
        self._remembered += more + 1

    def next_bytes(self, place: Place) -> frozenset[int] | None:
        """The bytes after which a string or name still has candidates or is complete as one; ``None`` for any byte."""
        if place.text[:1] != b'"' or place.escape:
            return None
        length = len(place.text) - 1
        strings = [candidate for candidate in self.candidates(place) if candidate is not None]
        return frozenset([BACKSLASH, *[string[length] if len(string) > length else QUOTE for string in strings]])

    def _find_candidates(self, place: Place) -> Candidates:
        frame, text = place.frame, place.text
        assert frame is not None
        if text[:1] == b'"' and (len(text) > 1 or place.escape):
            # The candidates are a subset of those of a shorter prefix that is cached, or of the opening quote.
            for size in range(len(text) if place.escape else len(text) - 1, 0, -1):
                before = Place(frame, place.phase, text[:size])
                if size == 1 or before in self._candidates:
                    break
            begun = text[1:]
            left = [
                candidate
                for candidate in self.candidates(before)
                if candidate is not None and candidate.startswith(begun)
            ]
            return frozenset([candidate for candidate in left if goes_on(place, candidate)] if place.escape else left)
        if place.phase == "name":
            come = frozenset([name for name, _ in self.listed(frame.entry.done)])
            others = [name for whole in self._wholes_of(frame) for name, _ in self.values[whole][1]]
            return come.union(others) if text else _SOME if come or others else _NONE
        if not text and place.phase != "value":
            return _SOME if self._wholes_of(frame) else _NONE
        parts = self._parts_of(frame)
        if not text:
            return _SOME if parts else _NONE
        values = [(part, *self.values[part]) for part in parts]
        if text[0] == QUOTE:
            return frozenset([content for _, kind, content in values if kind == "string"])
        if text[0] in NUMBER:
            return _SOME if any(kind == "number" for _, kind, _ in values) else _NONE
        return _SOME if any(kind == "literal" and part.startswith(text) for part, kind, _ in values) else _NONE

    def _wholes_of(self, frame: Chain[Container]) -> frozenset[bytes]:
        """The values that an open array or object can become so that the item around it may equal an earlier item."""
        later: list[Container] = []
        above = frame.before
        if above is None:
            return _NOTHING
        while (known := self._wholes.get(frame)) is None:
            kind, done, name = frame.entry
            if name is None and done is None:
                kind = "object" if kind == "object" else "array"
                known = frozenset([part for part in self._parts_of(above) if self.values[part][0] == kind])
                self._remember_wholes(frame, known)
                break
            later.append(frame.entry)
            # The same container before its last item, member or name.
            assert name is not None or done is not None
            frame = Chain(Container(kind, done if name is not None or done is None else done.before), above)
        for container in reversed(later):
            kind, done, name = container
            entries = self.listed(done)
            if name is not None:
                known = frozenset([w for w in known if any(name == other for other, _ in self.values[w][1])])
            elif kind == "object":
                known = frozenset([w for w in known if entries[-1] in self.values[w][1]])
            else:
                known = frozenset(
                    [w for w in known if self.values[w][1][len(entries) - 1 : len(entries)] == entries[-1:]]
                )
            self._remember_wholes(Chain(container, above), known)
        return known

    def _remember_wholes(self, frame: Chain[Container], wholes: frozenset[bytes]) -> None:
        self._make_room(len(wholes))
        self._wholes[frame] = wholes

    def _parts_of(self, frame: Chain[Container]) -> set[bytes]:
        """The values of the next item, or of the member whose name was read, with which an earlier item can recur."""
        kind, done, name = frame.entry
        wholes = [self.values[whole][1] for whole in self._wholes_of(frame)]
        if name is not None:
            return {value for members in wholes for other, value in members if other == name}
        entries = self.listed(done)
        parts = {items[len(entries)] for items in wholes if len(items) > len(entries)}
        return parts.union(entries) if kind == "distinct" else parts

    def has_completion(self, reached: Position) -> bool:
        """Whether a text inside an array with ``uniqueItems`` can be completed without a repeated item.

        Raises:
            BudgetExceeded: if the search visits more than 32768 positions.
        """
        if not self.candidates(reached.items):
            return True
        gap = self._machine.gap(reached.state)
        if gap is not None:
            # Whitespace does not change the value, so positions inside whitespace share the state after it.
            reached = reached._replace(state=gap[0])
        known = self._completions.get(reached)
        if known is None:
            if len(self._completions) >= _MOST_REMEMBERED:
                self._completions.clear()
            known = self._completions[reached] = self._find_completion(reached)
        return known

    def _find_completion(self, reached: Position) -> bool:
        """Search breadth-first, because a number can be followed by zeros without end."""
        follow = self._machine.follow
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
            place = current.items
            in_string = place.text[:1] == b'"'
            codes = self._machine.possible(current.state)
            if not in_string:
                # Whitespace is skipped unless it is mandatory. Bytes that end a value decide most searches at once.
                codes = [byte for byte in codes if byte not in BLANKS] or codes
                codes.sort(key=lambda byte: byte not in _ENDS)
            for byte in codes:
                following = follow(current, bytes([byte]))
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
                    (later if in_string and (place.escape or byte == BACKSLASH) else pending).append(following)
        return False

    def _alike(self, place: Place) -> Place:
        """An equivalent position with fewer digits, so that the search visits finitely many prefixes of numbers.

        Zero is zero with any exponent, so the digits of its exponent are dropped. If a fraction ends with more zeros
        than any earlier number has digits, a further non-zero digit makes a new number, so further zeros are dropped.
        """
        text = place.text
        if not text or text[0] not in NUMBER:
            return place
        mantissa, mark, exponent = text.lower().partition(b"e")
        if mark:
            return place if mantissa.strip(b"-0.") else place._replace(text=mantissa + mark + exponent.rstrip(_DIGITS))
        fraction = mantissa.partition(b".")[2]
        zeros = len(fraction) - len(fraction.rstrip(b"0"))
        return place._replace(text=text[: len(text) - max(zeros - self.digits - 1, 0)])
