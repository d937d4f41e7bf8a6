r"""llguidance's dialect of Lark, read into rules over terminals, so that it is known how texts are completed.

What is read: rules, terminals, strings ``"a"`` and ``"a"i``, ranges ``"a".."z"``, patterns ``/a/is``, groups ``( )``
and ``[ ]``, ``|``, the repetitions ``* + ? {m} {m,} {m,n} ~m ~m..n``, aliases, ``%ignore`` and ``%import common``.

The engine reads the text first, and says what is wrong with it. What is refused here runs on the engine all the same,
without a limit of tokens.

References:
    llguidance, "Syntax of LLGuidance Grammars"; https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md.
    Lark documentation, "Grammar reference"; https://lark-parser.readthedocs.io.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from logitloom.automata import Budget, BudgetTracker, Dfa, compile_tree
from logitloom.errors import BudgetExceeded, UnsupportedGrammar, UnsupportedPattern
from logitloom_plugins.grammars.context_free import (
    Chars,
    Choice,
    Grammar,
    Node,
    Ranges,
    Reference,
    Repeat,
    Sequence,
    character_set,
    ending,
    pruned,
    references,
)
from logitloom_plugins.grammars.regular import regular_tree
from logitloom_plugins.grammars.rust_pattern import ignoring_case, parse_rust_pattern
from logitloom_plugins.grammars.source_text import refusal

__all__ = ["LarkGrammar", "parse_lark"]

_DEEPEST: Final = 30
_MOST_POSITIONS: Final = 20_000
_BUDGET: Final = Budget(states=5_000, seconds=2.0)
_EMPTY: Final = Sequence(())
_TOKENS: Final = re.compile(
    r"""
    (?P<gap> [ \t]+ | (?:\#|//)[^\n]* )
  | (?P<newline> (?:\r?\n)+ )
  | (?P<string> "(?:\\.|[^"\\\n])*"i? )
  | (?P<pattern> /(?:\\.|[^/\\\n])+/[a-z]* )
  | (?P<rule> !?[_?]?[a-z][_a-z0-9-]* )
  | (?P<terminal> _?[A-Z][_A-Z0-9-]* )
  | (?P<number> [0-9]+ )
  | (?P<special> <[^<>\s]+> | @[\w-]+ | %[a-z]+ )
  | (?P<sign> -> | \.\. | :: | [:,.(){}|&~=+*?\[\]] )
    """,
    re.VERBOSE,
)
_ENDS: Final = ("newline", "|", "->", ")", "]", "")
#: Attributes that change what can be written, or when a terminal ends.
_ATTRIBUTES: Final = {
    "lazy": "ends at the first byte at which it may",
    "stop": "ends where a stop is found, which is not part of the text",
    "suffix": "ends where a suffix is found first",
    "max_tokens": "counts tokens",
    "temperature": "changes how tokens are drawn",
    "stop_capture": "names what ended a rule",
}
_EXTENSIONS: Final = {
    "%json": "a JSON Schema has a lexer of its own",
    "%regex": "a structured pattern is known to the engine alone",
    "%lark": "an inner grammar has a lexer of its own",
    "%llguidance": "options of the engine change what may be written",
    "%if": "conditions are known to the engine alone",
    "&": "terminals that are intersected are known to the engine alone",
    "~": "terminals that are negated are known to the engine alone",
    "::": "parameters are known to the engine alone",
}
#: The terminals of ``%import common`` that the engine has.
_COMMON: Final = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": "[eE][+-]?[0-9]+",
    "FLOAT": r"([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
    "SIGNED_FLOAT": r"[+-]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)",
    "NUMBER": r"[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
    "SIGNED_NUMBER": r"[+-]?([0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+([^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}


@dataclass(frozen=True)
class LarkGrammar:
    """Rules over terminals, and the terminals. A terminal takes the longest match.

    Attributes:
        rules: without useless parts (``pruned``); the character ``n`` stands for terminal ``n``.
        terminals: by number, over bytes; the empty text does not count.
        ignored: what may stand between terminals; ``None`` for nothing.
    """

    rules: Grammar
    terminals: tuple[Dfa, ...]
    ignored: Dfa | None


def parse_lark(text: str, classes: Callable[[str], Ranges], *, start: str = "start") -> LarkGrammar:
    """The grammar that a Lark text describes.

    Args:
        text: a grammar that llguidance accepts.
        classes: the characters of ``\\d``, ``\\w``, ... as the engine has them, by what stands behind the backslash.
        start: the rule that a whole text follows.

    Raises:
        UnsupportedGrammar: with line and column of what is not read here.
        BudgetExceeded: if it takes too long, or a terminal is too large.

    Example:
        >>> found = parse_lark('start: "(" start ")" | NAME\\nNAME: /[a-z]+/', {}.__getitem__)
        >>> len(found.terminals), found.terminals[2].fullmatch("name"), found.ignored
        (3, True, None)
    """
    return _Reader(text, classes).grammar(start)


class _Token(NamedTuple):
    """A piece of the text; ``kind`` is the piece itself for signs, and empty at the end."""

    kind: str
    text: str
    at: int


class _Reader:
    def __init__(self, text: str, classes: Callable[[str], Ranges]) -> None:
        self.text, self.classes = text, classes
        self.tracker = BudgetTracker(subject="the grammar")
        self.tokens = self._lexed()
        self.next = 0
        self.depth = 0
        self.rules: dict[str, Node] = {}
        self.named: dict[str, Node] = {}
        self.ignored: list[Node] = []
        self.numbers: dict[Node, int] = {}

    def _lexed(self) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while at < len(self.text):
            self.tracker.check_time()
            match = _TOKENS.match(self.text, at)
            if match is None:
                raise refusal(self.text, at, "Only the engine knows what this means.")
            kind, at = match.lastgroup or "", match.end()
            if kind in ("special", "sign"):
                kind = match[0] if match[0][0] not in "<@" else "special"
            if kind != "gap":
                found.append(_Token(kind, match[0], match.start()))
        return [*found, _Token("newline", "", at), _Token("", "", at)]

    # --- the whole text -------------------------------------------------------------------------------------------

    def grammar(self, start: str) -> LarkGrammar:
        while self._peek().kind:
            token = self._take()
            if token.kind == "rule":
                self._rule(token)
            elif token.kind == "terminal":
                self._expect(":", token)
                self.named[token.text] = self._choice(terminal=True)
            elif token.kind == "%ignore":
                self.ignored.append(self._choice(terminal=True))
            elif token.kind == "%import":
                self._import()
            elif token.kind != "newline":
                raise self._refusal(token)
        rules = Grammar(self.rules, start)
        endless = sorted(_reached(rules) - ending(rules))
        if endless:
            # The engine expects their terminals, and so takes longer matches than the other rules have.
            raise UnsupportedGrammar(f"No text follows the rule {endless[0]!r}, because it is endless or not defined.")
        return self._compiled(pruned(rules))

    def _rule(self, token: _Token) -> None:
        if self._peek().kind == "[":
            self._attributes()
        self._expect(":", token)
        self.rules[token.text.lstrip("!?")] = self._choice(terminal=False)

    def _attributes(self) -> None:
        while (token := self._take()).kind != "]":
            if token.text in _ATTRIBUTES:
                raise refusal(
                    self.text, token.at, f"A rule with the attribute {token.text!r} {_ATTRIBUTES[token.text]}."
                )
            if token.kind not in ("[", "rule", "=", "string", ","):
                raise self._refusal(token)

    def _import(self) -> None:
        package, dot, name = self._take(), self._take(), self._take()
        if (package.text, dot.kind, name.kind) == ("common", ".", "terminal"):
            alias = name
            if self._peek().kind == "->":
                self._take()
                alias = self._take()
            self._common(alias.text, name)
        elif (package.text, dot.kind) == ("common", "("):
            while name.kind not in (")", ""):
                if name.kind != ",":
                    self._common(name.text, name)
                name = self._take()
        else:
            raise self._refusal(package)

    def _common(self, local: str, name: _Token) -> None:
        if name.text not in _COMMON:
            raise self._refusal(name)
        self.named[local] = parse_rust_pattern(_COMMON[name.text], self.classes)

    # --- what stands behind a colon -------------------------------------------------------------------------------

    def _choice(self, terminal: bool) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise refusal(self.text, self._peek().at, f"Brackets are nested deeper than {_DEEPEST}.")
        options = [self._sequence(terminal)]
        while self._is_bar():
            options.append(self._sequence(terminal))
        self.depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _is_bar(self) -> bool:
        # A line that begins with | goes on with the one before.
        ahead = self.next + (self._peek().kind == "newline")
        if ahead < len(self.tokens) and self.tokens[ahead].kind == "|":
            self.next = ahead + 1
            return True
        return False

    def _sequence(self, terminal: bool) -> Node:
        parts: list[Node] = []
        while self._peek().kind not in _ENDS:
            self.tracker.check_time()
            parts.append(self._repeated(self._atom(terminal)))
        if self._peek().kind == "->":
            self._take()
            self._take()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        sign = self._peek()
        if sign.kind in ("*", "+", "?"):
            self._take()
            return Repeat(node, int(sign.kind == "+"), 1 if sign.kind == "?" else None)
        counted = sign.kind == "{" or (sign.kind == "~" and self.tokens[self.next + 1].kind == "number")
        if not counted:
            return node
        self._take()
        least = most = self._number() or 0
        if sign.kind == "{":
            if self._peek().kind == ",":
                self._take()
                bound = self._number()
                most = -1 if bound is None else bound
            self._expect("}", sign)
        elif self._peek().kind == "..":
            self._take()
            most = self._number() or 0
        return Repeat(node, least, None if most < 0 else most)

    def _number(self) -> int | None:
        return int(self._take().text) if self._peek().kind == "number" else None

    def _atom(self, terminal: bool) -> Node:
        token = self._take()
        if token.kind in ("(", "["):
            inner = self._choice(terminal)
            self._expect(")" if token.kind == "(" else "]", token)
            return inner if token.kind == "(" else Repeat(inner, 0, 1)
        if self._peek().kind == "::":
            raise self._refusal(self._peek())
        if token.kind == "rule" and not terminal:
            return Reference(token.text)
        if token.kind == "terminal":
            return Reference(token.text) if terminal else self._leaf(Reference(token.text))
        if token.kind == "string" and self._peek().kind == "..":
            self._take()
            low, high = self._literal(token), self._literal(self._take())
            if len(low) != 1 or len(high) != 1:
                raise self._refusal(token)
            node: Node = Chars(character_set([(ord(low), ord(high))]))
        elif token.kind == "string":
            literal = self._literal(token)
            if not literal:
                return _EMPTY
            node = self._characters(literal, token)
        elif token.kind == "pattern":
            node = self._pattern(token)
        else:
            raise self._refusal(token)
        return node if terminal else self._leaf(node)

    def _leaf(self, node: Node) -> Node:
        """A terminal as the character of its number."""
        number = self.numbers.setdefault(node, len(self.numbers))
        return Chars(((number, number),))

    def _literal(self, token: _Token) -> str:
        whole = token.text.removesuffix("i")
        try:
            found: str = json.loads(re.sub(r"(?<!\\)((?:\\\\)*)\\x", r"\1\\u00", whole))
        except ValueError as error:
            raise self._refusal(token) from error
        return found

    def _characters(self, literal: str, token: _Token) -> Node:
        parts: list[Node] = []
        for char in literal:
            ranges: Ranges | None = ((ord(char), ord(char)),)
            if token.text.endswith("i"):
                ranges = ignoring_case(((ord(char), ord(char)),))
            if ranges is None:
                raise refusal(self.text, token.at, "Of characters beyond ASCII, only the engine knows the other cases.")
            parts.append(Chars(ranges))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _pattern(self, token: _Token) -> Node:
        body, _, flags = token.text[1:].rpartition("/")
        try:
            return parse_rust_pattern(body, self.classes, flags)
        except UnsupportedPattern as error:
            raise refusal(self.text, token.at, str(error)) from error

    # --- terminals ------------------------------------------------------------------------------------------------

    def _compiled(self, rules: Grammar) -> LarkGrammar:
        ignored = None
        if self.ignored:
            ignored = self._automaton(Choice(tuple(self.ignored)))
            ignored = ignored if _has_text(ignored) else None
        nodes, used = list(self.numbers), set(_leaves(rules))
        terminals: list[Dfa] = []
        empty: set[int] = set()
        nothing = Dfa([0] * 256, [[-1]], [False])
        for number, node in enumerate(nodes):
            made = self._automaton(node) if number in used else nothing
            if bool(made.accepting[made.start]):
                empty.add(number)
            terminals.append(made)
        none = {number for number, made in enumerate(terminals) if not _has_text(made)}

        def with_empty(node: Node) -> Node:
            if isinstance(node, Chars):
                number = node.ranges[0][0]
                options = [] if number in none else [node]
                return Choice((*options, *([_EMPTY] if number in empty else []))) if number in empty | none else node
            if isinstance(node, Repeat):
                return replace(node, part=with_empty(node.part))
            if isinstance(node, Choice):
                return Choice(tuple(map(with_empty, node.options)))
            return Sequence(tuple(map(with_empty, node.parts))) if isinstance(node, Sequence) else node

        changed = Grammar({name: with_empty(node) for name, node in rules.rules.items()}, rules.start)
        return LarkGrammar(pruned(changed), tuple(terminals), ignored)

    def _automaton(self, node: Node) -> Dfa:
        try:
            grammar = Grammar({**self.named, " ": node}, " ")
            tree = regular_tree(pruned(grammar), most=_MOST_POSITIONS)
        except KeyError as error:
            raise UnsupportedGrammar(f"The terminal {error.args[0]!r} is defined nowhere.") from error
        if tree is None:
            raise BudgetExceeded("A terminal of the grammar contains itself.")
        return compile_tree(tree, "a terminal of the grammar", budget=_BUDGET).trimmed()

    # --- tokens ---------------------------------------------------------------------------------------------------

    def _peek(self) -> _Token:
        return self.tokens[self.next]

    def _take(self) -> _Token:
        token = self.tokens[self.next]
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def _expect(self, kind: str, before: _Token) -> None:
        if self._peek().kind != kind:
            raise self._refusal(self._peek() if self._peek().kind in _EXTENSIONS else before)
        self._take()

    def _refusal(self, token: _Token) -> UnsupportedGrammar:
        if token.kind == "special":
            reason = "special tokens and other grammars are no text"
        else:
            reason = _EXTENSIONS.get(token.kind, "only the engine knows what this means")
        return refusal(self.text, token.at, f"{reason[0].upper()}{reason[1:]}.")


def _reached(grammar: Grammar) -> set[str]:
    """The start and the rules that are named from it on."""
    found, waiting = {grammar.start}, [grammar.start]
    for name in waiting:
        node = grammar.rules.get(name)
        waiting += set(references(node)) - found if node is not None else ()
        found.update(waiting)
    return found


def _leaves(grammar: Grammar) -> set[int]:
    found: set[int] = set()
    waiting = list(grammar.rules.values())
    while waiting:
        node = waiting.pop()
        if isinstance(node, Chars):
            found.add(node.ranges[0][0])
        elif isinstance(node, Repeat):
            waiting.append(node.part)
        elif not isinstance(node, Reference):
            waiting += node.options if isinstance(node, Choice) else node.parts
    return found


def _has_text(automaton: Dfa) -> bool:
    """Whether the automaton reads a text that is not empty."""
    trimmed = automaton.trimmed()
    return bool((trimmed.by_byte[trimmed.start] >= 0).any())
