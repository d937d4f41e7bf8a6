"""Bounds of parts of a schema, read off the constraints on their members, without short texts of the members' values.

The rest of an open object or array is the one of :mod:`.near_bounds`: a completion needs the texts of required members
in any case. What a token can begin in it is counted in bytes, for all members that are declared, wherever the text
stands among them, and in any layout. So there are few such parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.completion.part_texts import PartTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import is_simple
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.layout import Layout
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.tokens.position_bounds import NO_BOUND, Allowance, Bound, PositionBounds
from logitloom_plugins.json_schema.tokens.written_at_once import Brackets
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["LooseBounds"]

#: The bytes of ``false``, and of two quotes.
_LITERAL, _QUOTES = 5, 2
#: The most names, and kinds of undeclared names, of an object whose members are all looked at.
_MOST_NAMES: Final = 128
#: Depths are rounded up to a power of two, from this one on.
_LEAST_DEPTH: Final = 8


class LooseBounds(PositionBounds):
    """The bounds of the positions of one machine, without short texts.

    Args:
        machine, vocabulary, allowance, farthest_end: as of :class:`.PositionBounds`.
        parts: the parts of the schema.
        near: the nearer bounds. All rests are taken from there, and the bounds of objects and arrays with alternatives,
            with different items or names, or with a bound on the number of members.
    """

    def __init__(
        self,
        machine: Machine,
        vocabulary: Vocabulary,
        allowance: Allowance,
        farthest_end: Callable[[bytes], int],
        parts: PartTexts,
        near: PositionBounds,
    ) -> None:
        super().__init__(machine, vocabulary, allowance, farthest_end)
        self._parts, self._near = parts, near
        self._deepest = max(map(len, self._opened), default=0)

    def of_frame(self, frame: Frame, layout: Layout, opened: Brackets, items: int, names: int = 0) -> Bound:
        """As :meth:`.PositionBounds.of_frame`, for all names."""
        if not _is_plain(frame):
            return self._near.of_frame(frame, layout, opened, items, names)
        return Bound(self.rest(frame, layout, items).rest, self._added(frame, self._any_layout(layout), opened))

    def rest(self, frame: Frame, layout: Layout, items: int) -> Bound:
        """As :meth:`.PositionBounds.rest`."""
        return self._near.rest(frame, layout, items)

    def _added(self, frame: Frame, layout: Layout, opened: Brackets) -> int:
        """The tokens that end a member which a token begins, in an object or array without alternatives."""
        key = "added", frame.plan, layout, opened
        return self._recalled(key, lambda: Bound(0, self._of_members(frame, layout, opened))).added

    def _of_members(self, frame: Frame, layout: Layout, opened: Brackets) -> int:
        if isinstance(frame, ObjectFrame) and len(frame.plan.keys.bit) > _MOST_NAMES:
            return UNKNOWN
        gap, added = self._gap(layout.depth), 0
        for around, demand in self._members(frame):
            value = super().of_value(demand, layout, opened)
            added = max(added, around + 2 * gap + value.rest, value.added)
            if added >= UNKNOWN:
                return UNKNOWN
        return added

    def _members(self, frame: Frame) -> Iterator[tuple[int, ValueConstraint]]:
        """Per member the bytes of its comma, its name and its colon, and the constraint on its value."""
        if isinstance(frame, ArrayFrame):
            items = [item(frame._replace(length=length)) for length in range(frame.plan.varied + 1)]
            yield from [(len(b","), one.demand) for one in items if one is not None]
            return
        plan, values = frame.plan, self._machine.values
        every = [(label, ValueConstraint(plan.hard_child(label))) for label in plan.keys.bit]
        begun, named = self._parts.named(plan.keys, [one for one in every if values.possible(one[1])], self._escape)
        for name, demand in named:
            yield max(len(b",") + len(name), begun) + len(b":"), demand

    def written(self, before: bytes, demand: ValueConstraint, layout: Layout) -> int:
        """As :meth:`.PositionBounds.written`."""
        if demand.extras:
            return self._near.written(before, demand, layout)
        gap = self._gap(self._any_layout(layout).depth)
        return len(before) * (1 + gap) + self.of_value(demand, layout, self._opened).rest

    def of_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> Bound:
        """As :meth:`.PositionBounds.of_value`; ``rest`` are the tokens of a short value."""
        if demand.extras:
            return self._near.of_value(demand, layout, opened)
        return super().of_value(demand, self._any_layout(layout), opened)

    def _find_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> Bound:
        contents, has_literal, frames = self._parts.kinds(demand)
        begun = max([self.of_content(content, quoted) for content, quoted in contents], default=0)
        sizes = [begun + _QUOTES for content, _ in contents if content.found] + [_LITERAL] * has_literal
        gap, added = self._gap(layout.depth), max([begun, *sizes])
        # A short value is no longer than any string, number or literal. It may be an object of as many bytes.
        rest = max(sizes, default=0) * (1 + gap if frames else 1)
        for frame in frames:
            bracket = b"[" if isinstance(frame, ArrayFrame) else b"{"
            if sizes and bracket not in opened:
                continue
            more = frozenset([brackets[1:] for brackets in opened if brackets[:1] == bracket])
            if not _is_plain(frame):
                # Such bounds are found for the members and items that come next alone.
                return NO_BOUND
            within = self._added(frame, layout, more) if bracket in opened else 0
            each = Bound(self.rest(frame, layout, 0).rest, within)
            rest = rest if sizes else max(rest, 1 + gap + each.rest)
            added = max(added, each.rest + each.added if bracket in opened else 0)
        return Bound(min(rest, UNKNOWN), min(max(rest, added), UNKNOWN))

    def _find_content(self, content: Content, quoted: bool) -> int:
        escape = self._escape if quoted else 0
        if content.counts and content.free:
            return escape + content.farthest_point + quoted
        return escape + self._parts.longest_rest(content, quoted) + quoted

    def _any_layout(self, layout: Layout) -> Layout:
        """A layout that may still become any other, as deep as the objects and arrays that one token can open."""
        depth = layout.depth + self._deepest
        return Layout("open", max(_LEAST_DEPTH, 1 << (depth - 1).bit_length()))


def _is_plain(frame: Frame) -> bool:
    """Whether an object or array has no alternatives, counts no members, and allows equal items and names."""
    if isinstance(frame, ArrayFrame):
        return frame.only_hard and not frame.plan.distinct
    return is_simple(frame) and not frame.tracked
