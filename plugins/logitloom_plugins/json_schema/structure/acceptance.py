"""Reading a whole text with a machine."""

from __future__ import annotations

from logitloom_plugins.json_schema.structure.machine import Machine
from logitloom_plugins.json_schema.structure.stacks import EMPTY
from logitloom_plugins.json_schema.structure.value_reader import Position

__all__ = ["accepts", "read"]


def read(machine: Machine, data: bytes) -> Position | None:
    """How far some bytes lead; ``None`` if no accepted text begins with them."""
    return machine.read(Position(machine.start), data)


def accepts(machine: Machine, text: str | bytes) -> bool:
    """Whether a text is the text of a valid value."""
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            return False
    reached = read(machine, text)
    return reached is not None and reached.stack == EMPTY and machine.accepting(reached.state)
