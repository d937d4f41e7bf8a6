"""Short texts with which what has been written becomes a complete value.

Each is a function of the position alone, and after its first bytes the completion is the rest of it. So the number of
tokens that write it is a bound that counts down. It is a shortest text in bytes but for these: of an object without
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
from collections.abc import Iterator
from typing import Any, Final

from logitloom.automata.reach import steps_to
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure import objects
from logitloom_plugins.json_schema.structure.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.structure.members import Member, TruthVector, ValueConstraint
from logitloom_plugins.json_schema.structure.string_states import STRING_KINDS, NameContext
from logitloom_plugins.json_schema.structure.value_reader import Position, Stack, characters_of, number_of
from logitloom_plugins.json_schema.structure.whitespace import is_begun, relaid, settled
from logitloom_plugins.json_schema.values.strings import Content

__all__ = ["Completions"]

#: Entries of the memory, and steps of one search.
_MOST_REMEMBERED: Final = 1 << 15
_MOST_SEARCHED: Final = 1 << 12
_SHORTEST_CONTAINER: Final = 2
_LONGEST_ESCAPE: Final = len("\\u0000")
_CHARACTER: Final = ord("a")
#: The bytes of strings, those that stand for themselves in JSON first.
_BYTES: Final = sorted(
    range(256), key=lambda byte: (not 0x20 <= byte < 0x7F or byte in b'"\\', byte != _CHARACTER, byte)
)
#: The place of each byte in that order.
_ORDER: Final = bytes(_BYTES.index(byte) for byte in range(256))
#: Bytes with which a search makes items differ, and positions that it reads on from.
_TRIED: Final = b'0123456789abcdefghijklmnopqrstuvwxyz",[]{}:-. \n'
_MOST_READ: Final = 512

Texts = dict[TruthVector, bytes]


class Completions:
    """The completions of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.
    """

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._values = machine.values
        self._clear()
        #: Values of a recursive schema whose shortest texts are being found, as far as they have been.
        self._provisional: dict[Any, Texts] = {}
        self._done: set[Any] = set()
        self._depth = 0
        self._unsure = False

    def _clear(self) -> None:
        self._of_value: dict[Any, Texts] = {}
        self._of_rest: dict[Any, Texts] = {}
        self._of_stack: dict[tuple[Stack, TruthVector], bytes | None] = {}
        self._of_position: dict[Position, bytes | None] = {}
        self._in_content: dict[Any, bytes | None] = {}
        self._of_name: dict[Any, bytes] = {}

    def of(self, position: Position) -> bytes | None:
        """A short text after which the whole value is complete; ``None`` if a bounded search finds none."""
        if len(self._of_position) > _MOST_REMEMBERED:
            self._clear()
        if position not in self._of_position:
            machine = self._machine
            found = self._searched(position) if position.items.frame else self._complete(position)
            if found is not None and (machine.opening or machine.naming):
                # Names and items that must differ are judged by reading.
                reached = machine.read(position, found)
                if reached is None or not machine.ends(reached):
                    found = None
            self._of_position[position] = found
        return self._of_position[position]

    def _searched(self, position: Position) -> bytes | None:
        """The same within an array of different items: a search whose lower bounds are the texts for any items."""
        machine = self._machine
        queue: list[tuple[int, bytes, bytes, Position]] = [(0, b"", b"", position)]
        seen: set[Any] = set()
        while queue and len(seen) < _MOST_READ:
            _, _, text, at = heapq.heappop(queue)
            if machine.ends(at):
                return text
            if at in seen:
                continue
            seen.add(at)
            ahead = self._complete(at) or b""
            for byte in {*_TRIED, *ahead[:1]}:
                reached = machine.read(at, bytes([byte]))
                rest = None if reached is None else self._complete(reached)
                if rest is not None:
                    longer = text + bytes([byte])
                    heapq.heappush(queue, (len(longer) + len(rest), longer.translate(_ORDER), longer, reached))
        return None

    def _complete(self, position: Position) -> bytes | None:
        number, stack, written, _ = position
        names = frozenset() if stack is None else stack.entry[1]
        state = self._machine.states[number]
        found = self._joined(self._local(state, names, written), stack)
        if found is None or not self._machine.whitespace.start:
            return found
        if state[0] in STRING_KINDS:
            # The layout of a value in a string is that of what it is in.
            layout = state[1].used if isinstance(state[1], NameContext) else self._layout(stack)
            return relaid(found, settled(layout), "close", int(state[0] == "escape"))
        place = state[4] if state[0] == "value" else state[2] if state[0] in ("object", "array") else "close"
        return relaid(found, settled(self._layout_of(state)), "close" if place == "next" else place)

    def _layout(self, stack: Stack) -> Any:
        """The layout of a text after a value that is open at the top of a stack."""
        assert stack is not None
        return self._layout_of(self._machine.states[next(iter(stack.entry[0].targets.values()))])

    def _layout_of(self, state: Any) -> Any:
        """The layout of a text in a state outside strings."""
        if state[0] == "number":
            return self._layout_of(self._machine.states[next(iter(state[3].targets.values()))])
        if state[0] == "literal":
            return self._layout_of(state[2])
        return self._machine.whitespace.start if state[0] == "done" else state[3]

    def _joined(self, texts: Texts, stack: Stack) -> bytes | None:
        if stack is None:
            return texts.get(())
        found = []
        for answer, text in texts.items():
            rest = self._after(stack, answer)
            if rest is not None:
                found.append(text + rest)
        return min(found, key=_shortlex, default=None)

    def _after(self, stack: Stack, answer: TruthVector) -> bytes | None:
        """The completion after what is open within a stack ends with an answer."""
        assert stack is not None
        key = stack, answer
        if key not in self._of_stack:
            target = stack.entry[0].targets.get(answer)
            found = None
            if target is not None:
                names = frozenset() if stack.before is None else stack.before.entry[1]
                found = self._joined(self._local(self._machine.states[target], names, b""), stack.before)
            self._of_stack[key] = found
        return self._of_stack[key]

    def kinds(self, most: int) -> Iterator[tuple[int, bytes, list[bytes]]]:
        """Of each kind of open object or array, and of the value: the bytes that a string in it may at most still take,
        a short text that ends it, and short texts of its members, names included.

        Raises:
            BudgetExceeded: if there are more than ``most`` members, or if names can run out.
        """
        values, queue = self._values, [self._machine.root]
        seen = {*queue}
        for demand in queue:
            texts = self._value(demand)
            inside = max(
                (_farthest(values.content(f).automaton) for f in [values.of_type(demand, "string")] if f), default=0
            )
            yield inside, b"", [*texts.values()]
            for kind in ("object", "array"):
                formulas = values.of_type(demand, kind)
                frame = values.opened(kind, formulas, frozenset(texts)) if formulas else None
                if frame is None or not values.lives(frame):
                    continue
                simple = frame.soft is True and not frame.extras
                if kind == "object" and frame.tracked and self._machine.structure.name_context(frame).scarce:
                    raise BudgetExceeded("How far away the next name is depends on the names that have come.")
                for reached in [frame] if simple else values.explored(frame):
                    members: list[tuple[bytes, ValueConstraint]]
                    if isinstance(reached, ArrayFrame):
                        places = range(reached.plan.varied + 1) if simple else [reached.length]
                        items = [item(reached._replace(length=place)) for place in places]
                        members = [(b"", one.demand) for one in items if one is not None]
                    elif simple:
                        every = [
                            (label, ValueConstraint(reached.plan.hard_child(label))) for label in reached.plan.keys.bit
                        ]
                        members = [(_longest_name(label), one) for label, one in every if values.possible(one)]
                    else:
                        members = [(_longest_name(label), one.demand) for label, one in objects.next_members(reached)]
                    plan = reached.plan
                    keys = isinstance(reached, ArrayFrame) or not (plan.keys.patterns or plan.keys.demands)
                    inside = 0 if keys else _farthest(plan.keys.automaton)
                    ends = max(self._rest(reached, "open", frozenset()).values(), key=len, default=b"")
                    begun = [name + text for name, one in members for text in self._value(one).values()]
                    yield inside, ends, begun
                    for _, one in members:
                        if one not in seen:
                            seen.add(one)
                            queue.append(one)
                    most -= 1 + len(members)
                    if most < 0:
                        raise BudgetExceeded("There are too many kinds of members for all of them to be looked at.")

    # --- within one string, object or array ----------------------------------------------------------------------

    def _local(self, state: Any, names: frozenset[str], written: bytes) -> Texts:
        """By answer a short text to the end of the innermost string, object or array; of the whole text after it."""
        kind = state[0]
        if kind == "gap":
            return self._local(state[1], names, written)
        if kind == "done":
            return {(): b""}
        if kind == "literal":
            return _before(state[1], self._local(state[2], names, written))
        if kind == "value":
            return self._going_on(state[2], self._value(state[1]), names)
        if kind == "number":
            _, numbers, place, back = state
            content = Content(numbers.automaton)
            found = {label: self._text(content, place, 0, label) for label in back.targets}
            return self._going_on(back, {label: text for label, text in found.items() if text is not None}, names)
        if kind in ("object", "array"):
            return self._rest(state[1], state[2], names, is_begun(state[3]))
        if kind == "colon":
            _, frame, label, _ = state
            member = objects.member(frame, label)
            assert member is not None
            return self._of_member(member, b":", names)
        return self._string(state, names, written)

    def _going_on(self, back: Any, texts: Texts, names: frozenset[str]) -> Texts:
        """What is written of a value, each with the end of what it is in."""
        found: Texts = {}
        for answer, text in texts.items():
            target = back.targets.get(answer)
            if target is not None:
                _merge(found, _before(text, self._local(self._machine.states[target], names, b"")))
        return found

    def _of_member(self, member: Member, before: bytes, names: frozenset[str]) -> Texts:
        found: Texts = {}
        for answer, text in self._value(member.demand).items():
            following = member.after(answer)
            if following is not None and self._values.lives(following):
                _merge(found, _before(before + text, self._rest(following, "next", names)))
        return found

    # --- values -----------------------------------------------------------------------------------------------------

    def _value(self, demand: ValueConstraint) -> Texts:
        """By answer a short value."""
        known = self._of_value.get(demand)
        if known is not None:
            return known
        if demand in self._done:
            self._unsure = True
            return self._provisional[demand]
        if self._depth:
            return self._one_pass(demand)
        # A value of a recursive schema is made from smaller ones: passes, until no text becomes shorter.
        self._provisional = {}
        while True:
            self._done = set()
            before = {key: dict(texts) for key, texts in self._provisional.items()}
            self._depth += 1
            try:
                result = self._one_pass(demand)
            finally:
                self._depth -= 1
            if demand in self._of_value:
                break
            if before == self._provisional:
                self._of_value.update(self._provisional)
                break
        self._provisional, self._done, self._unsure = {}, set(), False
        return result

    def _one_pass(self, demand: ValueConstraint) -> Texts:
        self._done.add(demand)
        found = self._provisional.setdefault(demand, {})
        unsure_before, self._unsure = self._unsure, False
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
                inside = {label: self._text(content, content.automaton.start, 0, label) for label in content.found}
                texts = {label: b'"%b"' % self._escaped(text) for label, text in inside.items() if text is not None}
            elif kind == "number":
                content = Content(values.number(formulas))
                inside = {label: self._text(content, content.automaton.start, 0, label) for label in content.found}
                texts = {label: text for label, text in inside.items() if text is not None}
            elif all(len(found.get(answer, b"...")) <= _SHORTEST_CONTAINER for answer in wanted):
                continue
            else:
                frame = values.opened(kind, formulas, wanted)
                opening = b"{" if kind == "object" else b"["
                alive = frame is not None and values.lives(frame)
                texts = _before(opening, self._rest(frame, "open", frozenset())) if alive else {}
            _merge(found, {answer: text for answer, text in texts.items() if answer in wanted})
        certain = not self._unsure
        if certain:
            self._of_value[demand] = found
        self._unsure = unsure_before or not certain
        return found

    # --- open objects and arrays --------------------------------------------------------------------------------

    def _rest(self, frame: Any, phase: str, names: frozenset[str], begun: bool = False) -> Texts:
        """By answer a short text that ends an open object or array.

        Args:
            frame: the object or array.
            phase: ``open``: nothing was written in it; ``next``: a member was; ``comma``: a comma, too.
            names: those that must not come again.
            begun: whether a line was begun for what comes: for a member after the bracket, for the end after a member.
        """
        is_array = isinstance(frame, ArrayFrame)
        begun = begun and phase != "comma"
        key = frame, phase, names, begun
        known = self._of_rest.get(key)
        if known is not None:
            return known
        if not begun and not is_array and _is_simple(frame) and not frame.tracked:
            required = self._required_members(frame)
            if required is not None and (required or phase != "comma"):
                # Not remembered: after each of many names the rest is another long text, made from the same parts.
                return {(): (b"," if required and phase == "next" else b"") + b",".join(required) + b"}"}
        unsure_before, self._unsure = self._unsure, False
        end = b"]" if is_array else b"}"
        found: Texts = {}
        order = itertools.count()
        queue: list[Any] = [(0, b"", next(order), frame, phase, names, ())]
        seen: set[Any] = set()
        while queue and len(seen) < _MOST_SEARCHED:
            _, text, _, at, phase, names, items = heapq.heappop(queue)
            mark = at, phase, names
            if mark in seen:
                continue
            seen.add(mark)
            line = begun and text == b""
            answer = self._values.end(at) if phase != "comma" and not (line and phase == "open") else None
            if answer is not None:
                found.setdefault(answer, text + end)
                if len(found) >= len(frame.wanted):
                    break
            if line and phase == "next":
                continue
            for begin, member, more, written in self._members(at, "comma" if line else phase, names, items):
                separator = b"," if phase == "next" else b""
                for truth, value in written.items():
                    following = member.after(truth)
                    if following is not None and self._values.lives(following):
                        longer = text + separator + begin + value
                        entry = len(longer), longer, next(order), following, "next", more, (*items, value)
                        heapq.heappush(queue, entry)
        certain = not self._unsure
        if certain:
            self._of_rest[key] = found
        self._unsure = unsure_before or not certain
        return found

    def _members(
        self, frame: Any, phase: str, names: frozenset[str], items: tuple[bytes, ...]
    ) -> Iterator[tuple[bytes, Member, frozenset[str], Texts]]:
        """What may come next: its text up to the value, the member, the names after it, and the value by answer."""
        simple = frame.soft is True and not frame.extras
        if isinstance(frame, ArrayFrame):
            member = item(frame)
            if member is not None and (phase == "comma" or not simple or self._values.end(frame) is None):
                texts = self._value(member.demand)
                yield b"", member, names, self._others(member.demand, items) if frame.plan.distinct else texts
            return
        plan = frame.plan
        needed: Iterator[tuple[Any, Member | None]] = objects.next_members(frame)
        if _is_simple(frame):
            label = self._required(frame)
            if label is not None or phase != "comma":
                needed = iter([(label, objects.member(frame, label))] if label is not None else [])
        for label, member in needed:
            if member is None:
                continue
            if label[0] == "name":
                name = label[1]
            else:
                context = self._machine.structure.name_context(frame)
                written = self._name(context, context.start, label, names, b"")
                if written is None:
                    continue
                name = written.decode()
            once = frame.tracked and not plan.declares(label)
            if not (once and name in names):
                more = names | {name} if once else names
                yield b'"%b":' % self._escaped(name.encode()), member, more, self._value(member.demand)

    def _required_members(self, frame: Any) -> list[bytes] | None:
        """The texts of the members that must still come in an object without alternatives; ``None`` if one has none."""
        plan = frame.plan
        found = []
        for name in plan.required_names(frame.place, frame.missing):
            text = self._of_name.get((plan, name))
            if text is None:
                unsure_before, self._unsure = self._unsure, False
                value = self._value(ValueConstraint(plan.hard_child(("name", name)))).get(())
                text = None if value is None else b'"%b":%b' % (self._escaped(name.encode()), value)
                if text is not None and not self._unsure:
                    self._of_name[plan, name] = text
                self._unsure = unsure_before or self._unsure
            if text is None:
                return None
            found.append(text)
        return found

    def _required(self, frame: Any) -> Any:
        """The member that must come next in an object without alternatives; ``None`` if none must."""
        plan = frame.plan
        at = bisect_left(plan.required, frame.place)
        if at < len(plan.required):
            return "name", plan.names[plan.required[at]]
        return ("name", min(frame.missing)) if frame.missing else None

    def _others(self, demand: ValueConstraint, items: tuple[bytes, ...]) -> Texts:
        """By answer a short value that is none of some others."""
        found = {answer: text for answer, text in self._value(demand).items() if text not in items}
        values = self._values
        for kind in ("null", "false", "true", "string", "number"):
            formulas = values.of_type(demand, kind)
            if not formulas or found:
                continue
            if kind in ("null", "false", "true"):
                texts = [(tuple(extra is True for extra in formulas[1:]), kind.encode())]
            else:
                quoted = kind == "string"
                content = values.content(formulas) if quoted else Content(values.number(formulas))
                taken = {number_of(text) for text in items if text[:1] in b"-0123456789"}
                texts = [
                    (label, b'"%b"' % self._escaped(text) if quoted else text)
                    for text, label in _several(content, content.automaton.start, len(items) + 1, len(items) + 1)
                    if quoted or number_of(text) not in taken
                ]
            found.update({answer: text for answer, text in reversed(texts) if text not in items})
        return found

    # --- strings ----------------------------------------------------------------------------------------------------

    def _string(self, state: Any, names: frozenset[str], written: bytes) -> Texts:
        """By answer the rest of a string, its quote included; of a name, and what follows in its object."""
        kind, context, place, count, *_ = state
        if kind != "text":
            return self._escape(state, names, written)
        if not isinstance(context, NameContext):
            content = context.content
            found = {label: self._text(content, place, count, label) for label in content.found}
            return {label: self._escaped(text) + b'"' for label, text in found.items() if text is not None}
        frame = context.frame
        already = characters_of(written)
        required = self._required(frame) if _is_simple(frame) else None
        if required is not None and self._name(context, place, required, names, already) is None:
            required = None
        texts: Texts = {}
        for label in context.keys.bit if required is None else [required]:
            rest = self._name(context, place, label, names, already)
            if rest is None:
                continue
            once = context.tracks and not frame.plan.declares(label)
            more = names | {(already + rest).decode()} if once else names
            after = self._local(("colon", frame, label, context.used), more, b"")
            _merge(texts, _before(self._escaped(rest) + b'"', after))
        return texts

    def _name(self, context: Any, place: int, label: Any, names: frozenset[str], already: bytes) -> bytes | None:
        """The rest of a short name with a label that may come and has not; ``None`` if there is none."""
        bit = context.keys.bit[label] & context.mask
        if not bit & context.below[place]:
            return None
        if label[0] == "name" and not context.tracks:
            # The name itself, if what was written is a beginning of it.
            encoded, at, next_state = label[1].encode(), context.start, context.content.automaton.walk
            for size in range(len(encoded) + 1):
                if at == place:
                    rest: bytes = encoded[size:]
                    return rest
                at = next_state(encoded[size : size + 1], at)
        taken = {name.encode() for name in names} if context.tracks else set()
        tries = len(taken) + 1
        for text, _ in _several(context.content, place, tries, tries, lambda at: context.below[at] & bit, label=label):
            if already + text not in taken:
                return text
        return None

    def _escape(self, state: Any, names: frozenset[str], written: bytes) -> Texts:
        """The same within an escape: of the character that comes next in the completion, or else of the first."""
        _, context, place, count, *rest = state
        machine = self._machine
        begun = "\\" + {"escape": "", "hex": f"u{rest[0] if rest else ''}"}.get(state[0], "")
        if state[0] == "low":
            begun = f"\\u{rest[0]:04x}{rest[1]}"
        ahead = self._string(("text", context, place, count), names, written[: -len(begun)] if written else b"")
        found = {
            answer: text[len(begun) :]
            for answer, text in ahead.items()
            if text.lower().startswith(begun.encode().lower())
        }
        if found:
            return found
        codes = machine.sparse_row(machine.number(state))
        byte = min(codes)
        reached = machine.states[codes[byte]]
        more = written + bytes([byte]) if context.tracks else b""
        return _before(bytes([byte]), self._string(reached, names, more))

    def _text(self, content: Any, place: int, count: int, label: Any) -> bytes | None:
        """The rest of a short content with an output."""
        meanings = tuple([tuple(outputs.items()) for outputs in content.at])
        key = content.automaton, tuple(content.points), meanings, place, count, label
        if key not in self._in_content:
            found = _several(content, place, 1, 1, None, count, label)
            self._in_content[key] = next((text for text, _ in found), None)
        return self._in_content[key]

    def _escaped(self, text: bytes) -> bytes:
        """Some characters as they are written in JSON; the rest of a character first, if one has been begun."""
        rest = text.lstrip(bytes(range(0x80, 0xC0)))
        begun = text[: len(text) - len(rest)]
        ascii_only = self._machine.strings.escapes == "ascii"
        return begun + json.dumps(rest.decode(), ensure_ascii=ascii_only)[1:-1].encode()


def _several(
    content: Any,
    place: int,
    visits: int,
    most: int,
    alive: Any = None,
    count: int = 0,
    label: Any = None,
) -> Iterator[tuple[bytes, Any]]:
    """Short contents from a state on with their outputs, the shortest first.

    Args:
        content: the content.
        place, count: the state of its automaton, and the characters so far.
        visits: how many ways to one state are followed.
        most: how many contents of one state are found.
        alive: whether a state is worth a visit; default: as the content says.
        label: the only output that is asked for; default: any.
    """
    automaton = content.automaton
    if content.counts and content.free and label is not None and place == automaton.start:
        # All characters are alike here, so only the number of them is looked for.
        points = [count, *[point for point in content.points if point > count]]
        length = next((point for point in points if content.ends(place, point) == label), None)
        if length is not None:
            yield bytes([_CHARACTER]) * (length - count), label
        return
    columns: dict[int, list[int]] = {}
    for byte in _BYTES:
        columns.setdefault(int(automaton.byte_class[byte]), []).append(byte)
    # Of the bytes that lead to the same state as many as ways to it are followed.
    most_alike = min(visits, max(map(len, columns.values())))
    steps = [(alike[i], column) for i in range(most_alike) for column, alike in columns.items() if i < len(alike)]
    boundaries, table = automaton.boundaries, automaton.next
    queue = [(place, count)]
    texts: list[tuple[int, int]] = [(-1, -1)]
    seen: dict[tuple[int, int], int] = {(place, count): 1}
    found = 0
    for at, (state, characters) in enumerate(queue):
        output = content.ends(state, characters)
        if output is not None and (label is None or output == label):
            text = bytearray()
            back = at
            while texts[back][0] >= 0:
                text.append(texts[back][1])
                back = texts[back][0]
            yield bytes(reversed(text)), output
            found += 1
            if label is not None and found >= most:
                return
        following = content.counted(characters + boundaries[state])
        row = table[state]
        for byte, column in steps:
            target = int(row[column])
            if target < 0 or not (content.alive(target, following) if alive is None else alive(target)):
                continue
            if seen.get((target, following), 0) < visits:
                seen[target, following] = seen.get((target, following), 0) + 1
                queue.append((target, following))
                texts.append((at, byte))


def _is_simple(frame: Any) -> bool:
    """Whether an object has no alternatives and no bound on the number of its members."""
    return frame.soft is True and not frame.extras and not frame.plan.counts


def _longest_name(label: Any) -> bytes:
    return json.dumps(label[1]).encode() + b" : , " if label[0] == "name" else b'"" : , '


def _farthest(automaton: Any) -> int:
    """The most bytes, as they are written in JSON, that an end can be away."""
    steps = steps_to(automaton.next, automaton.accepting)
    return _LONGEST_ESCAPE * int(steps.max(initial=0))


def _before(text: bytes, texts: Texts) -> Texts:
    return {answer: text + rest for answer, rest in texts.items()}


def _merge(found: Texts, more: Texts) -> None:
    """Keep the shorter text of each answer."""
    for answer, text in more.items():
        if answer not in found or _shortlex(text) < _shortlex(found[answer]):
            found[answer] = text


def _shortlex(text: bytes) -> tuple[int, bytes]:
    return len(text), text
