"""With which bytes a search makes a string differ from other strings, and how many of them it takes."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom_plugins.json_schema.folds.completion.content_texts import is_plain
from logitloom_plugins.json_schema.folds.completion.short_contents import representatives
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import END_OF_CHARACTER, MooreMachine

__all__ = ["TRIED", "most_to_differ", "others"]

#: The bytes that the search tries everywhere, and those of them that stand for themselves in a string.
TRIED: Final = b'0123456789abcdefghijklmnopqrstuvwxyz",[]{}:-. \n\\'
_PLAIN: Final = bytes([byte for byte in TRIED if byte >= 0x20 and byte not in b'"\\'])
#: The bytes that stand for themselves and are tried where none of the first may come.
_OTHERS: Final = bytes([byte for byte in range(0x21, 0x7F) if byte not in b'"\\'])
#: The most further bytes that are tried beside the first.
_FEW: Final = 8
#: The bytes of an escaped byte, the most bytes that make strings differ, and the most entries of the table of a
#: content.
_ESCAPED: Final = 6
_MOST_FURTHER: Final = 64
_MOST_ENTRIES: Final = 1 << 15


def others(automaton: MooreMachine, state: int) -> list[int]:
    """The bytes that are tried in a state of a content beside those that are tried everywhere.

    These are all that may come if they are few, as in a listed text, or if none that is tried everywhere may come.
    """
    going_on = automaton.next[state].take(automaton.byte_class) >= 0
    found = [byte for byte in dict.fromkeys((*_OTHERS, *representatives(automaton))) if going_on[byte]]
    return found if len(found) <= _FEW or not going_on[[*_PLAIN]].any() else []


def most_to_differ(content: Content, taken: int) -> int | None:
    """The most bytes that a search adds to an unfinished string so that it differs from some other strings.

    From a state of the content it adds as many as make more contents than there are other strings, with bytes that the
    search tries, or all that can come there. ``None`` if these are too many, or finding them takes too much work.

    Args:
        content: of the string.
        taken: the number of the other strings.
    """
    if content.free:
        # With fewer characters left than these, the string ends earlier.
        further = next(n for n in range(_MOST_FURTHER) if len(_PLAIN) ** n > taken)
        return content.least + further + END_OF_CHARACTER
    automaton = content.automaton
    first = content.last_counts(_MOST_ENTRIES)
    counts = range(first, content.points[-1] + 1) if content.counts else range(1)
    if len(counts) * automaton.next.size > _MOST_ENTRIES:
        return None
    following = content.counted_steps(first) if content.counts else automaton.next
    between = np.tile(np.frombuffer(automaton.boundaries, dtype=bool), len(counts))
    ending = [output is not None for count in counts for output in content.ends_after(count)]
    ends = between & np.array(ending)
    tried, ahead, plain = _tried(automaton, following, ends)
    for size, along in (1, ahead & plain), (_ESCAPED, ahead):
        most = _most(following, ends, tried, along, taken, is_plain(content))
        if np.isfinite(most[between]).all():
            # Smaller numbers of characters may have to reach the least one first.
            before = content.least * (1 if is_plain(content) else _ESCAPED) if first else 0
            return before + size * int(most[between].max()) + END_OF_CHARACTER
    return None


def _most(
    following: NDArray[np.int32],
    ends: NDArray[np.bool_],
    tried: NDArray[np.float64],
    along: NDArray[np.bool_],
    taken: int,
    plain: bool,
) -> NDArray[np.float64]:
    """By state the bytes of :func:`most_to_differ`; infinite where these are too many.

    Args:
        following: ``[states, classes]``: the next states, -1 for none.
        ends: by state whether a text may end.
        tried, along: results of :func:`_tried`.
        taken: the number of the other strings.
        plain: whether all characters of short contents stand for themselves.
    """
    goes_on, found, going = following >= 0, ends.astype(np.float64), np.ones(len(following), dtype=bool)
    most = np.full(len(following), np.inf)
    for further in range(_MOST_FURTHER):
        most[found > taken] = np.minimum(most[found > taken], further)
        # What no longer text goes on from has all that can come there.
        still = going & (goes_on & going[following]).any(axis=1)
        whole = further if plain else _ESCAPED * further
        most[going & ~still] = np.minimum(most[going & ~still], whole)
        going, after = still, found[following]
        ahead = np.where(along.any(axis=1), np.where(along, after, np.inf).min(axis=1), 0)
        found = np.minimum(ends + (after * tried).sum(axis=1) + ahead, taken + 1)
        if np.isfinite(most).all():
            break
    return most


def _tried(
    automaton: MooreMachine, following: NDArray[np.int32], ends: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """What the search tries in each state of a content.

    Args:
        automaton: of the content.
        following: ``[states, classes]``: the next states, with numbers of characters where these are counted.
        ends: by state whether a text may end.

    Returns:
        ``[states, classes]``: the number of bytes that it tries everywhere; the classes of one of which it tries a
        byte, because a completion goes on with it; and the classes with bytes that stand for themselves.
    """
    goes_on, columns = following >= 0, following.shape[1]
    first = np.bincount(automaton.byte_class[[*_PLAIN]], minlength=columns)
    others = np.bincount(automaton.byte_class[[*_OTHERS]], minlength=columns)
    by_default = (goes_on & (first > 0)).any(axis=1, keepdims=True)
    tried = np.where(by_default, goes_on * first, goes_on * others).astype(np.float64)
    nearest = np.where(ends, 0.0, np.inf)
    for _ in range(_MOST_FURTHER):
        before, nearest = nearest, np.minimum(nearest, 1 + np.where(goes_on, nearest[following], np.inf).min(axis=1))
        if np.array_equal(before, nearest):
            break
    nearer = goes_on & (nearest[following] < nearest[:, None])
    is_tried = (nearer & (tried > 0)).any(axis=1, keepdims=True)
    return tried, nearer & ~is_tried, np.broadcast_to(first + others > 0, nearer.shape)
