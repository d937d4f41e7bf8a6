"""The automaton of :mod:`.machine` as a :class:`~logitloom.constraints.ByteAutomaton`, whose states hold the stack."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Final, TypeVar, cast

from logitloom.constraints import ByteAutomaton
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.completion.position_texts import Completions
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.folds.value_reader import ItemPosition
from logitloom_plugins.json_schema.grammar.names import Name
from logitloom_plugins.json_schema.grammar.states import Stack, State

__all__ = ["Configuration", "SchemaAutomaton"]

#: The most configurations, stacks, and values within arrays of different items, that one machine remembers.
_MOST_REMEMBERED: Final = 1 << 18

Result = TypeVar("Result")


class Configuration(Name):
    """How far a text has been read: an immutable, hashable, picklable value.

    The parts of a configuration are the machine's state; the stack, which says of the open strings, objects and arrays
    where to go on after each; the bytes of an unfinished member name that must not come twice; and, within an array of
    different items, the open arrays and objects and the unfinished item.

    A machine numbers its states in the order of visits. A configuration holds the state itself. A state consists of
    formulas over the nodes of the schema, which are numbered when the schema is read, and of states of automata that
    are compiled from formulas. So a configuration means the same in every process with an equal schema and options.

    Attributes:
        state: the state of the innermost string, object or array.
        stack: where to go on after each of the open strings, objects and arrays.
        written: the bytes of an unfinished member name that must not come twice.
        items: within an array of different items, the open arrays and objects and the unfinished item.
        position: a machine, and the position in it that equals the configuration; no part of the value.
    """

    position: tuple[Machine | None, Position] = None, Position(-1)

    def __init__(self, parts: tuple[State, Stack, bytes, ItemPosition]) -> None:
        self.state, self.stack, self.written, self.items = parts

    def __reduce__(self) -> tuple[object, ...]:
        return Configuration, (self.parts,)

    @staticmethod
    def from_state_parts(*parts: object) -> Configuration:
        """The configuration of these parts."""
        state, stack, written, items = parts
        return Configuration(cast("tuple[State, Stack, bytes, ItemPosition]", (state, stack, written, items)))

    def __repr__(self) -> str:
        stack = self.stack
        return f"<{self.state.kind!r} within {0 if stack is None else stack.length}>"


class SchemaAutomaton(ByteAutomaton):
    """The JSON texts that satisfy a schema.

    The state of a text is a :class:`Configuration`. A machine of bounded size remembers the visited states, and is
    replaced by an empty machine when it is full; configurations go on in any machine of an equal schema.

    Args:
        machine: the pushdown automaton of the schema.

    Attributes:
        machine: the visited states.
        configurations: the visited configurations, by position in the machine.

    Example:
        >>> from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
        >>> automaton = SchemaAutomaton(compile_schema({"enum": [1, 12]}))
        >>> one = automaton.step(automaton.start(), ord("1"))
        >>> automaton.accepts(one), automaton.step(one, ord("2")) is not None, automaton.step(one, ord("3"))
        (True, True, None)
    """

    def __init__(self, machine: Machine) -> None:
        self.satisfiable = machine.satisfiable
        self._lock = machine.lock
        self._remember(machine)

    def _remember(self, machine: Machine) -> None:
        begun = len(machine.states)
        #: From so many states on the memory is full. A schema alone may need many.
        self._most_states = begun + (machine.budget.states - begun) // 2
        self.machine = machine
        self.configurations: dict[Position, Configuration] = {}
        self._completions: Completions | None = None
        self._fresh, self._is_full, self._visiting = True, False, False

    @property
    def completions(self) -> Completions:
        """The completions of positions in the machine. Few texts without a limit ask for one."""
        if self._completions is None:
            self._completions = Completions(self.machine)
        return self._completions

    def forget(self) -> None:
        """Drop what is remembered; no result changes."""
        with self._lock:
            self._remember(self.machine.fresh())

    def run(self, read: Callable[..., Result], state: Hashable, *arguments: object) -> Result:
        """The result of a function that gets the position of a configuration, and further arguments.

        Args:
            read: the function; called again in an empty machine if there is no room for the states that it visits.
            state: the configuration.

        Raises:
            BudgetExceeded: if there is no room in an empty machine either.
        """
        assert isinstance(state, Configuration)
        with self._lock:
            # An error or interruption in the middle of a visit may have left half an entry somewhere.
            if self._is_full or self._visiting:
                self.forget()
            fresh, self._fresh, self._visiting = self._fresh, False, True
            try:
                owner, position = state.position
                if owner is not self.machine:
                    position = self.position(state)
                found = read(position, *arguments)
            except (BudgetExceeded, RecursionError) as error:
                if fresh or isinstance(error, RecursionError):
                    raise _late(error) from error
                self.forget()
                return self.run(read, state, *arguments)
            self._visiting = False
            return found

    def configuration(self, position: Position) -> Configuration:
        """The value of a position."""
        known = self.configurations.get(position)
        if known is None:
            machine = self.machine
            state, stack, written, items = position
            known = self.configurations[position] = Configuration((machine.states[state], stack, written, items))
            known.position = machine, position
            remembered = len(self.configurations) + len(machine.items.values) + len(machine.numbering.pushed)
            self._is_full = len(machine.states) > self._most_states or remembered > _MOST_REMEMBERED
        return known

    def position(self, configuration: Configuration) -> Position:
        """The position of a value, which may be of another machine of the schema, or of another process."""
        machine = self.machine
        if configuration.position[0] is not machine:
            machine.items.learn(configuration.items)
            number = machine.numbering.number(machine.adopted(configuration.state))
            stack = machine.adopted(configuration.stack)
            position = Position(number, stack, configuration.written, configuration.items)
            configuration.position = machine, position
            self.configurations.setdefault(position, configuration)
        return configuration.position[1]

    def read(self, configuration: Configuration, text: bytes) -> Configuration | None:
        """The configuration after some more bytes; ``None`` if no accepted text has this prefix."""
        return self.run(self.after, configuration, text)

    def after(self, position: Position, text: bytes) -> Configuration | None:
        """The configuration after some more bytes than led to a position."""
        reached = self.machine.read(position, text)
        return None if reached is None else self.configurations.get(reached) or self.configuration(reached)

    # --- the contract ------------------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal schemas read with equal options, in every process."""
        return hashlib.blake2b(self.machine.description.encode(), digest_size=16).digest()

    def start(self) -> Configuration:
        """The configuration before the first byte."""
        with self._lock:
            return self.configuration(Position(self.machine.start))

    def step(self, state: Hashable, byte: int) -> Configuration | None:
        """The configuration after one more byte; ``None`` if no accepted text has this prefix."""
        return self.run(self.after, state, bytes((byte,)))

    def accepts(self, state: Hashable) -> bool:
        """Whether the text may end."""
        # A text cannot end inside an object or array, that is, with a stack.
        return cast("Configuration", state).stack is None and self.run(lambda at: self.machine.ends(at), state)

    def completion(self, state: Hashable) -> bytes | None:
        """A short text with which the value is complete; see :mod:`.completion.position_texts`."""
        return self.run(lambda at: self.completions.of(at), state)


def _late(error: BudgetExceeded | RecursionError) -> BudgetExceeded:
    """The error of a part of the schema that a text has reached for the first time."""
    said = error if isinstance(error, BudgetExceeded) else "A part of the schema is nested too deeply to be compiled."
    return BudgetExceeded(
        f"{said} It came while decoding, because what a schema says is worked out as texts first get there: only the "
        f"requests whose texts do so are concerned. Simplify that part of the schema, raise max_states of the "
        f"processor, or give engine='llguidance'; 'logitloom validate --json' visits every part beforehand."
    )
