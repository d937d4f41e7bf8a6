"""Context-free grammars over characters, as read from GBNF, and their recursion, size and useless rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from logitloom.automata import BudgetTracker

__all__ = [
    "LAST",
    "SURROGATES",
    "Chars",
    "ContextFreeGrammar",
    "LiteralText",
    "Node",
    "Ranges",
    "Reference",
    "RuleChoice",
    "RuleRepeat",
    "RuleSequence",
    "character_set",
    "children",
    "ending",
    "is_nullable",
    "naming_depth",
    "pruned",
    "recursive",
    "references",
    "single",
    "spelled",
    "unnested",
    "written_out",
]

LAST: Final = 0x10FFFF
SURROGATES: Final = (0xD800, 0xDFFF)
#: Rules that stand for options of an endless repetition are followed to this depth.
_DEEPEST_OPTION: Final = 50


Ranges: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ranges of code points; sorted, apart from each other, no surrogates."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class LiteralText:
    """A text of two characters or more, which means the same as a sequence of its characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A text of another rule, which is named."""

    name: str


@dataclass(frozen=True, slots=True)
class RuleSequence:
    """Parts one after the other; no part is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """One of several options; without options no text at all."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RuleRepeat:
    """A part, repeated ``least`` to ``most`` times; ``most`` is ``None`` for any number."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | LiteralText | Reference | RuleSequence | RuleChoice | RuleRepeat
Predicate: TypeAlias = Callable[[Node], bool]


@dataclass(frozen=True)
class ContextFreeGrammar:
    """Rules by name, and the rule that a whole text follows."""

    rules: dict[str, Node]
    start: str

    @cached_property
    def named(self) -> dict[str, tuple[str, ...]]:
        """For each rule the rules that it names, each once."""
        return {name: tuple(dict.fromkeys(references(node))) for name, node in self.rules.items()}

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """For each rule that is referenced, the rules that reference it."""
        users: dict[str, list[str]] = {}
        for name, named in self.named.items():
            for used in named:
                users.setdefault(used, []).append(name)
        return users

    @cached_property
    def nullable(self) -> frozenset[str]:
        """Rules that can stand for the empty text."""
        return _least_fixpoint(self, _may_be_empty)


def character_set(ranges: Iterable[tuple[int, int]], others: bool = False) -> Ranges:
    """The set of some ranges of code points, or of all others: sorted, joined where they touch, without surrogates."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    if others:
        ends = [-1, *(last for _, last in joined)]
        begins = [*(first for first, _ in joined), LAST + 1]
        joined = [(end + 1, begin - 1) for end, begin in zip(ends, begins, strict=True) if end + 1 < begin]
    whole = []
    for first, last in joined:
        low, high = (first, min(last, SURROGATES[0] - 1)), (max(first, SURROGATES[1] + 1), last)
        whole += [part for part in (low, high) if part[0] <= part[1] and not (part == high and low == high)]
    return tuple(dict.fromkeys(whole))


@lru_cache(maxsize=1024)
def single(code: int) -> Chars:
    """One character, by its code point."""
    return Chars(((code, code),))


def spelled(node: LiteralText) -> tuple[Chars, ...]:
    """The characters of a text."""
    return tuple(map(single, map(ord, node.text)))


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node."""
    if isinstance(node, RuleSequence):
        return node.parts
    if isinstance(node, RuleChoice):
        return node.options
    return (node.part,) if isinstance(node, RuleRepeat) else ()


def references(node: Node) -> Iterator[str]:
    """The rules that a node names, with repetitions."""
    stack, seen = [node], 0
    tracker: BudgetTracker | None = None
    while stack:
        node = stack.pop()
        if isinstance(node, Reference):
            yield node.name
        else:
            stack += reversed(children(node))
        seen += 1
        if seen % 4096 == 0:
            tracker = tracker or BudgetTracker(subject="the grammar")
            tracker.check_time()


def is_nullable(node: Node, known: frozenset[str]) -> bool:
    """Whether a node can stand for the empty text, given the rules that can."""
    return _holds(node, known, _may_be_empty)


def ending(grammar: ContextFreeGrammar) -> frozenset[str]:
    """Rules that stand for some text: rules with a body that can end without endless recursion."""
    return _least_fixpoint(grammar, _ends)


def pruned(grammar: ContextFreeGrammar) -> ContextFreeGrammar:
    """The grammar without parts that no text can complete, and without rules that the start does not reach.

    A rule that stands for no text becomes a choice without options; if the start is such a rule, the grammar has no
    texts.
    """
    alive = ending(grammar)

    def cut(node: Node) -> Node | None:
        if isinstance(node, Chars):
            return node if node.ranges else None
        if isinstance(node, LiteralText):
            return node
        if isinstance(node, Reference):
            return node if node.name in alive else None
        if isinstance(node, RuleRepeat):
            part = cut(node.part)
            if part is None:
                return RuleSequence(()) if node.least == 0 else None
            return node if part is node.part else replace(node, part=part)
        parts = tuple([kept for part in children(node) if (kept := cut(part)) is not None])
        if isinstance(node, RuleSequence):
            if len(parts) < len(node.parts):
                return None
            return node if all(map(operator.is_, parts, node.parts)) else RuleSequence(parts)
        if len(parts) < 2:
            return parts[0] if parts else None
        return (
            node
            if len(parts) == len(node.options) and all(map(operator.is_, parts, node.options))
            else RuleChoice(parts)
        )

    reached: dict[str, Node] = {}
    waiting, same = [grammar.start], 0
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = cut(grammar.rules[name]) or RuleChoice(())
            # An unchanged rule has the references that the grammar already knows, and an unchanged grammar is returned.
            is_same = reached[name] is grammar.rules[name]
            waiting += grammar.named[name] if is_same else references(reached[name])
            same += is_same
    if same == len(grammar.rules):
        return grammar
    return ContextFreeGrammar({name: reached[name] for name in grammar.rules if name in reached}, grammar.start)


def unnested(grammar: ContextFreeGrammar) -> ContextFreeGrammar:
    """A grammar of the same texts, where no option of an endless repetition repeats: ``(a+ | b)*`` is ``(a | b)*``.

    A parser has to follow each way to share a run of ``a`` between the two repetitions, more with each ``a``.

    Args:
        grammar: without useless parts (:func:`pruned`), as the result is.

    Example:
        >>> a, b = Chars(((97, 97),)), Chars(((98, 98),))
        >>> unnested(ContextFreeGrammar({"x": RuleRepeat(RuleRepeat(a, 1, None), 0, None)}, "x")).rules["x"]
        RuleRepeat(part=Chars(ranges=((97, 97),)), least=0, most=None)
    """
    instead: dict[str, str] = {}
    rules = dict(grammar.rules)

    def option(node: Node, depth: int = 0) -> Node:
        """A node that takes the place of an option of an endless repetition."""
        if isinstance(node, RuleRepeat) and node.least == 1:
            return option(node.part, depth)
        if isinstance(node, RuleChoice):
            options = tuple(option(part, depth) for part in node.options)
            return node if all(map(operator.is_, options, node.options)) else RuleChoice(options)
        if not isinstance(node, Reference) or depth > _DEEPEST_OPTION:
            return node
        if node.name not in instead:
            instead[node.name] = node.name
            body = option(grammar.rules[node.name], depth + 1)
            if body is not grammar.rules[node.name]:
                instead[node.name] = name = f"{node.name} once"  # no rule of a grammar has a blank
                rules[name] = body
                waiting.append(name)
        return node if instead[node.name] == node.name else Reference(instead[node.name])

    def changed(node: Node) -> Node:
        if isinstance(node, Chars | LiteralText | Reference):
            return node
        if isinstance(node, RuleRepeat):
            part = changed(option(node.part) if node.most is None else node.part)
            return node if part is node.part else replace(node, part=part)
        parts = tuple(map(changed, children(node)))
        if all(map(operator.is_, parts, children(node))):
            return node
        return RuleSequence(parts) if isinstance(node, RuleSequence) else RuleChoice(parts)

    waiting = [*rules]
    for name in waiting:
        rules[name] = changed(rules[name])
    if all(rules[name] is node for name, node in grammar.rules.items()):
        return grammar
    return pruned(ContextFreeGrammar(rules, grammar.start))


def recursive(grammar: ContextFreeGrammar) -> frozenset[str]:
    """Rules that contain themselves, directly or not, and rules that contain such a rule."""
    return frozenset(grammar.rules) - frozenset(_outside_circles(grammar))


def written_out(grammar: ContextFreeGrammar) -> int:
    """The number of leaves of the largest rule without circles, after every rule that it names is written out.

    Example:
        >>> twice = {"start": RuleSequence((Reference("a"),) * 2), "a": RuleSequence((Chars(((97, 97),)),) * 3)}
        >>> written_out(ContextFreeGrammar(twice, "start"))
        6
    """
    size: dict[str, int] = {}
    for name in _outside_circles(grammar):
        size[name] = _leaves(grammar.rules[name], size)
    return max(size.values(), default=0)


def _leaves(node: Node, size: Mapping[str, int]) -> int:
    if isinstance(node, Reference):
        return size[node.name]
    if isinstance(node, LiteralText):
        return len(node.text)
    return 1 if isinstance(node, Chars) else sum(_leaves(part, size) for part in children(node))


def naming_depth(grammar: ContextFreeGrammar) -> int:
    """The most rules with circles that are open at one time, when each rule is followed once, depth first."""
    circles = recursive(grammar)
    if grammar.start not in circles:
        return 0
    seen, path, deepest = {grammar.start}, [iter(grammar.named[grammar.start])], 1
    while path:
        name = next((name for name in path[-1] if name in circles and name not in seen), None)
        if name is None:
            path.pop()
        else:
            seen.add(name)
            path.append(iter(grammar.named[name]))
            deepest = max(deepest, len(path))
    return deepest


def _outside_circles(grammar: ContextFreeGrammar) -> list[str]:
    """Rules that do not lead to recursion; each rule comes after the rules that it names."""
    left, users = {name: len(named) for name, named in grammar.named.items()}, grammar.users
    outside = [name for name, count in left.items() if not count]
    for name in outside:
        for user in users.get(name, ()):
            left[user] -= 1
            if not left[user]:
                outside.append(user)
    return outside


def _ends(node: Node) -> bool:
    return bool(node.ranges) if isinstance(node, Chars) else isinstance(node, LiteralText) or _may_be_empty(node)


def _may_be_empty(node: Node) -> bool:
    return isinstance(node, RuleRepeat) and node.least == 0


def _least_fixpoint(grammar: ContextFreeGrammar, base: Predicate) -> frozenset[str]:
    known: set[str] = set()
    users, tracker = grammar.users, BudgetTracker(subject="the grammar")
    asked: Iterable[str] = grammar.rules
    while asked:
        tracker.check_time()
        found = [name for name in asked if _holds(grammar.rules[name], known, base)]
        known.update(found)
        asked = {user for name in found for user in users.get(name, ())} - known
    return frozenset(known)


def _holds(node: Node, known: Set[str], base: Predicate) -> bool:
    if base(node):
        return True
    if isinstance(node, Reference):
        return node.name in known
    if isinstance(node, RuleRepeat):
        return _holds(node.part, known, base)
    if isinstance(node, RuleChoice):
        return any(_holds(option, known, base) for option in node.options)
    return isinstance(node, RuleSequence) and all(_holds(part, known, base) for part in node.parts)
