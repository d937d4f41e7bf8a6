"""A compiled schema as a grammar: which states a text goes through, as plain values."""

from __future__ import annotations

from typing import Final, TypeVar

from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.contexts import NameContext, NumberContext, StringContext, TextContext
from logitloom_plugins.json_schema.grammar.layout import COMPACT, Layout, Whitespace, settled
from logitloom_plugins.json_schema.grammar.members import Member, TruthVector
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.grammar.satisfiability import Frame, Satisfiability
from logitloom_plugins.json_schema.grammar.states import (
    DONE,
    ArrayState,
    ColonState,
    GapState,
    ObjectState,
    Return,
    State,
    ValueState,
)
from logitloom_plugins.json_schema.schema.formula import Formula

__all__ = ["SchemaGrammar", "compacted", "found_layout", "laid_out", "state_in", "without_gap"]

#: Layouts that are found in a text that was begun in another layout: by the first comma or colon in the text.
_FOUND: Final = frozenset(("compact", "spaced"))

Container = TypeVar("Container", ObjectFrame, ArrayFrame)


class SchemaGrammar:
    """What a schema was compiled to: everything that moves from state to state depend on.

    Args:
        values: which values satisfy the schema.
        whitespace: where whitespace may stand.
        escapes: how characters of strings may be written: ``any``, ``minimal`` or ``ascii``.
    """

    def __init__(self, values: Satisfiability, whitespace: Whitespace, escapes: str) -> None:
        self.values = values
        self.whitespace = whitespace
        self.escapes = escapes
        self._masks: dict[ObjectFrame, int] = {}
        self._texts: dict[tuple[tuple[Formula, ...], frozenset[TruthVector]], TextContext] = {}
        self._names: dict[tuple[ObjectFrame, Layout], NameContext] = {}
        self._numbers: dict[tuple[tuple[Formula, ...], frozenset[TruthVector]], NumberContext] = {}
        self._returns: dict[tuple[tuple[TruthVector, State], ...], Return] = {}

    def start(self) -> State:
        """The state before the whole value."""
        return ValueState(self.values.root, self.returning({(): DONE}), self.whitespace.start, "none")

    # --- parts of states -------------------------------------------------------------------------------------------

    def text_context(self, formulas: tuple[Formula, ...], wanted: frozenset[TruthVector]) -> StringContext:
        """The strings for which formulas have one of some truth vectors."""
        asked = formulas, wanted
        context = self._texts.get(asked)
        if context is None:
            content = self.values.content(formulas)
            if content.found - wanted:
                content = content.restricted(lambda label: label in wanted)
            context = self._texts[asked] = TextContext(("string", formulas, wanted), content)
        return context

    def name_context(self, frame: ObjectFrame, layout: Layout) -> NameContext:
        """The names of members that may come next in an open object, in a layout."""
        asked = frame, layout
        context = self._names.get(asked)
        if context is None:
            context = NameContext(("name", frame, layout), frame, layout, self.key_mask(frame))
            self._names[asked] = context
        return context

    def number_context(self, formulas: tuple[Formula, ...], wanted: frozenset[TruthVector]) -> NumberContext:
        """The numbers for which formulas have one of some truth vectors."""
        every = self.values.number(formulas)
        asked = formulas, wanted & every.found
        context = self._numbers.get(asked)
        if context is None:
            automaton = every.restricted(lambda label: label in wanted) if every.found - wanted else every
            context = self._numbers[asked] = NumberContext(("number", *asked), automaton)
        return context

    def returning(self, states: dict[TruthVector, State]) -> Return:
        """The return with one state for each of some truth vectors."""
        key = tuple(sorted(states.items(), key=lambda each: each[0])) if len(states) > 1 else tuple(states.items())
        known = self._returns.get(key)
        if known is None:
            known = self._returns[key] = Return(("return", *key), dict(key))
        return known

    # --- members ---------------------------------------------------------------------------------------------------

    def key_mask(self, frame: ObjectFrame) -> int:
        """The keys that may come next, as bits of the key automaton's labels."""
        known = self._masks.get(frame)
        if known is None:
            plan = frame.plan
            if frame.only_hard and not frame.tracked and not plan.counts:
                known = plan.next_keys(self.values, frame.position)
            else:
                known = 0
                for label, member in objects.next_members(self.values, frame):
                    if self.leads_on(member):
                        known |= plan.keys.bit.get(label, 0)
            self._masks[frame] = known
        return known

    def leads_on(self, member: Member[Satisfiability, Container]) -> bool:
        """Whether some value of a member leaves a container that can be completed."""
        return any(self.values.lives(frame) for _, frame in self.values.after(member))

    def after_member(self, member: Member[Satisfiability, Container], layout: Layout) -> Return:
        """Where a text goes on after a member of an object or array, if the container can be completed there."""
        after, lives = self.values.after(member), self.values.lives
        return self.returning({truth: state_in(frame, "next", layout) for truth, frame in after if lives(frame)})

    # --- layouts ---------------------------------------------------------------------------------------------------

    def relaid_return(self, back: Return, layout: Layout) -> Return:
        """The same return in a text whose layout has been found."""
        found = found_layout(layout)
        if not found:
            return back
        states = {truth: laid_out(state, found) for truth, state in back.states.items()}
        return back if states == back.states else self.returning(states)


def found_layout(layout: Layout) -> str:
    """The name of a layout that a comma or colon decides; empty for others."""
    return layout.name if layout.name in _FOUND else ""


def laid_out(state: State, layout: str) -> State:
    """A state after a value in which the layout of the text was found."""
    if isinstance(state, ObjectState | ArrayState) and state.layout.name == "flat":
        return state._replace(layout=state.layout._replace(name=layout))
    return state


def compacted(state: State) -> State:
    """The state in a text without whitespace, if a value begins there or has just begun."""
    return state._replace(layout=COMPACT) if isinstance(state, ValueState | ObjectState | ArrayState) else state


def without_gap(state: State) -> State:
    """The state without whitespace that may be left out, in the layout with which a short completion goes on."""
    if isinstance(state, GapState):
        state = state.before
    if isinstance(state, ValueState | ObjectState | ColonState | ArrayState):
        layout = settled(state.layout)
        return state if layout is state.layout else state._replace(layout=layout)
    return state


def state_in(frame: Frame, phase: str, layout: Layout) -> ObjectState | ArrayState:
    """The state in an open object or array."""
    if isinstance(frame, ObjectFrame):
        return ObjectState(frame, phase, layout)
    return ArrayState(frame, phase, layout)
