"""With which bytes a search makes a string differ from other strings, and how many of them it takes."""

from __future__ import annotations

from typing import Final

import numpy as np

from logitloom_plugins.json_schema.folds.completion.content_texts import is_plain
from logitloom_plugins.json_schema.folds.completion.short_contents import representatives
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine

__all__ = ["TRIED", "most_to_differ", "others"]

#: The bytes that the search tries everywhere, and those of them that stand for themselves in a string.
TRIED: Final = b'0123456789abcdefghijklmnopqrstuvwxyz",[]{}:-. \n\\'
_PLAIN: Final = bytes([byte for byte in TRIED if byte >= 0x20 and byte not in b'"\\'])
#: The bytes that stand for themselves and are tried where none of the first may come.
_OTHERS: Final = bytes([byte for byte in range(0x21, 0x7F) if byte not in b'"\\'])
#: The most bytes that end a character, the bytes of an escaped byte, the most bytes that make strings differ, and the
#: most entries of the table of a content.
_END_OF_CHARACTER: Final = 3
_ESCAPED: Final = 6
_MOST_FURTHER: Final = 64
_MOST_ENTRIES: Final = 1 << 18


def others(automaton: MooreMachine, state: int) -> list[int]:
    """The bytes that are tried in a state of a content where no plain byte that is tried everywhere may come."""
    going_on = automaton.next[state].take(automaton.byte_class) >= 0
    if going_on[[*_PLAIN]].any():
        return []
    return [byte for byte in dict.fromkeys((*_OTHERS, *representatives(automaton))) if going_on[byte]]


def most_to_differ(content: Content, taken: int) -> int | None:
    """The most bytes that a search adds to an unfinished string so that it differs from some other strings.

    From a state of the content it adds as many as make more contents than there are other strings, with bytes that the
    search tries, or all that can come there. ``None`` if that is too long, or takes too much work to find.

    Args:
        content: of the string.
        taken: the number of the other strings.
    """
    if content.counts and content.free:
        # With fewer characters left than these, the string ends earlier.
        further = next(n for n in range(_MOST_FURTHER) if len(_PLAIN) ** n > taken)
        return content.least + further + _END_OF_CHARACTER
    automaton = content.automaton
    counts = content.points[-1] + 1 if content.counts else 1
    if counts * automaton.next.size > _MOST_ENTRIES:
        return None
    following = content.counted_steps() if content.counts else automaton.next
    goes_on = following >= 0
    #: ``[states, classes]``: how many bytes the search tries.
    tried = goes_on * np.bincount(automaton.byte_class[[*_PLAIN]], minlength=following.shape[1]).astype(np.float64)
    otherwise = np.bincount(automaton.byte_class[[*_OTHERS]], minlength=following.shape[1])
    tried = np.where(tried.any(axis=1, keepdims=True), tried, goes_on * otherwise)
    between = np.tile(np.frombuffer(automaton.boundaries, dtype=bool), counts)
    ending = [content.ends(at, count) is not None for count in range(counts) for at in range(automaton.states)]
    ends = (between & np.array(ending)).astype(np.float64)
    found, going = ends, np.ones(len(following), dtype=bool)
    most = np.full(len(following), np.inf)
    for further in range(_MOST_FURTHER):
        most[found > taken] = np.minimum(most[found > taken], further)
        # What no longer text goes on from has all that can come there.
        still = going & (goes_on & going[following]).any(axis=1)
        whole = further if is_plain(content) else _ESCAPED * further
        most[going & ~still] = np.minimum(most[going & ~still], whole)
        if np.isfinite(most[between]).all():
            return int(most[between].max()) + _END_OF_CHARACTER
        going = still
        found = np.minimum(ends + (found[following] * tried).sum(axis=1), taken + 1)
    return None
