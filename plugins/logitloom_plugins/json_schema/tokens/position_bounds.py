"""How far any token leads away from the end of a text, from bounds of the parts in which a position stands.

A completion is counted part by part: the rest of each open object and array, and the values that one token can begin in
it. The bound of a part is the number of tokens of its worst end. So the sum of the bounds of the parts is a bound for
the whole completion. The bound of a part holds wherever the part stands.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, NamedTuple

from logitloom import Vocabulary
from logitloom.automata import check_deadline
from logitloom.constraints import UNKNOWN
from logitloom.errors import BudgetExceeded
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.layout import Layout
from logitloom_plugins.json_schema.grammar.least_solution import TakesLong
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import (
    ColonState,
    DoneState,
    EscapeState,
    GapState,
    LiteralState,
    NumberState,
    ObjectState,
    Return,
    Stack,
    State,
    TextState,
    ValueState,
)
from logitloom_plugins.json_schema.tokens.written_at_once import SURROGATES, Brackets, opened_at_once, rest_of_escapes
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["MOST_TARGETS", "NO_BOUND", "Allowance", "Bound", "PositionBounds", "place"]

#: The most entries of the memory.
_MOST_REMEMBERED: Final = 1 << 14
#: The most states after a value, one for each truth vector, that are all examined.
MOST_TARGETS: Final = 64
#: The number of parts of a bound that are found for one mask however long that takes, and the processor time, in
#: seconds, after which no more parts are found.
_FEW_FOUND: Final = 32
_MOST_SECONDS: Final = 0.01
#: After so many masks that have given up the time doubles: a single search may take longer.
_TRIES: Final = 16
#: All keys of an object, as bits.
_ANY: Final = -1


class Bound(NamedTuple):
    """An upper bound on tokens.

    Attributes:
        rest: the tokens that end the open objects, arrays and strings.
        added: the tokens that end the values which one token begins in the open objects and arrays.
        looked_at: the number of members that were examined.
    """

    rest: int
    added: int
    looked_at: int = 1


NO_BOUND: Final = Bound(UNKNOWN, UNKNOWN)


class Allowance:
    """How many unknown parts of a bound are found for one mask.

    Args:
        stop_at: a function that lets the searches for short texts stop at some processor time, too.
    """

    def __init__(self, stop_at: Callable[[float], None]) -> None:
        self._stop_at = stop_at
        #: How many more parts are found before :meth:`soon` gives up, and the processor time from which on it does.
        self._left = self._deadline = math.inf
        #: How many masks in succession have given up.
        self._given_up = 0

    def soon(self, find: Callable[[], int]) -> int:
        """A bound, or :data:`UNKNOWN` if many parts of it are not known. Each time more of them are found."""
        seconds = _MOST_SECONDS * 2 ** (self._given_up // _TRIES)
        self._left, self._deadline = _FEW_FOUND, time.thread_time() + seconds
        self._stop_at(self._deadline)
        try:
            found = find()
        except TakesLong:
            self._given_up += 1
            return UNKNOWN
        finally:
            self._left = math.inf
            self._stop_at(math.inf)
        self._given_up = 0
        return found

    def count(self, parts: int = 1) -> None:
        """Count an unknown part of a bound, as one part or several.

        Raises:
            TakesLong: if :meth:`soon` gives up.
        """
        self._left -= parts
        if self._left < 0 and time.thread_time() > self._deadline:
            raise TakesLong


class PositionBounds(ABC):
    """The bounds of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.
        vocabulary: the tokens.
        allowance: counts the parts that are found.
        farthest_end: a function of a text: the most tokens that any end of the text takes.
    """

    def __init__(
        self, machine: Machine, vocabulary: Vocabulary, allowance: Allowance, farthest_end: Callable[[bytes], int]
    ) -> None:
        self._machine, self._allowance, self._farthest_end = machine, allowance, farthest_end
        self._gaps = _gap_tokens(vocabulary)
        self._opened, self._escape = opened_at_once(vocabulary), rest_of_escapes(vocabulary)
        self._known: dict[Hashable, Bound] = {}

    # --- bounds of parts ----------------------------------------------------------------------------------------

    @abstractmethod
    def of_frame(self, frame: Frame, layout: Layout, opened: Brackets, items: int, names: int = 0) -> Bound:
        """The bound of an open object or array.

        Args:
            frame: the object or array.
            layout: of its members.
            opened: the brackets that a token may open in it.
            items: a lower bound on the number of items so far, or of names that must not come again.
            names: the keys of an object, as bits, of whose names a token may write more than the opening quote.
        """

    @abstractmethod
    def rest(self, frame: Frame, layout: Layout, items: int) -> Bound:
        """The tokens that end an object or array; of different items no more than the brackets is told."""

    @abstractmethod
    def written(self, before: bytes, demand: ValueConstraint, layout: Layout) -> int:
        """The most tokens that write an end of a text and a short value after the text, whitespace included.

        The text ends with a whole piece: a bracket, a comma, a colon, or a name and its colon.
        """

    @abstractmethod
    def _find_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> Bound: ...

    @abstractmethod
    def _find_content(self, content: Content, quoted: bool) -> int: ...

    def of_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> Bound:
        """The tokens that end a value which a token begins, if the token opens only brackets of ``opened`` in it."""
        alike = self._machine.values.first_alike(demand)
        return self._recalled(("value", alike, layout, opened), lambda: self._find_value(alike, layout, opened))

    def of_content(self, content: Content, quoted: bool) -> int:
        """The tokens that end a string or a number, from any state on."""
        key = "content", content.automaton, tuple(content.points), tuple(map(frozenset, content.at)), quoted
        return self._recalled(key, lambda: Bound(0, self._find_content(content, quoted))).added

    def _gap(self, lines: int) -> int:
        """The most tokens of the whitespace of a gap at a depth, or of a space."""
        if lines not in self._gaps:
            fillings = [b"\n" + b" " * (2 * depth) for depth in range(2 * lines + 1)]
            self._gaps[lines] = max(1, *map(self._farthest_end, fillings))
        return self._gaps[lines]

    # --- positions ----------------------------------------------------------------------------------------------

    def after_any(self, position: Position) -> int:
        """An upper bound on the tokens that are needed after any token that may come at a position."""
        items = self._items(position)
        state, stack = position.state, position.stack
        found = self._recalled(("state", state, items), lambda: self._of_state(self._machine.states[state], items))
        below = self._recalled(("stack", stack, items), lambda: self._of_stack(stack, items))
        return min(found.rest + below.rest + max(found.added, below.added), UNKNOWN)

    def _items(self, position: Position) -> int:
        """No fewer than the items, or the names, that have come and must not come again in one array or object."""
        frame, items = position.items.frame, 0
        while frame is not None:
            items += 0 if frame.entry.done is None else frame.entry.done.length
            frame = frame.before
        if self._machine.numbering.tracked and position.stack is not None:
            items = max([items, *[len(entry.names) for entry in position.stack.entries()]])
        # The number is rounded up to a power of two, so that bounds are found for few numbers.
        return items and 1 << items.bit_length()

    def _recalled(self, key: Hashable, find: Callable[[], Bound]) -> Bound:
        found = self._known.get(key)
        if found is None:
            self._allowance.count()
            try:
                found = find()
            except BudgetExceeded:
                check_deadline("how far tokens lead in the schema")
                found = NO_BOUND
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _of_stack(self, stack: Stack, items: int) -> Bound:
        """The bound of the objects and arrays that are open around the innermost string, object or array."""
        rest, added = 0, 0
        entries = [] if stack is None else [entry.back for entry in stack.entries()]
        for back in entries:
            each = self._recalled(("return", back, items), partial(self._of_return, back, items))
            rest, added = rest + each.rest, max(added, each.added)
        return Bound(rest, added)

    def _of_return(self, back: Return, items: int) -> Bound:
        if len(back.states) > MOST_TARGETS:
            return NO_BOUND
        return largest(self._of_state(target, items, within=False) for target in back.states.values())

    def _of_state(self, state: State, items: int, within: bool = True) -> Bound:
        """The bound of a state within its innermost string, object or array.

        Args:
            state: the state.
            items: as in :meth:`of_frame`.
            within: whether a token may begin in the state. In a state around a value it begins within the value.
        """
        if isinstance(state, DoneState):
            return Bound(0, 0)
        if isinstance(state, GapState):
            return self._of_state(state.before, items, within)
        if isinstance(state, LiteralState):
            target = self._of_state(state.target, items)
            return target._replace(added=max(target.added, len(state.rest)))
        if isinstance(state, NumberState):
            target = self._of_return(state.back, items)
            own = self.of_content(Content(state.numbers.automaton), False)
            return target._replace(added=max(target.added, own))
        if isinstance(state, ValueState):
            target, layout = self._of_return(state.back, items), place(state.layout)
            value = self.of_value(state.demand, layout, self._opened)
            # A token may write a part of the whitespace before the value alone.
            mark = {"none": b"", "colon": b":", "comma": b","}[state.gap]
            whole = self.written(mark, state.demand, layout) if mark else 0
            return target._replace(added=max(target.added, value.added, whole))
        if isinstance(state, TextState | EscapeState):
            escape = SURROGATES if isinstance(state, EscapeState) else 0
            if not isinstance(state.context, NameContext):
                return Bound(0, escape + self.of_content(state.context.content, True))
            frame, layout = state.context.frame, state.context.layout
            may_come = state.context.mask & state.context.below[state.content_state]
            found = self.of_frame(frame, place(layout), self._opened, items, may_come)
            return found._replace(added=found.added + escape)
        if isinstance(state, ColonState):
            label = state.frame.plan.keys.bit[state.label]
            return self.of_frame(state.frame, place(state.layout), self._opened, items, label)
        if not isinstance(state, ObjectState):
            return self.of_frame(state.frame, place(state.layout), self._opened, items)
        names = _ANY if within and state.phase != "next" else 0
        return self.of_frame(state.frame, place(state.layout), self._opened, items, names)


def largest(bounds: Iterable[Bound]) -> Bound:
    """The larger numbers of several bounds."""
    found = [*bounds]
    return Bound(max(each.rest for each in found), max(each.added for each in found))


def place(layout: Layout) -> Layout:
    """A layout without the whitespace that was read, and with depth 0 if the depth makes no difference."""
    return Layout(layout.name, layout.depth if layout.name != "flat" else 0)


@kept_with_vocabulary
def _gap_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    """By depth the most tokens of a gap, as far as they were asked for."""
    return {}
