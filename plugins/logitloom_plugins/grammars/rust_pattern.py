r"""Patterns in the syntax of Rust's ``regex``, which Lark grammars of llguidance have between slashes, read into rules.

What it has: characters, ``.``, classes ``[a-z\d]`` and ``[^"]``, groups, ``|``, the repetitions ``* + ? {m} {m,}
{m,n}``, the flags ``i`` and ``s``, and the escapes ``\n \r \t \f \v \a \xHH \x{H} \uHHHH \u{H} \UHHHHHHHH \d \D \s \S
\w \W`` and those of punctuation. What else the syntax has is refused, as far as the engine takes it at all.

References:
    "regex: Syntax"; https://docs.rs/regex/latest/regex/#syntax.
    Unicode Technical Standard 18, "Unicode Regular Expressions", annex C (what \w and \d are).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final

from logitloom.automata import BudgetTracker
from logitloom.errors import UnsupportedPattern
from logitloom_plugins.grammars.context_free import LAST, Chars, Choice, Node, Ranges, Repeat, Sequence, character_set

__all__ = ["assigned", "ignoring_case", "parse_rust_pattern"]

_DEEPEST: Final = 100
_PLANES: Final = 0x40000
_COUNTS: Final = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(:|\))")
_NAMED: Final = re.compile(r"\?P?<[A-Za-z_]\w*>")
_CODE: Final = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\}")
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7}
#: White_Space, which no version of Unicode changes.
_SPACES: Final = (
    (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip
#: Letters in circles and squares are alphabetic and in no category of letters; joiners are of words.
_WORD_SIGNS: Final = (
    (0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189),
)  # fmt: skip
_WORD_CATEGORIES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})


def parse_rust_pattern(text: str, flags: str = "") -> tuple[Node, bool]:
    r"""What a pattern stands for, and whether that depends on the version of Unicode (``\w``, ``\d``).

    Args:
        text: the pattern, without slashes.
        flags: letters; ``i`` and ``s`` are known, and ``u`` and ``m`` change nothing here.

    Raises:
        UnsupportedPattern: if the pattern has anything else than the module says.
        BudgetExceeded: if it takes too long.

    Example:
        >>> parse_rust_pattern("a|[b-d]")
        (Choice(options=(Chars(ranges=((97, 97),)), Chars(ranges=((98, 100),)))), False)
    """
    parser = _Parser(text, _with_flags(frozenset(), flags, text))
    node = parser.choice()
    if parser.at < len(text):
        raise parser.refusal("has no meaning here")
    return node, parser.by_version


def ignoring_case(ranges: Ranges) -> Ranges | None:
    """The ranges with the other cases of their letters; ``None`` where they hold more than ASCII."""
    if any(high > 127 for _, high in ranges):
        return None
    letters = {chr(code) for low, high in ranges for code in range(low, high + 1) if chr(code).isalpha()}
    # The Kelvin sign and the long s are the only other characters that equal letters of ASCII.
    others = {ord(c.swapcase()) for c in letters} | {0x212A for c in letters if c in "kK"}
    others |= {0x17F for c in letters if c in "sS"}
    return character_set([*ranges, *((code, code) for code in others)])


@cache
def assigned() -> Ranges:
    """The characters that this Python's version of Unicode has."""
    return _ranges(code for code, category in enumerate(_categories()) if category not in ("Cn", "Cs"))


@cache
def _categories() -> list[str]:
    """By code point; planes without characters, and those of private use, count as not assigned."""
    return [unicodedata.category(chr(code)) for code in range(_PLANES)]


@cache
def _digits() -> Ranges:
    return _ranges(code for code, category in enumerate(_categories()) if category == "Nd")


@cache
def _words() -> Ranges:
    known = _ranges(code for code, category in enumerate(_categories()) if category in _WORD_CATEGORIES)
    return character_set([*known, *_WORD_SIGNS])


def _ranges(codes: Iterable[int]) -> Ranges:
    found: list[tuple[int, int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1] = found[-1][0], code
        else:
            found.append((code, code))
    return tuple(found)


def _with_flags(flags: frozenset[str], letters: str, text: str) -> frozenset[str]:
    if not set(letters) <= set("isum"):
        raise UnsupportedPattern(
            f"The flags {letters!r} of the pattern {text!r:.60} are not read here; 'i' and 's' are."
        )
    return flags | set(letters)


class _Parser:
    def __init__(self, text: str, flags: frozenset[str]) -> None:
        self.text, self.flags = text, flags
        self.at = 0
        self.depth = 0
        self.by_version = False
        self.tracker = BudgetTracker(subject="the grammar")

    def choice(self) -> Node:
        outer = self.flags
        options = [self._sequence()]
        while self._sign() == "|":
            self.at += 1
            options.append(self._sequence())
        self.flags = outer  # flags within a group end with it
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def refusal(self, what: str) -> UnsupportedPattern:
        return UnsupportedPattern(
            f"{self.text[self.at : self.at + 1]!r} at position {self.at} of the pattern {self.text!r:.60} {what}."
        )

    def _sign(self) -> str:
        return self.text[self.at : self.at + 1]

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (sign := self._sign()) and sign not in "|)":
            self.tracker.check_time()
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        while (sign := self._sign()) and sign in "*+?{":
            counts = _COUNTS.match(self.text, self.at) if sign == "{" else None
            if sign == "{" and counts is None:
                raise self.refusal("begins no repetition {m}, {m,} or {m,n}")
            self.at = counts.end() if counts else self.at + 1
            if self._sign() == "?":
                raise self.refusal("makes the repetition before it lazy, which is not read here")
            least = int(counts[1]) if counts else int(sign == "+")
            most = (int(counts[3]) if counts[3] else None) if counts and counts[2] else least if counts else None
            if sign == "?":
                most = 1
            node = Sequence(()) if most == 0 else node if (least, most) == (1, 1) else Repeat(node, least, most)
        return node

    def _atom(self) -> Node | None:
        sign = self._sign()
        if sign == "(":
            return self._group()
        if sign == "[":
            return Chars(self._class())
        if sign in "*+?{":
            raise self.refusal("repeats what stands before it, and nothing does")
        if sign in "^$":
            raise self.refusal("looks at what stands around it, which is not read here")
        self.at += 1
        if sign == ".":
            return Chars(character_set([] if "s" in self.flags else [(10, 10)], others=True))
        if sign == "\\":
            found = self._escape()
            return Chars(found if isinstance(found, tuple) else self._cased([(found, found)]))
        return Chars(self._cased([(ord(sign), ord(sign))]))

    def _group(self) -> Node | None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.refusal(f"is nested deeper than {_DEEPEST}")
        outer, self.at = self.flags, self.at + 1
        named, flags = _NAMED.match(self.text, self.at), _FLAGS.match(self.text, self.at)
        if named:
            self.at = named.end()
        elif flags:
            self.flags, self.at = _with_flags(outer, flags[1], self.text), flags.end()
            if flags[2] == ")":  # for what follows in this group
                self.depth -= 1
                return None
        elif self._sign() == "?":
            raise self.refusal("begins a group of a kind that is not read here")
        inner = self.choice()
        if self._sign() != ")":
            raise self.refusal("should be a closing bracket")
        self.at += 1
        self.depth -= 1
        self.flags = outer
        return inner

    def _class(self) -> Ranges:
        self.at += 1
        others = self._sign() == "^"
        self.at += others
        ranges: list[tuple[int, int]] = []
        whole: list[tuple[int, int]] = []  # of escapes such as \d, which know no case
        first = True
        while (sign := self._sign()) != "]" or first:
            two = self.text[self.at : self.at + 2]
            if not sign or sign == "[" or two in ("&&", "--", "~~"):
                raise self.refusal("is not read here within a class")
            first = False
            self.tracker.check_time()
            low = self._member()
            if not isinstance(low, int):
                whole += low
                continue
            high: Ranges | int = low
            if self._sign() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._member()
            if not isinstance(high, int) or high < low:
                raise self.refusal("ends no range of characters")
            ranges.append((low, high))
        self.at += 1
        return character_set([*self._cased(ranges), *whole], others)

    def _member(self) -> Ranges | int:
        sign = self._sign()
        self.at += 1
        return self._escape() if sign == "\\" else ord(sign)

    def _cased(self, ranges: list[tuple[int, int]]) -> Ranges:
        found: Ranges | None = character_set(ranges)
        if "i" in self.flags:
            found = ignoring_case(character_set(ranges))
        if found is None:
            raise self.refusal(
                "comes with characters beyond ASCII of which the case is ignored, which is not read here"
            )
        return found

    def _escape(self) -> Ranges | int:
        """A character or a class, behind the backslash."""
        letter, code = self._sign(), _CODE.match(self.text, self.at)
        if code:
            self.at = code.end()
            number = int(next(filter(None, code.groups())), 16)
            if number > LAST:
                raise self.refusal("stands behind what is no character")
            return number
        if letter.lower() in ("d", "s", "w") and letter:
            self.at += 1
            if letter.lower() == "s":
                return character_set(_SPACES, letter == "S")
            self.by_version = True
            return character_set(_digits() if letter.lower() == "d" else _words(), letter.isupper())
        if letter in _ESCAPES or (
            letter.isascii() and letter.isprintable() and not letter.isalnum() and letter not in "<>"
        ):
            self.at += 1
            return _ESCAPES.get(letter) or ord(letter)
        raise self.refusal("is an escape that is not read here")
