"""The texts of a schema as an automaton over bytes, whose states are configurations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar

from logitloom.constraints import ByteAutomaton
from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.structure.configuration import Configuration, ConfigurationNames
from logitloom_plugins.json_schema.structure.machine import Machine
from logitloom_plugins.json_schema.structure.stacks import EMPTY
from logitloom_plugins.json_schema.structure.value_reader import Position

__all__ = ["SchemaAutomaton"]

#: Configurations, values within arrays of different items, and stacks that are remembered.
_MOST_REMEMBERED: Final = 1 << 18

Result = TypeVar("Result")


class SchemaAutomaton(ByteAutomaton):
    """The JSON texts that satisfy a schema.

    The state of a text is a :class:`Configuration`. What has been visited is remembered by a machine of bounded size,
    which is replaced by an empty one when it is full; configurations go on in any machine of an equal schema.

    Args:
        machine: the pushdown automaton of the schema.

    Example:
        >>> from logitloom_plugins.json_schema.structure.compilation import compile_schema
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
        self.names = ConfigurationNames(machine)
        self._fresh, self._is_full = True, False

    @property
    def machine(self) -> Machine:
        """What has been visited."""
        return self.names.machine

    def forget(self) -> None:
        """Drop what is remembered. That changes no result."""
        with self._lock:
            self._remember(self.machine.fresh())

    def run(self, read: Callable[[Position], Result], configuration: Configuration) -> Result:
        """What a function finds at a position.

        Args:
            read: is called again in an empty machine if there is no room for what it visits.
            configuration: the position's.

        Raises:
            BudgetExceeded: if there is no room in an empty machine either.
        """
        with self._lock:
            if self._is_full:
                self.forget()
            fresh, self._fresh = self._fresh, False
            try:
                return read(self.names.position(configuration))
            except (BudgetExceeded, RecursionError) as error:
                if fresh or isinstance(error, RecursionError):
                    raise _late(error) from error
                self.forget()
                return self.run(read, configuration)

    def read(self, configuration: Configuration, text: bytes) -> Configuration | None:
        """The configuration after some more bytes; ``None`` if no accepted text has this prefix."""

        def found(position: Position) -> Configuration | None:
            names = self.names
            reached = names.machine.read(position, text)
            if reached is None:
                return None
            known = names.configurations.get(reached)
            return self._named(reached) if known is None else known

        return self.run(found, configuration)

    def _named(self, reached: Position) -> Configuration:
        """The configuration of a position that has not been visited."""
        names, machine = self.names, self.names.machine
        remembered = len(names.configurations) + machine.distinct.size + machine.stacks.size
        self._is_full = len(machine.states) > self._most_states or remembered > _MOST_REMEMBERED
        return names.configuration(reached)

    # --- the contract ------------------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal schemas read with equal options, in every process."""
        return hashlib.blake2b(self.machine.description.encode(), digest_size=16).digest()

    def start(self) -> Configuration:
        """The configuration before the first byte."""
        with self._lock:
            return self.names.configuration(Position(self.machine.start))

    def step(self, state: Configuration, byte: int) -> Configuration | None:  # type: ignore[override]
        """The configuration after one more byte; ``None`` if no accepted text has this prefix."""
        return self.read(state, bytes((byte,)))

    def accepts(self, state: Configuration) -> bool:  # type: ignore[override]
        """Whether the text may end."""
        return self.run(self.ends, state)

    def ends(self, position: Position) -> bool:
        """Whether the text may end at a position."""
        return position.stack == EMPTY and self.machine.accepting(position.state)


def _late(error: BudgetExceeded | RecursionError) -> BudgetExceeded:
    """The error of a part of the schema that a text has reached for the first time."""
    said = error if isinstance(error, BudgetExceeded) else "A part of the schema is nested too deeply to be compiled."
    return BudgetExceeded(
        f"{said} It came while decoding, because what a schema says is worked out as texts first get there: only the "
        f"requests whose texts do so are concerned. Simplify that part of the schema, raise max_states of the "
        f"processor, or give engine='llguidance'; 'logitloom validate --json' visits every part beforehand."
    )
