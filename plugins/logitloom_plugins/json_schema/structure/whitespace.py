"""Where whitespace may stand in a JSON text."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

__all__ = [
    "POLICIES",
    "Whitespace",
    "after_gap",
    "fillings",
    "inside",
    "is_begun",
    "relaid",
    "relaid_within",
    "settled",
]

POLICIES: Final = ("json_dumps", "flexible", "compact", "one_space")

#: How a text is laid out, how deep its innermost object or array is, and the whitespace read in a gap. The depth is 0
#: where it makes no difference. A layout is ``open`` before the first gap and ``flat`` if no line begins in that;
#: what comes after the first comma or colon then says whether it is ``compact`` or ``spaced``.
Layout = tuple[str, int, int]
#: Whitespace that may fill a gap, each a beginning of the next, and the name of the layout after it.
Fillings = list[tuple[bytes, str]]

#: The layout before the text.
_FIRST: Final = {"json_dumps": "open", "compact": "compact", "one_space": "spaced"}
_CHARACTERS: Final = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
_INDENTS: Final = {"indent 2": 2, "indent 4": 4}


class Whitespace(NamedTuple):
    """A policy for the gaps between the tokens of JSON.

    Args:
        policy: ``json_dumps``: as ``json.dumps`` writes, compact, with a space after commas and colons, or indented by
            2 or 4, in a whole text alike; ``compact``: none at all; ``one_space``: one space after each comma and
            colon; ``flexible``: up to ``most`` characters (space, tab, newline, return) in every gap.
        most: longest gap under ``flexible``.

    Example:
        >>> Whitespace("one_space").start, Whitespace("flexible").start
        (('spaced', 0, 0), 0)
    """

    policy: str = "flexible"
    most: int = 40

    @property
    def start(self) -> Layout | int:
        """The layout before the text; 0 under ``flexible``, which has none."""
        return (_FIRST[self.policy], 0, 0) if self.policy in _FIRST else 0


def is_begun(layout: Any) -> bool:
    """Whether whitespace was read in the gap where a text is."""
    return bool(layout and layout[2])


def fillings(layout: Layout, gap: str, ends: bool) -> Fillings:
    """What may fill a gap: after ``comma``, ``colon`` or an ``open`` bracket, before a comma, colon or bracket that
    ``close`` s something, or ``none`` around the whole text; with ``ends``, before a closing bracket.
    """
    name, depth, _ = layout
    if name in _INDENTS:
        line = b"\n" + b" " * (_INDENTS[name] * (depth - (gap == "close")))
        lines = {"open": not ends, "comma": True, "close": ends}
        return [(b" " if gap == "colon" else line if lines.get(gap) else b"", name)]
    if name == "open" and gap == "open" and not ends:
        return [(b"", "flat"), *[(b"\n" + b" " * size, indent) for indent, size in _INDENTS.items()]]
    if gap in ("comma", "colon"):
        return {"flat": [(b"", "compact"), (b" ", "spaced")], "spaced": [(b" ", "spaced")]}.get(name, [(b"", name)])
    return [(b"", name)]


def after_gap(name: str, depth: int) -> Layout:
    """The layout after a gap, without a depth that makes no difference."""
    return name, depth if name == "open" or name in _INDENTS else 0, 0


def inside(layout: Layout | int) -> Layout | int:
    """The layout in an object or array that begins now."""
    if isinstance(layout, int):
        return 0
    return after_gap(layout[0], layout[1] + 1)


def settled(layout: Layout | int) -> Layout | int:
    """The layout with which a short completion goes on."""
    if isinstance(layout, int) or layout[0] not in ("open", "flat"):
        return layout
    name, depth, read = layout
    if name == "flat":
        return "spaced" if read else "compact", 0, read
    indent = next(indent for indent, size in [("compact", -1), *_INDENTS.items()] if read <= 1 + size)
    return indent, depth if read else 0, read


def relaid(text: bytes, layout: Layout | int, gap: str, string_from: int | None = None) -> bytes:
    """The rest of a compact text with the whitespace of a layout.

    Args:
        text: without whitespace.
        layout: of the gap where it begins, settled.
        gap: the one in which it begins; ``close`` if in none.
        string_from: if it begins in a string, from where on a quote ends that.
    """
    return relaid_within(text, layout, gap, string_from)[0]


def relaid_within(
    text: bytes, layout: Layout | int, gap: str, string_from: int | None = None
) -> tuple[bytes, Layout | int]:
    """The same, and the layout of what comes after the text if that ends a value."""
    if isinstance(layout, int) or layout[0] == "compact":
        return text, layout
    name, depth, read = layout
    at = 0 if string_from is None else _after_string(text, string_from)
    found = bytearray(text[:at])
    while at < len(text):
        byte = text[at : at + 1]
        ends = byte in b"]}"
        found += fillings((name, depth, 0), gap, ends)[0][0][read:]
        read, gap = 0, {b"{": "open", b"[": "open", b",": "comma", b":": "colon"}.get(byte, "close")
        depth += (byte in b"{[") - ends
        end = _after_string(text, at + 1) if byte == b'"' else at + 1
        found += text[at:end]
        at = end
    return bytes(found), (name, depth, read)


def _after_string(text: bytes, at: int) -> int:
    """The index after the end of the string that an index is in."""
    end = _CHARACTERS.match(text, at)
    assert end is not None
    return end.end() + 1
