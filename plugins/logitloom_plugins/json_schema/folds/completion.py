"""Short texts with which what has been written becomes a complete value.

Each is a function of the position alone, and after its first bytes the completion is the rest of it. So the number of
tokens in this text is a bound that counts down. It is a shortest text in bytes but for these: of an object without
alternatives the required members are written, of strings the characters that need no escape are preferred, and nothing
is as deep as a shorter value of another type would be.

References:
    D. Knuth, "A generalization of Dijkstra's algorithm", 1977 (the shortest text of each nonterminal).
"""

from __future__ import annotations

import heapq
import itertools
import json
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, TypeGuard, TypeVar

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.nearest_ends import NearestEnds
from logitloom_plugins.json_schema.folds.short_contents import (
    BYTES,
    Canonical,
    canonical,
    longest_path,
    representatives,
    several,
)
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import ItemPosition, characters_of
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, ArrayMember, item
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.keys import Keys, Label
from logitloom_plugins.json_schema.grammar.layout import FLEXIBLE, Layout, relaid, relaid_within, settled
from logitloom_plugins.json_schema.grammar.least_solution import LeastSolution
from logitloom_plugins.json_schema.grammar.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, ObjectMember, ObjectPlan
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import (
    ArrayState,
    ColonState,
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
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.values.moore_machine import Output
from logitloom_plugins.json_schema.values.strings import Content

__all__ = ["Completions"]

#: Bytes of the memory, estimated, with those of an entry beside its texts; and the work of one search.
_MOST_REMEMBERED: Final = 1 << 24
_ENTRY: Final = 500
_MOST_SEARCHED: Final = 1 << 19
#: Frames that are looked at for the answers that a search can find.
_MOST_EXPLORED: Final = 256
#: States of a content, with numbers of characters, of which the nearest end is remembered.
_MOST_PAIRS: Final = 1 << 16
#: Items from which on they are not searched for one by one, and bytes of the longest text that is made of such items.
_MANY_ITEMS: Final = 64
_MOST_WRITTEN: Final = 1 << 19
_SHORTEST_CONTAINER: Final = 2
_LONGEST_ESCAPE: Final = len("\\u0000")
#: The index of each byte in the order in which short contents prefer bytes.
_ORDER: Final = bytes(BYTES.index(byte) for byte in range(256))
#: Bytes with which a search makes items differ, and the work of one.
_TRIED: Final = b'0123456789abcdefghijklmnopqrstuvwxyz",[]{}:-. \n'
_MOST_READ: Final = 1 << 17
#: Work is counted in bytes of texts. A position, a member that is tried, a byte that is read take as long as so many.
_POSITION: Final = 100
_MEMBER: Final = 100
_READ: Final = 4
#: A byte of a completion is written, laid out, read, and counted in tokens.
_WRITTEN: Final = 2
#: So many bytes are copied in the time of one that is looked at.
_COPIED: Final = 16

Texts = dict[TruthVector, bytes]
Items = tuple[Canonical, ...]
Found = TypeVar("Found", Texts, list[bytes])


class Completions:
    """The completions of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.

    Attributes:
        work: what was done for positions since :meth:`begin_counting`, about as many bytes of texts. What is found once
            for a schema, the shortest values, does not count.
        remembered: bytes of the memory, estimated. It is cleared when they are too many, which changes no result.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._values = machine.values
        self.work = 0
        #: The items that must not come again in the array whose completion is being found.
        self._items: Items = ()
        self._clear()
        #: How many entries of a memory are being found, each for the one before.
        self._within = 0
        #: Keys whose work has been counted.
        self._counted: set[Hashable] = set()

    def _clear(self) -> None:
        #: By constraint on a value; what a value of a recursive schema is made from are smaller ones.
        self._of_value = LeastSolution()
        self._of_rest: dict[Hashable, Texts] = {}
        self._of_stack: dict[tuple[Stack, TruthVector, Items], bytes | None] = {}
        self._of_position: dict[Position, bytes | None] = {}
        #: With whitespace: what comes after a string, object or array, in a layout.
        self._relaid: dict[tuple[bytes, Layout], bytes] = {}
        self._rests: dict[Hashable, list[bytes]] = {}
        self._of_name: dict[tuple[ObjectPlan, str], bytes] = {}
        self._short: dict[tuple[Content, int], list[tuple[Output, bytes, Canonical]]] = {}
        self._nearest: dict[Content, NearestEnds | None] = {}
        #: By key of a memory what it took to find its entry.
        self._costs: dict[Hashable, int] = {}
        self.remembered = 0

    def begin_counting(self) -> None:
        """Count the work from here on. The count does not depend on what is remembered."""
        self.work = 0
        self._counted.clear()
        self._of_position.clear()
        self._of_stack.clear()

    def _recalled(self, memory: dict[Hashable, Found], key: Hashable, find: Callable[[], tuple[Found, int]]) -> Found:
        """An entry of a memory, or the result of a function and the work that the result takes.

        The work is added once, and not where another entry is made from this one.
        """
        found = memory.get(key)
        if found is None:
            self._within += 1
            try:
                (found, self._costs[key]), certain = self._of_value.certainty(find)
            finally:
                self._within -= 1
            if certain:
                memory[key] = found
                self.remembered += _ENTRY + sum(map(len, found.values() if isinstance(found, dict) else found))
        if not self._within and key not in self._counted:
            self._counted.add(key)
            self.work += self._costs[key]
        return found

    def of(self, position: Position) -> bytes | None:
        """A short text after which the whole value is complete; ``None`` if a bounded search finds none."""
        if self.remembered > _MOST_REMEMBERED:
            self._clear()
        if position not in self._of_position:
            machine = self._machine
            found = self._searched(position) if position.items.frame else self._complete(position)
            self.work += _POSITION + _WRITTEN * len(found or b"")
            must_differ = machine.numbering.opening or machine.numbering.tracked
            if found is not None and not position.items.frame and must_differ:
                # Names and items that must differ are judged by reading, as the search does itself.
                reached = machine.read(position, found)
                if reached is None or not machine.ends(reached):
                    found = None
            self._of_position[position] = found
            self.remembered += _ENTRY + len(found or b"")
        return self._of_position[position]

    def _searched(self, position: Position) -> bytes | None:
        """The same within an array of different items: a search whose lower bounds are texts for any current item."""
        machine = self._machine
        queue = [(0, b"", b"", self._complete(position) or b"", position)]
        seen: set[Hashable] = set()
        work = 0
        found = None
        while queue and work < _MOST_READ:
            _, _, text, ahead, at = heapq.heappop(queue)
            if at in seen:
                continue
            seen.add(at)
            rest = self._chosen(at)
            if rest is None:
                rest = self._with_item(at, ahead)
            work += _READ * len(rest or ahead)
            if rest is not None:
                found = text + rest
                break
            for byte in {*_TRIED, *ahead[:1]}:
                reached = machine.read(at, bytes([byte]))
                rest = None if reached is None else self._complete(reached)
                work += _READ + len(rest or b"") // _COPIED
                if reached is not None and rest is not None:
                    longer = text + bytes([byte])
                    heapq.heappush(queue, (len(longer) + len(rest), longer.translate(_ORDER), longer, rest, reached))
        self.work += work
        return found

    def _chosen(self, position: Position) -> bytes | None:
        """The completion of a string or number that begins an item of :meth:`_others`; ``None`` if there is none.

        So what was chosen before the item is chosen within it.
        """
        items = self._items_of(position.items)
        state, _, text, escape = self._machine.states[position.state], *position.items[1:]
        if not items or not text:
            return None
        if isinstance(state, NumberState):
            content, begun = Content(state.numbers.automaton), text
        elif isinstance(state, TextState | EscapeState) and not isinstance(state.context, NameContext):
            content, begun = state.context.content, text[1:]
        else:
            return None
        quoted, taken = not isinstance(state, NumberState), frozenset(items)
        first: dict[Output, tuple[bytes, Canonical]] = {}
        for answer, written, value in self._short_values(content, quoted, 1 << len(items).bit_length()):
            if value not in taken:
                first.setdefault(answer, (written, value))
        self.work += _MEMBER
        found = []
        for answer, (written, value) in first.items():
            raw = json.loads(written).encode() if quoted else written
            if not raw.startswith(begun):
                continue
            rest = self._escaped(raw[len(begun) :]) + b'"' if quoted else raw[len(begun) :]
            if rest.startswith(escape):
                found.append(self._complete(position, (answer, rest[len(escape) :], value)))
        best = min([rest for rest in found if rest is not None], key=_shortlex, default=None)
        return best if self._is_complete_after(position, best) else None

    def _with_item(self, position: Position, ahead: bytes) -> bytes | None:
        """The text that ends the current item as a completion does, and is then short; ``None`` if an item repeats."""
        machine = self._machine
        at, size = position, 0
        while at.items.text and size < len(ahead):
            reached = machine.read(at, ahead[size : size + 1], can_end=False)
            if reached is None:
                return None
            at, size = reached, size + 1
        rest = self._complete(at)
        return ahead[:size] + rest if rest is not None and self._is_complete_after(at, rest) else None

    def _is_complete_after(self, position: Position, text: bytes | None) -> bool:
        """Whether a text ends the whole value, and no item in it repeats."""
        end = None if text is None else self._machine.read(position, text, can_end=False)
        return end is not None and self._machine.ends(end)

    def _complete(self, position: Position, item: tuple[Output, bytes, Canonical] | None = None) -> bytes | None:
        """The completion of a position; ``item`` is the answer, the rest and canonical value of its current item."""
        number, stack, written, items = position
        self._items = self._items_of(items)
        names = frozenset() if stack is None else stack.entry.names
        state = self._machine.states[number]
        if item is None:
            texts = self._local(state, names, written)
        else:
            answer, rest_of_item, value = item
            self._items = (*self._items, value)
            texts = {answer: rest_of_item}
            if isinstance(state, NumberState):
                texts = self._going_on(state.back, texts, names)
        found = self._joined(texts, stack)
        if found is None:
            return None
        text, rest = found
        if self._machine.whitespace.start.name == FLEXIBLE:
            return text + rest
        if isinstance(state, TextState | EscapeState):
            # Inside a string the layout is the layout of the object or array around the string.
            layout = state.context.layout if isinstance(state.context, NameContext) else self._layout(stack)
            begun = int(isinstance(state, EscapeState) and state.written == "\\")
            text, after = relaid_within(text, settled(layout), "close", begun)
        else:
            text, after = relaid_within(text, settled(self._layout_of(state)), _gap_of(state))
        key = rest, after
        if key not in self._relaid:
            self._relaid[key] = relaid(rest, after, "close")
            self.remembered += _ENTRY + len(rest)
        return text + self._relaid[key]

    def _items_of(self, position: ItemPosition) -> Items:
        """The earlier items of an array of different items, if it is the innermost open value that has begun."""
        frame = position.frame
        if frame is None or frame.before is not None:
            return ()
        return tuple([canonical(item) for item in self._machine.items.listed(frame.entry.done)])

    def _layout(self, stack: Stack) -> Layout:
        """The layout of a text after a value that is open at the top of a stack."""
        assert stack is not None
        return self._layout_of(next(iter(stack.entry.back.states.values())))

    def _layout_of(self, state: State) -> Layout:
        """The layout of a text in a state outside strings."""
        if isinstance(state, ValueState | ObjectState | ColonState | ArrayState):
            return state.layout
        if isinstance(state, NumberState):
            return self._layout_of(next(iter(state.back.states.values())))
        if isinstance(state, LiteralState):
            return self._layout_of(state.target)
        return self._machine.whitespace.start

    def _joined(self, texts: Texts, stack: Stack) -> tuple[bytes, bytes] | None:
        """One of some texts, by answer, and the completion after it."""
        if stack is None:
            return None if () not in texts else (texts[()], b"")
        found = []
        for answer, text in texts.items():
            rest = self._after(stack, answer)
            if rest is not None:
                found.append((text, rest))
        return min(found, key=lambda parts: _shortlex(parts[0] + parts[1]), default=None)

    def _after(self, stack: Stack, answer: TruthVector) -> bytes | None:
        """The completion after what is open within a stack ends with an answer."""
        assert stack is not None
        key = stack, answer, self._items
        if key not in self._of_stack:
            target = stack.entry.back.states.get(answer)
            found = None
            if target is not None:
                names = frozenset() if stack.before is None else stack.before.entry.names
                parts = self._joined(self._local(target, names, b""), stack.before)
                found = None if parts is None else parts[0] + parts[1]
            self._of_stack[key] = found
        return self._of_stack[key]

    # --- parts of completions ---------------------------------------------------------------------------------------

    def value(self, demand: ValueConstraint) -> Texts:
        """By answer a short value."""
        self._items = ()
        return self._value(demand)

    def required_texts(self, frame: Frame) -> list[bytes] | None:
        """The members, as they are written, with which an object ends after any others; ``None``: that is not known."""
        if isinstance(frame, ArrayFrame) or not _is_simple(frame) or frame.tracked:
            return None
        return self._required_members(frame)

    def ends(self, frame: Frame, most: int) -> tuple[list[bytes], int]:
        """Short texts that end an open object or array, from there on or after more members, and a number of members.

        Raises:
            BudgetExceeded: if there are more than ``most`` members, or if it takes too long.
        """
        self.begin_counting()
        self._items = ()
        found: dict[bytes, None] = {}
        count = 0
        for reached in self._reachable(frame):
            found.update(dict.fromkeys(self._rest(reached, "open", frozenset()).values()))
            count += 1
            if count > most or self.work > _MOST_SEARCHED:
                raise BudgetExceeded("There are too many members for all of them to be looked at.")
        return [*found], count

    def longest_name(self, frame: ObjectFrame) -> int:
        """The bytes by which the names in the rest of an object that counts its members grow, whichever have come."""
        keys, least = frame.plan.keys, frame.plan.least
        longest = 0
        for label in [label for label in keys.bit if not frame.plan.declares(label)]:
            asked = Content(keys.automaton), (keys.automaton.start, 0), label, 1 << (2 * least).bit_length()
            longest = max([longest, *map(len, self._shortest(keys, *asked, keys.bit[label]))])
        return least * longest * (1 if self.is_plain(Content(keys.automaton)) else _LONGEST_ESCAPE)

    def _reachable(self, frame: Frame) -> Iterable[Frame]:
        return filter(self._values.lives, [frame] if frame.only_hard else self._values.explored(frame))

    def members(self, frame: Frame, most: int) -> tuple[int, list[tuple[bytes, ValueConstraint]]]:
        """Of an open object or array the constraints on members that may come, with the names as they are written; and
        how many bytes a name that the schema does not list may take.

        Raises:
            BudgetExceeded: if there are more than ``most`` members, or if names can run out.
        """
        other = 0
        found: dict[tuple[bytes, ValueConstraint], None] = {}
        if isinstance(frame, ObjectFrame) and frame.tracked and self._is_scarce(frame):
            raise BudgetExceeded("How far away the next name is depends on the names that have come.")
        for reached in self._reachable(frame):
            if isinstance(reached, ArrayFrame):
                lengths = range(reached.plan.varied + 1) if frame.only_hard else [reached.length]
                items = [item(reached._replace(length=length)) for length in lengths]
                found.update(dict.fromkeys([(b"", one.demand) for one in items if one is not None]))
            else:
                keys = reached.plan.keys
                if frame.only_hard:
                    every = [(label, ValueConstraint(reached.plan.hard_child(label))) for label in keys.bit]
                    next_ones = [(label, one) for label, one in every if self._values.possible(one)]
                else:
                    # The frames with one name more left out are reachable, too, and tell of the names after it.
                    next_ones = [(label, one.demand) for label, one in objects.members_here(self._values, reached)]
                found.update(dict.fromkeys([(_name_of(label), one) for label, one in next_ones]))
                if any(label[0] != "name" for label, _ in next_ones):
                    other = max(other, _LONGEST_ESCAPE * keys.automaton.farthest + 2)
            if len(found) > most:
                raise BudgetExceeded("There are too many members for all of them to be looked at.")
        return other, [*found]

    def _is_scarce(self, frame: ObjectFrame) -> bool:
        """Whether the names that may come in an object can run out."""
        return self._machine.grammar.name_context(frame, self._machine.whitespace.start).scarce

    def openings(self, demand: ValueConstraint) -> tuple[list[tuple[Content, bool]], list[bytes], list[Frame]]:
        """Of a value: the contents of strings (``True``) and numbers, short texts, the objects and arrays it may be.

        Raises:
            BudgetExceeded: if no short text is found.
        """
        values, texts = self._values, self.value(demand)
        if not texts and values.possible(demand):
            raise BudgetExceeded("No short value was found.")
        contents = self._contents(demand)
        formulas = [(kind, values.of_type(demand, kind)) for kind in ("object", "array")]
        frames = [values.opened(kind, formula, frozenset(texts)) for kind, formula in formulas if formula]
        return contents, [*texts.values()], [frame for frame in frames if frame is not None and values.lives(frame)]

    def _contents(self, demand: ValueConstraint) -> list[tuple[Content, bool]]:
        values, string = self._values, self._values.of_type(demand, "string")
        number = values.of_type(demand, "number")
        found = [(values.content(string), True)] if string else []
        return [*found, (Content(values.number(number)), False)] if number else found

    def different(self, demand: ValueConstraint, others: int) -> tuple[list[bytes], int] | None:
        """Short values, of which one is none of some others, if there is such a value; and how many bytes a value that
        has been begun takes at most so that it is none of them. ``None`` if that is not known.
        """
        if any(self._values.of_type(demand, kind) for kind in ("object", "array")):
            return None
        texts, ending = [*self.value(demand).values(), b"false"], 0
        for content, quoted in self._contents(demand):
            automaton = content.automaton
            if content.counts and not content.free:
                return None
            texts += [text for _, text, _ in self._short_values(content, quoted, 1 << others.bit_length())]
            longest = longest_path(automaton.next)
            # Where loops make no other value all values are found without loops, and otherwise each turn makes one.
            more = content.least + others if content.counts else (longest or automaton.states * others) + others
            plain = not quoted or self.is_plain(content)
            ending = max(ending, (1 if plain else _LONGEST_ESCAPE) * more + quoted)
        return texts, ending

    def rests(self, content: Content, quoted: bool) -> set[bytes]:
        """The rests of short contents from any state on, as they are written."""
        found = set[bytes]()
        for state in range(content.automaton.states):
            found.update(self._texts(content, state, 0, content.found).values())
        return {self._escaped(text) for text in found} if quoted else found

    def farthest_end(self, content: Content) -> int:
        """The most bytes that a short content takes from any state on, at most."""
        nearest = self._nearest_ends(content)
        farthest = None if nearest is None else nearest.farthest()
        if farthest is not None:
            return farthest
        # After the least number of characters an end is as far away as there are states, at most.
        return content.least + content.automaton.states

    def is_plain(self, content: Content) -> bool:
        """Whether short contents have characters alone that stand for themselves in JSON."""
        return all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in representatives(content.automaton))

    # --- within one string, object or array ----------------------------------------------------------------------

    def _local(self, state: State, names: frozenset[str], written: bytes) -> Texts:
        """By answer a short text to the end of the innermost string, object or array; of the whole text after it."""
        if isinstance(state, ObjectState | ArrayState):
            return self._rest(state.frame, state.phase, names, state.layout.read > 0)
        if isinstance(state, TextState | EscapeState):
            return self._string(state, names, written)
        if isinstance(state, ValueState):
            if self._items:
                return self._item(state, names)
            return self._going_on(state.back, self._value(state.demand), names)
        if isinstance(state, GapState):
            return self._local(state.before, names, written)
        if isinstance(state, LiteralState):
            return _before(state.rest, self._local(state.target, names, written))
        if isinstance(state, NumberState):
            texts = self._texts(Content(state.numbers.automaton), state.content_state, 0, state.back.states)
            return self._going_on(state.back, texts, names)
        if isinstance(state, ColonState):
            member = objects.member(self._values, state.frame, state.label)
            assert member is not None
            return self._of_member(member, b":", names)
        return {(): b""}

    def _item(self, state: ValueState, names: frozenset[str]) -> Texts:
        """A value that none of the earlier items is, and what follows in its array."""
        found: Texts = {}
        items = self._items
        for answer, text in self._others(state.demand, items).items():
            self._items = (*items, canonical(text))
            _merge(found, self._going_on(state.back, {answer: text}, names))
        self._items = items
        return found

    def _going_on(self, back: Return, texts: Texts, names: frozenset[str]) -> Texts:
        """What is written of a value, each with the end of what it is in."""
        found: Texts = {}
        for answer, text in texts.items():
            target = back.states.get(answer)
            if target is not None:
                _merge(found, _before(text, self._local(target, names, b"")))
        return found

    def _of_member(self, member: ObjectMember, before: bytes, names: frozenset[str]) -> Texts:
        found: Texts = {}
        for answer, text in self._value(member.demand).items():
            following = member.after(self._values, answer)
            if following is not None and self._values.lives(following):
                _merge(found, _before(before + text, self._rest(following, "next", names)))
        return found

    # --- values -----------------------------------------------------------------------------------------------------

    def _value(self, demand: ValueConstraint) -> Texts:
        """By answer a short value."""
        known: Texts | None = self._of_value.known.get(demand)
        if known is None:
            self._within += 1
            try:
                known = self._of_value.of(demand, self._find_value)
            finally:
                self._within -= 1
        return known

    def _find_value(self, demand: ValueConstraint, before: Texts | None) -> tuple[Texts, bool]:
        found = self._of_value.found[demand] = dict(before or {})
        values = self._values
        wanted = frozenset([()]) if not demand.extras else values.answers(demand)
        for kind in ("null", "false", "true", "string", "number", "object", "array"):
            formulas = values.of_type(demand, kind)
            if not formulas:
                continue
            if kind in ("null", "false", "true"):
                texts = {tuple(extra is True for extra in formulas[1:]): kind.encode()}
            elif kind == "string":
                content = values.content(formulas)
                inside = self._texts(content, content.automaton.start, 0, content.found)
                texts = {label: b'"%b"' % self._escaped(text) for label, text in inside.items()}
            elif kind == "number":
                content = Content(values.number(formulas))
                texts = self._texts(content, content.automaton.start, 0, content.found)
            elif all(len(found.get(answer, b"...")) <= _SHORTEST_CONTAINER for answer in wanted):
                continue
            else:
                frame = values.opened(kind, formulas, wanted)
                opening = b"{" if kind == "object" else b"["
                alive = frame is not None and values.lives(frame)
                texts = _before(opening, self._rest(frame, "open", frozenset())) if alive else {}
            _merge(found, {answer: text for answer, text in texts.items() if answer in wanted})
        return found, False

    # --- open objects and arrays --------------------------------------------------------------------------------

    def _rest(self, frame: Frame, phase: str, names: frozenset[str], begun: bool = False) -> Texts:
        """By answer a short text that ends an open object or array.

        Args:
            frame: the object or array.
            phase: ``open``: nothing was written in it; ``next``: a member was; ``comma``: a comma, too.
            names: those that must not come again.
            begun: whether a line was begun for what comes: for a member after the bracket, for the end after a member.
        """
        begun = begun and phase != "comma"
        items = self._items if not self._within and _must_differ(frame) else ()
        key = frame, phase, names, begun, items
        if key not in self._of_rest and not begun and _is_simple(frame) and not frame.tracked:
            required = self._required_members(frame)
            if required is not None and (required or phase != "comma"):
                # Not remembered: after each of many names the rest is another long text, made from the same parts.
                return {(): (b"," if required and phase == "next" else b"") + b",".join(required) + b"}"}
        if key not in self._of_rest and not begun and isinstance(frame, ArrayFrame) and phase != "comma":
            repeated = self._required_items(frame)
            if repeated is not None:
                return {(): (b"," if repeated and phase == "next" else b"") + b",".join(repeated) + b"]"}
        return self._recalled(self._of_rest, key, lambda: self._search(*key))

    def _search(self, frame: Frame, phase: str, names: frozenset[str], begun: bool, items: Items) -> tuple[Texts, int]:
        """The same, and the work that it takes: a search through the members; items must differ from the given ones."""
        end = b"]" if isinstance(frame, ArrayFrame) else b"}"
        found: Texts = {}
        sought = self._reachable_answers(frame)
        # An A* search: first come the texts that are shortest together with what their object needs at least.
        order = itertools.count()
        queue: list[tuple[int, bytes, int, Frame, str, frozenset[str], Items]] = [
            (0, b"", next(order), frame, phase, names, items)
        ]
        seen: set[Hashable] = set()
        work = 0
        while queue and work < _MOST_SEARCHED:
            _, text, _, at, phase, names, items = heapq.heappop(queue)
            work += _MEMBER
            mark = at, phase, names
            if mark in seen:
                continue
            seen.add(mark)
            line = begun and text == b""
            answer = self._values.end(at) if phase != "comma" and not (line and phase == "open") else None
            if answer is not None:
                found.setdefault(answer, text + end)
                if len(found) >= sought:
                    break
            if line and phase == "next":
                continue
            for begin, member, more, written in self._members(at, "comma" if line else phase, names, items):
                separator = b"," if phase == "next" else b""
                for truth, value in written.items():
                    following = member.after(self._values, truth)
                    if following is not None:
                        longer = text + separator + begin + value
                        length = len(longer) + self._needed(following)
                        work += _MEMBER + len(longer) // _COPIED
                        came = (*items, canonical(value)) if _must_differ(frame) else ()
                        heapq.heappush(queue, (length, longer, next(order), following, "next", more, came))
        return found, work

    def _reachable_answers(self, frame: Frame) -> int:
        """With how many answers an open object or array can at most end: a search for others would not."""
        if len(frame.wanted) == 1:
            return 1
        reached = [*itertools.islice(self._values.explored(frame), _MOST_EXPLORED)]
        if len(reached) == _MOST_EXPLORED:
            return len(frame.wanted)
        return len({self._values.end(each) for each in reached} - {None})

    def _members(
        self, frame: Frame, phase: str, names: frozenset[str], items: Items
    ) -> Iterator[tuple[bytes, ObjectMember | ArrayMember, frozenset[str], Texts]]:
        """What may come next: its text up to the value, the member, the names after it, and the value by answer."""
        simple = frame.only_hard
        if isinstance(frame, ArrayFrame):
            one = item(frame)
            if one is not None and (phase == "comma" or not simple or self._values.end(frame) is None):
                texts = self._value(one.demand)
                yield b"", one, names, self._others(one.demand, items) if frame.plan.distinct else texts
            return
        plan = frame.plan
        needed: Iterator[tuple[Label, ObjectMember | None]] = objects.next_members(self._values, frame)
        if _is_simple(frame):
            label = self._required(frame)
            if label is not None or phase != "comma":
                needed = iter([(label, objects.member(self._values, frame, label))] if label is not None else [])
        for label, member in needed:
            if member is None:
                continue
            if label[0] == "name":
                name = label[1]
            else:
                keys = plan.keys
                taken = names if frame.tracked else frozenset()
                written = self._name(keys, keys.automaton.start, label, taken, b"")
                if written is None:
                    continue
                name = written.decode()
            once = frame.tracked and not plan.declares(label)
            if not (once and name in names):
                more = names | {name} if once else names
                yield b'"%b":' % self._escaped(name.encode()), member, more, self._value(member.demand)

    def _required_items(self, frame: ArrayFrame) -> list[bytes] | None:
        """The items that must still come in an array without alternatives, where these are many.

        ``None`` if they are few, if one has no short text, or if they are so long that no text of them is written.
        """
        more = frame.plan.least - frame.length
        if more < _MANY_ITEMS or not frame.only_hard or frame.plan.distinct:
            return None
        found, at, size = list[bytes](), frame, 0
        while len(found) < more and size < _MOST_WRITTEN:
            member = item(at)
            text = None if member is None else self._value(member.demand).get(())
            if member is None or text is None:
                return None
            alike = more - len(found) if at.length >= at.plan.varied else 1
            size += alike * (len(text) + 1)
            if size < _MOST_WRITTEN:
                found += [text] * alike
            following = member.after(self._values, ())
            assert isinstance(following, ArrayFrame)
            at = following
        return found if size < _MOST_WRITTEN else None

    def _required_members(self, frame: ObjectFrame) -> list[bytes] | None:
        """The texts of the members that must still come in an object without alternatives; ``None`` if one has none."""
        found = []
        for name in frame.plan.required_names(frame.position, frame.missing):
            text = self._of_member_named(frame.plan, name)
            if text is None:
                return None
            found.append(text)
        return found

    def _of_member_named(self, plan: ObjectPlan, name: str) -> bytes | None:
        """A short member with a name, as far as the hard atoms of its object say; ``None`` if there is none."""
        text = self._of_name.get((plan, name))
        if text is None:
            demand = ValueConstraint(plan.hard_child(("name", name)))
            texts, certain = self._of_value.certainty(lambda: self._value(demand))
            value = texts.get(())
            text = None if value is None else b'"%b":%b' % (self._escaped(name.encode()), value)
            if text is not None and certain:
                self._of_name[plan, name] = text
        return text

    def _needed(self, frame: Frame) -> int:
        """A lower bound on the bytes that an object still needs after a member, its bracket not counted; 0 of arrays.

        Each required member needs its name and its shortest value. Of what an object may satisfy in several ways the
        cheapest way counts.
        """
        if isinstance(frame, ArrayFrame):
            return 0
        plan = frame.plan
        required = plan.required_names(frame.position, frame.missing)
        needed = sum([self._bytes_of(plan, name) for name in required])
        return needed + self._least_for(plan, frame.soft, frozenset(required))

    def _least_for(self, plan: ObjectPlan, formula: Formula, counted: frozenset[str]) -> int:
        """The bytes of the members that a formula requires at least, less those that are counted elsewhere."""
        if isinstance(formula, bool):
            return 0
        operator = formula[0]
        if operator == "req":
            return 0 if formula[1] in counted else self._bytes_of(plan, formula[1])
        if operator in ("|", "1"):
            return min([self._least_for(plan, part, counted) for part in formula[1]])
        if operator != "&":
            return 0
        # Names that are required directly are different ones. Nested objects may require the same names.
        direct = sum([self._least_for(plan, part, counted) for part in formula[1] if part[0] == "req"])
        return max([direct, *[self._least_for(plan, part, counted) for part in formula[1] if part[0] != "req"]])

    def _bytes_of(self, plan: ObjectPlan, name: str) -> int:
        """The bytes of a comma and the shortest member with a name."""
        text = self._of_member_named(plan, name)
        return len(name) + len('"":0,') if text is None else len(text) + 1

    def _required(self, frame: ObjectFrame) -> Label | None:
        """The member that must come next in an object without alternatives; ``None`` if none must."""
        plan = frame.plan
        at = bisect_left(plan.required, frame.position)
        if at < len(plan.required):
            return "name", plan.names[plan.required[at]]
        return ("name", min(frame.missing)) if frame.missing else None

    def _others(self, demand: ValueConstraint, items: Items) -> Texts:
        """By answer a short value that is none of some others."""
        taken = frozenset(items)
        found = {answer: text for answer, text in self._value(demand).items() if canonical(text) not in taken}
        values = self._values
        for kind in ("null", "false", "true", "string", "number"):
            formulas = values.of_type(demand, kind)
            if not formulas or found:
                continue
            texts: list[tuple[Output, bytes, Canonical]]
            if kind in ("null", "false", "true"):
                texts = [(tuple(extra is True for extra in formulas[1:]), kind.encode(), kind.encode())]
            else:
                quoted = kind == "string"
                content = values.content(formulas) if quoted else Content(values.number(formulas))
                texts = self._short_values(content, quoted, 1 << len(items).bit_length())
            for answer, text, value in texts:
                if answer not in found and value not in taken:
                    found[answer] = text
        return found

    def _short_values(self, content: Content, quoted: bool, tries: int) -> list[tuple[Output, bytes, Canonical]]:
        """Short strings or numbers with any output, each as a text and by what all texts of the value share.

        So many are listed, or all; as many ways to one state are followed.
        """
        key = content, tries
        known = self._short.get(key)
        if known is None:
            first: dict[tuple[Output, Canonical], bytes] = {}
            for text, label in several(content, content.automaton.start, tries, tries, None, 0, None, [0]):
                written = b'"%b"' % self._escaped(text) if quoted else text
                first.setdefault((label, canonical(written)), written)
            known = self._short[key] = [(label, text, value) for (label, value), text in first.items()]
        return known

    # --- strings ----------------------------------------------------------------------------------------------------

    def _string(self, state: TextState | EscapeState, names: frozenset[str], written: bytes) -> Texts:
        """By answer the rest of a string, its quote included; of a name, and what follows in its object."""
        if isinstance(state, EscapeState):
            return self._escape(state, names, written)
        context, content_state, count, _ = state
        if not isinstance(context, NameContext):
            content = context.content
            found = self._texts(content, content_state, count, content.found)
            return {label: self._escaped(text) + b'"' for label, text in found.items()}
        frame = context.frame
        already = characters_of(written)
        keys, taken = context.keys, names if context.tracks else frozenset()
        may_come = context.mask & context.below[content_state]
        required = self._required(frame) if _is_simple(frame) else None
        if required is not None and not (
            keys.bit[required] & may_come and self._name(keys, content_state, required, taken, already) is not None
        ):
            required = None
        texts: Texts = {}
        for label in keys.bit if required is None else [required]:
            rest = self._name(keys, content_state, label, taken, already) if keys.bit[label] & may_come else None
            if rest is None:
                continue
            once = context.tracks and not frame.plan.declares(label)
            more = names | {(already + rest).decode()} if once else names
            after = self._local(ColonState(frame, label, context.layout), more, b"")
            self.work += _MEMBER + sum([len(text) for text in after.values()]) // _COPIED
            _merge(texts, _before(self._escaped(rest) + b'"', after))
        return texts

    def _name(
        self, keys: Keys, content_state: int, label: Label, taken: frozenset[str], already: bytes
    ) -> bytes | None:
        """The rest of a short name with a label that is none of some others; ``None`` if there is none."""
        if not keys.bit[label] & keys.below[content_state]:
            return None
        if label[0] == "name" and not taken:
            # The name itself, if what was written is a beginning of it.
            encoded, at, next_state = label[1].encode(), keys.automaton.start, keys.automaton.walk
            for size in range(len(encoded) + 1):
                if at == content_state:
                    rest: bytes = encoded[size:]
                    return rest
                at = next_state(encoded[size : size + 1], at)
        others, bit = {name.encode() for name in taken}, keys.bit[label]
        # One more than the others, rounded up to a power of two, so that few lists are made.
        for tries in (1, 1 << len(others).bit_length()):
            for text in self._shortest(keys, Content(keys.automaton), (content_state, 0), label, tries, bit):
                if already + text not in others:
                    return text
        return None

    def _escape(self, state: EscapeState, names: frozenset[str], written: bytes) -> Texts:
        """The same within an escape: of the character that comes next in the completion, or else of the first."""
        context, content_state, count, begun, _ = state
        before = TextState(context, content_state, count)
        ahead = self._string(before, names, written[: -len(begun)] if written else b"")
        found = {
            answer: text[len(begun) :]
            for answer, text in ahead.items()
            if text.lower().startswith(begun.encode().lower())
        }
        if found:
            return found
        move = min(self._machine.codes.strings.moves.in_escape(state), key=lambda each: min(each.read))
        byte, reached = bytes([min(move.read)]), move.target
        more = written + byte if context.tracks else b""
        assert isinstance(reached, TextState | EscapeState)
        return _before(byte, self._string(reached, names, more))

    def _texts(self, content: Content, content_state: int, count: int, labels: Iterable[Output]) -> Texts:
        """By output, of some, the rest of a short content."""
        nearest = self._nearest_ends(content)
        near = None if nearest is None else nearest.outputs(content_state, count)
        asked = labels if near is None else [label for label in near if label in labels]
        found = {label: self._shortest(content, content, (content_state, count), label) for label in asked}
        return {label: rests[0] for label, rests in found.items() if rests}

    def _shortest(
        self, about: Hashable, content: Content, begun: tuple[int, int], label: Output, tries: int = 1, bit: int = 0
    ) -> list[bytes]:
        """The rests of so many short contents, or of all; as many ways to one state are followed.

        Args:
            about: equal for equal contents.
            content: the content.
            begun: the state of its automaton, and the characters so far.
            label: the output that is asked for.
            tries: how many.
            bit: of the label, where the content are names.
        """
        below = about.below if isinstance(about, Keys) else []

        def find() -> tuple[list[bytes], int]:
            nearest = self._nearest_ends(content) if tries == 1 else None
            if nearest is not None:
                text = nearest.text(label, *begun)
                return [] if text is None else [text], len(text or b"") * len(nearest.columns)
            work = [0]
            alive = (lambda at: below[at] & bit != 0) if bit else None
            found = [text for text, _ in several(content, begun[0], tries, tries, alive, begun[1], label, work)]
            return found, work[0]

        return self._recalled(self._rests, (about, begun, label, tries), find)

    def _nearest_ends(self, content: Content) -> NearestEnds | None:
        """Where the contents with each output end; ``None`` if they have too many states."""
        if content not in self._nearest:
            pairs = content.automaton.states * (content.points[-1] + 1 if content.counts else 1)
            self._nearest[content] = NearestEnds(content, BYTES) if pairs <= _MOST_PAIRS else None
        return self._nearest[content]

    def _escaped(self, text: bytes) -> bytes:
        """Some characters as they are written in JSON; the rest of a character first, if one has been begun."""
        rest = text.lstrip(bytes(range(0x80, 0xC0)))
        begun = text[: len(text) - len(rest)]
        ascii_only = self._machine.grammar.escapes == "ascii"
        return begun + json.dumps(rest.decode(), ensure_ascii=ascii_only)[1:-1].encode()


def _gap_of(state: State) -> str:
    """The kind of gap in which a state outside strings stands."""
    if isinstance(state, ValueState):
        return state.gap
    return state.phase if isinstance(state, ObjectState | ArrayState) and state.phase != "next" else "close"


def _is_simple(frame: Frame) -> TypeGuard[ObjectFrame]:
    """Whether a frame is an object without alternatives and without a bound on the number of its members."""
    return isinstance(frame, ObjectFrame) and frame.only_hard and not frame.plan.counts


def _must_differ(frame: Frame) -> bool:
    """Whether a frame is an array whose items must all be different."""
    return isinstance(frame, ArrayFrame) and frame.plan.distinct


def _name_of(label: Label) -> bytes:
    """The name of a member; of one that the schema does not list a name of one or two characters."""
    return json.dumps(label[1], ensure_ascii=False).encode() if label[0] == "name" else b'"aa"'


def _before(text: bytes, texts: Texts) -> Texts:
    return {answer: text + rest for answer, rest in texts.items()}


def _merge(found: Texts, more: Texts) -> None:
    """Keep the shorter text of each answer."""
    for answer, text in more.items():
        if answer not in found or _shortlex(text) < _shortlex(found[answer]):
            found[answer] = text


def _shortlex(text: bytes) -> tuple[int, bytes]:
    return len(text), text
