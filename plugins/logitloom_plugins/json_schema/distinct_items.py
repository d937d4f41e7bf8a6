"""Arrays whose items must all be different (``uniqueItems``): whether another item can still follow.

An item that equals one that has come must not end, so whatever may be written is asked for a way to a value that has
not come: as soon as the unfinished item differs from all others any way of the machine will do, and before that they
are searched. What it could become are its rivals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.value_reader import (
    BACKSLASH,
    BLANKS,
    NUMBER,
    QUOTE,
    Frame,
    Place,
    ValueReader,
    begins,
)

if TYPE_CHECKING:
    from logitloom_plugins.json_schema.machine import Machine, Reached

__all__ = ["DistinctItems"]

_ENDS: Final = b"]},"
_DIGITS: Final = b"0123456789"
#: Rivals, and answers about ways, that are remembered.
_MOST_REMEMBERED: Final = 1 << 16
#: Places that a search for another item looks at.
_MOST_SEARCHED: Final = 1 << 15

Rivals = frozenset[bytes | None]
_SOME: Final[Rivals] = frozenset([None])


class DistinctItems(ValueReader):
    """What the texts of one machine have written in arrays of different items.

    Args:
        machine: the automaton over bytes.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._rivals: dict[Place, Rivals] = {}
        self._rivals_size = 0
        self._ways: dict[Reached, bool] = {}

    def rivals(self, place: Place) -> Rivals:
        """What an unfinished item, or the name of a member, would have to become to have come before.

        Of strings and names these are their characters, as UTF-8; elsewhere ``None`` stands for there being some, and
        may do so beside numbers that differ.
        """
        known = self._rivals.get(place)
        if known is None:
            known = self._find_rivals(place)
            if self._rivals_size > _MOST_REMEMBERED:
                self._rivals.clear()
                self._rivals_size = 0
            self._rivals_size += len(known) + 1
            self._rivals[place] = known
        return known

    def next_bytes(self, place: Place) -> frozenset[int] | None:
        """The bytes after which there can be rivals still, or what is unfinished has become one; ``None``: any."""
        if place.text[:1] != b'"' or place.escape:
            return None
        length = len(place.text) - 1
        strings = [rival for rival in self.rivals(place) if rival is not None]
        return frozenset([BACKSLASH, *[string[length] if len(string) > length else QUOTE for string in strings]])

    def _find_rivals(self, place: Place) -> Rivals:
        if len(place.text) > 1 and place.text[:1] == b'"' and not place.escape:
            # Those of the same string a byte before, as long as they agree.
            before = self._rivals.get(place._replace(text=place.text[:-1]))
            if before is not None:
                return frozenset([rival for rival in before if rival is not None and begins(place, rival)])
        found = set()
        for rival in self._each_rival(place):
            if rival is None:
                return _SOME
            found.add(rival)
        return frozenset(found)

    def _each_rival(self, place: Place) -> Iterator[bytes | None]:
        frames = self.frames(place)
        if place.phase == "name":
            yield from (name for name, _ in self.listed(frames[-1].done) if begins(place, name))
        for depth, frame in enumerate(frames):
            if frame.kind == "distinct" and _goes_on(frames, depth, place):
                for value in self.listed(frame.done):
                    yield from self._counterparts(frames, depth + 1, place, value)

    def _counterparts(self, frames: list[Frame], depth: int, place: Place, number: int) -> Iterator[bytes | None]:
        """What is to be at a place if what is unfinished at a depth becomes a value; nothing if it cannot."""
        kind, content = self.values[number]
        if depth == len(frames):
            text = place.text
            if text[:1] == b'"':
                if kind == "string" and begins(place, content):
                    yield content
            elif not text or (kind == "number" and text[0] in NUMBER):
                yield None
            elif kind == "literal":
                yield from [None] * content.startswith(text)
            return
        frame = frames[depth]
        entries = self.listed(frame.done)
        goes_on = _goes_on(frames, depth, place)
        if frame.kind != "object":
            if kind != "array" or content[: len(entries)] != entries:
                return
            if not goes_on:
                yield None
            elif len(content) > len(entries):
                yield from self._counterparts(frames, depth + 1, place, content[len(entries)])
        elif kind == "object" and content.issuperset(entries):
            if frame.name is not None:
                for value in [value for name, value in content if name == frame.name]:
                    yield from self._counterparts(frames, depth + 1, place, value) if goes_on else (None,)
            elif place.phase == "name":
                yield from (name for name, _ in content.difference(entries) if begins(place, name))
            else:
                yield None

    def has_way(self, reached: Reached) -> bool:
        """Whether a text can be completed so that nothing comes twice.

        Raises:
            BudgetExceeded: if that takes too long to find out.
        """
        if not reached.items.frame or not self.rivals(reached.items):
            return True
        gap = self._machine.gap(reached.state)
        if gap is not None:
            # Whitespace changes nothing.
            reached = reached._replace(state=gap[0])
        known = self._ways.get(reached)
        if known is None:
            if len(self._ways) >= _MOST_REMEMBERED:
                self._ways.clear()
            known = self._ways[reached] = self._find_way(reached)
        return known

    def _find_way(self, reached: Reached) -> bool:
        """Breadth first, because numbers may have zeros at their end for ever."""
        follow = self._machine.follow
        seen = {reached}
        pending = deque([reached])
        later: deque[Reached] = deque()
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
                # Whitespace changes nothing, unless it has to come, and after an end most is decided.
                codes = [byte for byte in codes if byte not in BLANKS] or codes
                codes.sort(key=lambda byte: byte not in _ENDS)
            for byte in codes:
                following = follow(current, bytes([byte]))
                if following is None:
                    continue
                if not following.items.frame or not self.rivals(following.items):
                    return True
                key = following._replace(items=self._alike(following.items))
                if key not in seen:
                    seen.add(key)
                    # Another way to write a character seldom leads to another value.
                    (later if in_string and (place.escape or byte == BACKSLASH) else pending).append(following)
        return False

    def _alike(self, place: Place) -> Place:
        """The same place with fewer digits, where a number can go on for ever without becoming another.

        Zero stays zero whatever its exponent; and after more zeros at the end of a fraction than any number that has
        come has digits, another digit makes one that has not.
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


def _goes_on(frames: list[Frame], depth: int, place: Place) -> bool:
    """Whether an item or a member's value has begun, or must come, in an open array or object."""
    return depth + 1 < len(frames) or place.phase == "value" or (bool(place.text) and place.phase != "name")
