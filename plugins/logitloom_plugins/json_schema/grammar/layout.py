"""Where whitespace may stand in a JSON text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = [
    "COMPACT",
    "FLEXIBLE",
    "PIECE",
    "POLICIES",
    "Layout",
    "Whitespace",
    "after_gap",
    "fillings",
    "inside",
    "relaid",
    "relaid_within",
    "settled",
    "string_end",
]

POLICIES: Final = ("json_dumps", "flexible", "compact", "one_space")

#: The name of layouts that allow any whitespace.
FLEXIBLE: Final = "flexible"


class Layout(NamedTuple):
    """How a text is laid out where a state stands.

    Attributes:
        name: ``flexible`` (any whitespace in each gap), ``compact``, ``spaced``, ``indent 2`` or ``indent 4``. A text
            under ``json_dumps`` begins with ``open``, because its layout is not known yet. If its first gap begins no
            line, the layout is ``flat`` until the first gap after a comma or colon decides: ``compact`` or ``spaced``.
        depth: how deep the innermost object or array is; 0 where the depth makes no difference.
        read: the number of characters of whitespace that were read in the gap; always 0 for ``flexible``.
    """

    name: str
    depth: int = 0
    read: int = 0


COMPACT: Final = Layout("compact")

#: The whitespace that may fill a gap, and the name of the layout after it. Each whitespace begins with the one before.
Fillings = list[tuple[bytes, str]]

#: The layout before the text.
_FIRST: Final = {"json_dumps": "open", "compact": "compact", "one_space": "spaced"}
_CHARACTERS: Final = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
#: A string, a mark, or other characters.
PIECE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^"{}\[\],:]+', re.DOTALL)
_GAP_AFTER: Final = {b"{": "open", b"[": "open", b",": "comma", b":": "colon"}
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
        (Layout(name='spaced', depth=0, read=0), Layout(name='flexible', depth=0, read=0))
    """

    policy: str = "flexible"
    most: int = 40

    @property
    def start(self) -> Layout:
        """The layout before the text."""
        return Layout(_FIRST.get(self.policy, FLEXIBLE))


def fillings(layout: Layout, gap: str, ends: bool) -> Fillings:
    """The whitespace that may fill a gap.

    Args:
        layout: the layout before the gap.
        gap: the kind of gap: ``comma``, ``colon`` or ``open``: after a comma, a colon or an opening bracket;
            ``close``: before a comma, a colon or a closing bracket; ``none``: around the whole text.
        ends: whether a closing bracket follows.
    """
    name, depth = layout.name, layout.depth
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
    """The layout after a gap; the depth is 0 where it makes no difference."""
    return Layout(name, depth if name == "open" or name in _INDENTS else 0)


def inside(layout: Layout) -> Layout:
    """The layout in an object or array that begins now."""
    return after_gap(layout.name, layout.depth + 1)


def settled(layout: Layout) -> Layout:
    """The layout with which a short completion goes on."""
    name, depth, read = layout
    if name not in ("open", "flat"):
        return layout
    if name == "flat":
        return Layout("spaced" if read else "compact", 0, read)
    indent = next(indent for indent, size in [("compact", -1), *_INDENTS.items()] if read <= 1 + size)
    return Layout(indent, depth if read else 0, read)


def relaid(text: bytes, layout: Layout, gap: str) -> bytes:
    """The rest of a compact text with the whitespace of a layout.

    Args:
        text: the rest of the text, without whitespace. The rest begins inside no string.
        layout: the settled layout where the rest begins.
        gap: the kind of gap in which the rest begins; ``close`` if it begins in no gap.
    """
    return relaid_within(text, layout, gap)[0]


def relaid_within(text: bytes, layout: Layout, gap: str) -> tuple[bytes, Layout]:
    """The result of :func:`relaid`, and the layout of the text that follows, if the rest ends a value."""
    if layout.name in (FLEXIBLE, "compact"):
        return text, layout
    name, depth, read = layout
    found: list[bytes] = []
    known: dict[tuple[str, bool, int], bytes] = {}
    for piece in PIECE.findall(text):
        ends = piece in (b"]", b"}")
        place = gap, ends, depth
        filling = known.get(place)
        if filling is None:
            filling = known[place] = fillings(Layout(name, depth), gap, ends)[0][0]
        found += filling[read:], piece
        read, gap = 0, _GAP_AFTER.get(piece, "close")
        depth += (gap == "open") - ends
    return b"".join(found), Layout(name, depth, read)


def string_end(text: bytes, at: int) -> int:
    """The index after the closing quote of the string that contains index ``at``."""
    end = _CHARACTERS.match(text, at)
    assert end is not None
    return end.end() + 1
