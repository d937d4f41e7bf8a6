"""States between the strings of a text: values, numbers, literals, and the members of objects and arrays.

Each of them allows a small number of bytes, so its codes are a dictionary.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from logitloom_plugins.json_schema.structure import arrays, objects
from logitloom_plugins.json_schema.structure.members import Member, TruthVector
from logitloom_plugins.json_schema.structure.names import Name
from logitloom_plugins.json_schema.structure.objects import ObjectFrame
from logitloom_plugins.json_schema.structure.string_states import DEAD, NameContext, StringContext, TextContext
from logitloom_plugins.json_schema.structure.whitespace import after_gap, fillings, inside
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["DEAD", "NumberContext", "Operation", "Return", "StructureStates"]

_BLANKS: Final = b" \n\t\r"

State = tuple[Any, ...]
Codes = dict[int, int]


class Return(Name):
    """Continuation of a text after an open string, object or array: a state for each accepted truth vector.

    The parts are ``"return"`` and pairs of a truth vector and a state.

    Attributes:
        targets: by truth vector the number of the state.
    """

    def __init__(self, parts: tuple[Any, ...], targets: dict[TruthVector, int]) -> None:
        self.targets = targets


class NumberContext(Name):
    """The numbers for which formulas have one of some truth vectors: ``("number", formulas, vectors)``."""

    def __init__(self, parts: tuple[Any, ...], automaton: MooreMachine) -> None:
        self.automaton = automaton
        self._steps: dict[int, list[tuple[int, list[int]]]] = {}

    def steps(self, content_state: int) -> list[tuple[int, list[int]]]:
        """The next states after a state of the automaton, each with the bytes that lead there."""
        known = self._steps.get(content_state)
        if known is None:
            by_target: dict[int, list[int]] = {}
            for byte, target in enumerate(self.automaton.row(content_state).tolist()):
                if target >= 0:
                    by_target.setdefault(target, []).append(byte)
            known = self._steps[content_state] = list(by_target.items())
        return known


class Operation(NamedTuple):
    """The meaning of a code below -1.

    ``push``: remember the return ``value`` and go to state ``target``. ``pop``: go where the last return says for the
    truth vector ``value``. ``name``: a name has ended that must not come twice in its object; if it has not, go to
    ``target``.
    """

    kind: str
    value: Any
    target: int = -1


class StructureStates:
    """The codes of states outside strings.

    States are ``("value", demand, return, spaces, gap)`` before a value, ``("number", numbers, content state, return)``
    inside one, ``("literal", rest, target)``, ``("object", frame, phase, spaces)``, ``("colon", frame, label, spaces)``
    after a name, ``("array", frame, phase, spaces)``, and ``("gap", state, spaces)`` after a gap's first whitespace.
    The spaces are the number of characters read in a gap, or a layout (:mod:`.whitespace`).

    Args:
        machine: the automaton.
    """

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.values = machine.values
        self._most_blanks = machine.whitespace.most
        self._masks: dict[ObjectFrame, int] = {}
        self._contexts: dict[tuple[Any, ...], Any] = {}

    def sparse_row(self, state: State) -> Codes:
        """The codes of the bytes that may come in a state."""
        codes: Codes = {}
        kind = state[0]
        if kind == "object":
            self._object(codes, state)
        elif kind == "value":
            _, demand, back, used, gap = state
            after, _ = self._blanks(codes, gap, used, state, 3, True, False)
            if after is not None:
                self._value(codes, demand, self.machine.relaid_return(back, after), after)
        elif kind == "array":
            self._array(codes, state)
        elif kind == "colon":
            self._colon(codes, state)
        elif kind == "number":
            self._number(codes, state)
        elif kind == "literal":
            _, rest, target = state
            codes[rest[0]] = self.machine.number(target if len(rest) == 1 else ("literal", rest[1:], target))
        elif kind == "gap":
            _, base, used = state
            more = self.machine.number(("gap", base, used + 1)) if used < self._most_blanks else DEAD
            codes.update(self.machine.sparse_row(self.machine.number(base)))
            codes.update(dict.fromkeys(_BLANKS, more))
        return codes

    def accepting(self, state: State) -> bool:
        """Whether the text may end in a state, if nothing is open."""
        if state[0] == "number":
            following = self._after_number(state)
            return following is not None and self.accepting(self.machine.states[following])
        return bool(state[0] == "done")

    def _blanks(
        self, codes: Codes, gap: str, used: Any, state: State, index: int, member: bool, ends: bool
    ) -> tuple[Any, Any]:
        """Add the whitespace that may come; what is to be kept after it before a member, and before a closing bracket.

        Either is ``None`` if the gap must go on. The arguments tell which of the two may come at all.
        """
        if isinstance(used, int):
            if gap != "none" and self._most_blanks:
                # The states after more whitespace have the same codes but for how much may still come.
                codes.update(dict.fromkeys(_BLANKS, self.machine.number(("gap", state, 1))))
            return 0, 0
        name, depth, read = used
        after: list[Any] = [None, None]
        for closing, wanted in enumerate((member, ends)):
            for text, layout in fillings(used, gap, bool(closing)) if wanted else ():
                if len(text) > read:
                    more = self.machine.number((*state[:index], (name, depth, read + 1), *state[index + 1 :]))
                    codes[text[read]] = more
                elif len(text) == read:
                    after[closing] = after_gap(layout, depth)
        return after[0], after[1]

    # --- values ------------------------------------------------------------------------------------------------

    def _value(self, codes: Codes, demand: Any, back: Return, used: Any) -> None:
        machine, values, returns = self.machine, self.values, back.targets
        wanted, kinds = frozenset(returns), values.kinds(demand)
        for kind, text in (("null", b"null"), ("false", b"false"), ("true", b"true")):
            formulas = values.of_type(demand, kind) if kind in kinds else ()
            if formulas:
                target = returns.get(tuple([extra is True for extra in formulas[1:]]))
                if target is not None:
                    codes[text[0]] = machine.number(("literal", text[1:], machine.states[target]))
        formulas = values.of_type(demand, "string") if "string" in kinds else ()
        if formulas:
            context = self.text_context(formulas, wanted)
            if context.alive(context.start, 0):
                codes[ord('"')] = machine.push(back, ("text", context, context.start, 0))
        formulas = values.of_type(demand, "number") if "number" in kinds else ()
        if formulas:
            numbers = self.number_context(formulas, wanted)
            self._digits(codes, numbers, numbers.automaton.start, back)
        for kind, opening in (("object", b"{"), ("array", b"[")):
            formulas = values.of_type(demand, kind) if kind in kinds else ()
            if formulas:
                frame = values.opened(kind, formulas, wanted)
                if values.lives(frame):
                    codes[opening[0]] = machine.push(back, (kind, frame, "open", inside(used)))

    def text_context(self, formulas: tuple[Any, ...], wanted: frozenset[TruthVector]) -> StringContext:
        """The strings for which formulas have one of some truth vectors."""
        parts = ("string", formulas, wanted)
        context = self._contexts.get(parts)
        if context is None:
            content = self.values.content(formulas)
            if content.found - wanted:
                content = content.restricted(lambda label: label in wanted)
            context = self._contexts[parts] = TextContext(parts, self.machine, content)
        return context

    def name_context(self, frame: ObjectFrame, used: Any = 0) -> StringContext:
        """The names of members that may come next in an open object, in a layout."""
        parts = ("name", frame, used) if used else ("name", frame)
        context = self._contexts.get(parts)
        if context is None:
            context = self._contexts[parts] = NameContext(parts, self.machine, self.key_mask(frame))
        return context

    def number_context(self, formulas: tuple[Any, ...], wanted: frozenset[TruthVector]) -> NumberContext:
        """The numbers for which formulas have one of some truth vectors."""
        every = self.values.number(formulas)
        parts = ("number", formulas, wanted & every.found)
        context = self._contexts.get(parts)
        if context is None:
            automaton = every.restricted(lambda label: label in wanted) if every.found - wanted else every
            context = self._contexts[parts] = NumberContext(parts, automaton)
        return context

    def _digits(self, codes: Codes, numbers: NumberContext, content_state: int, back: Return) -> None:
        for target, read in numbers.steps(content_state):
            codes.update(dict.fromkeys(read, self.machine.number(("number", numbers, target, back))))

    def _number(self, codes: Codes, state: State) -> None:
        _, numbers, content_state, back = state
        following = self._after_number(state)
        if following is not None:
            codes.update(self.machine.sparse_row(following))
        self._digits(codes, numbers, content_state, back)

    def _after_number(self, state: State) -> int | None:
        _, numbers, content_state, back = state
        label = numbers.automaton.outputs[content_state]
        return None if label is None else back.targets.get(label)

    # --- members -----------------------------------------------------------------------------------------------

    def _return(self, member: Member, kind: str, used: Any) -> Return:
        """Where a text goes on after a member, if the container can be completed there."""
        after, lives = self.values.after(member), self.values.lives
        result: Return = self.machine.returning(
            {truth: (kind, frame, "next", used) for truth, frame in after if lives(frame)}
        )
        return result

    def _leads_on(self, member: Member) -> bool:
        """Whether some value of a member leaves a container that can be completed."""
        return any(self.values.lives(frame) for _, frame in self.values.after(member))

    def _object(self, codes: Codes, state: State) -> None:
        _, frame, phase, used = state
        truth = objects.end_object(frame) if phase != "comma" else None
        mask = self.key_mask(frame)
        gap = "close" if phase == "next" else phase
        used, closed = self._blanks(codes, gap, used, state, 3, mask != 0, truth is not None)
        if truth is not None and closed is not None:
            codes[ord("}")] = self.machine.pop(truth, closed)
        if mask and used is not None:
            if phase == "next":
                codes[ord(",")] = self.machine.number(("object", frame, "comma", used))
            else:
                context = self.name_context(frame, used)
                codes[ord('"')] = self.machine.number(("text", context, context.start, 0))

    def key_mask(self, frame: ObjectFrame) -> int:
        """The keys that may come next, as bits of the key automaton's labels."""
        known = self._masks.get(frame)
        if known is None:
            plan = frame.plan
            if frame.only_hard and not frame.tracked and not plan.counts:
                known = plan.next_keys(frame.position)
            else:
                known = 0
                for label, member in objects.next_members(frame):
                    if self._leads_on(member):
                        known |= plan.keys.bit.get(label, 0)
            self._masks[frame] = known
        return known

    def _colon(self, codes: Codes, state: State) -> None:
        _, frame, label, used = state
        used, _ = self._blanks(codes, "close", used, state, 3, True, False)
        if used is not None:
            member = objects.member(frame, label)
            assert member is not None
            back = self._return(member, "object", used)
            codes[ord(":")] = self.machine.number(("value", member.demand, back, used, "colon"))

    def _array(self, codes: Codes, state: State) -> None:
        _, frame, phase, used = state
        truth, member = arrays.end_array(frame), arrays.item(frame)
        leads_on = member is not None and self._leads_on(member)
        gap = "open" if phase == "open" else "close"
        used, closed = self._blanks(codes, gap, used, state, 3, leads_on, truth is not None)
        if truth is not None and closed is not None:
            codes[ord("]")] = self.machine.pop(truth, closed)
        if member is None or not leads_on or used is None:
            return
        back = self._return(member, "array", used)
        if phase == "open":
            self._value(codes, member.demand, back, used)
        else:
            codes[ord(",")] = self.machine.number(("value", member.demand, back, used, "comma"))
