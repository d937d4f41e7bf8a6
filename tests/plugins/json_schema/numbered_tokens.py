"""A constraint whose configurations have numbers in the order of visits: tests with it are short to write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import TokenSet
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.schema_automaton import Configuration, SchemaAutomaton
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from logitloom_plugins.json_schema.tokens.token_walk import TokenWalk

__all__ = ["NumberedTokens"]


class NumberedTokens:
    """The tokens of a machine's texts; ``-2`` after end-of-sequence, ``-1`` after a token that is not allowed."""

    def __init__(self, machine: Machine, vocabulary: Vocabulary, vocab_size: int | None = None) -> None:
        self.constraint = SchemaConstraint(SchemaAutomaton(machine), vocabulary, vocab_size)
        self.vocabulary = vocabulary
        self.eos = vocabulary.eos
        self._values: list[Configuration] = []
        self._number: dict[Configuration, int] = {}
        self.start = self.number(self.constraint.start())

    @property
    def machine(self) -> Machine:
        return self.constraint.schema.machine

    def number(self, value: Configuration) -> int:
        if value not in self._number:
            self._number[value] = len(self._values)
            self._values.append(value)
        return self._number[value]

    @property
    def walk(self) -> TokenWalk:
        return self.constraint._masks._walk

    def at(self, position: Position) -> int:
        return self.number(self.constraint.schema.configuration(position))

    def configuration(self, number: int) -> Position:
        return self.constraint.schema.position(self._values[number])

    def advance(self, number: int, token: int) -> int:
        if number < 0 or token < 0:
            return -1 if number == -1 else number
        value = self._values[number]
        if token in self.eos:
            return -2 if self.constraint.may_end(value) else -1
        after = self.constraint.advance(value, token)
        return -1 if after is None else self.number(after)

    def row_kind(self, number: int) -> TokenSet:
        return self.constraint.allowed(self._values[number])

    def mask(self, number: int) -> NDArray[np.bool_]:
        mask = np.zeros(self.constraint.vocab_size, dtype=bool)
        if number >= 0:
            mask = self.row_kind(number).mask(self.constraint.vocab_size)
            assert not mask[list(self.eos)].any()
        mask[list(self.eos)] = number == -2 or (number >= 0 and self.constraint.may_end(self._values[number]))
        return mask

    def row(self, number: int) -> NDArray[np.int32]:
        return self.mask(number).nonzero()[0].astype(np.int32)

    def forced_tokens(self, number: int) -> list[int]:
        return self.constraint.forced(self._values[number])
