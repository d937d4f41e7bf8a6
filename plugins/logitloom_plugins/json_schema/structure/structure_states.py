"""States between the strings of a text: values, numbers, literals, and the members of objects and arrays.

Few bytes may come in each of them, so what they say is a dictionary.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from logitloom_plugins.json_schema.structure import arrays, objects
from logitloom_plugins.json_schema.structure.members import Member, TruthVector, ValueConstraint
from logitloom_plugins.json_schema.structure.objects import ObjectFrame
from logitloom_plugins.json_schema.structure.satisfiability import Frame
from logitloom_plugins.json_schema.structure.string_states import NameContext, StringContext, TextContext
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["DEAD", "Operation", "StructureStates"]

DEAD: Final = -1
_BLANKS: Final = b" \n\t\r"

State = tuple[Any, ...]
Codes = dict[int, int]


class Operation(NamedTuple):
    """What a row's code below -1 means.

    ``push``: remember the return with number ``value`` and go to ``target``. ``pop``: go where the last return says for
    the answer ``value``. ``name``: a name has ended that must not come twice in its object; if it has not, go to
    ``target``.
    """

    kind: str
    value: Any
    target: int = -1


class StructureStates:
    """The codes of states outside strings.

    States are ``("value", demand, return, spaces, gap)`` before a value, ``("number", automaton, place, return)``
    inside one, ``("literal", rest, target)``, ``("object", frame, phase, spaces)``, ``("colon", frame, label, spaces)``
    after a name, ``("array", frame, phase, spaces)``, and ``("gap", base, spaces)`` after a gap's first whitespace.

    Args:
        machine: the automaton.
    """

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.values = machine.values
        self.whitespace = machine.whitespace
        self._masks: dict[ObjectFrame, int] = {}
        self._numbers: dict[Any, MooreMachine] = {}
        #: By the automaton of some numbers what it is made from.
        self.number_keys: dict[MooreMachine, tuple[tuple[Any, ...], frozenset[TruthVector]]] = {}

    def fill(self, row: Codes, state: State) -> None:
        """Fill in what may come in a state."""
        kind = state[0]
        if kind == "value":
            self._value_row(row, state)
        elif kind == "number":
            self._number_row(row, state)
        elif kind == "literal":
            _, rest, target = state
            row[rest[0]] = target if len(rest) == 1 else self.machine.number(("literal", rest[1:], target))
        elif kind == "object":
            self._object_row(row, state)
        elif kind == "array":
            self._array_row(row, state)
        elif kind == "colon":
            self._colon_row(row, state)
        elif kind == "gap":
            _, base, used = state
            row.update(self.machine.few(base))
            more = self.machine.number(("gap", base, used + 1)) if used < self.whitespace.most else DEAD
            row.update(dict.fromkeys(_BLANKS, more))

    def accepting(self, state: State) -> bool:
        """Whether the text may end in a state, if nothing is remembered."""
        if state[0] == "done":
            return True
        if state[0] == "number":
            following = self._after_number(state)
            return following is not None and self.accepting(self.machine.states[following])
        return False

    def _spaces(self, row: Codes, gap: str, used: int, state: State, place: int) -> bool:
        """Fill in the whitespace that may come; returns whether it need not."""
        least, most, characters = self.whitespace.gap(gap)
        if not least:
            if most:
                # All but the first state of a gap are told from it by how much may still come.
                row.update(dict.fromkeys(_BLANKS, self.machine.number(("gap", self.machine.number(state), 1))))
            return True
        if used < most:
            more = self.machine.number((*state[:place], used + 1, *state[place + 1 :]))
            for character in characters:
                row[ord(character)] = more
        return bool(used >= least)

    def _value_row(self, row: Codes, state: State) -> None:
        _, demand, back, used, gap = state
        if self._spaces(row, gap, used, state, 3):
            self._value_bytes(row, demand, back)

    def _value_bytes(self, row: Codes, demand: ValueConstraint, back: int) -> None:
        returns = self.machine.returns[back]
        wanted = frozenset(returns)
        for kind, text in (("null", b"null"), ("false", b"false"), ("true", b"true")):
            formulas = self.values.of_type(demand, kind)
            if formulas:
                target = returns.get(tuple([extra is True for extra in formulas[1:]]))
                if target is not None:
                    row[text[0]] = self.machine.number(("literal", text[1:], target))
        formulas = self.values.of_type(demand, "string")
        if formulas:
            context = self.text_context(formulas, wanted)
            if context.alive(context.start, 0):
                row[ord('"')] = self._push(back, ("text", context, context.start, 0))
        formulas = self.values.of_type(demand, "number")
        if formulas:
            self._number_bytes(row, formulas, wanted, back)
        for kind, opening in (("object", b"{"), ("array", b"[")):
            formulas = self.values.of_type(demand, kind)
            if formulas:
                frame = self.values.opened(kind, formulas, wanted)
                if frame is not None and self.values.lives(frame):
                    row[opening[0]] = self._push(back, (kind, frame, "open", 0))

    def text_context(self, formulas: tuple[Any, ...], wanted: frozenset[TruthVector]) -> StringContext:
        """The strings with one of some answers to formulas."""

        def made() -> StringContext:
            content = self.values.content(formulas)
            if content.found - wanted:
                content = content.restricted(lambda label: label in wanted)
            return TextContext(self.machine, content)

        context: StringContext = self.machine.context(("value", formulas, wanted), made)
        return context

    def name_context(self, frame: ObjectFrame) -> StringContext:
        """The names of members that may come next in an open object."""
        context: StringContext = self.machine.context(
            ("key", frame), lambda: NameContext(self.machine, frame, self.key_mask(frame))
        )
        return context

    def _push(self, back: int, state: State) -> int:
        return int(self.machine.operation(Operation("push", back, self.machine.number(state))))

    # --- numbers -----------------------------------------------------------------------------------------------

    def _number_bytes(self, row: Codes, formulas: tuple[Any, ...], wanted: frozenset[TruthVector], back: int) -> None:
        automaton = self.number_automaton(formulas, wanted)
        first = automaton.row(automaton.start)
        for byte in (first >= 0).nonzero()[0].tolist():
            row[byte] = self.machine.number(("number", automaton, int(first[byte]), back))

    def number_automaton(self, formulas: tuple[Any, ...], wanted: frozenset[TruthVector]) -> MooreMachine:
        """The numbers with one of some answers to formulas."""
        every = self.values.number(formulas)
        key = formulas, wanted & every.found
        known = self._numbers.get(key)
        if known is None:
            known = every.restricted(lambda label: label in wanted) if every.found - wanted else every
            self._numbers[key] = known
            self.number_keys[known] = key
        return known

    def _number_row(self, row: Codes, state: State) -> None:
        _, automaton, place, back = state
        following = self._after_number(state)
        if following is not None:
            row.update(self.machine.few(following))
        steps = automaton.row(place)
        for byte in (steps >= 0).nonzero()[0].tolist():
            row[byte] = self.machine.number(("number", automaton, int(steps[byte]), back))

    def _after_number(self, state: State) -> int | None:
        _, automaton, place, back = state
        label = automaton.outputs[place]
        return None if label is None else self.machine.returns[back].get(label)

    # --- members -----------------------------------------------------------------------------------------------

    def _returns_of(self, member: Any, after: Any) -> dict[TruthVector, State]:
        """The states after a member by its answer, where the container lives on."""
        result: dict[TruthVector, State] = {}
        if member is None or member.demand.must is False:
            return result
        for truth in (
            self.values.answers(member.demand) if member.demand.must is not True or member.demand.extras else [()]
        ):
            following = member.after(truth)
            if following is not None and self.values.lives(following):
                result[truth] = after(following)
        return result

    def _object_row(self, row: Codes, state: State) -> None:
        _, frame, phase, used = state
        gap = {"open": "open", "next": "close", "comma": "comma"}[phase]
        ready = self._spaces(row, gap, used, state, 3)
        if phase == "next":
            if ready:
                if self.key_mask(frame):
                    row[ord(",")] = self.machine.number(("object", frame, "comma", 0))
                self._close(row, frame, b"}")
            return
        if phase == "open" and ready:
            self._close(row, frame, b"}")
        if ready and self.key_mask(frame):
            context = self.name_context(frame)
            row[ord('"')] = self.machine.number(("text", context, context.start, 0))

    def _close(self, row: Codes, frame: Frame, byte: bytes) -> None:
        truth = self.values.end(frame)
        if truth is not None:
            row[byte[0]] = self.machine.pop(truth)

    def key_mask(self, frame: ObjectFrame) -> int:
        """The keys that may come next, as bits of the key automaton's labels."""
        known = self._masks.get(frame)
        if known is None:
            plan = frame.plan
            if frame.soft is True and not frame.extras and not frame.tracked and not plan.counts:
                return plan.next_keys(frame.place)
            known = 0
            for label, found in objects.next_members(frame):
                if self._lives_after(found):
                    known |= plan.keys.bit.get(label, 0)
            self._masks[frame] = known
        return known

    def _lives_after(self, member: Member) -> bool:
        """Whether some value of a member leaves a container that can be completed."""
        demand = member.demand
        if demand.must is False:
            return False
        truths = self.values.answers(demand) if demand.must is not True or demand.extras else [()]
        following = (member.after(truth) for truth in truths)
        return any(frame is not None and self.values.lives(frame) for frame in following)

    def member_returns(self, frame: ObjectFrame, label: Any) -> dict[TruthVector, State]:
        """The states after the value of a key."""
        return self._returns_of(objects.member(frame, label), lambda following: ("object", following, "next", 0))

    def _colon_row(self, row: Codes, state: State) -> None:
        _, frame, label, used = state
        if self._spaces(row, "close", used, state, 3):
            member = objects.member(frame, label)
            assert member is not None
            back = self.machine.returning(self.member_returns(frame, label))
            row[ord(":")] = self.machine.number(("value", member.demand, back, 0, "colon"))

    def _array_row(self, row: Codes, state: State) -> None:
        _, frame, phase, used = state
        ready = self._spaces(row, "open" if phase == "open" else "close", used, state, 3)
        if not ready:
            return
        self._close(row, frame, b"]")
        member = arrays.item(frame)
        returns = self._returns_of(member, lambda following: ("array", following, "next", 0))
        if not returns:
            return
        assert member is not None
        back = self.machine.returning(returns)
        if phase == "open":
            self._value_bytes(row, member.demand, back)
        else:
            row[ord(",")] = self.machine.number(("value", member.demand, back, 0, "comma"))
