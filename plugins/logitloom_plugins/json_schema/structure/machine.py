"""The texts of a schema as a pushdown automaton over bytes, made state by state as it is visited.

A state's row says for each byte: go to another state; begin a string, an object or an array, that is, remember where to
go on after it (push) and enter its first state; or end one with an answer (pop). What is remembered is a *return*: for
each welcome answer the state to go on in. Every state can be completed, so no text runs into a dead end.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import Budget, BudgetTracker
from logitloom_plugins.json_schema.schema.keywords import Keywords
from logitloom_plugins.json_schema.structure.distinct_items import DistinctItems
from logitloom_plugins.json_schema.structure.members import TruthVector, ValueConstraint
from logitloom_plugins.json_schema.structure.objects import ObjectFrame
from logitloom_plugins.json_schema.structure.reachable import visit_constraints
from logitloom_plugins.json_schema.structure.satisfiability import Satisfiability
from logitloom_plugins.json_schema.structure.stacks import Stacks
from logitloom_plugins.json_schema.structure.string_states import STRING_KINDS, StringContext, StringStates
from logitloom_plugins.json_schema.structure.structure_states import DEAD, Operation, StructureStates
from logitloom_plugins.json_schema.structure.value_reader import Position
from logitloom_plugins.json_schema.structure.whitespace import Whitespace

__all__ = ["DEAD", "DONE", "Machine", "Operation", "Position"]

#: Sizes of the table, in states. Moving what is there costs milliseconds, and memory that nobody has touched nothing.
_CAPACITIES: Final = (64, 512, *(8192 << n for n in range(0, 20, 4)))

State = tuple[Any, ...]
DONE: Final[State] = ("done",)


def _untouched(states: int) -> NDArray[np.int32]:
    """``[states, 256]`` in memory that comes page by page as it is written.

    Of large arrays NumPy asks for huge pages, and the first of these can take ten milliseconds to come.
    """
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return np.frombuffer(mmap.mmap(-1, 4 * 256 * states, **private), dtype=np.int32).reshape(states, 256)


class Machine:
    """The automaton of a schema.

    Args:
        keywords: the formulas of the schema.
        whitespace: where whitespace may stand.
        escapes: how characters of strings may be written: ``any``, ``minimal`` or ``ascii``.
        tracker: the budget of the compilation.

    Attributes:
        start: the first state.
        operations: by ``-2 - code``.
        returns: per number the states by answer.
        stacks: what texts have remembered.
        accepting: per state whether the text may end there (with nothing remembered).
        tracked: states inside names of which what is written must be remembered.
        naming: codes of operations ``name``.
        distinct: what texts have written in arrays whose items must all be different.
        opening: states in which such an array has just begun.
    """

    def __init__(self, keywords: Keywords, whitespace: Whitespace, escapes: str, tracker: BudgetTracker) -> None:
        #: For whoever reads on: states and rows are made as they are visited, by all who share the schema.
        self.lock = keywords.lock
        self.keywords = keywords
        self.whitespace = whitespace
        self.values = Satisfiability(keywords, tracker)
        self.strings = StringStates(self, escapes)
        self.structure = StructureStates(self)
        self.budget: Budget = tracker.budget
        self.tracker = tracker
        self.states: list[State] = []
        self._number: dict[State, int] = {}
        self._rows: NDArray[np.int32] = np.empty((_CAPACITIES[0], 256), dtype=np.int32)
        self._ready: NDArray[np.bool_] = np.zeros(_CAPACITIES[0], dtype=bool)
        self._few: dict[int, dict[int, int] | None] = {}
        self.tracked: set[int] = set()
        self.naming: set[int] = set()
        self.distinct = DistinctItems(self)
        self.opening: set[int] = set()
        self.operations: list[Operation] = []
        self._operation: dict[Operation, int] = {}
        self.returns: list[dict[TruthVector, int]] = []
        self.stacks = Stacks(self.operations, self.returns)
        self._return: dict[tuple[Any, ...], int] = {}
        self._contexts: dict[Any, StringContext] = {}
        done = self.returning({(): DONE})
        root = ValueConstraint(("s", keywords.document.root))
        self.satisfiable = self.values.possible(root)
        self.start = self.number(("value", root, done, 0, "none"))
        if self.satisfiable:
            if keywords.unclear:
                visit_constraints(self.values, root)
            # The first mask asks for it in any case, and what is too large here is said before decoding starts.
            for code in (self.few(self.start) or {}).values():
                self.few(code if code >= 0 else self.operations[-2 - code].target)
        tracker.stop_the_clock()

    @property
    def description(self) -> str:
        """The schema and the options, as text: equal for machines that accept the same texts by the same states."""
        keywords = self.keywords
        parts = [keywords.document.nodes[keywords.document.root].schema, *self.whitespace, self.strings.escapes]
        parts += [keywords.formats, keywords.additional_properties, sorted(keywords.repeatable)]
        return repr(parts)

    def fresh(self) -> Machine:
        """The same automaton, of which nothing has been visited.

        Raises:
            BudgetExceeded: if that takes too long.
        """
        return Machine(self.keywords, self.whitespace, self.strings.escapes, BudgetTracker(self.budget, "the schema"))

    # --- numbers for things ------------------------------------------------------------------------------------

    def number(self, state: State) -> int:
        """The number of a state."""
        known = self._number.get(state)
        if known is None:
            known = self._number[state] = len(self.states)
            self.states.append(state)
            if known == len(self._rows):
                rows = _untouched(next(n for n in _CAPACITIES if n > known))
                rows[:known] = self._rows
                self._rows = rows
                self._ready = np.append(self._ready, np.zeros(len(rows) - known, dtype=bool))
            if state[0] in STRING_KINDS and state[1].tracks:
                self.tracked.add(known)
            elif state[0] == "array" and state[2:] == ("open", 0) and state[1].plan.distinct:
                self.opening.add(known)
            if known % 256 == 255:
                self.tracker.check_states(known)
                self.tracker.check_bytes(known * self._rows[0].nbytes, "its states")
        return known

    def operation(self, operation: Operation) -> int:
        """The code of an operation in a row."""
        known = self._operation.get(operation)
        if known is None:
            known = self._operation[operation] = len(self.operations)
            self.operations.append(operation)
            if operation.kind == "name":
                self.naming.add(-2 - known)
        return -2 - known

    def returning(self, states: dict[TruthVector, State]) -> int:
        """The number of a return."""
        key = tuple(sorted(states.items(), key=lambda pair: pair[0]))
        known = self._return.get(key)
        if known is None:
            known = self._return[key] = len(self.returns)
            self.returns.append({truth: self.number(state) for truth, state in states.items()})
        return known

    def pop(self, truth: TruthVector) -> int:
        """The code for the end of a string, object or array."""
        return self.operation(Operation("pop", truth))

    def context(self, key: Any, make: Any) -> StringContext:
        """The context of a kind of string, made once."""
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = make()
            found.key = key
        return found

    # --- rows --------------------------------------------------------------------------------------------------

    @property
    def table(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """``[capacity, 256] int32`` and ``[capacity]``: the rows, and which of them can be relied on."""
        return self._rows, self._ready

    def rows(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """``[capacity, 256] int32``, in which the rows of some states can be relied on."""
        missing = np.zeros(len(self.states), dtype=bool)
        missing[states] = True
        missing &= ~self._ready[: len(missing)]
        for state in missing.nonzero()[0].tolist():
            # The row of one may have made that of the next.
            self.row(state)
        return self._rows

    def row(self, state: int) -> NDArray[np.int32]:
        """``[256] int32``: the codes of one state."""
        if not self._ready[state]:
            kind = self.states[state]
            numbers: int | list[int] = state
            if self._is_narrow(kind):
                few = self.few(state) or {}
                rows = np.full(256, DEAD, dtype=np.int32)
                rows[list(few)] = list(few.values())
            elif self.strings.is_small(kind):
                numbers, rows = self.strings.rows_beside(kind)
            else:
                rows = np.full(256, DEAD, dtype=np.int32)
                self.strings.fill(rows, kind)
            self._rows[numbers] = rows
            self._ready[numbers] = True
        result: NDArray[np.int32] = self._rows[state]
        return result

    def few(self, state: int) -> dict[int, int] | None:
        """The codes of the bytes that may come in a state, if there are few because of what it is."""
        try:
            return self._few[state]
        except KeyError:
            few = self._few[state] = self._find_few(state)
            return few

    def _find_few(self, state: int) -> dict[int, int] | None:
        kind = self.states[state]
        if not self._is_narrow(kind):
            return None
        codes: dict[int, int] = {}
        (self.strings if kind[0] in STRING_KINDS else self.structure).fill(codes, kind)
        return {byte: code for byte, code in codes.items() if code != DEAD}

    def _is_narrow(self, kind: State) -> bool:
        """Whether few bytes may come in a state because of what it is."""
        return kind[0] not in STRING_KINDS or self.strings.narrow(kind)

    def code(self, state: int, byte: int) -> int:
        """What one byte leads to in a state."""
        few = self.few(state)
        if few is not None:
            return few.get(byte, DEAD)
        # Whoever reads a text needs no whole rows.
        return int(self._rows[state, byte]) if self._ready[state] else self.strings.code(state, byte)

    def gap(self, state: int) -> tuple[int, int] | None:
        """Of a state reached by whitespace: the state before any, and how much more may come; ``None`` of others."""
        if state < 0 or self.states[state][0] != "gap":
            return None
        _, base, used = self.states[state]
        return base, self.whitespace.most - used

    def accepting(self, state: int) -> bool:
        """Whether the text may end in a state, if nothing is remembered."""
        return self.structure.accepting(self.states[state])

    def named(self, frame: ObjectFrame, label: Any) -> int:
        """The code for the end of a name that must not come twice."""
        return self.operation(Operation("name", None, self.after_key(frame, label)))

    def possible(self, state: int) -> list[int]:
        """The bytes that may come in a state."""
        few = self.few(state)
        return [*few] if few is not None else (self.row(state) != DEAD).nonzero()[0].tolist()

    def read(self, reached: Position, text: bytes) -> Position | None:
        """Read some bytes; ``None`` if they are not allowed."""
        following = self.follow(reached, text)
        if following is None or not following.items.frame or self.distinct.has_completion(following):
            return following
        return None

    def follow(self, reached: Position, text: bytes) -> Position | None:
        """The same if items that must be different need not be possible any more, as long as none has come twice."""
        state, stack, written, items = reached
        stacks, tracked, naming, opening = self.stacks, self.tracked, self.naming, self.opening
        for byte in text:
            code = self.code(state, byte)
            if code == DEAD:
                return None
            if code < DEAD:
                if code in naming:
                    code, stack = stacks.named(code, stack, written)
                    if code == DEAD:
                        return None
                else:
                    code, stack = stacks.applied(code, stack)
            if code in tracked:
                written = written + bytes([byte]) if state in tracked else b""
            elif written:
                written = b""
            if items.frame:
                place = self.distinct.step(items, byte, code in opening)
                if place is None:
                    return None
                items = place
            elif code in opening:
                items = self.distinct.begin()
            state = code
        return Position(state, stack, written, items)

    def step(self, reached: Position, byte: int) -> Position | None:
        """Read one byte; ``None`` if it is not allowed."""
        return self.read(reached, bytes([byte]))

    def after_key(self, frame: ObjectFrame, label: Any) -> int:
        """The state after a key's closing quote."""
        return self.number(("colon", frame, label, 0))
