"""Completions of open objects and arrays: required members are written, other members are searched for."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Container, Hashable, Iterator
from functools import partial
from typing import Final, NamedTuple

from logitloom_plugins.json_schema.folds.completion.chosen_names import chosen_of
from logitloom_plugins.json_schema.folds.completion.completion_memory import (
    COPIED,
    MEMBER,
    MOST_SEARCHED,
    NOTHING,
    Jump,
    Taken,
    Texts,
    ends_of,
)
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import (
    bytes_needed,
    counted_members,
    is_simple,
    next_required,
    required_items,
    required_members,
)
from logitloom_plugins.json_schema.folds.completion.short_contents import Canonical, canonical
from logitloom_plugins.json_schema.folds.completion.value_texts import other_values, short_values
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, ArrayMember, item
from logitloom_plugins.json_schema.grammar.members import TruthVector
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, ObjectMember
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import ArrayState, ObjectState, State
from logitloom_plugins.json_schema.schema.formula import operands

__all__ = ["container_jumps"]

#: The most frames that are visited to find out which truth vectors a search can find.
_MOST_EXPLORED: Final = 32
#: The most formulas about the value of a member whose truth is tried before a short value is found.
_MOST_DECIDED: Final = 2


class _Place(NamedTuple):
    """Where an open object or array goes on.

    Attributes:
        frame: the object or array.
        phase: the last thing that was written in it: ``open``: the bracket; ``next``: a member; ``comma``: a comma.
        taken: what must not come again.
        begun: whether a new line was begun. After the bracket a member must follow, after a member the end.
    """

    frame: Frame
    phase: str
    taken: Taken
    begun: bool


class _Coming(NamedTuple):
    """A member that may come next.

    Attributes:
        name: its name; of items empty.
        begin: its text up to the value.
        member: the member.
        names: the names that must not come after the member.
        items: the earlier items that must not come again.
        values: finds short values of it by truth vector.
        omitted: the frame if neither the member nor any member before it comes; ``None`` if some member must come.
    """

    name: str
    begin: bytes
    member: ObjectMember | ArrayMember
    names: frozenset[str]
    items: tuple[Canonical, ...]
    values: Callable[[], Texts]
    omitted: Frame | None = None


#: An entry of the queue: a lower bound on the bytes of a text, the beginning of the text, a unique number, and the
#: place after the beginning, the member whose value comes next, or a function that finds the place.
_Begun = tuple[int, bytes, int, _Place | _Coming | Callable[[], _Place | None]]


def container_jumps(texts: LocalTexts, state: State, taken: Taken) -> list[Jump]:
    """The jumps to the end of an open object or array."""
    assert isinstance(state, ObjectState | ArrayState)
    frame, phase, layout, _ = state
    must_differ = isinstance(frame, ArrayFrame) and frame.plan.distinct
    begun = layout.read > 0 and phase != "comma"
    names = chosen_of(texts, frame, taken.names) if isinstance(frame, ObjectFrame) else taken.names
    key = _Place(frame, phase, Taken(names, taken.items if must_differ else ()), begun)
    rests = texts.memory.rests
    if (not begun or phase == "open") and key not in rests:
        # The texts are not remembered here: after each of many names there is another long text of the same parts.
        parts = None
        if is_simple(frame) and not frame.tracked:
            parts = required_members(texts, frame)
        elif isinstance(frame, ArrayFrame):
            parts = required_items(texts, frame, key.taken.items)
        if parts is not None and (parts or not (begun or phase == "comma")):
            end = b"]" if isinstance(frame, ArrayFrame) else b"}"
            return [Jump((b"," if parts and phase == "next" else b"") + b",".join(parts) + end, None)]
    return ends_of(texts.memory.recalled(rests, key, partial(_search, texts, key)))


class _Queue:
    """Texts in the order of a lower bound on their bytes.

    Args:
        texts: the short texts of states.
        start: where the search begins.

    Attributes:
        work: the work of adding texts. Adding a member counts, too, because there may be many members.
    """

    def __init__(self, texts: LocalTexts, start: _Place) -> None:
        frame = start.frame
        self._texts = texts
        self._order = itertools.count()
        self.waiting: list[_Begun] = [(bytes_needed(texts, frame), b"", next(self._order), start)]
        self._must_differ = isinstance(frame, ArrayFrame) and frame.plan.distinct
        self._asked = None if isinstance(frame, ArrayFrame) else objects.asked_names(frame)
        self.work = 0

    def add_members(self, bound: int, text: bytes, place: _Place) -> None:
        """Add the members that may come next."""
        needed, comma = None, b"," if place.phase == "next" else b""
        # The bound includes a comma before each member, which the first member does not need.
        bound -= not comma
        for coming in _members(self._texts, place):
            longer = text + comma + coming.begin
            # The value is found only when a text with one byte of it is the next one in the queue.
            least = max(bound, len(longer) + 1)
            if not self.asks(coming.name):
                # What the object needs comes besides a member that no formula requires.
                needed = bytes_needed(self._texts, place.frame) if needed is None else needed
                least = max(bound, len(longer) + 1 + needed)
                self.work += MEMBER
            heapq.heappush(self.waiting, (least, longer, next(self._order), coming))

    def asks(self, name: str) -> bool:
        """Whether a formula may require a member; of arrays always."""
        return self._asked is None or name in self._asked

    def add_values(self, bound: int, text: bytes, coming: _Coming) -> None:
        """Add the short values of a member."""
        for answer, value in coming.values().items():
            longer = text + value
            self.work += MEMBER + len(longer) // COPIED
            items = (*coming.items, canonical(value)) if self._must_differ else ()
            after = partial(_after, self._texts, coming, answer, Taken(coming.names, items))
            heapq.heappush(self.waiting, (max(len(longer), bound), longer, next(self._order), after))


def _search(texts: LocalTexts, start: _Place) -> tuple[Texts, int]:
    """The texts to the end of an open object or array, and the work of finding them: an A* search through the members.

    Texts are taken in the order of their length plus a lower bound on the bytes that their object still needs. An
    object without alternatives that counts its members needs no search.
    """
    end = b"]" if isinstance(start.frame, ArrayFrame) else b"}"
    may_go_on = not (start.begun and start.phase == "next")
    if may_go_on and isinstance(start.frame, ObjectFrame) and start.frame.only_hard and start.frame.plan.least:
        parts = counted_members(texts, start.frame, start.taken.names)
        if parts:
            comma = b"," if start.phase == "next" else b""
            return {(): comma + b",".join(parts) + end}, MEMBER * len(parts)
    found: Texts = {}
    sought = _reachable_ends(texts, start.frame)
    queue = _Queue(texts, start)
    seen: set[Hashable] = set()
    # The work of finding the places after members is counted in ``led``, because it does not end the search.
    led, weight = 0, MEMBER + _parts_of(start.frame)
    while queue.waiting and queue.work < MOST_SEARCHED:
        texts.memory.check(queue.work + led)
        texts.memory.values.check_time()
        bound, text, number, place = heapq.heappop(queue.waiting)
        if isinstance(place, _Coming):
            asked = queue.asks(place.name)
            led += 0 if asked else weight
            if asked or _may_help(texts, place, found):
                queue.add_values(bound, text, place)
            continue
        if not isinstance(place, _Place):
            # The place after a member is found when the member is the first in the queue. Its bound may be larger.
            reached = place()
            led += weight
            if reached is None:
                continue
            place, more = reached, len(text) + bytes_needed(texts, reached.frame)
            if more > bound:
                heapq.heappush(queue.waiting, (more, text, number, place))
                continue
        frame, phase, taken, line = place
        queue.work += MEMBER
        mark = frame, phase, taken.names
        if mark in seen:
            continue
        seen.add(mark)
        truth = texts.values.end(frame) if phase != "comma" and not (line and phase == "open") else None
        if truth is not None:
            found.setdefault(truth, text + end)
            if len(found) >= sought:
                break
        if not (line and phase == "next") and _leads_to_others(frame, found):
            queue.add_members(bound, text, place)
    return found, queue.work + led


def _may_help(texts: LocalTexts, coming: _Coming, found: Texts) -> bool:
    """Whether a member may lead to the end with a truth vector that was not found, for some truth vector of its value.

    Its short values are not known, and may take long to find.
    """
    member, asked = coming.member, len(coming.member.demand.extras)
    if asked > _MOST_DECIDED:
        return True
    frames = [member.after(texts.values, answer) for answer in itertools.product((False, True), repeat=asked)]
    return any(each is not None and each != coming.omitted and _leads_to_others(each, found) for each in frames)


def _leads_to_others(frame: Frame, found: Container[TruthVector]) -> bool:
    """Whether an open object or array may end with a truth vector that was not found, as far as its formulas say."""
    return any(
        truth not in found
        and all(not isinstance(extra, bool) or extra is bit for extra, bit in zip(frame.extras, truth, strict=True))
        for truth in frame.wanted
    )


def _parts_of(frame: Frame) -> int:
    """The number of parts of the open formulas, and of the parts of these."""
    return sum([1 + len(operands(part)) for formula in frame.open_formulas for part in operands(formula)])


def _after(texts: LocalTexts, coming: _Coming, answer: TruthVector, taken: Taken) -> _Place | None:
    """The place after a member whose value has a truth vector; ``None`` if a text without the member is as good."""
    member = coming.member
    following = member.after(texts.values, answer) if member.reached is None else member.reached.get(answer)
    return None if following is None or following == coming.omitted else _Place(following, "next", taken, False)


def _reachable_ends(texts: LocalTexts, frame: Frame) -> int:
    """An upper bound on the number of truth vectors with which an open object or array can end."""
    if len(frame.wanted) == 1:
        return 1
    values, ends = texts.values, set[TruthVector]()
    for count, each in enumerate(values.explored(frame, lambda each: _leads_to_others(each, ends)), 1):
        truth = values.end(each)
        if truth is not None:
            ends.add(truth)
        if len(ends) == len(frame.wanted) or count == _MOST_EXPLORED:
            return len(frame.wanted)
    return len(ends)


def _members(texts: LocalTexts, place: _Place) -> Iterator[_Coming]:
    """The members that may come next."""
    frame, taken = place.frame, place.taken
    must_come = place.phase == "comma" or place.begun
    if isinstance(frame, ObjectFrame):
        yield from _named_members(texts, frame, taken.names, must_come)
        return
    one = item(frame)
    if one is not None and (must_come or not frame.only_hard or texts.values.end(frame) is None):
        values = partial(short_values, texts, one.demand)
        if frame.plan.distinct:
            values = partial(other_values, texts, one.demand, taken.items)
        yield _Coming("", b"", one, taken.names, taken.items, values)


def _named_members(texts: LocalTexts, frame: ObjectFrame, names: frozenset[str], must_come: bool) -> Iterator[_Coming]:
    keys = frame.plan.keys
    members = objects.next_members(texts.values, frame)
    if is_simple(frame):
        label = next_required(frame)
        if label is not None or not must_come:
            required = None if label is None else objects.member(texts.values, frame, label)
            members = iter([] if label is None or required is None else [(label, required)])
    for label, member in members:
        name: str | None = label[1] if label[0] == "name" else None
        if name is None:
            written = texts.contents.name(keys, keys.automaton.start, label, names if frame.tracked else NOTHING.names)
            if written is None:
                continue
            name = written.decode()
        once = bool(frame.tracked) and not frame.plan.declares(label)
        if not (once and name in names):
            more = names | {name} if once else names
            begin = b'"%b":' % texts.contents.escaped(name.encode())
            omitted = None if must_come else objects.without(texts.values, frame, label)
            yield _Coming(name, begin, member, more, (), partial(short_values, texts, member.demand), omitted)
