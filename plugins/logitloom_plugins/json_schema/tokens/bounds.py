"""An upper bound on the tokens that are needed after any token that may come next, without a look at the tokens.

A completion is counted part by part: the rest of each open object and array, and the values that one token can begin in
it. The bound of a part is the number of tokens of its worst end. So the sum of the bounds of the parts is a bound for
the whole completion. The bound of a part holds wherever the part stands.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeGuard

import numpy as np

from logitloom import Vocabulary
from logitloom.automata import check_deadline
from logitloom.constraints import UNKNOWN
from logitloom.errors import BudgetExceeded
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.json_schema.folds.completion.content_texts import is_plain
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
from logitloom_plugins.json_schema.tokens.formula_bounds import AnyDemands, asked_atoms, most_for
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["TokenBounds"]

#: The most entries of the memory, and the most members that are examined for one entry.
_MOST_REMEMBERED: Final = 1 << 14
_MOST_LOOKED_AT: Final = 1 << 13
#: The most states after a value, one for each truth vector, that are all examined.
_MOST_TARGETS: Final = 64
#: The most frames whose members are remembered.
_MOST_LISTED: Final = 64
#: The number of parts of a bound that are found for one mask however long that takes; the number of parts as which the
#: ends of a frame, names with a label, or a further block of a text are counted; the bytes of a block; and the
#: processor time, in seconds, after which no more parts are found.
_FEW_FOUND: Final = 32
_ENDS: Final = 8
_BLOCK: Final = 1 << 11
_MOST_SECONDS: Final = 0.01
#: After so many masks that have given up the time doubles: a single search may take longer.
_TRIES: Final = 16
#: The most ways in which an object may go on, times one more than the number of its atoms, if all ways are to be
#: examined.
_MOST_WAYS: Final = 1 << 12
#: The most states of a content that are all completed, and the most items whose texts are counted together.
_MOST_STATES: Final = 128
_MOST_JOINED: Final = 64
#: The longest run of one character whose tokens are counted; a longer run is counted in parts.
_MOST_ALIKE: Final = 1 << 12
#: The bytes of the rest of an escape, without and with a second surrogate; and the bytes of an escaped byte.
_ESCAPE, _SURROGATES, _ESCAPED = 5, 11, 6
#: The layouts that are not decided yet. In these a text is counted piece by piece, with whitespace between the pieces.
_UNDECIDED: Final = ("open", "flat")
_GAPS: Final = re.compile(rb"[{}\[\],:]")
_WIDEST_INDENT: Final = 4
#: The rest of a string, up to its closing quote, for a token that begins inside the string; and the lexemes of JSON,
#: where a string may be unfinished.
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_LEXEME: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],:]|[-+.0-9eEtruefalsn]+', re.DOTALL)
_BLANKS: Final = b" \t\r\n"
#: All keys of an object, as bits; and the most keys that are examined one by one after a member.
_ANY: Final = -1
_MOST_NAMES: Final = 32
#: The comma or bracket, the whitespace and the quote before the name of a member, and the first byte of the name.
_BEGINS_NAME: Final = re.compile(rb'[,{][ \t\r\n]*".', re.DOTALL)


Brackets = frozenset[bytes]


class _Bound(NamedTuple):
    """An upper bound on tokens.

    Attributes:
        rest: the tokens that end the open objects, arrays and strings.
        added: the tokens that end the values which one token begins in the open objects and arrays.
        looked_at: the number of members that were examined.
    """

    rest: int
    added: int
    looked_at: int = 1


_NO_BOUND: Final = _Bound(UNKNOWN, UNKNOWN)


class _IsLarge(Exception):
    """A bound is larger than it may be."""


class TokenBounds:
    """The bounds of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.
        parts: short texts of the parts of the schema.
        farthest_end: a function of a text: the most tokens that any end of the text takes.
        vocabulary: the tokens.
    """

    def __init__(
        self, machine: Machine, parts: PartTexts, farthest_end: Callable[[bytes], int], vocabulary: Vocabulary
    ) -> None:
        self._machine, self._parts, self._farthest_end = machine, parts, farthest_end
        self._opened, self._escape = opened_at_once(vocabulary), rest_of_escapes(vocabulary)
        self._names_begin, self._names_at_once = begin_names(vocabulary), names_at_once(vocabulary)
        self._known: dict[Hashable, _Bound] = {}
        #: The members that may come in a frame. They are kept, because finding the bounds of their values may take
        #: several masks.
        self._members: dict[Frame, tuple[int, list[tuple[bytes, ValueConstraint]]]] = {}
        #: By frame the reachable frames that have not been counted, and the number of the others.
        self._begun: dict[Frame, tuple[Iterator[Frame], int]] = {}
        #: How many more parts are found before :meth:`soon_after_any` gives up, and the processor time that it takes.
        self._left = self._deadline = math.inf
        #: How many masks in succession have given up.
        self._given_up = 0
        #: The largest number of added tokens for which :meth:`exceeds` looks any further.
        self._most_added = math.inf

    def soon_after_any(self, position: Position) -> int:
        """:meth:`after_any`, or :data:`UNKNOWN` if many parts of it are not known. Each time more of them are found.

        A mask depends neither on the result nor on the time: without a bound a search finds the same tokens.
        """
        seconds = _MOST_SECONDS * 2 ** (self._given_up // _TRIES)
        self._left, self._deadline = _FEW_FOUND, time.thread_time() + seconds
        self._parts.stop_at(self._deadline)
        try:
            found = self.after_any(position)
        except TakesLong:
            self._given_up += 1
            return UNKNOWN
        finally:
            self._left = math.inf
            self._parts.stop_at(math.inf)
        self._given_up = 0
        return found

    def _count(self, parts: int = 1) -> None:
        """Count an unknown part of a bound, as one part or several."""
        self._left -= parts
        if self._left < 0 and time.thread_time() > self._deadline:
            raise TakesLong

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
            return self._rest(within.frame, within.layout, items).rest if isinstance(within, NameContext) else 0
        return 0 if isinstance(state, DoneState) else self._rest(state.frame, state.layout, items).rest

    def _rest_after(self, back: Return, items: int) -> int:
        if len(back.states) > _MOST_TARGETS:
            return UNKNOWN
        return max([self._rest_of(target, items) for target in back.states.values()])

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

    def _checked(self, added: int) -> int:
        """Tokens that are added. No larger number matters than a limit that :meth:`exceeds` sets."""
        if added > self._most_added:
            raise _IsLarge
        return added

    def _recalled(self, key: Hashable, find: Callable[[], _Bound]) -> _Bound:
        found = self._known.get(key)
        if found is None:
            self._count()
            try:
                found = find()
            except BudgetExceeded:
                check_deadline("how far tokens lead in the schema")
                found = _NO_BOUND
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _of_stack(self, stack: Stack, items: int) -> _Bound:
        """The bound of the objects and arrays that are open around the innermost string, object or array."""
        rest, added = 0, 0
        entries = [] if stack is None else [entry.back for entry in stack.entries()]
        for back in entries:
            each = self._recalled(("return", back, items), partial(self._of_return, back, items))
            rest, added = rest + each.rest, max(added, each.added)
        return _Bound(rest, added)

    def _of_return(self, back: Return, items: int) -> _Bound:
        if len(back.states) > _MOST_TARGETS:
            return _NO_BOUND
        return _largest(self._of_state(target, items, within=False) for target in back.states.values())

    def _of_state(self, state: State, items: int, within: bool = True) -> _Bound:
        """The bound of a state within its innermost string, object or array.

        Args:
            state: the state.
            items: as in :meth:`_of_frame`.
            within: whether a token may begin in the state. In a state around a value it begins within the value.
        """
        if isinstance(state, DoneState):
            return _Bound(0, 0)
        if isinstance(state, GapState):
            return self._of_state(state.before, items, within)
        if isinstance(state, LiteralState):
            target = self._of_state(state.target, items)
            return target._replace(added=max(target.added, len(state.rest)))
        if isinstance(state, NumberState):
            target = self._of_return(state.back, items)
            own = self._of_content(Content(state.numbers.automaton), False)
            return target._replace(added=max(target.added, own))
        if isinstance(state, ValueState):
            target, layout = self._of_return(state.back, items), _place(state.layout)
            value = self._of_value(state.demand, layout, self._opened)
            # A token may write a part of the whitespace before the value alone.
            mark = {"none": b"", "colon": b":", "comma": b","}[state.gap]
            whole = self._written(mark, state.demand, layout) if mark else 0
            return target._replace(added=max(target.added, value.added, whole))
        if isinstance(state, TextState | EscapeState):
            escape = _SURROGATES if isinstance(state, EscapeState) else 0
            if not isinstance(state.context, NameContext):
                return _Bound(0, escape + self._of_content(state.context.content, True))
            frame, layout = state.context.frame, state.context.layout
            may_come = state.context.mask & state.context.below[state.content_state]
            found = self._of_frame(frame, _place(layout), self._opened, items, may_come)
            return found._replace(added=found.added + escape)
        if isinstance(state, ColonState):
            label = state.frame.plan.keys.bit[state.label]
            return self._of_frame(state.frame, _place(state.layout), self._opened, items, label)
        if not isinstance(state, ObjectState):
            return self._of_frame(state.frame, _place(state.layout), self._opened, items)
        names = _ANY if within and state.phase != "next" else 0
        return self._of_frame(state.frame, _place(state.layout), self._opened, items, names)

    # --- objects and arrays -----------------------------------------------------------------------------------------

    def _of_frame(self, frame: Frame, layout: Layout, opened: Brackets, items: int, names: int = 0) -> _Bound:
        """The bound of an open object or array.

        Args:
            frame: the object or array.
            layout: of its members.
            opened: the brackets that a token may open in it.
            items: a lower bound on the number of items so far, or of names that must not come again.
            names: the keys of an object, as bits, of whose names a token may write more than the opening quote.
        """
        if isinstance(frame, ArrayFrame) and frame.plan.distinct:
            return self._recalled(
                ("distinct", frame, layout, opened, items), lambda: self._of_distinct(frame, layout, opened, items)
            )
        taken, rest = self._most_names(frame, items), self._rest(frame, layout, items)
        if not self._names_begin and is_simple(frame) and not frame.tracked:
            key = "next", frame, layout, opened, names
            next_one = self._recalled(key, lambda: self._of_next_member(frame, layout, opened, names))
            if next_one is not _NO_BOUND:
                return next_one._replace(rest=rest.rest)
        if rest is _NO_BOUND:
            return rest
        begun = _at_its_start(frame)
        added_key = "added", begun, layout, opened, taken
        added = self._recalled(added_key, lambda: self._of_members(begun, layout, opened, taken))
        return _Bound(min(rest.rest + added.rest, UNKNOWN), added.added, rest.looked_at + added.looked_at)

    def _rest(self, frame: Frame, layout: Layout, items: int) -> _Bound:
        """The tokens that end an object or array; of different items no more than the brackets is told."""
        if isinstance(frame, ArrayFrame) and frame.plan.distinct:
            return _Bound(0, 0)
        place, taken = _place(layout), self._most_names(frame, items)
        return self._recalled(("rest", frame, place, taken), lambda: self._of_rest(frame, place, taken))

    def _most_names(self, frame: Frame, items: int) -> int:
        """More than the number of names that can have come, if no name may come twice; 0 for other frames."""
        if not _is_tracked(frame):
            return 0
        return 1 + items + self._names_at_once + most_needed(frame)

    def _of_rest(self, frame: Frame, layout: Layout, taken: int) -> _Bound:
        """The tokens that end an object or array, now or after more members; ``taken`` is :meth:`_most_names`."""
        if isinstance(frame, ArrayFrame) and frame.only_hard:
            return self._of_items(frame, layout)
        required = self._parts.required_texts(frame)
        if required is not None:
            parts = [b"".join([b"," + text for text in required[at : at + _MOST_JOINED]])
                     for at in range(0, len(required), _MOST_JOINED)] or [b""]  # fmt: skip
            parts[-1] += b"]" if isinstance(frame, ArrayFrame) else b"}"
            return _Bound(sum([self._tokens(part, layout) for part in parts]), 0)
        if self._has_many_ways(frame):
            return self._of_formulas(frame, layout)
        contained = self._parts.contained(frame)
        if contained is not None:
            size, items = contained
            # The items of the shortest text may have more gaps than those that are counted.
            density = max([self._bytes(b"," + text, layout) / (len(text) + 1) for text in items], default=1.0)
            return _Bound(math.ceil(density * size) + self._bytes(b"]", layout), 0)
        count = partial(self._count, _ENDS)
        longest = self._parts.longest_name(frame, taken, count) if _is_tracked(frame) else 0
        if _is_tracked(frame) and frame.only_hard and self._parts.names_run_out(frame, taken):
            # Any members may come in place of those whose names have come.
            sizes = _MemberSizes(self._bytes, self._parts, frame, layout)
            most = sum([sizes(name) for name in frame.plan.required_names(frame.position, frame.missing)])
            most += frame.plan.least * (sizes(None) + longest)
            return _Bound(math.ceil(sizes.density * most) + self._bytes(b"}", layout), 0)
        ends, looked_at = self._parts.ends(frame, taken, _MOST_LOOKED_AT, count)
        if not ends:
            return _NO_BOUND
        if frame.only_hard:
            # The shortest text of an object that counts its members changes after each member. Where names must
            # differ, the names in that text change, too.
            tokens = max([self._bytes(b"," + end, layout) for end in ends]) + frame.plan.least * longest
        elif _is_tracked(frame):
            # Other names are chosen than in these texts, or other texts that are shorter then.
            tokens = max([self._bytes(b"," + end, layout) + end.count(b'":') * longest for end in ends])
        else:
            tokens = max([self._tokens(b"," + end, layout) for end in ends])
        return _Bound(tokens, 0, looked_at)

    def _of_next_member(self, frame: ObjectFrame, layout: Layout, opened: Brackets, names: int) -> _Bound:
        """The tokens that end the next member of an object without alternatives, and a member that is begun after it.

        If ``names`` is 0, the next member is the one that the completion writes, if any may come. Required members are
        counted in ``rest``.
        """
        plan, values = frame.plan, self._machine.values
        if not names:
            if next_required(frame) is not None or not plan.next_keys(values, frame.position):
                return _Bound(0, 0)
            texts = self._parts.with_member(frame)
            return _Bound(0, max([self._tokens(b"," + text, layout) for text in texts])) if texts else _NO_BOUND
        names &= plan.next_keys(values, frame.position)
        labels = [label for label, bit in plan.keys.bit.items() if names & bit]
        found = [(label, member(values, frame, label)) for label in labels[: _MOST_NAMES + 1]]
        added, looked_at = 0, 1
        for label, one in found:
            following = None if one is None else one.after(values, ())
            if one is None or following is None or len(found) > _MOST_NAMES:
                return _NO_BOUND
            begun, [(name, demand)] = self._parts.named(plan.keys, [(label, one.demand)], self._escape)
            value = self._of_value(demand, layout, opened)
            after = self._of_frame(following, layout, opened, 0)
            looked_at += value.looked_at + after.looked_at
            if value is _NO_BOUND or looked_at > _MOST_LOOKED_AT:
                return _NO_BOUND
            own = self._of_named(name, begun, demand, layout)
            added = self._checked(max(added, own, value.added, after.added))
        return _Bound(0, added, looked_at)

    def _has_many_ways(self, frame: Frame) -> TypeGuard[ObjectFrame]:
        """Whether an object with open formulas can go on in more ways than are examined one by one."""
        if isinstance(frame, ArrayFrame) or frame.only_hard or frame.tracked or frame.plan.counts:
            return False
        key = "many", frame
        if key not in self._known:
            self._known[key] = _Bound(0, int(self._has_more_ways(frame, _MOST_WAYS // (1 + len(asked_atoms(frame))))))
        return self._known[key].added > 0

    def _has_more_ways(self, frame: ObjectFrame, most: int) -> bool:
        """Whether more frames than ``most`` are reachable. If that takes long, the next mask goes on with the rest."""
        frames, ways = self._begun.pop(frame) if frame in self._begun else (iter(self._parts.reachable(frame)), 0)
        while ways <= most:
            try:
                self._count()
            except TakesLong:
                self._begun[frame] = frames, ways
                raise
            if next(frames, None) is None:
                return False
            ways += 1
        return True

    def _of_formulas(self, frame: ObjectFrame, layout: Layout) -> _Bound:
        """The bound of :meth:`_of_rest`, computed from the members that the formulas of an object can ask for."""
        sizes = _MemberSizes(self._bytes, self._parts, frame, layout)
        most = most_for(frame, sizes)
        if most is None:
            return _NO_BOUND
        most += sum([sizes(name) for name in frame.plan.required_names(frame.position, frame.missing)])
        return _Bound(math.ceil(sizes.density * most) + self._bytes(b"}", layout), 0)

    def _of_items(self, frame: ArrayFrame, layout: Layout) -> _Bound:
        """The tokens that end an array without alternatives."""
        texts, at, more, alike = list[bytes](), frame, max(frame.plan.least - frame.length, 0), 0
        for index in range(more):
            member = item(at)
            text = None if member is None else self._parts.value(member.demand).get(())
            if member is None or text is None:
                return _NO_BOUND
            if index >= _MOST_JOINED and at.length >= at.plan.varied:
                alike = (more - index) * self._tokens(b"," + text, layout)
                break
            texts.append(b"," + text)
            following = member.after(self._machine.values, ())
            if following is None:
                return _NO_BOUND
            at = following
        return _Bound(alike + self._tokens(b"".join(texts) + b"]", layout), 0)

    def _of_members(self, frame: Frame, layout: Layout, opened: Brackets, taken: int) -> _Bound:
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
            value = self._of_value(demand, layout, opened)
            looked_at += value.looked_at
            if looked_at > _MOST_LOOKED_AT or value is _NO_BOUND:
                return _NO_BOUND
            added = self._checked(max(added, value.added, self._of_named(name, begun, demand, layout)))
        return _Bound(0, added, looked_at)

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
        whole = self._written(b"," + name + b":" if name else b",", demand, layout)
        return max(whole, begun + self._written(b":", demand, layout)) if begun else whole

    def _of_distinct(self, frame: ArrayFrame, layout: Layout, opened: Brackets, items: int) -> _Bound:
        """The bound of an array of different items: each item may be the longest of a list of short items."""
        if not frame.only_hard:
            return _NO_BOUND
        more, plan, longest, added = max(frame.plan.least - frame.length, 0), frame.plan, 0, 0
        for index in range(plan.varied + 1):
            member = item(frame._replace(length=index))
            if member is None:
                continue
            listed = self._parts.different(member.demand, items + more + 2, more)
            value = self._of_value(member.demand, layout, opened)
            if listed is None or value is _NO_BOUND:
                return _NO_BOUND
            texts, ending = listed
            if any(self._machine.values.of_type(member.demand, kind) for kind in ("object", "array")):
                # Whitespace may stand behind each byte of an object or array.
                ending *= self._bytes(b",", layout)
            longest = max([longest, *[self._tokens(b"," + text, layout) for text in texts]])
            added = max(added, value.added, ending, longest)
        return _Bound(more * longest + self._tokens(b"]", layout), added)

    # --- values -----------------------------------------------------------------------------------------------------

    def _of_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> _Bound:
        """The tokens that end a value which a token begins, if the token opens only brackets of ``opened`` in it."""
        alike = self._machine.values.first_alike(demand)
        return self._recalled(("value", alike, layout, opened), lambda: self._find_value(alike, layout, opened))

    def _written(self, before: bytes, demand: ValueConstraint, layout: Layout) -> int:
        """The most tokens that write an end of a text and a short value after the text, whitespace included.

        The text ends with a whole piece: a bracket, a comma, a colon, or a name and its colon.
        """
        texts = self._parts.value(demand).values()
        if not texts or layout.name not in _UNDECIDED:
            return max([self._tokens(before + text, layout) for text in texts], default=0)
        # Here a text is counted piece by piece, so the pieces of values that follow hundreds of names are counted once.
        alike = self._machine.values.first_alike(demand)
        most = self._recalled(
            ("written", alike, layout), lambda: _Bound(max([self._tokens(text, layout) for text in texts]), 0)
        )
        return self._tokens(before, layout) + most.rest

    def _find_value(self, demand: ValueConstraint, layout: Layout, opened: Brackets) -> _Bound:
        contents, texts, frames = self._parts.openings(demand)
        looked_at = 1
        added = max([self._tokens(text, layout) for text in (b"false", *texts)])
        for content, quoted in contents:
            added = self._checked(max(added, self._of_content(content, quoted)))
        within = _place(inside(layout))
        for frame in frames:
            bracket = b"[" if isinstance(frame, ArrayFrame) else b"{"
            if bracket not in opened:
                continue
            more = frozenset([brackets[1:] for brackets in opened if brackets[:1] == bracket])
            each = self._of_frame(frame, within, more, 0)
            looked_at += each.looked_at
            if looked_at > _MOST_LOOKED_AT or each.rest >= UNKNOWN:
                return _NO_BOUND
            added = self._checked(max(added, each.rest + each.added))
        return _Bound(0, added, looked_at)

    def _of_content(self, content: Content, quoted: bool) -> int:
        """The tokens that end a string or a number, from any state on."""
        key = "content", content.automaton, tuple(content.points), tuple(map(frozenset, content.at)), quoted
        return self._recalled(key, lambda: _Bound(0, self._find_content(content, quoted))).added

    def _find_content(self, content: Content, quoted: bool) -> int:
        automaton = content.automaton
        end, escape = (b'"', self._escape) if quoted else (b"", 0)
        if content.counts and content.free:
            count = max([0, *[point for point, found in zip(content.points, content.at, strict=True) if found]])
            parts, rest = divmod(count, _MOST_ALIKE)
            alike = self._farthest_end(b"a" * _MOST_ALIKE) if parts else 0
            return escape + parts * alike + self._farthest_end(b"a" * rest + end)
        if not content.counts and automaton.states <= _MOST_STATES:
            farthest = escape
            # Texts that end alike come one after another, so that a common end is counted once.
            for text, is_begun in sorted(self._parts.rests(content, quoted), key=lambda rest: rest[0][::-1]):
                self._count()
                # No escape begins within a character.
                farthest = max(farthest, self._farthest_end(text + end) + (0 if is_begun else escape))
            return farthest
        size = 1 if not quoted or is_plain(content) else 2 * _ESCAPED
        return escape + len(end) + self._parts.farthest_end(content) * size

    def _tokens(self, text: bytes, layout: Layout) -> int:
        if layout.name not in _UNDECIDED:
            laid_out, found = relaid(text, layout, "close"), 0
            # The blocks of a long text, written one by one, take at least as many tokens as the whole text.
            for at in range(0, len(laid_out), _BLOCK):
                self._count(_ENDS if at else 0)
                found += self._farthest_end(laid_out[at : at + _BLOCK])
            return found
        lines = layout.depth + _deepest(text) if layout.name == "open" else 0
        pieces = sum([count * self._recalled(("piece", piece), partial(self._of_piece, piece)).rest
                      for piece, count in Counter[bytes](PIECE.findall(text)).items()])  # fmt: skip
        return pieces + len(_GAPS.findall(text)) * self._recalled(("gap", lines), partial(self._of_gap, lines)).rest

    def _of_piece(self, piece: bytes) -> _Bound:
        return _Bound(self._farthest_end(piece), 0)

    def _of_gap(self, lines: int) -> _Bound:
        """The most tokens of the whitespace of a gap at a depth, or of a space."""
        return _Bound(max(1, *[self._farthest_end(b"\n" + b" " * (2 * depth)) for depth in range(2 * lines + 1)]), 0)

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


def _largest(bounds: Iterable[_Bound]) -> _Bound:
    found = [*bounds]
    return _Bound(max(each.rest for each in found), max(each.added for each in found))


def _place(layout: Layout) -> Layout:
    """A layout without the whitespace that was read, and with depth 0 if the depth makes no difference."""
    return Layout(layout.name, layout.depth if layout.name != "flat" else 0)


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


@kept_with_vocabulary
def rest_of_escapes(vocabulary: Vocabulary) -> int:
    """The most bytes of an escape that a token may leave to be written."""
    halves = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{0,2}\Z|\\u[dD]\Z")
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord("\\")).tolist()
    return _SURROGATES if any(halves.search(vocabulary.token_bytes[token]) for token in tokens) else _ESCAPE


@kept_with_vocabulary
def begin_names(vocabulary: Vocabulary) -> bool:
    """Whether some token may begin a member of an object and write a part of its name, after other text."""
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord('"')).tolist()
    return any(_BEGINS_NAME.search(vocabulary.token_bytes[token]) for token in tokens)


@kept_with_vocabulary
def names_at_once(vocabulary: Vocabulary) -> int:
    """The most names of members that one token may end."""
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord('"')).tolist()
    return max([vocabulary.token_bytes[token].count(b'"') for token in tokens], default=0)


@kept_with_vocabulary
def opened_at_once(vocabulary: Vocabulary) -> Brackets:
    """The brackets of nested objects and arrays that one token can open and leave open, the outermost first.

    For example ``b"[{"``; the beginnings of all such texts are listed, too. A token may begin outside strings, in a
    string, or after a backslash.
    """
    flat = vocabulary.flat_bytes
    found = set[bytes]()
    for token in vocabulary.tokens_with((flat == ord("{")) | (flat == ord("["))).tolist():
        text = vocabulary.token_bytes[token]
        within = [_REST_OF_STRING.match(text), _REST_OF_STRING.match(text, 1)]
        for begin in (0, *[match.end() for match in within if match]):
            opened = _left_open(text[begin:])
            found.update([opened[:size] for size in range(1, len(opened) + 1)])
    return frozenset(found)


def _left_open(text: bytes) -> bytes:
    """The brackets that a text opens outside strings and does not close; none if the text is no part of JSON."""
    opened, before, at = b"", b"", 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        lexeme = _LEXEME.match(text, at)
        if lexeme is None or (before == b"{" and lexeme[0][:1] not in b'"}'):
            return b""
        before, at = lexeme[0], lexeme.end()
        if before in (b"{", b"["):
            opened += before
        elif before in (b"}", b"]"):
            opened = opened[:-1]
    return opened
