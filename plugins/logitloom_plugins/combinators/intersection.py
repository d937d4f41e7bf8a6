"""The intersection of the constraints of one section: the texts that satisfy all of them."""

# ruff: noqa: D102 - the methods of Constraint are documented there

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import IntersectedAutomaton, TokenAutomaton
from logitloom.constraints import Constraint, LiftedAutomaton, State, TokenSet
from logitloom_plugins.combinators.allowed_sets import intersection, selected, union
from logitloom_plugins.combinators.triggers import textless_ids, token_texts

__all__ = ["Intersection"]


class Intersection(LiftedAutomaton):
    """The constraint that accepts the texts that all given constraints accept; every allowed prefix is completable.

    Args:
        constraints: at least two, which have automata over bytes.
        owner: name of the processor, for messages.

    Raises:
        OptionError: if no text satisfies all of them.
        BudgetExceeded: if a bounded search cannot decide which states can be completed.
    """

    def __init__(self, constraints: Sequence[Constraint], owner: str) -> None:
        automata = [automaton for one in constraints if (automaton := one.automaton()) is not None]
        first = constraints[0]
        self.constraints, self._owner = tuple(constraints), owner
        subject = f"constraints in one part of {owner!r}"
        both = IntersectedAutomaton(automata, subject)
        super().__init__(both, first.vocabulary, first.vocab_size)
        #: The constraint whose completions complete every tuple of states, if there is one. Then no state that all
        #: constraints can enter is a dead end, so a token is allowed if each constraint allows the token.
        self._completing: LiftedAutomaton | None = None
        lifts = all(type(one) in (TokenAutomaton, LiftedAutomaton) for one in constraints)
        if lifts and both.completing is not None and token_texts(first.vocabulary).every_byte:
            self._completing = cast(LiftedAutomaton, constraints[both.completing])
        self._alphabet = both.completion_alphabet
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

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """From the constraint whose completions complete every tuple of states; without one, as in the base class."""
        if self._completing is None:
            return super().allowed_within(state, most)
        sets = list[TokenSet]()
        for one, part in zip(self.constraints, _states(state), strict=True):
            found = one.allowed_within(part, most) if one is self._completing else one.allowed(part)
            if found is None:
                return None
            sets.append(found)
        return reduce(partial(intersection, size=self.vocab_size), sets)

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """From the constraint whose completions complete every tuple of states; without one, as in the base class."""
        if self._completing is None:
            return super().least_after(state)
        parts = _states(state)
        part = parts[self.constraints.index(self._completing)]
        ids, least = self._completing.completions_after(part, self._alphabet)
        for one, part in zip(self.constraints, parts, strict=True):
            if one is not self._completing:
                kept = one.allowed(part).mask(self.vocab_size).take(ids)
                ids, least = ids[kept], least[kept]
        return ids, least

    def allowed(self, state: State) -> TokenSet:
        sets = [one.allowed(part) for one, part in zip(self.constraints, _states(state), strict=True)]
        if self._completing is not None:
            return reduce(partial(intersection, size=self.vocab_size), sets)
        passing = [one.mask(self.vocab_size)[self._without_text] for one in sets]
        both = self._without_text[reduce(np.logical_and, passing)]
        return union([super().allowed(state), selected(both)], self.vocab_size)


def _states(state: State) -> tuple[State, ...]:
    return state  # type: ignore[return-value]
