"""Configurations of the pushdown automaton as values, and what a machine calls them by number.

A machine numbers its states, stacks and open arrays in the order of visits. A configuration names them by what the
schema says of them: formulas over the nodes of the schema, which are numbered when it is read, and states of automata
that are compiled from formulas. So it means the same in every process with an equal schema and equal options.
"""

from __future__ import annotations

from typing import Any

from logitloom_plugins.json_schema.structure.machine import Machine
from logitloom_plugins.json_schema.structure.names import Chain, ChainNumbers, Name
from logitloom_plugins.json_schema.structure.satisfiability import Frame
from logitloom_plugins.json_schema.structure.string_states import STRING_KINDS, StringContext
from logitloom_plugins.json_schema.structure.value_reader import Place, Position

__all__ = ["Configuration", "ConfigurationNames"]


class Configuration:
    """How far a text has been read: an immutable, hashable, picklable value.

    Attributes:
        state: the name of the machine's state.
        stack: names of the open strings, objects and arrays: for each where to go on after it, and member names that
            must not come again.
        written: the bytes of an unfinished member name that must not come twice.
        items: within an array of different items the open arrays and objects, and the unfinished item.
        position: what a machine calls it, and the machine; not part of the value.
    """

    __slots__ = ("_hash", "items", "position", "stack", "state", "written")

    def __init__(
        self,
        state: Name,
        stack: Chain[tuple[Name, frozenset[str]]] | None,
        written: bytes,
        items: tuple[Chain[Any] | None, str, bytes, bytes],
    ) -> None:
        self.state = state
        self.stack = stack
        self.written = written
        self.items = items
        self.position: tuple[Machine, Position] | None = None
        self._hash: int | None = None

    def state_parts(self) -> tuple[Any, ...]:
        """What :meth:`logitloom.Chain.save_state` writes."""
        return self.state, self.stack, self.written, self.items

    @staticmethod
    def from_state_parts(*parts: Any) -> Configuration:
        """The value that :meth:`state_parts` belongs to."""
        return Configuration(*parts)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.state_parts())
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Configuration) or hash(self) != hash(other):
            return False
        return self.state_parts() == other.state_parts()

    def __reduce__(self) -> tuple[Any, ...]:
        return Configuration, self.state_parts()

    def __repr__(self) -> str:
        return f"<{self.state.parts[0]!r} within {0 if self.stack is None else self.stack.length}>"


class ConfigurationNames:
    """Translates between positions of one machine and configurations.

    Args:
        machine: the automaton over bytes.

    Attributes:
        configurations: those that have been named, by position.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.configurations: dict[Position, Configuration] = {}
        self._names: dict[int, Name] = {}
        self._numbers: dict[Name, int] = {}
        self._returns: dict[int, Name] = {}
        self._frames: dict[Frame, Name] = {}
        self._contexts: dict[StringContext, Name] = {}
        stacks = machine.stacks
        self._stacks: ChainNumbers[tuple[Name, frozenset[str]]] = ChainNumbers(
            lambda stack: stacks.entry(stack)[1],
            lambda stack: (self._return(stacks.entry(stack)[0]), stacks.entry(stack)[2]),
            lambda below, entry: stacks.number((self._return_number(entry[0]), below, entry[1])),
        )

    def configuration(self, position: Position) -> Configuration:
        """The value of a position."""
        known = self.configurations.get(position)
        if known is None:
            state, stack, written, place = position
            items = self.machine.distinct.open_names.chain(place.frame), place.phase, place.text, place.escape
            known = Configuration(self.name(state), self._stacks.chain(stack), written, items)
            known.position = self.machine, position
            self.configurations[position] = known
        return known

    def position(self, configuration: Configuration) -> Position:
        """The position of a value, which may be of another machine of the schema, or of another process."""
        known = configuration.position
        if known is not None and known[0] is self.machine:
            return known[1]
        open_items, phase, text, escape = configuration.items
        position = Position(
            self.number(configuration.state),
            self._stacks.number(configuration.stack),
            configuration.written,
            Place(self.machine.distinct.open_names.number(open_items), phase, text, escape),
        )
        configuration.position = self.machine, position
        self.configurations.setdefault(position, configuration)
        return position

    # --- states ------------------------------------------------------------------------------------------------

    def name(self, number: int) -> Name:
        """The name of a state of the machine."""
        known = self._names.get(number)
        if known is None:
            known = self._names[number] = self._name(self.machine.states[number])
            self._numbers[known] = number
        return known

    def _name(self, state: tuple[Any, ...]) -> Name:
        kind, *rest = state
        if kind in STRING_KINDS:
            return Name(kind, self._context(rest[0]), *rest[1:])
        if kind == "value":
            return Name(kind, rest[0], self._return(rest[1]), *rest[2:])
        if kind == "number":
            return Name(kind, self.machine.structure.number_keys[rest[0]], rest[1], self._return(rest[2]))
        if kind == "literal":
            return Name(kind, rest[0], self.name(rest[1]))
        if kind == "gap":
            return Name(kind, self.name(rest[0]), rest[1])
        return Name(kind, self._frame(rest[0]), *rest[1:]) if rest else Name(kind)

    def number(self, name: Name) -> int:
        """The machine's number of a state."""
        known = self._numbers.get(name)
        if known is None:
            known = self._numbers[name] = self.machine.number(self._state(name))
            self._names.setdefault(known, name)
        return known

    def _state(self, name: Name) -> tuple[Any, ...]:
        kind, *rest = name.parts
        if kind in STRING_KINDS:
            return (kind, self._context_of(rest[0]), *rest[1:])
        if kind == "value":
            return (kind, rest[0], self._return_number(rest[1]), *rest[2:])
        if kind == "number":
            automaton = self.machine.structure.number_automaton(*rest[0])
            return (kind, automaton, rest[1], self._return_number(rest[2]))
        if kind == "literal":
            return (kind, rest[0], self.number(rest[1]))
        if kind == "gap":
            return (kind, self.number(rest[0]), rest[1])
        return (kind, self._frame_of(rest[0]), *rest[1:]) if rest else (kind,)

    # --- what stands in states ---------------------------------------------------------------------------------

    def _return(self, number: int) -> Name:
        known = self._returns.get(number)
        if known is None:
            targets = sorted(self.machine.returns[number].items())
            known = Name(*[(truth, self.name(state)) for truth, state in targets])
            self._returns[number] = known
        return known

    def _return_number(self, name: Name) -> int:
        states = self.machine.states
        return self.machine.returning({truth: states[self.number(state)] for truth, state in name.parts})

    def _frame(self, frame: Frame) -> Name:
        known = self._frames.get(frame)
        if known is None:
            known = self._frames[frame] = Name(frame.plan.name, *frame[1:])
        return known

    def _frame_of(self, name: Name) -> Any:
        return self.machine.values.frame(*name.parts)

    def _context(self, context: StringContext) -> Name:
        known = self._contexts.get(context)
        if known is None:
            kind, *rest = context.key
            known = self._contexts[context] = Name(kind, self._frame(rest[0])) if kind == "key" else Name(kind, *rest)
        return known

    def _context_of(self, name: Name) -> StringContext:
        kind, *rest = name.parts
        structure = self.machine.structure
        return structure.name_context(self._frame_of(rest[0])) if kind == "key" else structure.text_context(*rest)
