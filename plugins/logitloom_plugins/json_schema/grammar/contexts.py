"""The strings and numbers that may come at one position of a text, as values that states are made of."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.grammar.layout import Layout
from logitloom_plugins.json_schema.grammar.names import Name
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, most_needed
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["NameContext", "NumberContext", "StringContext", "TextContext"]


class NumberContext(Name):
    """The numbers for which formulas have one of several truth vectors.

    The parts of the name are ``"number"``, the formulas and the truth vectors.
    """

    def __init__(self, parts: tuple[object, ...], automaton: MooreMachine) -> None:
        self.automaton = automaton


class StringContext(Name):
    """The strings that may come at one position of a text.

    The parts of the name are ``"string"`` or ``"name"`` and the values from which the context is made.

    Attributes:
        content: what the strings may hold.
        start: first state of the automaton of the content.
    """

    #: Whether the text of the string must be remembered, because it is a name that must not come twice.
    tracks = False
    #: Whether the string is a name that must not come twice, and only finitely many names go on from some state.
    scarce = False
    #: Whether a backslash may stand wherever a character may; ``None`` if the state decides.
    escapes: bool | None = None
    #: Whether the string can only be one of the names that the schema mentions, without patterns.
    is_listed = False

    def __init__(self, parts: tuple[object, ...], content: Content) -> None:
        self.content = content
        self.start = content.automaton.start

    def alive(self, state: int, count: int) -> bool:
        """Whether a string can be completed after a state of its content and a number of characters."""
        if not self.content.counts and state == self.start:
            # Every other state of the automaton leads to an end. The start may lead to none if there is no content.
            return bool(self.content.found)
        return self.content.alive(state, count)


class TextContext(StringContext):
    """A string value."""

    @cached_property
    def unbounded(self) -> TextContext:
        """The strings without the bounds on their length."""
        return TextContext(("unbounded", *self.parts), Content(self.content.automaton))


class NameContext(StringContext):
    """The names of members that may come next in an open object.

    Attributes:
        frame: the object.
        layout: of the text within the object.
        keys: the key automaton of the object.
        mask: the keys that may come, as bits of the key automaton's labels.
        below: per state of the key automaton the keys that the state can become.
        plain: whether no patterns and no ``propertyNames`` distinguish the names.
        outside: the first of the states in which the beginning of a name that the schema mentions has been read.
        others: whether names that the schema does not mention may come.
        is_free: whether any characters may come between two characters.
    """

    def __init__(
        self, parts: tuple[object, ...], frame: ObjectFrame, layout: Layout, mask: int, content: Content
    ) -> None:
        keys = frame.plan.keys
        super().__init__(parts, content)
        self.frame = frame
        self.layout = layout
        self.keys = keys
        self.mask = mask
        self.below = keys.below
        self.tracks = bool(frame.tracked)
        self.plain = not keys.is_slow
        self.outside = keys.base if self.plain else len(keys.below)
        self.others = bool(mask & keys.other_bits)
        if self.plain:
            # Any other name may be written with every escape; mentioned names of plain characters need none.
            self.escapes = True if self.others else False if keys.plain_names else None
        self.is_listed = self.plain and not self.others
        self.is_free = self.plain and self.others and keys.plain_names
        self.scarce = self._can_run_out()

    def alive(self, state: int, count: int) -> bool:
        """Whether the unfinished name can become a name that may come next."""
        return state >= 0 and bool(self.below[state] & self.mask)

    def _can_run_out(self) -> bool:
        if not self.tracks or (self.plain and self.others):
            return False
        left = self._undeclared_left
        return bool(((left > 0) & (left < np.inf)).any())

    def can_run_out_from(self, state: int) -> bool:
        """Whether only finitely many names that may come once can still be written after a state, but some."""
        return not (self.plain and self.others) and bool(0 < self._undeclared_left[state] < np.inf)

    @cached_property
    def _undeclared_left(self) -> NDArray[np.float64]:
        """``[states]``: how many names that the schema does not declare can still be written.

        Declared names come in their order, so a declared name that may come next has not come before.
        """
        declares = self.frame.plan.declares
        others = sum([bit for label, bit in self.keys.bit.items() if bit & self.mask and not declares(label)])
        return self.keys.left(others)

    @cached_property
    def most_needed(self) -> int:
        """An upper bound on the number of members that the object needs in addition to the required ones."""
        return most_needed(self.frame)

    def living(self) -> NDArray[np.bool_]:
        """``[states]``: where :meth:`alive` holds."""
        mask = self.mask
        return np.array([bits & mask != 0 for bits in self.below], dtype=bool)
