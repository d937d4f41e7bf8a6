"""Several constraints of one section: the texts that satisfy all of them."""

# ruff: noqa: D102 - the methods of the contract say what they do there

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.constraints import ByteAutomaton, Constraint, LiftedAutomaton, State, TokenSet
from logitloom.errors import BudgetExceeded, OptionError
from logitloom.hookspecs import TextEnd
from logitloom_plugins.combinators.automaton import common_classes
from logitloom_plugins.combinators.token_sets import selected, union
from logitloom_plugins.combinators.token_steps import at_tokens
from logitloom_plugins.combinators.triggers import textless_ids

__all__ = ["IntersectedAutomaton", "Intersection"]

#: Most states of an intersection, and most steps between them, that are looked at.
_MOST_STATES: Final = 20_000
_MOST_STEPS: Final = 600_000


class IntersectedAutomaton(ByteAutomaton):
    """What several automata accept together. A state is a tuple of theirs, and can always be completed.

    Args:
        automata: at least two.
        owner: name of the processor, for messages.

    Raises:
        OptionError: if no text satisfies all of them.
        BudgetExceeded: if a bounded search cannot tell which states can be completed.
    """

    def __init__(self, automata: Sequence[ByteAutomaton], owner: str) -> None:
        self.automata = tuple(automata)
        classes = self.byte_classes()
        self._column: list[int] = list(range(256)) if classes is None else classes.tolist()
        self._live = self._search(owner)

    def _search(self, owner: str) -> frozenset[State]:
        """The states that can be completed, found by a search backwards from the ends of all that can be reached."""
        bytes_of_class = list({column: byte for byte, column in enumerate(self._column)}.values())
        before: dict[tuple[State, ...], list[tuple[State, ...]]] = {self.start(): []}
        queue = [self.start()]
        for state in queue:
            if len(queue) > _MOST_STATES or len(queue) * len(bytes_of_class) > _MOST_STEPS:
                raise BudgetExceeded(
                    f"The constraints that stand together in one part of {owner!r} have more than {len(queue) - 1} "
                    f"states together, so it cannot be told which texts satisfy all. Write them as one constraint."
                )
            for byte in bytes_of_class:
                after = self._stepped(state, byte)
                if after is None:
                    continue
                # Within a token automata that count tokens stand at other states than at its end.
                ended = self._bordered(after) if self._has_borders else after
                for found in {after, ended} - {None}:
                    assert found is not None
                    if found not in before:
                        before[found] = []
                        queue.append(found)
                if ended is not None:
                    before[ended].append(state)
        live = {state for state in queue if self.accepts(state)}
        queue = [*live]
        for state in queue:
            for earlier in before[state]:
                if earlier not in live:
                    live.add(earlier)
                    queue.append(earlier)
        if self.start() not in live:
            raise OptionError(
                f"No text satisfies all constraints that stand together in one part of {owner!r}. Leave one out."
            )
        return frozenset(live)

    @cached_property
    def _has_borders(self) -> bool:
        return any(type(automaton).token_border is not ByteAutomaton.token_border for automaton in self.automata)

    @cached_property
    def fingerprint(self) -> bytes:
        parts = repr([automaton.fingerprint for automaton in self.automata]).encode()
        return hashlib.blake2b(parts, digest_size=16, person=b"intersection").digest()

    def start(self) -> tuple[State, ...]:
        return tuple(automaton.start() for automaton in self.automata)

    def step(self, state: State, byte: int) -> State | None:
        after = self._stepped(_states(state), byte)
        return after if self._has_borders or after in self._live else None

    def _stepped(self, states: tuple[State, ...], byte: int) -> tuple[State, ...] | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.step(state, byte)
            if after is None:
                return None
            reached.append(after)
        return tuple(reached)

    def accepts(self, state: State) -> bool:
        return all(automaton.accepts(part) for automaton, part in zip(self.automata, _states(state), strict=True))

    def must_end(self, state: State) -> bool:
        return any(automaton.must_end(part) for automaton, part in zip(self.automata, _states(state), strict=True))

    def token_border(self, state: State) -> State | None:
        after = self._bordered(_states(state)) if self._has_borders else state
        return after if after in self._live else None

    def _bordered(self, states: tuple[State, ...]) -> tuple[State, ...] | None:
        reached = []
        for automaton, state in zip(self.automata, states, strict=True):
            after = automaton.token_border(state)
            if after is None:
                return None
            reached.append(after)
        return tuple(reached)

    def text_end(self, state: State) -> TextEnd:
        found = [automaton.text_end(part) for automaton, part in zip(self.automata, _states(state), strict=True)]
        return max(found, key=lambda end: (end.finished, end.hold))

    def byte_classes(self) -> NDArray[np.uint8] | None:
        columns = [column for automaton in self.automata if (column := automaton.byte_classes()) is not None]
        return common_classes(columns) if len(columns) == len(self.automata) else None


class Intersection(LiftedAutomaton):
    """What several constraints allow together, so that a text can always be completed.

    Args:
        constraints: at least two.
        owner: name of the processor, for messages.

    Raises:
        OptionError: if no text satisfies all of them, or one of them is known at the borders of tokens only.
        BudgetExceeded: if a bounded search cannot tell which states can be completed.
    """

    def __init__(self, constraints: Sequence[Constraint], owner: str) -> None:
        automata = [automaton for one in constraints if (automaton := one.automaton()) is not None]
        if any(at_tokens(automaton) for automaton in automata):
            raise OptionError(
                f"Several constraints stand together in one part of {owner!r}, and of one of them only tokens are "
                f"known, no automaton over bytes. So it cannot be told which texts satisfy all. Put one of them "
                f"beside {owner!r} in the chain, or write them as one grammar."
            )
        first = constraints[0]
        self.constraints, self._owner = tuple(constraints), owner
        super().__init__(IntersectedAutomaton(automata, owner), first.vocabulary, first.vocab_size)
        self.restricts = any(one.restricts for one in constraints)
        self.ends_texts = any(one.ends_texts for one in constraints)
        self._without_text = textless_ids(self.vocabulary, self.vocab_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return Intersection, (self.constraints, self._owner)

    def advance(self, state: State, token: int) -> State | None:
        if 0 <= token < self.vocabulary.size and self.vocabulary.token_bytes[token]:
            return super().advance(state, token)
        after = [one.advance(part, token) for one, part in zip(self.constraints, _states(state), strict=True)]
        return None if None in after else tuple(after)

    def allowed(self, state: State) -> TokenSet:
        parts = zip(self.constraints, _states(state), strict=True)
        passing = [one.allowed(part).mask(self.vocab_size)[self._without_text] for one, part in parts]
        both = self._without_text[reduce(np.logical_and, passing)]
        return union([super().allowed(state), selected(both.tolist())], self.vocab_size)


def _states(state: State) -> tuple[State, ...]:
    return state  # type: ignore[return-value]
