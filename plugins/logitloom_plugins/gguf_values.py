"""The values in the metadata of GGUF files."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any, Final

__all__ = ["STRING", "read_value"]

# struct codes of the scalar value types of the format
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
#: The numbers of the types of texts and of arrays.
STRING: Final = 8
_ARRAY: Final = 9


def read_value(
    content: mmap.mmap | memoryview,
    offset: int,
    order: str,
    kind: int,
    text: Callable[[bytes | memoryview], Any] | None,
) -> tuple[Any, int]:
    """One value, arrays as lists, and the offset after the value.

    Args:
        content: the file.
        offset: where the value begins.
        order: ``<`` for little-endian files, ``>`` for big-endian files.
        kind: number of the type of the value.
        text: makes a text of its bytes. ``None`` to step over texts and arrays, whose values are then empty.

    Raises:
        struct.error: the file ends before the value does.
        KeyError: the format has no such type.
    """
    if kind == STRING:
        (length,) = struct.unpack_from(f"{order}Q", content, offset)
        end = offset + 8 + length
        if end > len(content):
            raise struct.error(f"a text at byte {offset} claims {length} bytes")
        return (b"" if text is None else text(content[offset + 8 : end])), end
    if kind != _ARRAY:
        code = order + _SCALARS[kind]
        return struct.unpack_from(code, content, offset)[0], offset + struct.calcsize(code)
    item, count = struct.unpack_from(f"{order}IQ", content, offset)
    offset += 12
    if item in _SCALARS:
        end = offset + count * struct.calcsize(order + _SCALARS[item])
        if end > len(content):
            raise struct.error(f"an array at byte {offset} claims {count} numbers")
        numbers = [] if text is None else struct.unpack_from(f"{order}{count}{_SCALARS[item]}", content, offset)
        return [*numbers], end
    values = []
    if item != STRING:
        for _ in range(count):
            value, offset = read_value(content, offset, order, item, text)
            values.append(value)
        return values, offset
    # Vocabularies and merges are hundreds of thousands of texts, so this loop does nothing else.
    length_at, size = struct.Struct(f"{order}Q").unpack_from, len(content)
    for _ in range(count):
        begin = offset + 8
        offset = begin + length_at(content, offset)[0]
        if text is not None:
            values.append(text(content[begin:offset]))
    if offset > size:
        raise struct.error(f"a list of texts ends at byte {offset}, the file at {size}")
    return values, offset
