"""The product of automata with whole tables as one table, and its shortest texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from logitloom.automata.compilation_budget import Budget, BudgetTracker
from logitloom.automata.deterministic.dense import DenseAutomaton
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.deterministic.product import product
from logitloom.contract import State, TextTokens

__all__ = ["WholeProduct"]

#: The largest number of tuples of states.
_MOST_TUPLES: Final = 8192


class WholeProduct:
    """The tuples of states that are reachable in several automata together, and a shortest text from each.

    Args:
        dfas: at least two.

    Raises:
        BudgetExceeded: if there are too many tuples.
    """

    def __init__(self, dfas: Sequence[Dfa]) -> None:
        tracker = BudgetTracker(Budget(states=_MOST_TUPLES))
        first, *others = dfas
        states, accepting = [np.arange(first.states)], first.accepting
        byte_class, table, start = first.byte_class, first.next, first.start
        for dfa in others:
            found = product((byte_class, table, start), (dfa.byte_class, dfa.next, dfa.start), (True, True), tracker)
            states = [*(each[found.first] for each in states), found.second]
            accepting = accepting[found.first] & dfa.accepting[found.second]
            byte_class, table, start = found.byte_class, found.next, 0
        self._number = {each: at for at, each in enumerate(zip(*(each.tolist() for each in states), strict=True))}
        self._texts = DenseAutomaton(Dfa(byte_class, table, accepting))

    def completion(self, states: tuple[State, ...]) -> bytes | None:
        """A shortest text; ``None`` if there is none."""
        number = self._number.get(states)
        return None if number is None else self._texts.completion(number)

    def longest(self, tokens: TextTokens) -> int | None:
        """The bytes of the longest of these texts; ``None`` if tokens of one byte do not write them all."""
        left, first = self._texts.shortest
        used = {byte for size, byte in zip(left, first, strict=True) if size > 0}
        return max(left) if used <= tokens.single else None
