"""The value of an unfinished text, as far as the text goes.

A processor whose texts are values (``json``, ``tool_call``) has a method ``value_reader()``. The generator's stream
gives the reader the text of a row and puts the reader's result into each piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Partial", "Path", "ValueReader", "value_reader_of"]

#: Where a part of a value is: names of members and indices of items, from the outside in.
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Partial:
    """A value that is being written.

    The value depends on the text so far alone, not on the pieces in which the text came.

    Attributes:
        value: the value so far. A string has the characters that are certain; numbers, ``true``, ``false`` and ``null``
            appear when they are complete; a member appears when its value has begun. ``None`` if nothing is there.
        path: where the text is. The part at the path and the parts around that part are open, all other parts are
            complete. ``()`` is the whole value; ``None`` before the value begins and after it is complete.
        completed: the parts that were completed since the previous value, in the order of completion.
        complete: whether the whole value is complete.
    """

    value: Any = None
    path: Path | None = None
    completed: tuple[Path, ...] = ()
    complete: bool = False


class ValueReader(Protocol):
    """Reads a text piece by piece."""

    def add(self, text: str) -> Partial:
        """The value after a further piece of the text."""
        ...

    def end(self) -> Partial:
        """The value after the end of the text."""
        ...


def value_reader_of(processor: Any) -> ValueReader | None:
    """A reader for one text that a processor constrains; ``None`` if the texts of the processor are not values."""
    made = getattr(processor, "value_reader", None)
    reader: ValueReader | None = None if made is None else made()
    return reader
