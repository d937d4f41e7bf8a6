"""Limits of a compilation: states, bytes of tables, seconds.

A short pattern can have an automaton of exponential size, and a server compiles patterns of untrusted origin.
Therefore every phase of every compilation in this package checks a :class:`BudgetTracker`. A check raises an exception
when a limit is exceeded, before any decoding starts.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from logitloom.errors import BudgetExceeded

__all__ = ["DEFAULT_BUDGET", "Budget", "BudgetTracker", "at_most", "check_deadline"]

# The standard library's parser cannot be interrupted, so its time is bounded by the length of the text.
_PARSED_CHARACTERS_PER_SECOND = 100_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one compilation.

    Args:
        states: states of any automaton that is built, and positions of the pattern (its characters after counted
            repeats are expanded).
        table_bytes: bytes of any one table, in memory.
        seconds: processor time of the compiling thread, from the first phase to the last.

    Example:
        >>> Budget(states=1000).seconds
        10.0
    """

    states: int = 100_000
    table_bytes: int = 256 << 20
    seconds: float = 10.0


#: The limits if the caller gives none.
DEFAULT_BUDGET = Budget()


class _Limits(threading.local):
    """The limits of the blocks of :func:`at_most` in this thread, the innermost block last.

    A limit lives as long as its block: an interruption that keeps the end of a block from being noted leaves no limit.
    """

    def __init__(self) -> None:
        self.active: list[weakref.ref[_Limit]] = []

    def innermost(self) -> _Limit | None:
        """The limit of the innermost block."""
        while self.active:
            found = self.active[-1]()
            if found is not None:
                return found
            self.active.pop()
        return None


_LIMITS: Final = _Limits()


class _Limit:
    """The block of :func:`at_most`.

    Args:
        seconds: seconds from the beginning of the block on.
        deadline: on the clock of the thread; default: after these seconds.

    Attributes:
        deadline: of the block, or of an outer block if that one is earlier, on the clock of the thread.
        seconds: the seconds that the deadline belongs to.
    """

    def __init__(self, seconds: float, deadline: float | None = None) -> None:
        self.seconds = seconds
        self.deadline = time.thread_time() + seconds if deadline is None else deadline

    def __enter__(self) -> None:
        outer = _LIMITS.innermost()
        if outer is not None and outer.deadline <= self.deadline:
            self.deadline, self.seconds = outer.deadline, outer.seconds
        _LIMITS.active.append(weakref.ref(self))

    def __exit__(self, *_: object) -> None:
        active, own = _LIMITS.active, weakref.ref(self)
        if own in active:
            del active[active.index(own) :]


def at_most(seconds: float) -> AbstractContextManager[None]:
    """Limit the total processor time of all compilations in this thread that begin within the ``with`` block.

    Args:
        seconds: seconds from now on; an earlier deadline of an outer block stays in force.

    Example:
        >>> with at_most(2.0):
        ...     tracker = BudgetTracker(Budget(seconds=60.0))
        >>> tracker.remaining <= 2.0
        True
    """
    return _Limit(seconds)


class BudgetTracker:
    """Checks the resources that one compilation uses. All phases of a compilation share one tracker.

    Args:
        budget: the limits; ``None`` means :data:`DEFAULT_BUDGET`.
        subject: the name of the compiled object in messages, e.g. ``pattern 'a*'``.

    Raises:
        BudgetExceeded: by each ``check_...`` method if its limit is exceeded.
    """

    __slots__ = ("_deadline", "_in_time_until", "_seconds", "budget", "subject")

    def __init__(self, budget: Budget | None = None, subject: str = "the automaton") -> None:
        self.budget = budget if budget is not None else DEFAULT_BUDGET
        self.subject = subject
        now = time.thread_time()
        self._deadline, self._seconds = now + self.budget.seconds, self.budget.seconds
        limit = _LIMITS.innermost()
        if limit is not None and limit.deadline < self._deadline:
            self._deadline, self._seconds = limit.deadline, limit.seconds
        #: On the clock of the wall, which is read ten times as fast. Processor time does not pass faster.
        self._in_time_until = time.perf_counter() + self._deadline - now

    @property
    def remaining(self) -> float:
        """Seconds of processor time until the time limit; negative after it."""
        return self._deadline - time.thread_time()

    def narrowed(self, states: int) -> BudgetTracker:
        """A tracker with at most ``states`` states and the same time limit."""
        tracker = BudgetTracker(replace(self.budget, states=min(states, self.budget.states)), self.subject)
        tracker._deadline, tracker._seconds = self._deadline, self._seconds
        tracker._in_time_until = self._in_time_until
        return tracker

    def for_all(self) -> AbstractContextManager[None]:
        """Apply the time limit of this tracker to all compilations that this thread begins in the ``with`` block."""
        return _Limit(self._seconds, self._deadline)

    def check_states(self, count: int, what: str = "states") -> None:
        """Raise if ``count`` states are too many or the time limit has passed."""
        if count > self.budget.states:
            raise BudgetExceeded(
                f"Compiling {self.subject} takes more than {self.budget.states} {what}. Write it with "
                f"smaller repeat counts or fewer alternatives, or raise max_states."
            )
        self.check_time()

    def check_bytes(self, count: int, what: str = "its tables") -> None:
        """Raise if a table of ``count`` bytes is too large."""
        if count > self.budget.table_bytes:
            raise BudgetExceeded(
                f"Compiling {self.subject} takes {count} bytes for {what}, and the limit is "
                f"{self.budget.table_bytes}. Write it with smaller repeat counts or fewer alternatives, or "
                f"raise table_bytes of the budget."
            )

    def check_time(self) -> None:
        """Raise if the time limit has passed."""
        now = time.perf_counter()
        if now < self._in_time_until:
            return
        remaining = self.remaining
        self._in_time_until = now + remaining
        if remaining < 0:
            together = "" if self._seconds == self.budget.seconds else ", with what is compiled along with it"
            raise BudgetExceeded(
                f"Compiling {self.subject} takes longer than {self._seconds:.3g} seconds{together}. Write it with "
                f"smaller repeat counts or fewer alternatives, or raise max_seconds."
            )

    def stop_the_clock(self) -> None:
        """Remove the time limit. Automata that are built later, while decoding, are bounded in size only."""
        self._deadline = math.inf

    def check_pattern_length(self, characters: int) -> None:
        """Raise if a pattern is so long that parsing it would exceed a limit."""
        limit = int(min(self.budget.seconds * _PARSED_CHARACTERS_PER_SECOND, 10 * self.budget.states))
        if characters > limit:
            raise BudgetExceeded(
                f"The text of {self.subject} has {characters} characters, and a budget of "
                f"{self.budget.states} states and {self.budget.seconds:g} seconds reads at most {limit}. "
                f"Shorten it, or raise max_states and max_seconds."
            )


def check_deadline(subject: str) -> None:
    """Raise if the time of :func:`at_most` has passed. The function is for work without a budget.

    Args:
        subject: the name of what is worked out, for the message.

    Raises:
        BudgetExceeded: the time has passed.

    Example:
        >>> check_deadline("the tables")  # there is no limit
    """
    if _LIMITS.innermost() is not None:
        BudgetTracker(Budget(seconds=math.inf), subject).check_time()
