"""A compiled schema as a grammar: the moves of each state.

A move says which bytes may be read in a state, which value is entered or left, and where the text goes on.

Every move can be completed, so no text runs into a dead end. A new keyword of JSON Schema becomes formulas
(:mod:`..schema.assertions`) and changes which members and items may come (:mod:`.objects`, :mod:`.arrays`). If the
keyword allows texts of a new form, it also changes states and moves. The questions about texts (:mod:`..folds`) stay
the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from logitloom_plugins.json_schema.grammar import arrays, objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame
from logitloom_plugins.json_schema.grammar.contexts import NameContext, NumberContext, StringContext, TextContext
from logitloom_plugins.json_schema.grammar.keys import Keys
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE, Layout, Whitespace, after_gap, fillings, inside
from logitloom_plugins.json_schema.grammar.members import Member, TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.grammar.satisfiability import Satisfiability
from logitloom_plugins.json_schema.grammar.states import (
    DONE,
    ArrayState,
    ColonState,
    DoneState,
    Enters,
    GapBase,
    GapState,
    Leaves,
    LiteralState,
    Move,
    NumberState,
    ObjectState,
    Reads,
    Return,
    State,
    StructureState,
    TextState,
    ValueState,
    found_layout,
    laid_out,
    state_in,
)
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["BLANKS", "SchemaGrammar", "after_number", "may_end", "moves_between"]

BLANKS: Final = b" \n\t\r"
_BRACKETS: Final = (("object", b"{"), ("array", b"["))
_LITERALS: Final = (("null", b"null"), ("false", b"false"), ("true", b"true"))


Container = TypeVar("Container", ObjectFrame, ArrayFrame)


class SchemaGrammar:
    """A compiled schema: the values from which moves are made.

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
        #: The names of each object as the content of a string.
        self._contents: dict[Keys, Content] = {}
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
            keys = frame.plan.keys
            content = self._contents.get(keys)
            if content is None:
                content = self._contents[keys] = Content(keys.automaton)
            context = NameContext(("name", frame, layout), frame, layout, self.key_mask(frame), content)
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
                chosen = None if frame.tracked else objects.with_last_alternatives(self.values, frame)
                known = self.key_mask(chosen) if chosen is not None and self.values.lives(chosen) else 0
                for label, member in objects.next_members(self.values, frame, known):
                    if self.leads_on(member):
                        known |= plan.keys.bit.get(label, 0)
            self._masks[frame] = known
        return known

    def leads_on(self, member: Member[Satisfiability, Container]) -> bool:
        """Whether some value of a member leaves a container that can be completed."""
        values = self.values
        if member.reached is None and values.may_end_after(member):
            return True
        frames = values.after(member).values()
        return any(map(values.lives, sorted(frames, key=values.effort) if len(frames) > 1 else frames))

    def after_member(self, member: Member[Satisfiability, Container], layout: Layout) -> Return:
        """Where a text goes on after a member of an object or array, if the container can be completed there."""
        after, lives = self.values.after(member), self.values.lives
        return self.returning(
            {truth: state_in(frame, "next", layout) for truth, frame in after.items() if lives(frame)}
        )

    # --- layouts ---------------------------------------------------------------------------------------------------

    def relaid_return(self, back: Return, layout: Layout) -> Return:
        """A return in a text whose layout has been found: each state of the return gets this layout."""
        found = found_layout(layout)
        if not found:
            return back
        states = {truth: laid_out(state, found) for truth, state in back.states.items()}
        return back if states == back.states else self.returning(states)


def moves_between(grammar: SchemaGrammar, state: StructureState) -> Iterator[Move]:
    """The moves of a state outside strings."""
    if isinstance(state, ObjectState):
        return _of_object(grammar, state)
    if isinstance(state, ValueState):
        return _of_value(grammar, state)
    if isinstance(state, ColonState):
        return _of_colon(grammar, state)
    if isinstance(state, LiteralState):
        rest = state.rest[1:]
        return iter([Reads(state.rest[:1], LiteralState(rest, state.target) if rest else state.target)])
    if isinstance(state, ArrayState):
        return _of_array(grammar, state)
    if isinstance(state, NumberState):
        return _of_number(grammar, state)
    if isinstance(state, GapState):
        return _of_gap(grammar, state)
    return iter(())


# --- whitespace ------------------------------------------------------------------------------------------------------


def _of_gap(grammar: SchemaGrammar, state: GapState) -> Iterator[Move]:
    for move in moves_between(grammar, state.before):
        if not (isinstance(move, Reads) and isinstance(move.target, GapState)):
            yield move
    if state.read < grammar.whitespace.most:
        yield Reads(BLANKS, state._replace(read=state.read + 1))


def _whitespace(
    grammar: SchemaGrammar, state: GapBase, gap: str, member: bool, ends: bool
) -> tuple[list[Move], Layout | None, Layout | None]:
    """The moves over whitespace in a gap, and the layouts after the gap.

    Args:
        grammar: the grammar.
        state: the state in the gap.
        gap: the kind of gap.
        member: whether a member, an item or a value may follow the gap.
        ends: whether a closing bracket may follow the gap.

    Returns:
        The moves; the layout before a member, and the layout before a closing bracket. A layout is ``None`` if more
        whitespace must come first.
    """
    layout = state.layout
    if layout.name == FLEXIBLE:
        some = gap != "none" and grammar.whitespace.most
        return [Reads(BLANKS, GapState(state, 1))] if some else [], layout, layout
    name, depth, read = layout
    moves: list[Move] = []
    after: list[Layout | None] = [None, None]
    for closing, wanted in enumerate((member, ends)):
        for text, following in fillings(layout, gap, bool(closing)) if wanted else ():
            if len(text) > read:
                moves.append(Reads(text[read : read + 1], state._replace(layout=Layout(name, depth, read + 1))))
            elif len(text) == read:
                after[closing] = after_gap(following, depth)
    return moves, after[0], after[1]


# --- values ----------------------------------------------------------------------------------------------------------


def _of_value(grammar: SchemaGrammar, state: ValueState) -> Iterator[Move]:
    moves, layout, _ = _whitespace(grammar, state, state.gap, True, False)
    yield from moves
    if layout is not None:
        yield from _begins_value(grammar, state.demand, grammar.relaid_return(state.back, layout), layout)


def _begins_value(grammar: SchemaGrammar, demand: ValueConstraint, back: Return, layout: Layout) -> Iterator[Move]:
    """The moves that begin a value."""
    values, states = grammar.values, back.states
    wanted, kinds = frozenset(states), values.kinds(demand)
    for kind, text in _LITERALS:
        formulas = values.of_type(demand, kind) if kind in kinds else ()
        if formulas:
            target = states.get(tuple([extra is True for extra in formulas[1:]]))
            if target is not None:
                yield Reads(text[:1], LiteralState(text[1:], target))
    formulas = values.of_type(demand, "string") if "string" in kinds else ()
    if formulas:
        strings = grammar.text_context(formulas, wanted)
        if strings.alive(strings.start, 0):
            yield Enters(b'"', back, TextState(strings, strings.start, 0))
    formulas = values.of_type(demand, "number") if "number" in kinds else ()
    if formulas:
        numbers = grammar.number_context(formulas, wanted)
        for content_state, read in numbers.automaton.steps(numbers.automaton.start):
            yield Reads(read, NumberState(numbers, content_state, back))
    for kind, bracket in _BRACKETS:
        formulas = values.of_type(demand, kind) if kind in kinds else ()
        if formulas:
            frame = values.opened(kind, formulas, wanted)
            if values.lives(frame):
                yield Enters(bracket, back, state_in(frame, "open", inside(layout)))


def after_number(state: NumberState) -> State | None:
    """The state after a number that ends here; ``None`` if no number does."""
    label = state.numbers.automaton.outputs[state.content_state]
    return None if label is None else state.back.states.get(label)


def may_end(state: State) -> bool:
    """Whether the whole text may end in a state."""
    return isinstance(after_number(state) if isinstance(state, NumberState) else state, DoneState)


def _of_number(grammar: SchemaGrammar, state: NumberState) -> Iterator[Move]:
    following = after_number(state)
    if following is not None:
        assert isinstance(following, StructureState)
        yield from moves_between(grammar, following)
    for content_state, read in state.numbers.automaton.steps(state.content_state):
        yield Reads(read, state._replace(content_state=content_state))


# --- objects and arrays ----------------------------------------------------------------------------------------------


def _of_object(grammar: SchemaGrammar, state: ObjectState) -> Iterator[Move]:
    frame, phase = state.frame, state.phase
    truth = objects.end_object(frame) if phase != "comma" else None
    mask = grammar.key_mask(frame)
    gap = "close" if phase == "next" else phase
    moves, layout, closed = _whitespace(grammar, state, gap, mask != 0, truth is not None)
    yield from moves
    if truth is not None and closed is not None:
        yield Leaves(b"}", truth, found_layout(closed))
    if mask and layout is not None:
        if phase == "next":
            yield Reads(b",", ObjectState(frame, "comma", layout))
        else:
            names = grammar.name_context(frame, layout)
            yield Reads(b'"', TextState(names, names.start, 0))


def _of_colon(grammar: SchemaGrammar, state: ColonState) -> Iterator[Move]:
    moves, layout, _ = _whitespace(grammar, state, "close", True, False)
    yield from moves
    if layout is not None:
        member = objects.member(grammar.values, state.frame, state.label)
        assert member is not None
        yield Reads(b":", ValueState(member.demand, grammar.after_member(member, layout), layout, "colon"))


def _of_array(grammar: SchemaGrammar, state: ArrayState) -> Iterator[Move]:
    frame, phase = state.frame, state.phase
    truth, member = arrays.end_array(frame), arrays.item(frame)
    leads_on = member is not None and grammar.leads_on(member)
    gap = "open" if phase == "open" else "close"
    moves, layout, closed = _whitespace(grammar, state, gap, leads_on, truth is not None)
    yield from moves
    if truth is not None and closed is not None:
        yield Leaves(b"]", truth, found_layout(closed))
    if member is None or not leads_on or layout is None:
        return
    back = grammar.after_member(member, layout)
    if phase == "open":
        yield from _begins_value(grammar, member.demand, back, layout)
    else:
        yield Reads(b",", ValueState(member.demand, back, layout, "comma"))
