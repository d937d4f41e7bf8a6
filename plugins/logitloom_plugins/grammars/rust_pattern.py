r"""Patterns in the syntax of Rust's ``regex``, which Lark grammars of llguidance have between slashes, read into rules.

What it has: characters, ``.``, classes ``[a-z\d]`` and ``[^"]``, groups, ``|``, the repetitions ``* + ? {m} {m,}
{m,n}``, the flags ``i`` and ``s``, the escapes ``\n \r \t \f \v \a \xHH \x{H} \uHHHH \u{H} \UHHHHHHHH``, those of
punctuation, and the classes ``\d \D \s \S \w \W \p{...} \P{...}``. What else the syntax has is refused, as far as the
engine takes it at all.

References:
    "regex: Syntax"; https://docs.rs/regex/latest/regex/#syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from logitloom.automata import BudgetTracker
from logitloom.errors import UnsupportedPattern
from logitloom_plugins.grammars.context_free import LAST, Chars, Choice, Node, Ranges, Repeat, Sequence, character_set

__all__ = ["ignoring_case", "parse_rust_pattern"]

_DEEPEST: Final = 100
_COUNTS: Final = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(:|\))")
_NAMED: Final = re.compile(r"\?P?<[A-Za-z_]\w*>")
_CODE: Final = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\}")
_CLASS: Final = re.compile(r"[dswDSW]|[pP](?:[A-Z]|\{\w+\})")
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7}


def parse_rust_pattern(text: str, classes: Callable[[str], Ranges], flags: str = "") -> Node:
    r"""What a pattern stands for.

    Args:
        text: the pattern, without slashes.
        classes: the characters of ``\d``, ``\s``, ``\w`` and ``\p{...}``, by what stands behind the backslash; they
            depend on the version of Unicode.
        flags: letters; ``i`` and ``s`` are known, and ``u`` and ``m`` change nothing here.

    Raises:
        UnsupportedPattern: if the pattern has anything else than the module says.
        BudgetExceeded: if it takes too long.

    Example:
        >>> parse_rust_pattern(r"a|[b-d\s]", {"s": ((32, 32),)}.__getitem__)
        Choice(options=(Chars(ranges=((97, 97),)), Chars(ranges=((32, 32), (98, 100)))))
    """
    parser = _Parser(text, classes, _with_flags(frozenset(), flags, text))
    node = parser.choice()
    if parser.at < len(text):
        raise parser.refusal("has no meaning here")
    return node


def ignoring_case(ranges: Ranges) -> Ranges | None:
    """The ranges with the other cases of their letters; ``None`` where they hold more than ASCII."""
    if any(high > 127 for _, high in ranges):
        return None
    letters = {chr(code) for low, high in ranges for code in range(low, high + 1) if chr(code).isalpha()}
    # The Kelvin sign and the long s are the only other characters that equal letters of ASCII.
    others = {ord(c.swapcase()) for c in letters} | {0x212A for c in letters if c in "kK"}
    others |= {0x17F for c in letters if c in "sS"}
    return character_set([*ranges, *((code, code) for code in others)])


def _with_flags(flags: frozenset[str], letters: str, text: str) -> frozenset[str]:
    if not set(letters) <= set("isum"):
        raise UnsupportedPattern(
            f"The flags {letters!r} of the pattern {text!r:.60} are not read here; 'i' and 's' are."
        )
    return flags | set(letters)


class _Parser:
    def __init__(self, text: str, classes: Callable[[str], Ranges], flags: frozenset[str]) -> None:
        self.text, self.classes, self.flags = text, classes, flags
        self.at = 0
        self.depth = 0
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
        named = _CLASS.match(self.text, self.at)
        if named:
            self.at = named.end()
            return character_set(self.classes(letter.lower() + named[0][1:]), letter.isupper())
        if letter in _ESCAPES or (
            letter.isascii() and letter.isprintable() and not letter.isalnum() and letter not in "<>"
        ):
            self.at += 1
            return _ESCAPES.get(letter) or ord(letter)
        raise self.refusal("is an escape that is not read here")
