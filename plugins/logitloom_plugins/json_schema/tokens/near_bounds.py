"""Bounds of parts of a schema, counted in the tokens of their short texts: what they need is found to a few tokens.

The texts of a part have to be found first, which takes long in large schemas. :mod:`.loose_bounds` does without them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeGuard

import numpy as np

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.completion.part_texts import PartTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import is_simple, next_required, only_contained
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.layout import PIECE, Layout, inside, relaid
from logitloom_plugins.json_schema.grammar.least_solution import TakesLong
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, member, most_needed
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import (
    DoneState,
    EscapeState,
    GapState,
    LiteralState,
    NumberState,
    Return,
    State,
    TextState,
    ValueState,
)
from logitloom_plugins.json_schema.tokens.formula_bounds import AnyDemands, asked_atoms, most_for
from logitloom_plugins.json_schema.tokens.position_bounds import (
    MOST_TARGETS,
    NO_BOUND,
    Allowance,
    Bound,
    PositionBounds,
    place,
)
from logitloom_plugins.json_schema.tokens.written_at_once import Brackets, begin_names, names_at_once
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["NearBounds"]

#: The most members that are examined for one part.
_MOST_LOOKED_AT: Final = 1 << 13
#: The most frames whose members are remembered.
_MOST_LISTED: Final = 64
#: The number of parts as which the ends of a frame, names with a label, or a further block of a text are counted; and
#: the bytes of a block.
_ENDS: Final = 8
_BLOCK: Final = 1 << 11
#: The most ways in which an object may go on, times one more than the number of its atoms, if all ways are to be
#: examined.
_MOST_WAYS: Final = 1 << 12
#: The most states of a content that are all completed, and the most items whose texts are counted together.
_MOST_STATES: Final = 128
_MOST_JOINED: Final = 64
#: The longest run of one character whose tokens are counted; a longer run is counted in parts.
_MOST_ALIKE: Final = 1 << 12
#: The layouts that are not decided yet. In these a text is counted piece by piece, with whitespace between the pieces.
_UNDECIDED: Final = ("open", "flat")
_GAPS: Final = re.compile(rb"[{}\[\],:]")
_WIDEST_INDENT: Final = 4
#: The most keys that are examined one by one after a member.
_MOST_NAMES: Final = 32


class _IsLarge(Exception):
    """A bound is larger than it may be."""


class NearBounds(PositionBounds):
    """The bounds of the positions of one machine, from short texts.

    Args:
        machine, vocabulary, allowance, farthest_end: as of :class:`.PositionBounds`.
        parts: short texts of the parts of the schema.
    """

    def __init__(
        self,
        machine: Machine,
        vocabulary: Vocabulary,
        allowance: Allowance,
        farthest_end: Callable[[bytes], int],
        parts: PartTexts,
    ) -> None:
        super().__init__(machine, vocabulary, allowance, farthest_end)
        self._parts = parts
        self._names_begin, self._names_at_once = begin_names(vocabulary), names_at_once(vocabulary)
        #: The members that may come in a frame. They are kept, because finding the bounds of their values may take
        #: several masks.
        self._members: dict[Frame, tuple[int, list[tuple[bytes, ValueConstraint]]]] = {}
        #: By frame the reachable frames that have not been counted, and the number of the others.
        self._begun: dict[Frame, tuple[Iterator[Frame], int]] = {}
        #: The largest number of added tokens for which :meth:`exceeds` looks any further.
        self._most_added = math.inf

    def exceeds(self, position: Position, most: int) -> bool:
        """Whether :meth:`after_any` is more than some tokens. Often a few of its parts tell."""
        items, stack = self._items(position), position.stack
        backs = [] if stack is None else [entry.back for entry in stack.entries()]
        self._most_added = most - self._rest_of(self._machine.states[position.state], items)
        self._most_added -= sum([self._rest_after(back, items) for back in backs])
        try:
            return self._most_added < 0 or self.after_any(position) > most
        except _IsLarge:
            return True
        finally:
            self._most_added = math.inf

    def _rest_of(self, state: State, items: int) -> int:
        """The tokens that end the object or array of a state; a lower bound on what :meth:`_of_state` finds."""
        if isinstance(state, GapState):
            state = state.before
        if isinstance(state, LiteralState):
            return self._rest_of(state.target, items)
        if isinstance(state, ValueState | NumberState):
            return self._rest_after(state.back, items)
        if isinstance(state, TextState | EscapeState):
            within = state.context
            return self.rest(within.frame, within.layout, items).rest if isinstance(within, NameContext) else 0
        return 0 if isinstance(state, DoneState) else self.rest(state.frame, state.layout, items).rest

    def _rest_after(self, back: Return, items: int) -> int:
        if len(back.states) > MOST_TARGETS:
            return UNKNOWN
        return max([self._rest_of(target, items) for target in back.states.values()])

    def _checked(self, added: int) -> int:
        """Tokens that are added. No larger number matters than a limit that :meth:`exceeds` sets."""
        if added > self._most_added:
            raise _IsLarge
        return added

    # --- objects and arrays -----------------------------------------------------------------------------------------

    def of_frame(self, frame: Frame, layout: Layout, opened: Brackets, items: int, names: int = 0) -> Bound:
        """As :meth:`.PositionBounds.of_frame`."""
        if isinstance(frame, ArrayFrame) and frame.plan.distinct:
            return self._recalled(
                ("distinct", frame, layout, opened, items), lambda: self._of_distinct(frame, layout, opened, items)
            )
        taken, rest = self._most_names(frame, items), self.rest(frame, layout, items)
        if not self._names_begin and is_simple(frame) and not frame.tracked:
            key = "next", frame, layout, opened, names
            next_one = self._recalled(key, lambda: self._of_next_member(frame, layout, opened, names))
            if next_one is not NO_BOUND:
                return next_one._replace(rest=rest.rest)
        if rest is NO_BOUND:
            return rest
        begun = _at_its_start(frame)
        added_key = "added", begun, layout, opened, taken
        added = self._recalled(added_key, lambda: self._of_members(begun, layout, opened, taken))
        return Bound(min(rest.rest + added.rest, UNKNOWN), added.added, rest.looked_at + added.looked_at)

    def rest(self, frame: Frame, layout: Layout, items: int) -> Bound:
        """As :meth:`.PositionBounds.rest`."""
        if isinstance(frame, ArrayFrame) and frame.plan.distinct:
            return Bound(0, 0)
        within, taken = place(layout), self._most_names(frame, items)
        return self._recalled(("rest", frame, within, taken), lambda: self._of_rest(frame, within, taken))

    def _most_names(self, frame: Frame, items: int) -> int:
        """More than the number of names that can have come, if no name may come twice; 0 for other frames."""
        if not _is_tracked(frame):
            return 0
        return 1 + items + self._names_at_once + most_needed(frame)

    def _of_rest(self, frame: Frame, layout: Layout, taken: int) -> Bound:
        """The tokens that end an object or array, now or after more members; ``taken`` is :meth:`_most_names`."""
        if isinstance(frame, ArrayFrame) and frame.only_hard:
            return self._of_items(frame, layout)
        required = self._parts.required_texts(frame)
        if required is not None:
            parts = [b"".join([b"," + text for text in required[at : at + _MOST_JOINED]])
                     for at in range(0, len(required), _MOST_JOINED)] or [b""]  # fmt: skip
            parts[-1] += b"]" if isinstance(frame, ArrayFrame) else b"}"
            return Bound(sum([self._tokens(part, layout) for part in parts]), 0)
        if self._has_many_ways(frame):
            return self._of_formulas(frame, layout)
        contained = self._parts.contained(frame)
        if contained is not None:
            size, items = contained
            # The items of the shortest text may have more gaps than those that are counted.
            density = max([self._bytes(b"," + text, layout) / (len(text) + 1) for text in items], default=1.0)
            return Bound(math.ceil(density * size) + self._bytes(b"]", layout), 0)
        count = partial(self._allowance.count, _ENDS)
        longest = self._parts.longest_name(frame, taken, count) if _is_tracked(frame) else 0
        if _is_tracked(frame) and frame.only_hard and self._parts.names_run_out(frame, taken):
            # Any members may come in place of those whose names have come.
            sizes = _MemberSizes(self._bytes, self._parts, frame, layout)
            most = sum([sizes(name) for name in frame.plan.required_names(frame.position, frame.missing)])
            most += frame.plan.least * (sizes(None) + longest)
            return Bound(math.ceil(sizes.density * most) + self._bytes(b"}", layout), 0)
        ends, looked_at = self._parts.ends(frame, taken, _MOST_LOOKED_AT, count)
        if not ends:
            return NO_BOUND
        if frame.only_hard:
            # The shortest text of an object that counts its members changes after each member. Where names must
            # differ, the names in that text change, too.
            tokens = max([self._bytes(b"," + end, layout) for end in ends]) + frame.plan.least * longest
        elif _is_tracked(frame):
            # Other names are chosen than in these texts, or other texts that are shorter then.
            tokens = max([self._bytes(b"," + end, layout) + end.count(b'":') * longest for end in ends])
        else:
            tokens = max([self._tokens(b"," + end, layout) for end in ends])
        return Bound(tokens, 0, looked_at)

    def _of_next_member(self, frame: ObjectFrame, layout: Layout, opened: Brackets, names: int) -> Bound:
        """The tokens that end the next member of an object without alternatives, and a member that is begun after it.

        If ``names`` is 0, the next member is the one that the completion writes, if any may come. Required members are
        counted in ``rest``.
        """
        plan, values = frame.plan, self._machine.values
        if not names:
            if next_required(frame) is not None or not plan.next_keys(values, frame.position):
                return Bound(0, 0)
            texts = self._parts.with_member(frame)
            return Bound(0, max([self._tokens(b"," + text, layout) for text in texts])) if texts else NO_BOUND
        names &= plan.next_keys(values, frame.position)
        labels = [label for label, bit in plan.keys.bit.items() if names & bit]
        found = [(label, member(values, frame, label)) for label in labels[: _MOST_NAMES + 1]]
        added, looked_at = 0, 1
        for label, one in found:
            following = None if one is None else one.after(values, ())
            if one is None or following is None or len(found) > _MOST_NAMES:
                return NO_BOUND
            begun, [(name, demand)] = self._parts.named(plan.keys, [(label, one.demand)], self._escape)
            value = self.of_value(demand, layout, opened)
            after = self.of_frame(following, layout, opened, 0)
            looked_at += value.looked_at + after.looked_at
            if value is NO_BOUND or looked_at > _MOST_LOOKED_AT:
                return NO_BOUND
            own = self._of_named(name, begun, demand, layout)
            added = self._checked(max(added, own, value.added, after.added))
        return Bound(0, added, looked_at)

    def _has_many_ways(self, frame: Frame) -> TypeGuard[ObjectFrame]:
        """Whether an object with open formulas can go on in more ways than are examined one by one."""
        if isinstance(frame, ArrayFrame) or frame.only_hard or frame.tracked or frame.plan.counts:
            return False
        key = "many", frame
        if key not in self._known:
            self._known[key] = Bound(0, int(self._has_more_ways(frame, _MOST_WAYS // (1 + len(asked_atoms(frame))))))
        return self._known[key].added > 0

    def _has_more_ways(self, frame: ObjectFrame, most: int) -> bool:
        """Whether more frames than ``most`` are reachable. If that takes long, the next mask goes on with the rest."""
        frames, ways = self._begun.pop(frame) if frame in self._begun else (iter(self._parts.reachable(frame)), 0)
        while ways <= most:
            try:
                self._allowance.count()
            except TakesLong:
                self._begun[frame] = frames, ways
                raise
            if next(frames, None) is None:
                return False
            ways += 1
        return True

    def _of_formulas(self, frame: ObjectFrame, layout: Layout) -> Bound:
        """The bound of :meth:`_of_rest`, computed from the members that the formulas of an object can ask for."""
        sizes = _MemberSizes(self._bytes, self._parts, frame, layout)
        most = most_for(frame, sizes)
        if most is None:
            return NO_BOUND
        most += sum([sizes(name) for name in frame.plan.required_names(frame.position, frame.missing)])
        return Bound(math.ceil(sizes.density * most) + self._bytes(b"}", layout), 0)

    def _of_items(self, frame: ArrayFrame, layout: Layout) -> Bound:
        """The tokens that end an array without alternatives."""
        texts, at, more, alike = list[bytes](), frame, max(frame.plan.least - frame.length, 0), 0
        for index in range(more):
            member = item(at)
            text = None if member is None else self._parts.value(member.demand).get(())
            if member is None or text is None:
                return NO_BOUND
            if index >= _MOST_JOINED and at.length >= at.plan.varied:
                alike = (more - index) * self._tokens(b"," + text, layout)
                break
            texts.append(b"," + text)
            following = member.after(self._machine.values, ())
            if following is None:
                return NO_BOUND
            at = following
        return Bound(alike + self._tokens(b"".join(texts) + b"]", layout), 0)

    def _of_members(self, frame: Frame, layout: Layout, opened: Brackets, taken: int) -> Bound:
        """The tokens that end a member which a token begins; ``taken`` is :meth:`_most_names`."""
        if self._has_many_ways(frame):
            demand_of, keys = AnyDemands(frame).of, frame.plan.keys
            demands = [(label, demand_of(label)) for label in keys.bit]
            begun, members = self._parts.named(keys, demands, self._escape)
        else:
            if frame not in self._members:
                if len(self._members) >= _MOST_LISTED:
                    self._members.clear()
                self._members[frame] = self._parts.members(frame, _MOST_LOOKED_AT, self._escape)
            begun, members = self._members[frame]
            if begun and _is_tracked(frame):
                begun = self._parts.longest_rest_of_name(frame, taken) + self._escape
        looked_at, added = 1, 0
        for name, demand in members:
            value = self.of_value(demand, layout, opened)
            looked_at += value.looked_at
            if looked_at > _MOST_LOOKED_AT or value is NO_BOUND:
                return NO_BOUND
            added = self._checked(max(added, value.added, self._of_named(name, begun, demand, layout)))
        return Bound(0, added, looked_at)

    def _of_named(self, name: bytes, begun: int, demand: ValueConstraint, layout: Layout) -> int:
        """The tokens that end a member of which a token writes a part before the value.

        Args:
            name: a short name as it is written; empty for an item.
            begun: the most bytes of the rest of a name that the schema does not list, with an escape and the quote; 0
                if the name is listed.
            demand: the constraint on the value.
            layout: of the members.
        """
        # A token may write the comma alone, or a part of the whitespace after the comma.
        whole = self.written(b"," + name + b":" if name else b",", demand, layout)
        return max(whole, begun + self.written(b":", demand, layout)) if begun else whole

    def _of_distinct(self, frame: ArrayFrame, layout: Layout, opened: Brackets, items: int) -> Bound:
        """The bound of an array of different items: each item may be the longest of a list of short items."""
        if not frame.only_hard:
            return NO_BOUND
        more, plan, longest, added = max(frame.plan.least - frame.length, 0), frame.plan, 0, 0
        for index in range(plan.varied + 1):
            member = item(frame._replace(length=index))
            if member is None:
                continue
            listed = self._parts.different(member.demand, items + more + 2, more)
            value = self.of_value(member.demand, layout, opened)
            if listed is None or value is NO_BOUND:
                return NO_BOUND
            texts, ending = listed
            if any(self._machine.values.of_type(member.demand, kind) for kind in ("object", "array")):
                # Whitespace may stand behind each byte of an object or array.
                ending *= self._bytes(b",", layout)
            longest = max([longest, *[self._tokens(b"," + text, layout) for text in texts]])
            added = max(added, value.added, ending, longest)
        return Bound(more * longest + self._tokens(b"]", layout), added)

    # --- values -----------------------------------------------------------------------------------------------------

    def written(self, before: bytes, demand: ValueConstraint, layout: Layout) -> int:
        """As :meth:`.PositionBounds.written`."""
        texts = self._parts.value(demand).values()
        if not texts or layout.name not in _UNDECIDED:
            return max([self._tokens(before + text, layout) for text in texts], default=0)
        # Here a text is counted piece by piece, so the pieces of values that follow hundreds of names are counted once.
        alike = self._machine.values.first_alike(demand)
        most = self._recalled(
            ("written", alike, layout), lambda: Bound(max([self._tokens(text, layout) for text in texts]), 0)
        )
        return self._tokens(before, layout) + most.rest

    def _find_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> Bound:
        contents, texts, frames = self._parts.openings(demand)
        looked_at = 1
        added = max([self._tokens(text, layout) for text in (b"false", *texts)])
        for content, quoted in contents:
            added = self._checked(max(added, self.of_content(content, quoted)))
        within = place(inside(layout))
        for frame in frames:
            bracket = b"[" if isinstance(frame, ArrayFrame) else b"{"
            if bracket not in opened:
                continue
            more = frozenset([brackets[1:] for brackets in opened if brackets[:1] == bracket])
            each = self.of_frame(frame, within, more, 0)
            looked_at += each.looked_at
            if looked_at > _MOST_LOOKED_AT or each.rest >= UNKNOWN:
                return NO_BOUND
            added = self._checked(max(added, each.rest + each.added))
        return Bound(0, added, looked_at)

    def _find_content(self, content: Content, quoted: bool) -> int:
        automaton = content.automaton
        end, escape = (b'"', self._escape) if quoted else (b"", 0)
        if content.counts and content.free:
            parts, rest = divmod(content.farthest_point, _MOST_ALIKE)
            alike = self._farthest_end(b"a" * _MOST_ALIKE) if parts else 0
            return escape + parts * alike + self._farthest_end(b"a" * rest + end)
        if not content.counts and automaton.states <= _MOST_STATES:
            farthest = escape
            # Texts that end alike come one after another, so that a common end is counted once.
            for text, is_begun in sorted(self._parts.rests(content, quoted), key=lambda rest: rest[0][::-1]):
                self._allowance.count()
                # No escape begins within a character.
                farthest = max(farthest, self._farthest_end(text + end) + (0 if is_begun else escape))
            return farthest
        return escape + len(end) + self._parts.longest_rest(content, quoted)

    def _tokens(self, text: bytes, layout: Layout) -> int:
        if layout.name not in _UNDECIDED:
            laid_out, found = relaid(text, layout, "close"), 0
            # The blocks of a long text, written one by one, take at least as many tokens as the whole text.
            for at in range(0, len(laid_out), _BLOCK):
                self._allowance.count(_ENDS if at else 0)
                found += self._farthest_end(laid_out[at : at + _BLOCK])
            return found
        lines = layout.depth + _deepest(text) if layout.name == "open" else 0
        pieces = sum([count * self._recalled(("piece", piece), partial(self._of_piece, piece)).rest
                      for piece, count in Counter[bytes](PIECE.findall(text)).items()])  # fmt: skip
        return pieces + len(_GAPS.findall(text)) * self._gap(lines)

    def _of_piece(self, piece: bytes) -> Bound:
        return Bound(self._farthest_end(piece), 0)

    def _bytes(self, text: bytes, layout: Layout) -> int:
        if layout.name not in _UNDECIDED:
            return len(relaid(text, layout, "close"))
        lines = layout.depth + _deepest(text)
        return len(text) + len(_GAPS.findall(text)) * (1 + _WIDEST_INDENT * lines)


class _MemberSizes:
    """The most bytes of the short members of an object, whatever its formulas demand of the values of the members.

    Args:
        bytes_of: the most bytes of a text in a layout.
        parts: short texts of parts of the schema.
        frame: the object.
        layout: of its members.

    Attributes:
        density: the largest ratio of the bytes of a member with whitespace to its bytes without whitespace. The
            shortest text of an object can have more gaps than the text that is counted.
    """

    def __init__(
        self, bytes_of: Callable[[bytes, Layout], int], parts: PartTexts, frame: ObjectFrame, layout: Layout
    ) -> None:
        self._bytes_of, self._parts, self._plan, self._layout = bytes_of, parts, frame.plan, layout
        self._demands = AnyDemands(frame)
        self._known: dict[str | None, int] = {}
        self.density = 1.0

    def __call__(self, name: str | None) -> int:
        """The bytes of a member with a name, its comma included; for ``None`` the most bytes of any member."""
        if name not in self._known:
            labels: Iterable[Label] = self._plan.keys.bit if name is None else [("name", name)]
            self._known[name] = max([self._of_label(label) for label in labels], default=0)
        return self._known[name]

    def _of_label(self, label: Label) -> int:
        demand = self._demands.of(label)
        longest, [(name, _)] = self._parts.named(self._plan.keys, [(label, demand)])
        members = [b"," + name + b":" + text for text in self._parts.value(demand).values()]
        self.density = max([self.density, *[self._bytes_of(text, self._layout) / len(text) for text in members]])
        return longest + max(map(len, members), default=0)


def _is_tracked(frame: Frame) -> TypeGuard[ObjectFrame]:
    """Whether a frame is an object in which no name may come twice."""
    return isinstance(frame, ObjectFrame) and bool(frame.tracked)


def _deepest(text: bytes) -> int:
    """The greatest depth of nested objects and arrays that a text opens."""
    if b"{" not in text and b"[" not in text:
        return 0
    brackets = np.frombuffer(text, dtype=np.uint8)
    opened = (brackets == ord("{")) | (brackets == ord("["))
    closed = (brackets == ord("}")) | (brackets == ord("]"))
    return int((opened.astype(np.int64) - closed).cumsum().max(initial=0))


def _at_its_start(frame: Frame) -> Frame:
    """A frame that stands for many, and allows every member that the given frame allows.

    If no formula is open, this is the frame before its first member. Of counted items at most two are required.
    """
    if isinstance(frame, ArrayFrame):
        contained = only_contained(frame)
        if contained is not None and contained[3] is None and frame.plan.most is None:
            soft = (*contained[:2], min(contained[2], 2), None)
            return frame._replace(length=frame.plan.limit, soft=soft)
        return frame._replace(length=0) if frame.only_hard else frame
    if not frame.only_hard:
        return frame
    # Names that have run out may be required in the frame before the first member.
    return frame._replace(position=0, length=min(frame.length, 0), missing=frame.plan.required_others, left=())
