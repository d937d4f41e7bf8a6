"""The moves of a state: what may be read there, what is entered or left by it, and where a text goes on.

Every move can be completed, so no text runs into a dead end. A keyword of JSON Schema that allows other texts changes
the states and the moves, and no question about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logitloom_plugins.json_schema.grammar import arrays, objects
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE, Layout, after_gap, fillings, inside
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.schema_grammar import SchemaGrammar, found_layout, state_in
from logitloom_plugins.json_schema.grammar.states import (
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
)

__all__ = ["BLANKS", "after_number", "may_end", "moves_between"]

BLANKS: Final = b" \n\t\r"
_BRACKETS: Final = (("object", b"{"), ("array", b"["))
_LITERALS: Final = (("null", b"null"), ("false", b"false"), ("true", b"true"))


def moves_between(grammar: SchemaGrammar, state: StructureState) -> Iterator[Move]:
    """The moves of a state outside strings."""
    if isinstance(state, ObjectState):
        return _of_object(grammar, state)
    if isinstance(state, ValueState):
        return _of_value(grammar, state)
    if isinstance(state, ArrayState):
        return _of_array(grammar, state)
    if isinstance(state, ColonState):
        return _of_colon(grammar, state)
    if isinstance(state, NumberState):
        return _of_number(grammar, state)
    if isinstance(state, GapState):
        return _of_gap(grammar, state)
    if isinstance(state, LiteralState):
        rest = state.rest[1:]
        return iter([Reads(state.rest[:1], LiteralState(rest, state.target) if rest else state.target)])
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
    """The moves over whitespace that may come; the layouts after it before a member, and before a closing bracket.

    Either layout is ``None`` if the gap must go on. The last two arguments tell which of the two may come at all.
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
        for content_state, read in numbers.steps(numbers.automaton.start):
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
    for content_state, read in state.numbers.steps(state.content_state):
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
