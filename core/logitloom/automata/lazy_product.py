"""Unions and intersections of automata over bytes whose states are found when they are visited.

A state is a tuple of states. In a union every state can be completed, because in one of the automata it can. In an
intersection some cannot: a search when it is made finds those that can. Automata whose states are sets of positions
(:class:`~logitloom.automata.LazyDfa`) have far too many of them for that, but a set can be completed exactly if one of
its positions can: so the search goes through tuples of positions, of which there are as many as the product of the
patterns' lengths, see :meth:`~logitloom.constraints.ByteAutomaton.alternatives`.

References:
    Y. Bar-Hillel, M. Perles, E. Shamir, "On formal properties of simple phrase structure grammars", 1961: the product
    of nondeterministic automata accepts the intersection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.budget import BudgetTracker
from logitloom.constraints.contract import ByteAutomaton, State
from logitloom.errors import BudgetExceeded, OptionError
from logitloom.hookspecs import TextEnd

__all__ = ["IntersectedAutomaton", "UnionAutomaton", "common_classes"]

#: Most steps between tuples that are searched: about a second.
_MOST_STEPS: Final = 600_000
#: For so many states it is remembered whether they can be completed.
_REMEMBERED: Final = 1 << 16

States = tuple[State, ...]


def common_classes(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    """``[256] uint8``: bytes of one class are equal in all of several arrays ``[256]``."""
    classes: NDArray[Any] = np.unique(np.stack(columns), axis=1, return_inverse=True)[1]
    return classes.ravel().astype(np.uint8)


class _Product(ByteAutomaton):
    """The product of several automata."""

    def __init__(self, automata: Sequence[ByteAutomaton]) -> None:
        self.automata = tuple(automata)

    @cached_property
    def fingerprint(self) -> bytes:
        """From those of the automata."""
        parts = repr([automaton.fingerprint for automaton in self.automata]).encode()
        return hashlib.blake2b(parts, digest_size=16, person=type(self).__name__.encode()[:16]).digest()

    def start(self) -> State:
        """All start states."""
        return tuple(automaton.start() for automaton in self.automata)

    def byte_classes(self) -> NDArray[np.uint8] | None:
        """The classes of bytes that no automaton distinguishes."""
        columns = [column for automaton in self.automata if (column := automaton.byte_classes()) is not None]
        return common_classes(columns) if len(columns) == len(self.automata) else None


class UnionAutomaton(_Product):
    """The union of several automata. A component of a state is ``None`` if its automaton is dead.

    Args:
        automata: at least two. What they say of borders of tokens and ends of texts is left out.

    Example:
        >>> from logitloom.automata import DenseAutomaton, compile_pattern
        >>> both = UnionAutomaton([DenseAutomaton(compile_pattern(one)) for one in ("ab", "a+")])
        >>> state = both.step(both.start(), ord("a"))
        >>> both.accepts(state), both.step(state, ord("b")) is None, both.step(state, ord("c")) is None
        (True, False, True)
    """

    def step(self, state: State, byte: int) -> State | None:
        """The next states of all automata that are not dead."""
        parts = zip(self.automata, _parts(state), strict=True)
        after = tuple(None if part is None else automaton.step(part, byte) for automaton, part in parts)
        return None if all(part is None for part in after) else after

    def accepts(self, state: State) -> bool:
        """Whether one of them accepts."""
        parts = zip(self.automata, _parts(state), strict=True)
        return any(part is not None and automaton.accepts(part) for automaton, part in parts)

    def alternatives(self, state: State) -> Sequence[State]:
        """Those of each part, alone."""
        return [
            tuple(one if i == place else None for i in range(len(self.automata)))
            for place, (automaton, part) in enumerate(zip(self.automata, _parts(state), strict=True))
            if part is not None
            for one in automaton.alternatives(part)
        ]


class IntersectedAutomaton(_Product):
    """The intersection of several automata. A state is a tuple of their states; acceptance is reachable from it.

    Args:
        automata: at least two.
        subject: what they are, for messages.

    Raises:
        OptionError: if no text satisfies all of them.
        BudgetExceeded: if a bounded search cannot tell which states can be completed.

    Example:
        >>> from logitloom.automata import DenseAutomaton, compile_pattern
        >>> both = IntersectedAutomaton([DenseAutomaton(compile_pattern(one)) for one in ("a*b", "..")])
        >>> state = both.step(both.start(), ord("a"))
        >>> both.step(state, ord("a")) is None, both.accepts(both.step(state, ord("b")))
        (True, True)
    """

    def __init__(self, automata: Sequence[ByteAutomaton], subject: str = "automata of this intersection") -> None:
        super().__init__(automata)
        classes = self.byte_classes()
        self._column: list[int] = list(range(256)) if classes is None else classes.tolist()
        self._bytes = list({column: byte for byte, column in enumerate(self._column)}.values())
        #: Tuples of alternatives, and whether they can be completed.
        self._found: dict[States, bool] = {}
        self._known: dict[States, bool] = {}
        self._search(subject)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def _search(self, subject: str) -> None:
        """Find what can be completed, backwards from the ends of all that can be reached."""
        start = tuple(automaton.start() for automaton in self.automata)
        before: dict[States, list[States]] = {part: [] for part in self._split(start)}
        queue, tracker = [*before], BudgetTracker(None, f"the {subject}")
        for number, state in enumerate(queue):
            if number % 256 == 0:
                tracker.check_time()
            for byte in self._bytes:
                after = self._stepped(state, byte)
                if after is None:
                    continue
                # Within a token automata that count tokens stand at other states than at its end.
                ended = self._bordered(after) if self._has_borders else after
                for found in {after, ended} - {None}:
                    assert found is not None
                    for part in self._split(found):
                        if part not in before:
                            before[part] = []
                            queue.append(part)
                        if found == ended:
                            before[part].append(state)
            if len(queue) * len(self._bytes) > _MOST_STEPS:
                raise BudgetExceeded(
                    f"The {subject} have more than {len(queue) - 1} states together, so it cannot be told which texts "
                    f"satisfy all. Write them as one constraint."
                )
        live = {state for state in queue if self.accepts(state)}
        queue = [*live]
        for state in queue:
            for earlier in before[state]:
                if earlier not in live:
                    live.add(earlier)
                    queue.append(earlier)
        self._found = {state: state in live for state in before}
        if not self._can_end(start):
            raise OptionError(f"No text satisfies all {subject}. Leave one out.")

    def _split(self, states: States) -> Iterator[States]:
        return product(*[one.alternatives(part) for one, part in zip(self.automata, states, strict=True)])

    def _can_end(self, states: States) -> bool:
        """Whether a text can be completed after some states. They may be such as no search came to, as sets are."""
        known = self._found.get(states)
        known = self._known.get(states) if known is None else known
        if known is None:
            parts = [*self._split(states)]
            if parts == [states]:
                # Within a character, of which the search saw each position alone: look behind it.
                after = (self._stepped(states, byte) for byte in self._bytes)
                known = any(one is not None and self._can_end(one) for one in after)
            else:
                known = any(
                    self._found.get(part) or (part not in self._found and self._can_end(part)) for part in parts
                )
            if len(self._known) >= _REMEMBERED:
                self._known = {}
            self._known[states] = known
        return known

    @cached_property
    def _has_borders(self) -> bool:
        return any(type(automaton).token_border is not ByteAutomaton.token_border for automaton in self.automata)

    def step(self, state: State, byte: int) -> State | None:
        """The next states of all automata, if acceptance is reachable from them."""
        after = self._stepped(_parts(state), byte)
        return after if after is not None and (self._has_borders or self._can_end(after)) else None

    def _stepped(self, states: States, byte: int) -> States | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.step(state, byte)
            if after is None:
                return None
            reached.append(after)
        return tuple(reached)

    def accepts(self, state: State) -> bool:
        """Whether all accept."""
        return all(automaton.accepts(part) for automaton, part in zip(self.automata, _parts(state), strict=True))

    def alternatives(self, state: State) -> Sequence[State]:
        """Every tuple of alternatives that can be completed."""
        return [part for part in self._split(_parts(state)) if self._has_borders or self._can_end(part)]

    def must_end(self, state: State) -> bool:
        """Whether one of them must."""
        return any(automaton.must_end(part) for automaton, part in zip(self.automata, _parts(state), strict=True))

    def token_border(self, state: State) -> State | None:
        """All together."""
        after = self._bordered(_parts(state)) if self._has_borders else _parts(state)
        return after if after is not None and self._can_end(after) else None

    def _bordered(self, states: States) -> States | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.token_border(state)
            if after is None:
                return None
            reached.append(after)
        return tuple(reached)

    def text_end(self, state: State) -> TextEnd:
        """The first to say that the text is over, else what most bytes are held for."""
        found = [automaton.text_end(part) for automaton, part in zip(self.automata, _parts(state), strict=True)]
        return max(found, key=lambda end: (end.finished, end.hold))


def _parts(state: State) -> States:
    return state  # type: ignore[return-value]
