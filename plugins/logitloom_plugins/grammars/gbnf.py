r"""GBNF, the notation of llama.cpp for context-free grammars over characters, read into rules.

GBNF has rules ``name ::= ...``, literals ``"..."``, character classes ``[a-z]`` and ``[^"]``, ``.`` for any character,
groups, ``|``, the repetitions ``* + ? {m} {m,} {m,n}``, comments from ``#`` to the end of the line, and the escapes
``\n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH``. The end of a line ends a rule, except inside brackets, after
``::=`` and beside ``|``.

References:
    llama.cpp, "GBNF guide"; https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md.
"""

from __future__ import annotations

import re
from typing import Final

from logitloom.automata import BudgetTracker
from logitloom.errors import UnsupportedGrammar
from logitloom_plugins.grammars.context_free import (
    LAST,
    SURROGATES,
    Chars,
    ContextFreeGrammar,
    LiteralText,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    RuleSequence,
    character_set,
    single,
)
from logitloom_plugins.grammars.source_text import refusal

__all__ = ["parse_gbnf"]

_DEEPEST: Final = 100
#: Characters of a class, or pieces of a literal, between two looks at the clock.
_BETWEEN_LOOKS: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_DEFINES: Final = re.compile(r"[A-Za-z0-9_-]+[ \t]*::=")
_BOUNDS: Final = re.compile(r"\{\s*(\d+)\s*(,\s*(\d*)\s*)?\}")
_GAP: Final = re.compile(r"(?:[ \t]|#[^\n]*)*")
_WIDE_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
#: Characters of a literal that stand for themselves.
_PLAIN: Final = re.compile(r'[^"\\\n\ud800-\udfff]+')
_ESCAPES: Final = {
    "n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^",
}  # fmt: skip
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_ANY: Final = Chars(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST)))


def parse_gbnf(text: str, *, start: str = "root") -> ContextFreeGrammar:
    """The grammar that a GBNF text describes.

    Args:
        text: the grammar.
        start: the rule that a whole text follows.

    Raises:
        UnsupportedGrammar: with line and column of what is wrong.
        BudgetExceeded: if it takes too long.

    Example:
        >>> sorted(parse_gbnf('root ::= "(" root ")" | digit+\\ndigit ::= [0-9]').rules)
        ['digit', 'root']
    """
    return _GbnfParser(text).grammar(start)


class _GbnfParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.named: list[tuple[str, int]] = []
        self.tracker = BudgetTracker(subject="the grammar")

    def grammar(self, start: str) -> ContextFreeGrammar:
        rules: dict[str, Node] = {}
        self._skip(_WIDE_GAP)
        while self.at < len(self.text):
            position = self.at
            name = _NAME.match(self.text, self.at)
            if name is None or not _DEFINES.match(self.text, self.at):
                raise self._refusal(
                    "A rule (name ::= ...) is expected here. Outside brackets the end of a line ends a rule; put "
                    "what goes over several lines in brackets."
                )
            self.at = name.end()
            self._skip(_GAP)
            self.at += len("::=")
            self._skip(_WIDE_GAP)
            if name[0] in rules:
                raise self._refusal(
                    f"The rule {name[0]!r} is defined a second time. Join its alternatives by |.", position
                )
            rules[name[0]] = self._choice(nested=False)
            if self.at < len(self.text) and self.text[self.at] not in "\r\n":
                raise self._unexpected()
            self._skip(_WIDE_GAP)
        for name_used, position in self.named:
            if name_used not in rules:
                raise self._refusal(f"The rule {name_used!r} is named here, but defined nowhere. Define it.", position)
        if start not in rules:
            have = ", ".join(list(rules)[:10]) or "none"
            raise UnsupportedGrammar(
                f"The grammar has no rule {start!r:.60} to start from; it has {have}. Name the first rule so, or "
                f"give the option start."
            )
        return ContextFreeGrammar(rules, start)

    def _choice(self, nested: bool) -> Node:
        options = [self._sequence(nested)]
        while self._next_is_bar(nested):
            self.at += 1
            self._skip(_WIDE_GAP)
            options.append(self._sequence(nested))
        return options[0] if len(options) == 1 else RuleChoice(tuple(options))

    def _next_is_bar(self, nested: bool) -> bool:
        # A line that begins with | cannot begin a rule, so the line continues the rule before.
        found = _WIDE_GAP.match(self.text, self.at)
        after = found.end() if found else self.at
        if self.text[after : after + 1] != "|":
            self._skip(_WIDE_GAP if nested else _GAP)
            return False
        self.at = after
        return True

    def _sequence(self, nested: bool) -> Node:
        gap = _WIDE_GAP if nested else _GAP
        parts: list[Node] = []
        while True:
            self._skip(gap)
            self.tracker.check_time()
            part = self._element()
            if part is None:
                return parts[0] if len(parts) == 1 else RuleSequence(tuple(parts))
            parts.append(self._repeated(part, gap))

    def _element(self) -> Node | None:
        sign = self.text[self.at : self.at + 1]
        if sign == '"':
            return self._literal()
        if sign == "[":
            return self._class()
        if sign == ".":
            self.at += 1
            return _ANY
        if sign == "(":
            return self._group()
        name = _NAME.match(self.text, self.at)
        if name is None or _DEFINES.match(self.text, self.at):
            return None
        self.named.append((name[0], self.at))
        self.at = name.end()
        return Reference(name[0])

    def _group(self) -> Node:
        position = self.at
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._refusal(f"Brackets are nested deeper than {_DEEPEST}. Give inner parts rules of their own.")
        self.at += 1
        inner = self._choice(nested=True)
        if self.at >= len(self.text):
            raise self._refusal("This bracket is never closed. Add a ).", position)
        if self.text[self.at] != ")":
            raise self._unexpected()
        self.at += 1
        self.depth -= 1
        return inner

    def _repeated(self, part: Node, gap: re.Pattern[str]) -> Node:
        self._skip(gap)
        sign, position = self.text[self.at : self.at + 1], self.at
        if sign and sign in "*+?":
            self.at += 1
            return RuleRepeat(part, 1 if sign == "+" else 0, 1 if sign == "?" else None)
        if sign != "{":
            return part
        bounds = _BOUNDS.match(self.text, self.at)
        if bounds is None:
            raise self._refusal("A repetition is written {m}, {m,} or {m,n}, with whole numbers.")
        if max(len(bounds[1]), len(bounds[3] or "")) > 9:
            raise self._refusal("This count of repetitions is too large.")
        self.at = bounds.end()
        least = int(bounds[1])
        most = least if bounds[2] is None else int(bounds[3]) if bounds[3] else None
        if most is not None and most < least:
            raise self._refusal(f"At least {least} and at most {most} repetitions contradict each other.", position)
        return RuleSequence(()) if most == 0 else part if (least, most) == (1, 1) else RuleRepeat(part, least, most)

    def _literal(self) -> Node:
        position = self.at
        self.at += 1
        pieces: list[str] = []
        while (sign := self.text[self.at : self.at + 1]) != '"':
            if not sign or sign == "\n":
                raise self._refusal(
                    'This literal is never closed on its line. Add a ", and write line ends as \\n.', position
                )
            if len(pieces) % _BETWEEN_LOOKS == 0:
                self.tracker.check_time()
            run = _PLAIN.match(self.text, self.at)
            pieces.append(run[0] if run else chr(self._character()))
            self.at = run.end() if run else self.at
        self.at += 1
        text = "".join(pieces)
        if len(text) > 1:
            return LiteralText(text)
        return single(ord(text)) if text else RuleSequence(())

    def _class(self) -> Node:
        position = self.at
        self.at += 1
        others = self.text[self.at : self.at + 1] == "^"
        self.at += others
        ranges: list[tuple[int, int]] = []
        while (sign := self.text[self.at : self.at + 1]) != "]":
            if not sign or sign == "\n":
                raise self._refusal("This character class is never closed on its line. Add a ].", position)
            begun = self.at
            if len(ranges) % _BETWEEN_LOOKS == 0:
                self.tracker.check_time()
            first = last = self._character()
            if self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", "\n", ""):
                self.at += 1
                last = self._character()
            if last < first:
                raise self._refusal("This range of characters begins behind its end. Turn it around.", begun)
            ranges.append((first, last))
        self.at += 1
        return Chars(character_set(ranges, others))

    def _character(self) -> int:
        sign, position = self.text[self.at], self.at
        self.at += 1
        if sign != "\\":
            code = ord(sign)
        else:
            letter = self.text[self.at : self.at + 1]
            self.at += 1
            if letter in _ESCAPES:
                return ord(_ESCAPES[letter])
            digits = self.text[self.at : self.at + _DIGITS.get(letter, 0)]
            if not digits or not re.fullmatch(r"[0-9A-Fa-f]+", digits) or len(digits) != _DIGITS[letter]:
                raise self._refusal(
                    r"This escape is unknown. There are \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH and \UHHHHHHHH.",
                    position,
                )
            self.at += len(digits)
            code = int(digits, 16)
        if code > LAST or SURROGATES[0] <= code <= SURROGATES[1]:
            raise self._refusal(f"U+{code:04X} is no character of Unicode.", position)
        return code

    def _unexpected(self) -> UnsupportedGrammar:
        sign = self.text[self.at]
        if sign == ")":
            return self._refusal("A bracket is closed that was never opened.")
        if sign == "<" or self.text[self.at : self.at + 2] == "!<":
            return self._refusal("Tokens as such (<...>) cannot be written here: a grammar describes text.")
        if sign in "*+?{":
            return self._refusal(f"{sign!r} repeats what stands before it, and nothing does.")
        if _DEFINES.match(self.text, self.at):
            return self._refusal("A rule begins on a line of its own, with all brackets before it closed.")
        return self._refusal(
            f"{sign!r} has no meaning here. Literals stand in double quotes, and outside brackets the end of a line "
            f"ends a rule."
        )

    def _refusal(self, reason: str, position: int | None = None) -> UnsupportedGrammar:
        return refusal(self.text, self.at if position is None else position, reason)

    def _skip(self, gap: re.Pattern[str]) -> None:
        found = gap.match(self.text, self.at)
        self.at = found.end() if found else self.at
