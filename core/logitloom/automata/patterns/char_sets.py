"""Sets of characters with the semantics of the standard library's ``re``.

A set has two parts: a 128-bit mask of its ASCII characters, which is all that most operations need, and sorted ranges
of its code points above ASCII. Surrogates are in no set, because UTF-8 cannot encode them. The members of ``\\w``,
``\\d``, ``\\s`` and of case-insensitive sets are computed with ``re`` itself, once per process, so they agree with
``re`` in every Python version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, reduce
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ANY", "NEVER", "NEWLINE", "CharSet", "HighSet", "char_set", "literal"]

ASCII_ALL: Final = (1 << 128) - 1
_TOP: Final = 0x10FFFF
_FULL_RANGES: Final = ((0x80, 0xD7FF), (0xE000, _TOP))
Ranges = tuple[tuple[int, int], ...]


class HighSet:
    """An immutable set of code points from U+0080 up, as sorted disjoint inclusive ranges.

    The hash is computed once, because sets such as ``\\w`` have hundreds of ranges and are used as keys.
    """

    __slots__ = ("_edges", "_hash", "ranges")

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._hash = hash(ranges)
        self._edges: NDArray[np.int64] | None = None

    @property
    def edges(self) -> NDArray[np.int64]:
        """``[2 * ranges]``: the first code point of each range and the first after it, computed once."""
        if self._edges is None:
            self._edges = np.array([(low, high + 1) for low, high in self.ranges], dtype=np.int64).ravel()
        return self._edges

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, HighSet) and self.ranges == other.ranges)

    def __repr__(self) -> str:
        return f"HighSet({len(self.ranges)} ranges)"


HIGH_NONE: Final = HighSet(())
HIGH_ALL: Final = HighSet(_FULL_RANGES)


class CharSet(NamedTuple):
    """A set of characters: ``ascii`` has bit ``c`` set for each character ``c`` below 128."""

    ascii: int
    high: HighSet

    def __bool__(self) -> bool:
        return bool(self.ascii) or bool(self.high.ranges)

    def disjoint(self, other: CharSet) -> bool:
        """Whether no character is in both sets."""
        return not self.ascii & other.ascii and not intersect(self.high, other.high).ranges

    def contains(self, code_point: int) -> bool:
        """Whether one code point is in the set."""
        if code_point < 128:
            return bool(self.ascii >> code_point & 1)
        return any(low <= code_point <= high for low, high in self.high.ranges)


ANY: Final = CharSet(ASCII_ALL, HIGH_ALL)
NEVER: Final = CharSet(0, HIGH_NONE)
NEWLINE: Final = CharSet(1 << 10, HIGH_NONE)


def normalized(ranges: Iterable[tuple[int, int]]) -> HighSet:
    """The part of inclusive ranges from U+0080 up: without surrogates, sorted, merged."""
    pieces: list[tuple[int, int]] = []
    for low, high in ranges:
        for floor, ceiling in _FULL_RANGES:
            if low <= ceiling and high >= floor:
                pieces.append((max(low, floor), min(high, ceiling)))
    if not pieces:
        return HIGH_NONE
    pieces.sort()
    merged = [pieces[0]]
    for low, high in pieces[1:]:
        last = merged[-1]
        # U+D7FF and U+E000 are never merged, so that equal sets always have equal ranges.
        if low <= last[1] + 1:
            merged[-1] = (last[0], max(last[1], high))
        else:
            merged.append((low, high))
    result = tuple(merged)
    return HIGH_ALL if result == _FULL_RANGES else HighSet(result)


@lru_cache(maxsize=1024)
def complement_high(high: HighSet) -> HighSet:
    """Every code point from U+0080 up that is not in the set, surrogates excepted."""
    gaps = []
    start = 0x80
    for low, last in high.ranges:
        gaps.append((start, low - 1))
        start = last + 1
    gaps.append((start, _TOP))
    return normalized((low, last) for low, last in gaps if low <= last)


@lru_cache(maxsize=1024)
def unite(first: HighSet, second: HighSet) -> HighSet:
    """Code points in either set."""
    if not first.ranges or second is HIGH_ALL:
        return second
    if not second.ranges or first is HIGH_ALL:
        return first
    return normalized(first.ranges + second.ranges)


def intersect(first: HighSet, second: HighSet) -> HighSet:
    """Code points in both sets."""
    if not first.ranges or not second.ranges:
        return HIGH_NONE
    if first is HIGH_ALL or first == second:
        return second
    if second is HIGH_ALL:
        return first
    return complement_high(unite(complement_high(first), complement_high(second)))


@cache
def _characters() -> str:
    # Planes 4 to 13, 15 and 16 hold no assigned character except private use. No class of re and no pair of cases
    # contains any of these, and without them the first use of \w takes a third of the time.
    points = np.concatenate([np.arange(0x40000), np.arange(0xE0000, 0xF0000)]).astype("<u4")
    text: str = points.tobytes().decode("utf-32-le", "surrogatepass")
    return text


@cache
def _category(escape: str) -> CharSet:
    """The set of ``\\w``, ``\\d`` or ``\\s`` in Unicode patterns, computed with ``re``."""
    ascii_mask = 0
    ranges = []
    for match in re.finditer(f"{escape}+", _characters()):
        first, last = match.start(), match.end() - 1
        if first >= 0x40000:
            first, last = first + 0xA0000, last + 0xA0000
        if first < 128:
            ascii_mask |= (1 << (min(last, 127) + 1)) - (1 << first)
        if last >= 128:
            ranges.append((max(first, 128), last))
    return CharSet(ascii_mask, normalized(ranges))


@cache
def _ascii_category(escape: str) -> CharSet:
    pattern = re.compile(escape, re.ASCII)
    return CharSet(sum(1 << c for c in range(128) if pattern.match(chr(c))), HIGH_NONE)


def negate(chars: CharSet) -> CharSet:
    """Every character that is not in the set."""
    return CharSet(ASCII_ALL & ~chars.ascii, complement_high(chars.high))


def category(letter: str, flags: int) -> CharSet:
    """The set of a class escape: ``letter`` is one of ``w d s W D S``."""
    lower = "\\" + letter.lower()
    chars = _ascii_category(lower) if flags & re.ASCII else _category(lower)
    return negate(chars) if letter.isupper() else chars


# --- case-insensitive sets ---------------------------------------------------------------------------------


@cache
def _cased() -> str:
    """Every character that has another case. ``IGNORECASE`` makes a difference for these characters only."""
    text = _characters()
    found = []
    for start in range(0, len(text), 64):
        block = text[start : start + 64]
        if block.lower() != block or block.upper() != block or block.title() != block:
            found += [c for c in block if c.lower() != c or c.upper() != c or c.title() != c]
    return "".join(found)


# The only characters above ASCII that equal an ASCII letter when case is ignored.
_FOLDING_TO_ASCII: Final = "\u0130\u0131\u017f\u212a"
_ASCII_LETTERS: Final = "".join(chr(c) for c in range(128) if chr(c).isalpha())


@cache
def _ascii_letters_equal_to(flags: int) -> dict[int, CharSet]:
    """For each ASCII letter, all characters that equal the letter when case is ignored; found with one pattern."""
    candidates = _ASCII_LETTERS + _FOLDING_TO_ASCII
    pattern = re.compile("|".join(f"({letter})" for letter in _ASCII_LETTERS[:26]), re.IGNORECASE | (flags & re.ASCII))
    equal: list[list[str]] = [[] for _ in range(26)]
    for match in pattern.finditer(candidates):
        equal[(match.lastindex or 0) - 1].append(match.group())
    return {letter: char_set_of(map(ord, group)) for group in equal for letter in map(ord, group) if letter < 128}


def _escaped(code_point: int) -> str:
    return f"\\U{code_point:08x}"


def ignore_case(items: tuple[tuple[int, int], ...], categories: str, flags: int) -> CharSet:
    """The set of code point ranges and class escapes under ``IGNORECASE``, computed with ``re``.

    Args:
        items: inclusive ranges of code points.
        categories: letters of class escapes.
        flags: only ``re.ASCII`` matters.
    """
    plain = plain_set(items, categories, flags)
    if not categories and not plain.high.ranges:
        equal = _ascii_letters_equal_to(flags & re.ASCII)
        return union([plain, *[equal[letter] for letter in equal if plain.ascii >> letter & 1]])
    text = "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in items)
    text += "".join("\\" + letter for letter in categories)
    if not text:
        return plain
    highest = max((high for _, high in items), default=0)
    candidates = _ASCII_LETTERS + _FOLDING_TO_ASCII if highest < 128 else _cased()
    # The pattern matches single characters, because the result is a set of characters. The caller applies a negation.
    found = re.findall(f"[{text}]", candidates, re.IGNORECASE | (flags & re.ASCII))
    answer = char_set_of(map(ord, found))
    asked = _set_of_text(candidates)
    kept = intersect(plain.high, complement_high(asked.high))
    return CharSet((plain.ascii & ~asked.ascii) | answer.ascii, unite(kept, answer.high))


@cache
def _set_of_text(text: str) -> CharSet:
    return char_set_of(map(ord, text))


def char_set_of(code_points: Iterable[int]) -> CharSet:
    """The set of given code points."""
    mask = 0
    high = []
    for point in code_points:
        if point < 128:
            mask |= 1 << point
        else:
            high.append((point, point))
    return CharSet(mask, normalized(high))


def plain_set(items: Iterable[tuple[int, int]], categories: str, flags: int) -> CharSet:
    """The set of code point ranges and class escapes without ``IGNORECASE``."""
    mask = 0
    ranges = []
    for low, high in items:
        if low < 128:
            mask |= (1 << (min(high, 127) + 1)) - (1 << low)
        if high >= 128:
            ranges.append((max(low, 128), high))
    result = CharSet(mask, normalized(ranges) if ranges else HIGH_NONE)
    return union([result, *(category(letter, flags) for letter in categories)]) if categories else result


def union(sets: Sequence[CharSet]) -> CharSet:
    """The union of one or more sets."""
    if len(sets) == 2:
        return CharSet(sets[0].ascii | sets[1].ascii, unite(sets[0].high, sets[1].high))
    # The ranges of all sets are sorted together once. Pairwise unions would sort them again each time.
    mask = reduce(int.__or__, [chars.ascii for chars in sets])
    if any(chars.high is HIGH_ALL for chars in sets):
        return CharSet(mask, HIGH_ALL)
    return CharSet(mask, normalized([part for chars in sets for part in chars.high.ranges]))


@lru_cache(maxsize=4096)
def char_set(items: tuple[tuple[int, int], ...], categories: str, negated: bool, flags: int) -> CharSet:
    """The set of a bracket expression ``[...]``.

    Args:
        items: inclusive ranges of code points.
        categories: letters of the class escapes in it, ``"wd"`` for ``[\\w\\d]``.
        negated: whether the set starts with ``^``.
        flags: flags of ``re``; ``IGNORECASE`` and ``ASCII`` matter.
    """
    ranges = tuple(items)
    build = ignore_case if flags & re.IGNORECASE else plain_set
    chars = build(ranges, categories, flags)
    return negate(chars) if negated else chars


@lru_cache(maxsize=4096)
def literal(code_point: int, flags: int = 0) -> CharSet:
    """The set of one character, with its other cases under ``IGNORECASE``."""
    if flags & re.IGNORECASE and (code_point >= 128 or chr(code_point).isalpha()):
        return ignore_case(((code_point, code_point),), "", flags)
    return CharSet(1 << code_point, HIGH_NONE) if code_point < 128 else char_set_of((code_point,))
