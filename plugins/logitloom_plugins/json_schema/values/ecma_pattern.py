"""Patterns as JSON Schema means them: ECMA-262 syntax, found anywhere in the text.

Translated to the syntax of Python's ``re``, which the automata read; where the two disagree about what a construct
matches, the translation says it in other words.

References:
    ECMA-262, "ECMAScript Language Specification", section 22.2, Patterns.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from logitloom.automata import Budget, Dfa, any_text, compile_pattern, difference, intersection, union
from logitloom.errors import UnsupportedPattern

__all__ = ["compile_ecma", "lengthwise", "translated"]

Ranges = tuple[tuple[int, int], ...]
_TOP: Final = 0x10FFFF
_DIGIT: Final[Ranges] = ((0x30, 0x39),)
_WORD: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final[Ranges] = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROL: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_ANYTHING: Final = r"[\x00-\U0010ffff]*"
_ONE: Final = r"(?:\[(?:[^\]\\]|\\.)*\]|\\(?:[dwsDWSfnrtv]|[^a-zA-Z0-9])|[^\\\[\](){}|*+?.^$]|\.)"
_ONES: Final = re.compile(rf"{_ONE}(?:\{{([0-9]{{1,6}})\}})?", re.DOTALL)
#: One character after the other, some of them so many times, one of them so many to so many times.
_COUNTED: Final = re.compile(
    rf"\^(?P<before>(?:{_ONE}(?:\{{[0-9]{{1,6}}\}})?)*)(?P<one>{_ONE})\{{(?P<least>[0-9]{{1,9}}),(?P<most>[0-9]{{1,9}})\}}"
    rf"(?P<after>(?:{_ONE}(?:\{{[0-9]{{1,6}}\}})?)*)\$",
    re.DOTALL,
)
_GROUP: Final = re.compile(r"\((?:\?:|(?!\?))")
_FIRST: Final = re.compile(_ONE, re.DOTALL)
_MORE: Final = re.compile(r"(?:([*+])|\{([0-9]{1,9}),([0-9]{0,9})\})(?![?+])")
_MORE_AT_END: Final = re.compile(rf"{_MORE.pattern}$")
#: Shorter repeats are written out.
_LONG: Final = 128
_QUANTIFIER: Final = re.compile(r"\{\d+(,\d*)?\}")
_SCRIPTS: Final = {
    "Latin": "LATIN", "Greek": "GREEK", "Cyrillic": "CYRILLIC", "Han": "CJK UNIFIED", "Hiragana": "HIRAGANA",
    "Katakana": "KATAKANA", "Arabic": "ARABIC", "Hebrew": "HEBREW", "Thai": "THAI", "Hangul": "HANGUL",
}  # fmt: skip
_LONG_CATEGORIES: Final = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N", "Decimal_Number": "Nd",
    "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Mark": "M", "Other": "C", "digit": "Nd", "punct": "P",
    "Control": "Cc",
}  # fmt: skip


def _complement(ranges: Ranges) -> Ranges:
    result = []
    start = 0
    for low, high in ranges:
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    if start <= _TOP:
        result.append((start, _TOP))
    return tuple(result)


@cache
def _property(name: str) -> Ranges | None:
    name = name.rpartition("=")[2]
    if name in ("Alphabetic", "Alpha"):

        def wanted(c: str) -> bool:
            return c.isalpha()
    elif name in _SCRIPTS:
        prefix = _SCRIPTS[name]

        def wanted(c: str) -> bool:
            return unicodedata.name(c, "").startswith(prefix)
    elif name in ("ASCII", "Any"):
        return ((0, 0x7F if name == "ASCII" else _TOP),)
    else:
        short = _LONG_CATEGORIES.get(name, name)
        if len(short) > 2 or short[0] not in "LMNPSZC":
            return None

        def wanted(c: str) -> bool:
            return unicodedata.category(c).startswith(short)

    found: list[tuple[int, int]] = []
    for point in range(sys.maxunicode + 1):
        if wanted(chr(point)):
            if found and found[-1][1] == point - 1:
                found[-1] = (found[-1][0], point)
            else:
                found.append((point, point))
    return tuple(found)


def _written(ranges: Ranges) -> str:
    return "".join(f"\\U{low:08x}-\\U{high:08x}" if low < high else f"\\U{low:08x}" for low, high in ranges)


def _set(ranges: Ranges) -> str:
    return f"[{_written(ranges)}]" if ranges else "(?!)"


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def refuse(self, reason: str) -> UnsupportedPattern:
        return UnsupportedPattern(
            f"Pattern {self.pattern!r:.80}: {reason} at position {self.at}. Write the pattern without it."
        )

    def escape(self) -> tuple[Ranges, bool]:
        """The set of an escape whose backslash has just been read, and whether it is a class."""
        text, at = self.pattern, self.at
        if at >= len(text):
            raise self.refuse("a backslash stands at the end")
        c = text[at]
        self.at += 1
        if c in "dws":
            return _CLASSES[c], True
        if c in "DWS":
            return _complement(_CLASSES[c.lower()]), True
        if c in _CONTROL:
            return ((_CONTROL[c], _CONTROL[c]),), False
        if c == "c" and text[at + 1 : at + 2].isalpha():
            self.at += 1
            return ((ord(text[at + 1]) % 32,) * 2,), False
        if c == "x" and re.match("[0-9a-fA-F]{2}", text[at + 1 :]):
            self.at += 2
            return ((int(text[at + 1 : at + 3], 16),) * 2,), False
        if c == "u":
            return ((self._unicode(),) * 2,), False
        if c in "pP":
            match = re.match(r"\{\^?([A-Za-z_=]+)\}", text[at + 1 :]) or re.match("([A-Z])", text[at + 1 :])
            ranges = _property(match.group(1)) if match else None
            if match is None or ranges is None:
                raise self.refuse("a property of characters that is not known here stands")
            self.at += match.end()
            return (_complement(ranges) if c == "P" else ranges), True
        if c == "k" or c.isdigit():
            raise self.refuse("a back-reference, which is not regular, stands")
        return ((ord(c), ord(c)),), False

    def _unicode(self) -> int:
        text, at = self.pattern, self.at
        braces = re.match(r"\{([0-9a-fA-F]{1,6})\}", text[at:])
        if braces:
            self.at += braces.end()
            return int(braces.group(1), 16)
        four = re.match("[0-9a-fA-F]{4}", text[at:])
        if not four:
            return ord("u")
        self.at += 4
        high = int(four.group(), 16)
        low = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", text[self.at :])
        if 0xD800 <= high < 0xDC00 and low:
            self.at += 6
            return 0x10000 + ((high - 0xD800) << 10) + int(low.group(1), 16) - 0xDC00
        return high

    def bracket(self) -> str:
        text = self.pattern
        negated = text[self.at : self.at + 1] == "^"
        self.at += negated
        ranges: list[tuple[int, int]] = []
        pending: int | None = None
        dash = False
        while True:
            if self.at >= len(text):
                raise self.refuse("a set that is not closed stands")
            c = text[self.at]
            self.at += 1
            if c == "]":
                break
            if c == "-" and pending is not None and not dash and text[self.at : self.at + 1] != "]":
                dash = True
                continue
            part, is_class = self.escape() if c == "\\" and text[self.at] != "b" else (((ord(c),) * 2,), False)
            if c == "\\" and text[self.at] == "b" and not is_class and part == ((ord("\\"),) * 2,):
                self.at += 1
                part = ((8, 8),)
            if dash and pending is not None and not is_class:
                if part[0][0] < pending:
                    raise self.refuse("a range whose end is before its start stands")
                ranges.append((pending, part[0][0]))
                pending, dash = None, False
                continue
            if dash:
                ranges.append((ord("-"), ord("-")))
                dash = False
            if is_class:
                ranges += part
                pending = None
            else:
                pending = part[0][0]
                ranges.append((pending, pending))
        if dash:
            ranges.append((ord("-"), ord("-")))
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        result = tuple(merged)
        return _set(_complement(result) if negated else result)

    def pieces(self) -> Iterator[str]:
        """The pattern in Python's syntax, piece by piece."""
        text = self.pattern
        while self.at < len(text):
            c = text[self.at]
            self.at += 1
            if c == "\\":
                following = text[self.at : self.at + 1]
                if following in ("b", "B"):
                    self.at += 1
                    yield f"(?a:\\{following})"
                elif following in ("A", "Z", "z"):
                    # Not ECMA-262, but written by people who think in other dialects; there these are letters.
                    self.at += 1
                    yield following
                else:
                    ranges, is_class = self.escape()
                    yield _set(ranges) if is_class else f"\\U{ranges[0][0]:08x}"
            elif c == "[":
                yield self.bracket()
            elif c == ".":
                yield "[^\\n\\r\\u2028\\u2029]"
            elif c == "$":
                yield "\\Z"
            elif c == "{":
                quantifier = _QUANTIFIER.match(text, self.at - 1)
                if quantifier:
                    self.at = quantifier.end()
                    yield quantifier.group()
                else:
                    yield "\\{"
            elif c in "}]#& ~-":
                yield "\\" + c
            elif c == "(" and text.startswith("?<", self.at) and text[self.at + 2 : self.at + 3] not in ("=", "!"):
                self.at = text.index(">", self.at) + 1 if ">" in text[self.at :] else len(text)
                yield "(?:"
            else:
                yield c


def translated(pattern: str) -> str:
    """A pattern in the syntax of Python's ``re``, anchors kept.

    Raises:
        UnsupportedPattern: if it has a construct that is not regular, or is malformed.

    Example:
        >>> translated(r"^[a-c]$")
        '^[\\\\U00000061-\\\\U00000063]\\\\Z'
    """
    return "".join(_Translator(pattern).pieces())


def _signs(text: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """The characters outside of sets that no backslash stands before: ``(place, character, groups open after it)``."""
    depth, at, inside = 0, start, False
    while at < len(text):
        c = text[at]
        if c == "\\":
            at += 1
        elif inside:
            inside = c != "]"
        elif c == "[":
            inside = True
        else:
            depth += (c == "(") - (c == ")")
            yield at, c, depth
        at += 1


def _group_end(text: str, start: int) -> int:
    """The place after the group that opens at ``start``; -1 if it is never closed."""
    return next((at + 1 for at, c, depth in _signs(text, start) if c == ")" and depth == 0), -1)


def _alternatives(text: str) -> list[str]:
    """The parts between the bars that are in no group."""
    bars = [at for at, c, depth in _signs(text) if c == "|" and depth == 0]
    return [text[a + 1 : b] for a, b in zip([-1, *bars], [*bars, len(text)], strict=True)]


def _unwrapped(text: str) -> str:
    """The content of a group that is the whole pattern."""
    while text.startswith("(") and _group_end(text, 0) == len(text):
        if text.startswith("(?:"):
            text = text[3:-1]
        elif text.startswith("(?"):
            break
        else:
            text = text[1:-1]
    return text


def _with_least_ends(text: str, first: bool, last: bool) -> str:
    """A pattern without alternatives with its first, or last, quantifier at its least: beside it anything may stand."""
    if last:
        found = _MORE_AT_END.search(text)
        if found is not None and any(at == found.start() and depth == 0 for at, _, depth in _signs(text)):
            text = f"{text[: found.start()]}{_least(found)}"
    if first:
        end = _first_end(text)
        found = _MORE.match(text, end) if end > 0 else None
        if found is not None:
            text = f"{text[:end]}{_least(found)}{text[found.end() :]}"
    return text


def _first_end(text: str) -> int:
    """The place after the first group or character of a pattern; -1 if it begins with something else."""
    if _GROUP.match(text):
        return _group_end(text, 0)
    one = _FIRST.match(text)
    return one.end() if one else -1


def _least(quantifier: re.Match[str]) -> str:
    """A quantifier without what it allows beyond its least; one with its numbers out of order stays an error."""
    sign, least, most = quantifier.groups()
    if sign:
        return "{0}" if sign == "*" else "{1}"
    return quantifier[0] if most and int(most) < int(least) else f"{{{least}}}"


def lengthwise(pattern: str) -> tuple[str, int, int] | None:
    """A pattern with one long counted repeat as one without, and bounds on the length of the text.

    Counting characters beside an automaton takes no states, and one set of characters from so many to so many times,
    between parts of fixed length, is as long as the text says.

    Returns:
        The pattern, and the least and most characters; ``None`` for patterns of another form, or with short repeats.

    Example:
        >>> lengthwise("^[a-z][^\\n]{0,65535}$")
        ('^[a-z][^\\n]*$', 1, 65536)
    """
    found = _COUNTED.fullmatch(pattern)
    if found is None or not int(found["least"]) <= int(found["most"]) >= _LONG:
        return None
    fixed = sum(int(times or 1) for part in (found["before"], found["after"]) for times in _ONES.findall(part))
    least, most = int(found["least"]), int(found["most"])
    return f"^{found['before']}{found['one']}*{found['after']}$", fixed + least, fixed + most


@lru_cache(maxsize=512)
def compile_ecma(pattern: str, budget: Budget | None = None) -> Dfa:
    """The automaton of the texts in which a pattern is found.

    Args:
        pattern: an ECMA-262 pattern, with the properties of the ``u`` flag where they do not change old meanings.
            Look-ahead is understood directly after a leading ``^``.
        budget: what the compilation may cost.

    Raises:
        UnsupportedPattern: if it is malformed or not regular.
        BudgetExceeded: if it takes too much.

    Example:
        >>> found = compile_ecma("^a|b$")
        >>> found.fullmatch("axx"), found.fullmatch("xxb"), found.fullmatch("xax")
        (True, True, False)
    """
    flags = 0
    if pattern.startswith("(?i)"):
        pattern, flags = pattern[4:], int(re.IGNORECASE)
    mark = "(?i)" if flags else ""
    pattern = _unwrapped(pattern)
    parts = _alternatives(pattern)
    if len(parts) > 1 and ("^" in pattern or "$" in pattern):
        # Anchors make alternatives cheap one by one and expensive together.
        return union(*[compile_ecma(mark + part, budget) for part in parts], budget=budget)
    if len(parts) > 1:
        pattern = "|".join([_with_least_ends(part, first=True, last=True) for part in parts])
        return compile_pattern(f"{_ANYTHING}(?:{translated(pattern)}){_ANYTHING}", flags, budget=budget)
    if pattern.startswith("^(?") and pattern[3:4] in ("=", "!"):
        end = _group_end(pattern, 1)
        if end > 0 and pattern[end : end + 1] not in ("*", "+", "?", "{"):
            rest = compile_ecma(f"{mark}^{pattern[end:]}", budget)
            ahead = compile_ecma(f"{mark}^(?:{pattern[4 : end - 1]})", budget)
            if pattern[3] == "!":
                return difference(rest, ahead, budget=budget)
            return intersection(rest, ahead, budget=budget)
    begins = pattern.startswith("^")
    core = pattern[1:] if begins else pattern
    ends = core.endswith("$") and (len(core) - len(core[:-1].rstrip("\\"))) % 2 == 1
    core = core[:-1] if ends else core
    inner = _unwrapped(core)
    if begins and ends and inner != core and ("^" in inner or "$" in inner):
        core = inner
    before, after = "" if begins else _ANYTHING, "" if ends else _ANYTHING
    if before and after and not core:
        return any_text()
    core = _with_least_ends(core, first=not begins, last=not ends)
    return compile_pattern(f"{before}(?:{translated(core)}){after}", flags, budget=budget)
