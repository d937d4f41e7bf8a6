"""Completions before a value: the shortest values of each type, remembered by the constraint on the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from logitloom.automata import check_deadline
from logitloom_plugins.json_schema.folds.completion.completion_memory import MOST_WRITTEN, Jump, Taken, Texts, merge
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts, leading_on
from logitloom_plugins.json_schema.folds.completion.short_contents import ORDER, Canonical, canonical
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.layout import COMPACT, settled
from logitloom_plugins.json_schema.grammar.least_solution import Inquiry
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectMember
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import ColonState, State, ValueState, state_in
from logitloom_plugins.json_schema.schema.formula import Formula, only_listed
from logitloom_plugins.json_schema.values.moore_machine import encodable
from logitloom_plugins.json_schema.values.strings import Content

__all__ = ["colon_jumps", "contents_of", "other_values", "short_values", "value_jumps", "values_in_order"]

_LITERALS: Final = ("null", "false", "true")
_BRACKETS: Final = (("object", b"{"), ("array", b"["))
#: Bytes of an empty object or array: an object or array is no shorter.
_SHORTEST_CONTAINER: Final = 2


def value_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps over a value to come, which is none of the items that must not come again."""
    assert isinstance(state, ValueState)
    back, demand = state.back, state.demand
    if not taken.items:
        return leading_on(back, short_values(texts, demand), taken)
    return [
        Jump(text, back.states[truth], taken._replace(items=(*taken.items, canonical(text))))
        for truth, text in other_values(texts, demand, taken.items).items()
        if truth in back.states
    ]


def colon_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps over the colon after a name and a value to come."""
    assert isinstance(state, ColonState)
    layout = settled(state.layout)
    member = objects.member(texts.values, state.frame, state.label)
    assert member is not None
    value = ValueState(member.demand, texts.grammar.after_member(member, layout), layout, "colon")
    return [jump._replace(text=b":" + jump.text) for jump in value_jumps(texts, value, taken)]


def short_values(texts: LocalTexts, demand: ValueConstraint) -> Texts:
    """By truth vector a short value. An object or array is written only where no shorter value of another type is.

    Values of :data:`.MOST_WRITTEN` bytes and more are left out: where each object holds two of the next kind, the
    shortest value has exponential length.
    """
    return texts.memory.value(texts.values.first_alike(demand), partial(_find, texts))


def _find(texts: LocalTexts, demand: ValueConstraint, before: Texts | None) -> Inquiry[tuple[Texts, bool]]:
    check_deadline("the short values of the schema")
    found = texts.memory.values.found[demand] = dict(before or {})
    values, contents = texts.values, texts.contents
    wanted = frozenset([()]) if not demand.extras else values.answers(demand)

    def add(more: Texts) -> None:
        merge(found, {truth: text for truth, text in more.items() if truth in wanted and len(text) < MOST_WRITTEN})

    for kind in _LITERALS:
        formulas = values.of_type(demand, kind)
        if formulas:
            add({tuple(extra is True for extra in formulas[1:]): kind.encode()})
    shortest = _shortest_listed(values.of_type(demand, "string"))
    if shortest is not None:
        add({(): b'"%b"' % contents.escaped(shortest)})
    for content, quoted in contents_of(texts, demand, numbers_alone=shortest is not None):
        inside = contents.texts(content, content.automaton.start, 0, content.found)
        add({truth: b'"%b"' % contents.escaped(text) for truth, text in inside.items()} if quoted else inside)
    for kind, bracket in _BRACKETS:
        formulas = values.of_type(demand, kind)
        if formulas and not all(len(found.get(truth, b"...")) <= _SHORTEST_CONTAINER for truth in wanted):
            frame = values.opened(kind, formulas, wanted)
            if values.lives(frame):
                # Schemas may be nested more deeply than calls, so the values within are asked for first.
                for within in _demands_within(texts, frame):
                    yield values.first_alike(within)
                rests = texts.of(state_in(frame, "open", COMPACT), wanted)
                add({truth: bracket + rest for truth, rest in rests.items()})
    return found, False


def _demands_within(texts: LocalTexts, frame: Frame) -> Iterator[ValueConstraint]:
    """The constraints on the values with which short texts of an opened object or array may begin."""
    if isinstance(frame, objects.ObjectFrame):
        for name in frame.plan.required_names(frame.position, frame.missing):
            yield ValueConstraint(frame.plan.hard_child(("name", name)))
        if frame.only_hard and not frame.plan.counts:
            return
    if len(frame.wanted) == 1 and texts.values.end(frame) is not None:
        return
    if isinstance(frame, ArrayFrame):
        one = item(frame)
        if one is not None:
            yield one.demand
        return
    asked = objects.asked_names(frame)
    if asked is None:
        members: Iterable[ObjectMember | None] = (each for _, each in objects.next_members(texts.values, frame))
    else:
        members = [objects.member(texts.values, frame, ("name", name)) for name in sorted(asked)]
    for member in members:
        if member is not None:
            yield member.demand


def _shortest_listed(formulas: tuple[Formula, ...]) -> bytes | None:
    """The shortest string of lists that are all that formulas ask for; ``None`` if they ask for anything else.

    Of a list, such as the value of ``const``, no automaton is needed.
    """
    texts = only_listed(formulas[0], "any") if len(formulas) == 1 else None
    encoded = [text.encode() for text in texts or () if encodable(text)]
    return min(encoded, key=lambda text: (len(text), text.translate(ORDER)), default=None)


def contents_of(
    texts: LocalTexts, demand: ValueConstraint, numbers_alone: bool = False
) -> Iterator[tuple[Content, bool]]:
    """The contents of the strings (``True``), unless only numbers are asked for, and of the numbers of a constraint."""
    values = texts.values
    strings = values.of_type(demand, "string")
    if strings and not numbers_alone:
        yield values.content(strings), True
    numbers = values.of_type(demand, "number")
    if numbers:
        yield Content(values.number(numbers)), False


def other_values(texts: LocalTexts, demand: ValueConstraint, items: tuple[Canonical, ...]) -> Texts:
    """By truth vector a short value that is none of some others."""
    taken, found = frozenset(items), Texts()
    for truth, text, value in values_in_order(texts, demand, 1 << len(items).bit_length()):
        if value not in taken and truth not in found:
            found[truth] = text
            if not demand.extras:
                # There is one truth vector.
                break
    return found


def values_in_order(
    texts: LocalTexts, demand: ValueConstraint, tries: int
) -> Iterator[tuple[TruthVector, bytes, Canonical]]:
    """Short values with their truth vectors: the shortest one of each, literals, and ``tries`` strings and numbers."""
    for truth, text in short_values(texts, demand).items():
        yield truth, text, canonical(text)
    for kind in _LITERALS:
        formulas = texts.values.of_type(demand, kind)
        if formulas:
            yield tuple([extra is True for extra in formulas[1:]]), kind.encode(), kind.encode()
    for content, quoted in contents_of(texts, demand):
        yield from texts.contents.short_values(content, quoted, tries)
