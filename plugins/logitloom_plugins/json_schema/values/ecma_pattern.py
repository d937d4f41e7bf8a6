"""Patterns as JSON Schema means them: ECMA-262 syntax, found anywhere in the text.

A pattern is translated to the syntax of Python's ``re``, token by token: sets are written out, because the two disagree
about what ``\\s``, ``.`` and ``$`` match. The pattern parser of logitloom's core reads the translation, and its syntax
tree is changed to match whole texts.

References:
    ECMA-262, "ECMAScript Language Specification", section 22.2, Patterns.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

from logitloom.automata import (
    Budget,
    BudgetTracker,
    Dfa,
    any_text,
    compile_tree,
    difference,
    intersection,
    stored_automaton,
    union,
)
from logitloom.automata.patterns.pattern import (
    Alternation,
    Boundary,
    Characters,
    Concatenation,
    LookAround,
    Node,
    Repeat,
    nodes,
    parse_pattern,
    shortened,
)
from logitloom.errors import UnsupportedPattern

__all__ = ["compile_ecma", "counted_length"]

Ranges = tuple[tuple[int, int], ...]
_TOP: Final = 0x10FFFF
_CLASSES: Final[dict[str, Ranges]] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": (
        (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
        (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
    ),
}  # fmt: skip
_CONTROL: Final = {"b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_SCRIPTS: Final = {
    "Latin": "LATIN", "Greek": "GREEK", "Cyrillic": "CYRILLIC", "Han": "CJK UNIFIED", "Hiragana": "HIRAGANA",
    "Katakana": "KATAKANA", "Arabic": "ARABIC", "Hebrew": "HEBREW", "Thai": "THAI", "Hangul": "HANGUL",
}  # fmt: skip
#: The long names of general categories (ECMA-262, values of ``General_Category``).
_LONG_CATEGORIES: Final = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Combining_Mark": "M", "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd",
    "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Surrogate": "Cs",
    "Private_Use": "Co", "Unassigned": "Cn",
}  # fmt: skip
#: By category the categories of which it is made; a category without an entry stands for itself.
_JOINED_CATEGORIES: Final = {"LC": ("Lu", "Ll", "Lt")}
_OF_CATEGORIES: Final = ("gc=", "General_Category=")
_OF_SCRIPTS: Final = ("sc=", "Script=", "scx=", "Script_Extensions=")

_CLASS: Final = r"\\(?:[dswDSW]|[pP](?:\{[A-Za-z_=]+\}|[A-Z])?)"
_ESCAPE: Final = (
    r"\\(?:u\{[0-9a-fA-F]{1,6}\}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}"
    r"|x[0-9a-fA-F]{2}|c[A-Za-z]|[^dswDSWpPk1-9])"
)
_MEMBER: Final = rf"(?:{_ESCAPE}|[^\\])"
#: A part of a set: a range, a class, or one character.
_MEMBERS: Final = re.compile(
    rf"(?P<low>{_MEMBER})-(?P<high>{_MEMBER})|(?P<cls>{_CLASS})|(?P<one>{_MEMBER})|(?P<reference>\\.)", re.DOTALL
)
_TOKEN: Final = re.compile(
    rf"(?P<boundary>\\[bB])|(?P<cls>{_CLASS})|(?P<reference>\\[k1-9]|\(\?P=)|(?P<escape>{_ESCAPE})"
    r"|(?P<set>\[(?P<negated>\^?)(?P<members>(?:\\.|[^\]\\])*)\])|(?P<any>\.)|(?P<end>\$)"
    r"|\{[0-9]+(?:,[0-9]*)?\}|(?P<brace>[{}\]])|(?P<name>\(\?P?<(?![=!])[^>]*>?)|(?P<unknown>(?!^\(\?i\)|\(\?[aiu]*(?:-i)?:)\(\?[a-zA-Z-]*[:)#])",
    re.DOTALL,
)
_START, _END = parse_pattern("^"), parse_pattern(r"\Z")
_ANYTHING: Final = parse_pattern("(?s:.*)")
#: Shorter repeats are written out.
_LONG: Final = 128


# --- translation -------------------------------------------------------------------------------------------


def _complement(ranges: Ranges) -> Ranges:
    starts, ends = [0, *(high + 1 for _, high in ranges)], [*(low - 1 for low, _ in ranges), _TOP]
    return tuple([(low, high) for low, high in zip(starts, ends, strict=True) if low <= high])


@lru_cache(maxsize=1)
def _categories() -> tuple[list[str], bytes]:
    """The categories of Unicode, and of each code point the index of its own."""
    names: dict[str, int] = {}
    points = map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))
    of_points = bytes([names.setdefault(name, len(names)) for name in points])
    return [*names], of_points


@lru_cache(maxsize=256)
def _property(name: str) -> Ranges | None:
    """The characters with a Unicode property, ``None`` if it is not known here."""
    begin = name.rfind("=") + 1
    kind, name = name[:begin], name[begin:]
    if kind not in ("", *_OF_CATEGORIES, *_OF_SCRIPTS):
        return None
    script = None if kind in _OF_CATEGORIES else _SCRIPTS.get(name)
    category = "" if kind in _OF_SCRIPTS else _LONG_CATEGORIES.get(name, name)
    if not kind and name in ("ASCII", "Any"):
        return ((0, 0x7F if name == "ASCII" else _TOP),)
    points = map(chr, range(sys.maxunicode + 1))
    if not kind and name in ("Alphabetic", "Alpha"):
        held = bytes([point.isalpha() for point in points])
    elif script is not None:
        held = bytes([unicodedata.name(point, "").startswith(script) for point in points])
    elif 0 < len(category) <= 2 and category[0] in "LMNPSZC":
        names, of_points = _categories()
        categories = _JOINED_CATEGORIES.get(category, (category,))
        held = of_points.translate(bytes([each.startswith(categories) for each in names]).ljust(256, b"\0"))
    else:
        return None
    return tuple([(run.start(), run.end() - 1) for run in re.finditer(b"\1+", held)]) or None


def _class(escape: str) -> Ranges:
    """The characters of a class such as ``\\d`` or ``\\p{Lu}``."""
    letter = escape[1]
    ranges = _property(escape[2:].strip("{}")) if letter in "pP" else _CLASSES[letter.lower()]
    if ranges is None:
        raise ValueError(f"the property of characters {escape!r} is not known here")
    return _complement(ranges) if letter.isupper() else ranges


def _code_point(character: str) -> int:
    """The code point of a character that stands for itself or is escaped."""
    if character[0] != "\\":
        return ord(character)
    kind, rest = character[1], character[2:]
    if kind == "u" and "\\" in rest:
        return 0x10000 + (int(rest[:4], 16) - 0xD800 << 10) + int(rest[6:], 16) - 0xDC00
    if kind in "ux" and rest:
        return int(rest.strip("{}"), 16)
    if not rest and kind.isascii() and kind.isalpha() and kind not in _CONTROL:
        instead = "^" if kind == "A" else "$" if kind in "zZ" else "the character itself"
        raise ValueError(f"the escape {character!r} has no meaning in ECMA-262; {instead} may be meant")
    return ord(rest) % 32 if rest else _CONTROL.get(kind, ord(kind))


def _written(ranges: Ranges) -> str:
    return "".join([f"\\U{low:08x}-\\U{high:08x}" if low < high else f"\\U{low:08x}" for low, high in ranges])


def _set(members: str, negated: bool) -> str:
    """A set in Python's syntax."""
    content = ""
    for part in _MEMBERS.finditer(members):
        if part["cls"]:
            content += _written(_class(part["cls"]))
        elif part["low"]:
            content += f"\\U{_code_point(part['low']):08x}-\\U{_code_point(part['high']):08x}"
        elif part["one"]:
            content += f"\\U{_code_point(part['one']):08x}"
        else:
            raise ValueError(f"{part[0]!r} is no character")
    if not content:
        return r"[\x00-\U0010ffff]" if negated else "(?!)"
    return f"[{'^' * negated}{content}]"


def _python(token: re.Match[str]) -> str:
    """A token in Python's syntax."""
    text = token[0]
    match token.lastgroup:
        case "boundary":
            return f"(?a:{text})"
        case "cls":
            return _set(text, False)
        case "escape":
            return f"\\U{_code_point(text):08x}"
        case "set":
            return _set(token["members"], bool(token["negated"]))
        case "any":
            return r"[^\n\r\u2028\u2029]"
        case "end":
            return r"\Z"
        case "brace":
            return "\\" + text
        case "name":
            return "(?:"
        case "reference":
            raise ValueError(f"the back-reference {text!r} is not regular")
        case "unknown":
            raise ValueError(f"the group {text!r} is not known here")
    return text


@lru_cache(maxsize=512)
def _parsed(pattern: str, budget: Budget | None) -> list[Node]:
    """The parts of a pattern, one after the other."""
    try:
        python = _TOKEN.sub(_python, pattern)
    except ValueError as error:
        raise UnsupportedPattern(f"Pattern {shortened(pattern)}: {error}. Write the pattern without it.") from error
    tracker = BudgetTracker(budget, f"pattern {shortened(pattern)}")
    return _parts(parse_pattern(python, 0, tracker, look_around=True, written=pattern))


# --- automata ----------------------------------------------------------------------------------------------


def _parts(node: Node) -> list[Node]:
    """The parts of a concatenation, with the parts of nested groups."""
    return [part for inner in node.parts for part in _parts(inner)] if isinstance(node, Concatenation) else [node]


def _shortest(parts: list[Node]) -> list[Node]:
    """The parts with the repeats at their beginning shortened to their least count; any text may stand before."""
    for index, part in enumerate(parts):
        if not isinstance(part, Repeat):
            return parts[index:]
        if part.least:
            return [part._replace(most=part.least), *parts[index + 1 :]]
    return []


def _long_repeats(parts: list[Node]) -> list[int]:
    """The places of the parts that repeat one of some characters very often, with an upper bound.

    If the number of repeats is not fixed in one of them, only such parts are listed: a part with a fixed number of
    repeats has a fixed length.
    """
    long = [
        place
        for place, part in enumerate(parts)
        if isinstance(part, Repeat) and isinstance(part.part, Characters) and (part.most or 0) >= _LONG
    ]
    varied = [place for place in long if len(set(_times(parts[place]))) > 1]
    return varied or long


def _times(part: Node) -> tuple[int, int | None]:
    """How often a part is repeated, at least and at most."""
    return (part.least, part.most) if isinstance(part, Repeat) else (1, 1)


def counted_length(pattern: str, budget: Budget | None = None) -> tuple[int, int] | None:
    """The least and most characters of a text that matches a pattern with one long counted repeat.

    Counting characters beside an automaton takes no states. If one set of characters is repeated between parts of fixed
    length, the length of the text tells the number of repeats.

    Returns:
        ``None`` for patterns of another form, or with short repeats.

    Raises:
        UnsupportedPattern, BudgetExceeded: as :func:`compile_ecma`.

    Example:
        >>> counted_length("^[a-z][^\\n]{0,65535}$")
        (1, 65536)
    """
    parts = _parsed(pattern, budget)
    long = _long_repeats(parts)
    if parts[:1] != [_START] or parts[-1:] != [_END] or len(long) != 1:
        return None
    least = most = 0
    for place, part in enumerate(parts[1:-1], 1):
        single = part.part if isinstance(part, Repeat) else part
        low, high = _times(part)
        if not isinstance(single, Characters) or high is None or (low != high and place not in long):
            return None
        least, most = least + low, most + high
    return least, most


def compile_ecma(pattern: str, budget: Budget | None = None, counted: bool = False) -> Dfa:
    """The automaton of the texts in which a pattern is found.

    Args:
        pattern: an ECMA-262 pattern, with the properties of the ``u`` flag where they do not change old meanings.
            Look-ahead is understood directly after a leading ``^``.
        budget: what the compilation may cost.
        counted: whether to leave out the upper bound of the long repeat, because :func:`counted_length` gives a length.

    Raises:
        UnsupportedPattern: if it is malformed or not regular.
        BudgetExceeded: if it takes too much.

    Example:
        >>> found = compile_ecma("^a|b$")
        >>> found.fullmatch("axx"), found.fullmatch("xxb"), found.fullmatch("xax")
        (True, True, False)
    """
    # The cache tells given arguments from omitted ones.
    return _compiled(pattern, budget, counted)


@lru_cache(maxsize=512)
def _compiled(pattern: str, budget: Budget | None, counted: bool) -> Dfa:
    parts = _parsed(pattern, budget)
    if counted:
        long = _long_repeats(parts)
        parts = [
            part._replace(least=0, most=None) if isinstance(part, Repeat) and place in long else part
            for place, part in enumerate(parts)
        ]
    limits = budget and (budget.states, budget.table_bytes)
    return stored_automaton(
        lambda: ("ECMA pattern", pattern, counted, limits), lambda: _searched(parts, True, True, pattern, budget)
    )


def _searched(parts: list[Node], before: bool, after: bool, pattern: str, budget: Budget | None) -> Dfa:
    """The automaton of the texts that the parts match; ``before`` and ``after`` say where any text may stand."""
    if parts[:1] == [_START]:
        return _searched(parts[1:], False, after, pattern, budget)
    if parts[-1:] == [_END]:
        return _searched(parts[:-1], before, False, pattern, budget)
    if not before and parts and isinstance(parts[0], LookAround) and parts[0].ahead:
        rest = _searched(parts[1:], False, after, pattern, budget)
        ahead = _searched(_parts(parts[0].part), False, True, pattern, budget)
        return (difference if parts[0].negated else intersection)(rest, ahead, budget=budget)
    branches = [parts]
    if len(parts) == 1 and isinstance(parts[0], Alternation) and parts[0].branches:
        branches = [_parts(branch) for branch in parts[0].branches]
        if any(boundary in (_START, _END) for boundary in nodes(parts[0], Boundary)):
            # With anchors, the automata of single alternatives are small, and the automaton of all at once is large.
            return union(*[_searched(branch, before, after, pattern, budget) for branch in branches], budget=budget)
    if before:
        branches = [_shortest(branch) for branch in branches]
    if after:
        branches = [_shortest(branch[::-1])[::-1] for branch in branches]
    if before and after and [] in branches:
        return any_text()
    trees = tuple([Concatenation(tuple(branch)) for branch in branches])
    whole = [*[_ANYTHING] * before, Alternation(trees), *[_ANYTHING] * after]
    return compile_tree(Concatenation(tuple(whole)), pattern, budget=budget)
