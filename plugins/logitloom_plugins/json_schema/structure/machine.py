"""The texts of a schema as a pushdown automaton over bytes, made state by state as texts visit it.

A state has a code for each byte, with one of three meanings: go to another state; begin a string, an object or an
array, that is, push a return and enter the first state inside; or end one with a truth vector (pop). A *return* holds
for each accepted truth vector the state in which the text goes on. Every state can be completed, so no text runs into a
dead end.
"""

from __future__ import annotations

import json
import weakref
from typing import Any, Final

from logitloom.automata import Budget, BudgetTracker
from logitloom_plugins.json_schema.schema.keywords import Keywords
from logitloom_plugins.json_schema.structure.distinct_items import DistinctItems
from logitloom_plugins.json_schema.structure.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.structure.names import Linked, Name
from logitloom_plugins.json_schema.structure.objects import ObjectFrame, counted
from logitloom_plugins.json_schema.structure.satisfiability import Satisfiability
from logitloom_plugins.json_schema.structure.string_states import STRING_KINDS, StringStates
from logitloom_plugins.json_schema.structure.structure_states import DEAD, Operation, Return, StructureStates
from logitloom_plugins.json_schema.structure.value_reader import Position, Stack, characters_of
from logitloom_plugins.json_schema.structure.whitespace import Whitespace, is_begun

__all__ = ["DEAD", "DONE", "NO_NAMES", "STATE_BYTES", "Machine", "accepts", "name_of", "read"]

#: About the bytes that a state takes with its codes.
STATE_BYTES: Final = 1 << 10
NO_NAMES: Final[frozenset[str]] = frozenset()
_MISSING: Final[dict[int, int]] = {}
#: Layouts that are found in a text that was begun in another: by the first comma or colon in it.
_LAYOUTS: Final = ("compact", "spaced")

State = tuple[Any, ...]
DONE: Final[State] = ("done",)


def name_of(written: bytes) -> str:
    """The name of a member that is written like this between its quotes."""
    name: str = json.loads(b'"' + written + b'"')
    return name


class Machine:
    """The automaton of a schema.

    Args:
        keywords: the formulas of the schema.
        whitespace: where whitespace may stand.
        escapes: how characters of strings may be written: ``any``, ``minimal`` or ``ascii``.
        tracker: the budget of the compilation.
        root: what is asked of the whole value; default: the schema.
        solved: what another process has found of an equal schema, as :meth:`.Satisfiability.take_solved` takes it.

    Attributes:
        start: the first state.
        operations: by ``-2 - code``.
        codes: results of :meth:`sparse_row`, by state.
        tracked: states inside names of which what is written must be remembered.
        scarce: those of them inside names of which others might not be left.
        distinct: what texts have written in arrays whose items must all be different.
        opening: states in which such an array has just begun.
    """

    def __init__(
        self,
        keywords: Keywords,
        whitespace: Whitespace,
        escapes: str,
        tracker: BudgetTracker,
        root: ValueConstraint | None = None,
        solved: Any = None,
    ) -> None:
        #: Held while states and rows are made: texts make them as they visit them, and all texts of a schema share
        #: them.
        self.lock = keywords.lock
        self.keywords = keywords
        self.whitespace = whitespace
        self.values = Satisfiability(keywords, tracker)
        if solved is not None:
            self.values.take_solved(solved)
        # Weakly, because texts that wait keep parts of the machine alive, and must not keep all of it.
        this = weakref.proxy(self)
        self.strings = StringStates(this, escapes)
        self.structure = StructureStates(this)
        self.budget: Budget = tracker.budget
        self.tracker = tracker
        self.states: list[State] = []
        self._number: dict[State, int] = {}
        self.codes: dict[int, dict[int, int] | None] = {}
        self.tracked: set[int] = set()
        self.scarce: set[int] = set()
        self.distinct = DistinctItems(this)
        self.opening: set[int] = set()
        self.operations: list[Operation] = []
        self._operation: dict[tuple[Any, ...], int] = {}
        self._returns: dict[Any, Return] = {}
        #: The stack after each push, so that equal stacks are seldom different objects.
        self._laid_out: dict[tuple[int, int], int] = {}
        self.pushed: dict[tuple[Return, Stack], Linked[tuple[Any, frozenset[str]]]] = {}
        done = self.returning({(): DONE})
        self.root = ValueConstraint(("s", keywords.document.root)) if root is None else root
        self.satisfiable = self.values.possible(self.root)
        self.start = self.number(("value", self.root, done, whitespace.start, "none"))
        if self.satisfiable:
            # The first mask asks for it in any case, and what is too large here is said before decoding starts.
            for code in (self.sparse_row(self.start) or {}).values():
                self.every_code(code if code >= 0 else self.operations[-2 - code].target)

    @property
    def description(self) -> str:
        """The schema and the options, as text: equal for machines that accept the same texts by the same states."""
        keywords = self.keywords
        parts = [keywords.document.nodes[keywords.document.root].schema, *self.whitespace, self.strings.escapes]
        parts += [keywords.formats, keywords.additional_properties, keywords.integers, sorted(keywords.repeatable)]
        return repr(parts)

    def fresh(self) -> Machine:
        """The same automaton, of which nothing has been visited.

        Raises:
            BudgetExceeded: if that takes too long.
        """
        tracker = BudgetTracker(self.budget, "the schema")
        self.keywords.forget_unfinished()
        machine = Machine(self.keywords, self.whitespace, self.strings.escapes, tracker)
        tracker.stop_the_clock()
        return machine

    # --- states and codes --------------------------------------------------------------------------------------

    def number(self, state: State) -> int:
        """The number of a state."""
        known = self._number.get(state)
        if known is None:
            # Each state has its place before its number is known: an interruption in between leaves a place unused.
            known = len(self.states)
            self.states.append(state)
            if state[0] in STRING_KINDS:
                if state[1].tracks:
                    self.tracked.add(known)
                    if state[1].scarce:
                        self.scarce.add(known)
            elif state[0] == "array" and state[2] == "open" and not is_begun(state[3]) and state[1].plan.distinct:
                self.opening.add(known)
            self._number[state] = known
            if known % 256 == 255:
                self.tracker.check_states(known)
                self.tracker.check_bytes(known * STATE_BYTES, "its states")
        return known

    def _operation_code(self, *operation: Any) -> int:
        known = self._operation.get(operation)
        if known is None:
            known = -2 - len(self.operations)
            self.operations.append(Operation(*operation))
            self._operation[operation] = known
        return known

    def push(self, back: Return, state: State) -> int:
        """The code for the beginning of a string, object or array."""
        return self._operation_code("push", back, self.number(state))

    def pop(self, truth: TruthVector, layout: Any = 0) -> int:
        """The code for the end of a string, object or array; with the layout of the text, if that has been found."""
        found = _LAYOUTS.index(layout[0]) if layout and layout[0] in _LAYOUTS else -1
        return self._operation_code("pop", truth, found)

    def named(self, frame: ObjectFrame, label: Any, used: Any = 0) -> int:
        """The code for the end of a name that must not come twice."""
        return self._operation_code("name", label, self.number(("colon", frame, label, used)))

    def returning(self, states: dict[TruthVector, State]) -> Return:
        """The return with one state for each of some truth vectors."""
        key = tuple(sorted(states.items())) if len(states) > 1 else tuple(states.items())
        known = self._returns.get(key)
        if known is None:
            targets = {truth: self.number(state) for truth, state in key}
            known = self._returns[key] = Return(("return", *key), targets)
        return known

    def laid_out(self, state: int, layout: int) -> int:
        """A state after a value in which the layout of the text was found."""
        known = self._laid_out.get((state, layout))
        if known is None:
            kind = self.states[state]
            if kind[0] in ("object", "array") and kind[3] and kind[3][0] == "flat":
                state = self.number((*kind[:3], (_LAYOUTS[layout], *kind[3][1:])))
            known = self._laid_out[state, layout] = state
        return known

    def relaid_return(self, back: Return, used: Any) -> Return:
        """The same return in a text whose layout has been found."""
        if not used or used[0] not in _LAYOUTS:
            return back
        layout = _LAYOUTS.index(used[0])
        states = {truth: self.laid_out(target, layout) for truth, target in back.targets.items()}
        return back if states == back.targets else self.returning({t: self.states[n] for t, n in states.items()})

    def adopted(self, value: Any) -> Any:
        """A state or a stack, or a part of one, of another machine of the schema: with what this one made of names."""
        if isinstance(value, Name):
            kind, *parts = (self.adopted(part) for part in value.parts)
            if kind == "return":
                return self.returning(dict(parts))
            structure, values = self.structure, self.values
            make: dict[str, Any] = {
                "string": structure.text_context,
                "name": structure.name_context,
                "number": structure.number_context,
                "object": values.object_plan,
                "array": values.array_plan,
            }
            return make[kind](*parts)
        if isinstance(value, Linked):
            found: Linked[Any] | None = None
            for entry in value.entries():
                found = Linked(self.adopted(entry), found)
            return found
        if isinstance(value, tuple):
            parts = [self.adopted(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    # --- codes -------------------------------------------------------------------------------------------------

    def sparse_row(self, state: int) -> dict[int, int] | None:
        """By byte the codes of a state that allows a small number of bytes; ``None`` in strings, between escapes."""
        sparse = self.codes.get(state, _MISSING)
        if sparse is _MISSING:
            kind = self.states[state]
            sparse = self.strings.sparse_row(kind) if kind[0] in STRING_KINDS else self.structure.sparse_row(kind)
            if sparse and DEAD in sparse.values():
                sparse = {byte: code for byte, code in sparse.items() if code != DEAD}
            self.codes[state] = sparse
        return sparse

    def code(self, state: int, byte: int) -> int:
        """The code of one byte in a state."""
        sparse = self.sparse_row(state)
        return self.strings.code(self.states[state], byte) if sparse is None else sparse.get(byte, DEAD)

    def every_code(self, state: int) -> dict[int, int]:
        """By byte the codes of a state."""
        sparse = self.sparse_row(state)
        return self.strings.codes(self.states[state]) if sparse is None else sparse

    def before_gap(self, state: int) -> int:
        """The state before the whitespace that was read; a state that whitespace does not lead to itself."""
        return self.number(self.states[state][1]) if state >= 0 and self.states[state][0] == "gap" else state

    def accepting(self, state: int) -> bool:
        """Whether the text may end in a state, if nothing is remembered."""
        return self.structure.accepting(self.states[state])

    def possible(self, state: int) -> list[int]:
        """The bytes that may come in a state."""
        return [*self.every_code(state)]

    # --- texts -------------------------------------------------------------------------------------------------

    def applied(self, code: int, stack: Stack, written: bytes | None = None) -> tuple[int, Stack]:
        """State and stack after a code below -1; the state is ``DEAD`` after a name that has come before.

        Args:
            code: the code of a byte that begins or ends a value.
            stack: the stack before the byte.
            written: a name that ends here, as it is written, without quotes; ``None``: it may come twice.
        """
        kind, value, target = self.operations[-2 - code]
        if kind == "push":
            key = value, stack
            pushed = self.pushed.get(key)
            if pushed is None:
                pushed = self.pushed[key] = Linked((value, NO_NAMES), stack)
            return target, pushed
        assert stack is not None
        back, names = stack.entry
        if kind == "pop":
            reached = back.targets[value]
            return reached if target < 0 else self.laid_out(reached, target), stack.before
        if names:
            following, frame, label, used = self.states[target]
            left = counted(frame, label, names)
            target = target if left is frame else self.number((following, left, label, used))
        if written is not None:
            name = name_of(written)
            if name in names:
                return DEAD, stack
            stack = Linked((back, names | {name}), stack.before)
        return target, stack

    def has_another_name(self, state: int, names: frozenset[str], written: bytes) -> bool:
        """Whether a name that is being written can become one that has not come."""
        kind, context, content_state, *_ = self.states[state]
        if kind == "text":
            begun, keys, mask = characters_of(written), context.keys, context.mask
            alike = [name for name in names if name.encode().startswith(begun) and keys.bit[keys.label(name)] & mask]
            return bool(keys.left(mask)[content_state] > len(alike))
        # Digits above nine in one case: in the other they write the same.
        codes = [
            (code, bytes([byte])) for byte, code in (self.sparse_row(state) or {}).items() if byte not in b"ABCDEF"
        ]
        return any(self.has_another_name(code, names, written + byte) for code, byte in codes)

    def read(self, reached: Position, text: bytes, can_end: bool = True) -> Position | None:
        """Read some bytes; ``None`` if they are not allowed.

        Args:
            reached: how far the text has been read.
            text: the bytes.
            can_end: whether the items that must be different can still be completed so; otherwise it is enough that
                none has come twice.
        """
        state, stack, written, items = reached
        states, codes, tracked, opening = self.states, self.codes, self.tracked, self.opening
        at, size = 0, len(text)
        while at < size:
            if states[state][0] == "text" and not items.frame and state not in tracked:
                state, at = self.strings.run(state, text, at)
                if state == DEAD:
                    return None
                if at == size:
                    break
            byte = text[at]
            at += 1
            sparse = codes.get(state)
            code = sparse.get(byte, DEAD) if sparse is not None else self.code(state, byte)
            if code == DEAD:
                return None
            if code < DEAD:
                code, stack = self.applied(code, stack, written)
                if code == DEAD:
                    return None
            if code in tracked:
                written = written + bytes([byte]) if state in tracked else b""
            elif written:
                written = b""
            if items.frame:
                items_after = self.distinct.step(items, byte, code in opening)
                if items_after is None:
                    return None
                items = items_after
            elif code in opening:
                items = self.distinct.begin()
            state = code
        if state in self.scarce and stack is not None:
            names = stack.entry[1]
            if names and not self.has_another_name(state, names, written):
                return None
        # As the constructor does it, less a call.
        following = tuple.__new__(Position, (state, stack, written, items))
        return following if not (can_end and items.frame) or self.distinct.has_completion(following) else None

    def ends(self, position: Position) -> bool:
        """Whether the text may end at a position."""
        return position.stack is None and self.accepting(position.state)


def read(machine: Machine, data: bytes) -> Position | None:
    """How far some bytes lead; ``None`` if no accepted text begins with them."""
    return machine.read(Position(machine.start), data)


def accepts(machine: Machine, text: str | bytes) -> bool:
    """Whether a text is the JSON text of a valid value."""
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            return False
    reached = read(machine, text)
    return reached is not None and machine.ends(reached)
