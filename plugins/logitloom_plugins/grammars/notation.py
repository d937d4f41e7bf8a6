"""A context-free grammar written for an engine: as Lark with lexemes for llguidance, as EBNF for xgrammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from logitloom_plugins.grammars.context_free import (
    Chars,
    ContextFreeGrammar,
    LiteralText,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    RuleSequence,
    references,
    spelled,
)
from logitloom_plugins.grammars.lexemes import Lexed, Lexeme

__all__ = ["to_ebnf", "to_lark"]

#: Characters that stand for themselves in a literal of Lark.
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]+")


def to_lark(grammar: Lexed) -> str:
    """The grammar as a Lark text whose terminals are its lexemes.

    Example:
        >>> from logitloom_plugins.grammars.gbnf import parse_gbnf
        >>> from logitloom_plugins.grammars.lexemes import lexed
        >>> print(to_lark(lexed(parse_gbnf('root ::= "a" root? "b"'))))
        start: r0
        r0: T0 r0? T1
        T0: "a"
        T1: "b"
    """
    rules = {name: f"r{i}" for i, name in enumerate(grammar.rules)}
    parts = {name: f"P{i}" for i, name in enumerate(grammar.parts)}
    lines = [f"start: {rules[grammar.start]}"]

    def written_chars(node: Chars | LiteralText) -> str:
        text = _plain(node)
        if text:
            return f'"{text}"'
        if isinstance(node, LiteralText):
            return " ".join(map(written_chars, spelled(node)))
        return "/[" + "".join(_span(low, high, "\\x{{{:x}}}".format) for low, high in node.ranges) + "]/"

    def leaf(names: dict[str, str]) -> Callable[[Any], str]:
        return lambda node: (
            f"T{node.number}" if isinstance(node, Lexeme) else names[node.name] if isinstance(node, Reference) else (
                written_chars(node)
            )
        )  # fmt: skip

    lines += [f"{rules[name]}: {_written(node, leaf(rules))}" for name, node in grammar.rules.items()]
    # Literals as such: the engine takes several times as long to read a set for each of their characters.
    for number, node in enumerate(grammar.lexemes):
        texts = [*map(_plain, node.parts)] if isinstance(node, RuleSequence) else [_plain(node)]
        lines.append(f"T{number}: " + (f'"{"".join(texts)}"' if all(texts) else _written(node, leaf(parts))))
    used = _reached(grammar)
    lines += [f"{parts[n]}: {_written(node, leaf(parts))}" for n, node in grammar.parts.items() if n in used]
    return "\n".join(lines)


def to_ebnf(grammar: ContextFreeGrammar) -> str:
    """The grammar in the notation of xgrammar; its first rule is ``root``.

    Example:
        >>> from logitloom_plugins.grammars.gbnf import parse_gbnf
        >>> print(to_ebnf(parse_gbnf('root ::= "a" root? "b"')))
        root ::= r0
        r0 ::= "\\U00000061" r0? "\\U00000062"
    """
    names = {name: f"r{i}" for i, name in enumerate(grammar.rules)}

    def leaf(node: Any) -> str:
        if isinstance(node, Reference):
            return names[node.name]
        if text := _only_text(node):
            return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'
        return "[" + "".join(_span(low, high, "\\U{:08x}".format) for low, high in node.ranges) + "]"

    lines = [f"root ::= {names[grammar.start]}"]
    return "\n".join([*lines, *(f"{names[name]} ::= {_written(node, leaf)}" for name, node in grammar.rules.items())])


def _plain(node: Node) -> str:
    """The only text of a leaf, if all its characters stand for themselves in a literal of Lark; empty otherwise."""
    text = _only_text(node)
    return text if _PLAIN.fullmatch(text) else ""


def _only_text(node: Node) -> str:
    """The only text of a leaf; empty if the leaf has several texts, and for other nodes."""
    if isinstance(node, LiteralText):
        return node.text
    if not isinstance(node, Chars) or len(node.ranges) != 1 or node.ranges[0][0] != node.ranges[0][1]:
        return ""
    return chr(node.ranges[0][0])


def _span(low: int, high: int, escape: Callable[[int], str]) -> str:
    return escape(low) if low == high else f"{escape(low)}-{escape(high)}"


def _written(node: Any, leaf: Callable[[Any], str]) -> str:
    if isinstance(node, (Chars, LiteralText, Reference, Lexeme)):
        return leaf(node)
    if isinstance(node, RuleChoice):
        return "(" + " | ".join(_written(option, leaf) for option in node.options) + ")"
    if isinstance(node, RuleRepeat):
        inner = _written(node.part, leaf)
        return f"{inner if isinstance(node.part, (Chars, Reference, Lexeme)) else f'({inner})'}{_count(node)}"
    return " ".join(_written(part, leaf) for part in node.parts) or '""'


def _count(node: RuleRepeat) -> str:
    if node.most is None:
        return {0: "*", 1: "+"}.get(node.least, f"{{{node.least},}}")
    return "?" if (node.least, node.most) == (0, 1) else f"{{{node.least},{node.most}}}"


def _reached(grammar: Lexed) -> set[str]:
    """Rules that lexemes are written with."""
    found: set[str] = set()
    waiting: list[Node] = list(grammar.lexemes)
    while waiting:
        for name in references(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(grammar.parts[name])
    return found
