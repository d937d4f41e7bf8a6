"""Completions before a value: the shortest values of each type, remembered by the constraint on the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from logitloom.automata import check_deadline
from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    ENTRY,
    MOST_WRITTEN,
    Jump,
    Taken,
    Texts,
    merge,
)
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
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import encodable

__all__ = ["colon_jumps", "contents_of", "other_values", "short_values", "value_jumps", "values_in_order"]

_LITERALS: Final = ("null", "false", "true")
_BRACKETS: Final = (("object", b"{"), ("array", b"["))
#: Bytes of an empty object or array: an object or array is no shorter.
_SHORTEST_CONTAINER: Final = 2
#: The most objects or arrays that are listed, the greatest depth of the values in which they differ, and the most
#: members in which they differ.
_MOST_LISTED: Final = 64
_DEPTH: Final = 2
_MOST_VARIED: Final = 8


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
    values, contents, kinds = texts.values, texts.contents, texts.values.kinds(demand)
    wanted = frozenset([()]) if not demand.extras else values.answers(demand)

    def add(more: Texts) -> None:
        merge(found, {truth: text for truth, text in more.items() if truth in wanted and len(text) < MOST_WRITTEN})

    for kind in _LITERALS:
        formulas = values.of_type(demand, kind) if kind in kinds else ()
        if formulas:
            add({tuple(extra is True for extra in formulas[1:]): kind.encode()})
    shortest = _shortest_listed(values.of_type(demand, "string"))
    if shortest is not None:
        add({(): b'"%b"' % contents.escaped(shortest)})
    for content, quoted in contents_of(texts, demand, numbers_alone=shortest is not None):
        inside = contents.texts(content, content.automaton.start, 0, content.found)
        add({truth: b'"%b"' % contents.escaped(text) for truth, text in inside.items()} if quoted else inside)
    for kind, bracket in _BRACKETS:
        formulas = values.of_type(demand, kind) if kind in kinds else ()
        # For a truth vector that a value of two bytes or fewer has, no object or array is shorter.
        missing = frozenset([truth for truth in wanted if len(found.get(truth, b"...")) > _SHORTEST_CONTAINER])
        if formulas and missing:
            frame = values.opened(kind, formulas, missing)
            if values.lives(frame):
                # Schemas may be nested more deeply than calls, so the values within are asked for first.
                for within in _demands_within(texts, frame):
                    yield values.first_alike(within)
                rests = texts.of(state_in(frame, "open", COMPACT), missing)
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
    """The shortest string in the lists of allowed values; ``None`` if the formulas demand anything else.

    A list, such as the value of ``const``, needs no automaton.
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
    """For each truth vector a short value that is not among the given items."""
    taken, found = frozenset(items), Texts()
    for truth, text, value in values_in_order(texts, demand, 1 << len(items).bit_length()):
        if value not in taken and truth not in found:
            found[truth] = text
            if not demand.extras:
                # There is one truth vector.
                break
    return found


def values_in_order(
    texts: LocalTexts, demand: ValueConstraint, tries: int, depth: int = _DEPTH
) -> Iterator[tuple[TruthVector, bytes, Canonical]]:
    """Short values with their truth vectors: the shortest per vector, literals, ``tries`` strings and numbers, others.

    Objects and arrays differ in one member or item, which may be an object or array down to a depth. The list of these
    objects and arrays is always the same, so the first unused value stays the first until it is used.
    """
    for truth, text in short_values(texts, demand).items():
        yield truth, text, canonical(text)
    for kind in _LITERALS:
        formulas = texts.values.of_type(demand, kind)
        if formulas:
            yield tuple([extra is True for extra in formulas[1:]]), kind.encode(), kind.encode()
    for content, quoted in contents_of(texts, demand):
        yield from texts.contents.short_values(content, quoted, tries)
    for kind, _ in _BRACKETS if depth and not demand.extras else ():
        formulas = texts.values.of_type(demand, kind)
        frame = texts.values.opened(kind, formulas, frozenset([()])) if formulas else None
        if frame is not None and frame.only_hard and texts.values.lives(frame):
            known = texts.memory.varied.get((frame, depth))
            if known is None:
                texts.memory.values.check_time()
                every = sorted(_varied(texts, frame, depth - 1), key=lambda text: (len(text), text.translate(ORDER)))
                known = [(text, canonical(text)) for text in every[:_MOST_LISTED]]
                texts.memory.varied[frame, depth] = known
                texts.memory.remembered += ENTRY + sum(map(len, every))
            yield from [((), text, value) for text, value in known]


def _others(texts: LocalTexts, demand: ValueConstraint, depth: int) -> list[bytes]:
    return [*dict.fromkeys([text for _, text, _ in values_in_order(texts, demand, _MOST_LISTED, depth)])]


def _varied(texts: LocalTexts, frame: Frame, depth: int) -> list[bytes]:
    """Short objects that differ in one member, or short arrays."""
    if isinstance(frame, ArrayFrame):
        return _arrays(texts, frame, depth)
    plan, values, found = frame.plan, dict[str, bytes](), dict[bytes, None]()
    for name in plan.required_names(frame.position, frame.missing):
        text = short_values(texts, ValueConstraint(plan.hard_child(("name", name)))).get(())
        if text is None or plan.counts:
            return []
        values[name] = text
    names = [(texts.contents.name(plan.keys, plan.keys.automaton.start, label, frozenset()), label)
             for label in plan.keys.bit if not plan.counts]  # fmt: skip
    named = [(name.decode(), ValueConstraint(plan.hard_child(label))) for name, label in names if name is not None]
    # Members that lengthen the object least come first.
    named.sort(key=lambda each: 0 if each[0] in values else 1 + len(each[0]))
    for name, child in [each for each in named[:_MOST_VARIED] if texts.values.possible(each[1])]:
        order = sorted({*values, name}, key=lambda name: (plan.index.get(name, len(plan.names)), name))
        for text in _others(texts, child, depth):
            members = {**values, name: text}
            parts = [b'"%b":%b' % (texts.contents.escaped(each.encode()), members[each]) for each in order]
            found[b"{%b}" % b",".join(parts)] = None
    return [*found]


def _arrays(texts: LocalTexts, frame: ArrayFrame, depth: int) -> list[bytes]:
    """Short arrays that differ in the last required item, or in the first item if no item is required."""
    begun, one = list[bytes](), item(frame)
    while one is not None and len(begun) + 1 < frame.plan.least < _MOST_VARIED:
        text, after = short_values(texts, one.demand).get(()), one.after(texts.values, ())
        if text is None or after is None or frame.plan.distinct:
            return []
        begun.append(text)
        one = item(after)
    if one is None or frame.plan.least >= _MOST_VARIED:
        return []
    return [b"[%b]" % b",".join([*begun, text]) for text in _others(texts, one.demand, depth)]
