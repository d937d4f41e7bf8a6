"""The automaton of the times of day of RFC 3339, made state by state: leap seconds only when there can be one.

Second 60 comes only if the time in UTC is 23:59. So the automaton remembers the local time up to the offset, and then
the only offset that fits.

References:
    G. Klyne, C. Newman, "Date and Time on the Internet: Timestamps", RFC 3339, 2002, section 5.6 and appendix D.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitloom.automata import DEAD, Dfa

__all__ = ["times_of_day"]

#: Minutes of a day.
_DAY: Final = 24 * 60
#: The bytes of each column of the table, from column 1 on; the digits are first.
_COLUMNS: Final = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", ":", ".", "+", "-", "zZ")
_COLON, _POINT, _EAST, _WEST, _UTC = range(11, 16)


class _StateBlocks:
    """States that are added in blocks, and the steps between them."""

    def __init__(self) -> None:
        self._states = 0
        self._steps: list[tuple[NDArray[np.int64], ...]] = []

    def block(self, count: int = 1) -> NDArray[np.int64]:
        """The numbers of new states."""
        first, self._states = self._states, self._states + count
        return np.arange(first, self._states)

    def step(self, source: ArrayLike, column: ArrayLike, target: ArrayLike) -> None:
        """Steps from states to states; the arguments are broadcast."""
        self._steps.append(tuple(map(np.ravel, np.broadcast_arrays(source, column, target))))

    def filled(self) -> NDArray[np.int32]:
        """``[states, columns] int32``, ``DEAD`` where there is no step."""
        table = np.full((self._states, 1 + len(_COLUMNS)), DEAD, dtype=np.int32)
        source, column, target = map(np.concatenate, zip(*self._steps, strict=True))
        table[source, column] = target
        return table


def times_of_day() -> Dfa:
    """The times of day with their offset from UTC.

    Example:
        >>> times = times_of_day()
        >>> times.fullmatch("23:59:60Z"), times.fullmatch("22:59:60Z"), times.fullmatch("22:59:60-01:00")
        (True, False, True)
    """
    table = _StateBlocks()
    block, step = table.block, table.step
    digits = 1 + np.arange(10)
    start = block()

    # The hour and the minute are remembered.
    tens, hours, before_minute, tens_of_minute = block(3), block(24), block(24), block(24 * 6)
    local, before_second = block(_DAY), block(_DAY)
    hour, minute = np.arange(24), np.arange(_DAY)
    step(start, digits[:3], tens)
    step(tens[hour // 10], digits[hour % 10], hours)
    step(hours, _COLON, before_minute)
    step(before_minute[:, None], digits[:6], tens_of_minute.reshape(24, 6))
    step(tens_of_minute[minute // 10], digits[minute % 10], local)
    step(local, _COLON, before_second)

    # Any second but 60, and any offset.
    ten, second, offset, early, late, after_hour, before_last, last, end = [block() for _ in range(9)]
    step(before_second[:, None], digits[:6], ten)
    step(ten, digits, second)
    step(offset, digits[:2], early)
    step(offset, digits[2], late)
    step(early, digits, after_hour)
    step(late, digits[:4], after_hour)
    step(after_hour, _COLON, before_last)
    step(before_last, digits[:6], last)
    step(last, digits, end)
    for state in (second, _fraction(table, second)):
        step(state, [_EAST, _WEST], offset)
        step(state, _UTC, end)

    # Second 60: the next states remember the offset that must follow, and later states the part of the offset that is
    # left.
    six, sixty = block(_DAY), block(_DAY)
    left, without_ten, minutes_left, only_minutes, last_left = block(_DAY), block(600), block(60), block(60), block(10)
    step(before_second, digits[6], six)
    step(six, digits[0], sixty)
    for states in (sixty, _fraction(table, sixty)):
        # An offset to the west is the time left to 23:59; an offset to the east is the local time plus one minute.
        step(states, _WEST, left[::-1])
        step(states, _EAST, np.roll(left, -1))
        step(states[-1], _UTC, end)
    step(left, digits[minute // 600], without_ten[minute % 600])
    step(without_ten, digits[np.arange(600) // 60], np.tile(minutes_left, 10))
    step(minutes_left, _COLON, only_minutes)
    step(only_minutes, digits[np.arange(60) // 10], np.tile(last_left, 6))
    step(last_left, digits, end)

    byte_class = np.zeros(256, dtype=np.uint8)
    for column, read in enumerate(_COLUMNS, 1):
        byte_class[list(read.encode())] = column
    filled = table.filled()
    return Dfa(byte_class, filled, np.arange(len(filled)) == end, trim=True)


def _fraction(table: _StateBlocks, whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """The states after a fraction of each of some seconds."""
    point, fraction = table.block(len(whole)), table.block(len(whole))
    digits = 1 + np.arange(10)
    table.step(whole, _POINT, point)
    table.step(point[:, None], digits, fraction[:, None])
    table.step(fraction[:, None], digits, fraction[:, None])
    return fraction
