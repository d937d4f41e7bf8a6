"""Context-free grammars over characters: what GBNF is read into, and what can be found out about one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

__all__ = [
    "LAST",
    "SURROGATES",
    "Chars",
    "Choice",
    "Grammar",
    "Node",
    "Reference",
    "Repeat",
    "Sequence",
    "children",
    "is_nullable",
    "nullable",
    "pruned",
    "recursive",
    "references",
]

LAST: Final = 0x10FFFF
SURROGATES: Final = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ranges of code points; sorted, apart from each other, no surrogates."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """Whatever a rule stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; none of them is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several; without any, no text at all."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``least`` to ``most`` times, without a limit if that is ``None``."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | Reference | Sequence | Choice | Repeat
Predicate: TypeAlias = Callable[[Node], bool]


@dataclass(frozen=True)
class Grammar:
    """Rules by name, and the one that a whole text follows."""

    rules: dict[str, Node]
    start: str


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node."""
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Choice):
        return node.options
    return (node.part,) if isinstance(node, Repeat) else ()


def references(node: Node) -> Iterator[str]:
    """The rules that a node names, with repetitions."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Reference):
            yield node.name
        stack += reversed(children(node))


def nullable(grammar: Grammar) -> frozenset[str]:
    """Rules that can stand for the empty text."""
    return _least_fixpoint(grammar, _may_be_empty)


def is_nullable(node: Node, known: frozenset[str]) -> bool:
    """Whether a node can stand for the empty text, given the rules that can."""
    return _holds(node, known, _may_be_empty)


def pruned(grammar: Grammar) -> Grammar:
    """The grammar without what no text can ever complete, and without rules that the start does not reach.

    What remains of a rule that stands for no text is a choice without options; if the start is such a rule, the
    grammar has no texts.
    """
    alive = _least_fixpoint(grammar, _ends)

    def cut(node: Node) -> Node | None:
        if isinstance(node, Chars):
            return node if node.ranges else None
        if isinstance(node, Reference):
            return node if node.name in alive else None
        if isinstance(node, Repeat):
            part = cut(node.part)
            if part is None:
                return Sequence(()) if node.least == 0 else None
            return replace(node, part=part)
        if isinstance(node, Choice):
            options = tuple(option for part in node.options if (option := cut(part)) is not None)
            return None if not options else options[0] if len(options) == 1 else Choice(options)
        parts = [cut(part) for part in node.parts]
        return None if None in parts else Sequence(tuple(part for part in parts if part is not None))

    reached: dict[str, Node] = {}
    waiting = [grammar.start]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = cut(grammar.rules[name]) or Choice(())
            waiting += references(reached[name])
    return Grammar({name: reached[name] for name in grammar.rules if name in reached}, grammar.start)


def recursive(grammar: Grammar) -> frozenset[str]:
    """Rules that contain themselves, or a rule that does."""
    edges = {name: set(references(node)) for name, node in grammar.rules.items()}
    # Rules that name only rules outside any circle are outside as well; what is left contains or reaches a circle.
    inside = set(edges)
    while True:
        outside = {name for name in inside if not edges[name] & inside}
        if not outside:
            return frozenset(inside)
        inside -= outside


def _ends(node: Node) -> bool:
    return bool(node.ranges) if isinstance(node, Chars) else _may_be_empty(node)


def _may_be_empty(node: Node) -> bool:
    return isinstance(node, Repeat) and node.least == 0


def _least_fixpoint(grammar: Grammar, base: Predicate) -> frozenset[str]:
    known: frozenset[str] = frozenset()
    while True:
        more = frozenset(name for name, node in grammar.rules.items() if _holds(node, known, base))
        if more == known:
            return known
        known = more


def _holds(node: Node, known: frozenset[str], base: Predicate) -> bool:
    if base(node):
        return True
    if isinstance(node, Reference):
        return node.name in known
    if isinstance(node, Repeat):
        return _holds(node.part, known, base)
    if isinstance(node, Choice):
        return any(_holds(option, known, base) for option in node.options)
    return isinstance(node, Sequence) and all(_holds(part, known, base) for part in node.parts)
