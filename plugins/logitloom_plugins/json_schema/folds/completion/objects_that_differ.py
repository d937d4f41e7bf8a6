"""How many bytes a search takes to end an object so that it differs from other objects."""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from logitloom_plugins.json_schema.folds.completion.content_texts import is_plain
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import is_simple, required_members
from logitloom_plugins.json_schema.folds.completion.short_contents import longest_path
from logitloom_plugins.json_schema.folds.completion.strings_that_differ import TRIED, most_to_differ
from logitloom_plugins.json_schema.folds.completion.value_texts import contents_of, short_values
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["most_to_end_differently"]

#: The bytes of an escaped byte, and of the rest of an escape with two surrogates and a quote.
_ESCAPED: Final = 6
_REST_OF_ESCAPE: Final = 12
#: The brackets of an object, and what stands around the name of a member beside its value.
_BRACKETS, _AROUND_NAME = len("{}"), len(',"":')
#: How many letters the search tries at a place of a name.
_LETTERS: Final = 26
#: Strings of any characters whose lengths differ by so much are many.
_MANY: Final = 8
#: How deeply objects and arrays are looked at. Those below may need nothing but their brackets, which are counted where
#: they are open.
_DEPTH: Final = 3


def most_to_end_differently(texts: LocalTexts, frame: ObjectFrame, taken: int) -> int | None:
    """The most bytes, without whitespace, that end an object that has begun so that it differs from some others.

    Some object with these bytes is always found: one more member with a free name can come, or the last declared
    member, whose value is free, is written to the end with bytes that the search tries. ``None`` for other objects.

    Args:
        texts: the short texts of states.
        frame: the object before its first member.
        taken: the number of the other objects.
    """
    size = _most_to_end(texts, frame, _DEPTH)
    if size is None or not isinstance(frame, ObjectFrame):
        return None
    plan = frame.plan
    others = plan.undeclared(plan.keys.others)
    if others and not plan.keys.is_slow and plan.keys.plain_names:
        names = taken + len(plan.names)
        letters = next(count for count in range(1, 64) if _LETTERS**count > names)
        values = short_values(texts, ValueConstraint(plan.hard_child(others[0]))).values()
        return size + _AROUND_NAME + letters + max(map(len, values)) if values else None
    if others or not plan.names:
        return None
    last = plan.names[-1]
    written = json.dumps(last, ensure_ascii=False).encode()
    if len(plan.names) - 1 not in plan.required and not {*written} <= {*TRIED}:
        return None
    differ = _most_to_differ(texts, ValueConstraint(plan.hard_child(("name", last))), taken)
    return None if differ is None else size + _AROUND_NAME + len(written) + differ


def _most_to_differ(texts: LocalTexts, demand: ValueConstraint, taken: int) -> int | None:
    """The most bytes that the search adds to a string or number so that it differs; ``None`` if all values are few."""
    most: int | None = None
    for content, quoted in contents_of(texts, demand):
        following = content.automaton.next
        loops = (following == np.arange(len(following))[:, None]).any() or longest_path(following) is None
        is_long = content.most is None or content.most >= content.least + _MANY
        if not loops or (content.counts and not (content.free and is_long)):
            return None
        # Each turn of a loop of a number makes one more number.
        added = most_to_differ(content, taken) if quoted else (content.automaton.states + 1) * taken
        if added is None:
            return None
        most = max(most or 0, added + _REST_OF_ESCAPE)
    return most


def _most_to_end(texts: LocalTexts, frame: Frame, depth: int) -> int | None:
    """The most bytes that end an object or array after any byte; ``None`` if they are not known."""
    if isinstance(frame, ArrayFrame):
        return _of_array(texts, frame, depth)
    if not is_simple(frame) or frame.tracked or frame.plan.keys.is_slow:
        return None
    plan, size, begun = frame.plan, _BRACKETS, 0
    required = required_members(texts, frame)
    if required is None or not depth:
        return None if required is None or required else size
    longest = plan.keys.automaton.farthest + plan.keys.automaton.farthest_between
    for label in plan.keys.bit:
        demand = ValueConstraint(plan.hard_child(label))
        if not texts.values.possible(demand):
            continue
        value = _most_to_end_value(texts, demand, depth - 1)
        if value is None:
            return None
        begun = max(begun, _AROUND_NAME + _size_of_name(label, longest) + value)
    return size + sum(len(text) + 1 for text in required) + begun


def _size_of_name(label: Label, longest: int) -> int:
    name = len(json.dumps(label[1], ensure_ascii=False).encode()) if label[0] == "name" else 0
    return max(name, _ESCAPED * longest) + _REST_OF_ESCAPE


def _of_array(texts: LocalTexts, frame: ArrayFrame, depth: int) -> int | None:
    if not frame.only_hard or frame.plan.distinct or not depth:
        return None if not frame.only_hard or frame.plan.distinct or frame.plan.least else _BRACKETS
    longest = begun = 0
    for index in range(frame.plan.varied + 1):
        one = item(frame._replace(length=index))
        if one is None:
            continue
        value = _most_to_end_value(texts, one.demand, depth - 1)
        if value is None:
            return None
        begun = max(begun, value)
        longest = max([longest, *map(len, short_values(texts, one.demand).values())])
    return _BRACKETS + frame.plan.least * (longest + 1) + begun


def _most_to_end_value(texts: LocalTexts, demand: ValueConstraint, depth: int) -> int | None:
    """The most bytes that end a value that has begun, or write one."""
    values = texts.values
    most = max(map(len, short_values(texts, demand).values()), default=0)
    for content, quoted in contents_of(texts, demand):
        most = max(most, _most_to_end_content(texts, content, quoted))
    for kind in ("object", "array"):
        formulas = values.of_type(demand, kind)
        frame = values.opened(kind, formulas, frozenset([()])) if formulas else None
        if frame is not None and values.lives(frame):
            size = _most_to_end(texts, frame, depth)
            if size is None:
                return None
            most = max(most, size)
    return most


def _most_to_end_content(texts: LocalTexts, content: Content, quoted: bool) -> int:
    size = 1 if not quoted or is_plain(content) else _ESCAPED
    return size * texts.contents.farthest_end(content) + _REST_OF_ESCAPE
