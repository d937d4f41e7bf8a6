"""Grammars that are regular, as trees of regular operations.

A grammar is regular if no rule contains itself, or if recursive rules stand only at the end of each sequence
(right-linear, as in ``list ::= item "," list | item``) or only at the beginning (left-linear). Rules that contain each
other are linear equations over regular languages then, ``X = A | B X``, which Arden's lemma solves: ``X = B* A``. Other
grammars may be regular too; that cannot be decided in general.

References:
    D. N. Arden, "Delayed-logic and finite-state machines", 1961.
    J. E. Hopcroft, R. Motwani, J. D. Ullman, "Introduction to Automata Theory, Languages, and Computation", 3rd ed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from logitloom.automata.patterns import pattern as regular
from logitloom.errors import BudgetExceeded
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

__all__ = ["regular_tree"]


class _CountedTree(NamedTuple):
    """A tree, and the number of its character sets when counted repeats are written out; shared parts count again."""

    tree: Any
    size: int


class _Linear(NamedTuple):
    """``constant | factors[a] a | factors[b] b | ...``, or with the factors behind the rules.

    Attributes:
        constant: the part that contains none of the rules; ``None`` for no text.
        factors: by rule.
    """

    constant: _CountedTree | None
    factors: dict[str, _CountedTree]


class _NotLinear(Exception):
    """A rule stands where a linear equation has none."""


_EMPTY: Final = _CountedTree(regular.Concatenation(()), 0)


def regular_tree(grammar: ContextFreeGrammar, *, most: int) -> regular.Node | None:
    """The language of a grammar as a tree of :mod:`.patterns.pattern`; ``None`` where it may not be regular.

    Args:
        grammar: without useless parts (``pruned``).
        most: the most characters after all rules and counted repeats are written out.

    Raises:
        BudgetExceeded: if the grammar has more.

    Example:
        >>> from logitloom.automata.compilation import compile_tree
        >>> from logitloom_plugins.grammars.gbnf import parse_gbnf
        >>> tree = regular_tree(parse_gbnf('root ::= "a" root | "b"'), most=100)
        >>> compile_tree(tree, "a grammar").fullmatch("aab")
        True
        >>> regular_tree(parse_gbnf('root ::= "(" root ")" | "b"'), most=100) is None
        True
    """
    known: dict[str, _CountedTree] = {}
    for group in _groups(grammar):
        for backwards in (False, True):
            try:
                known |= _RuleGroup(grammar, group, known, most, backwards).solved()
                break
            except _NotLinear:
                continue
        else:
            return None
    tree: regular.Node = known[grammar.start].tree
    return tree


class _RuleGroup:
    """Rules that contain each other (or a single rule), as equations.

    Args:
        grammar: the grammar.
        group: the names of the rules.
        known: the trees of the other rules that the group names.
        most: most characters of a tree.
        backwards: whether the rules stand first in each sequence, not last.
    """

    def __init__(
        self,
        grammar: ContextFreeGrammar,
        group: frozenset[str],
        known: Mapping[str, _CountedTree],
        most: int,
        backwards: bool,
    ) -> None:
        self.grammar, self.group, self.known, self.most, self.backwards = grammar, group, known, most, backwards

    def solved(self) -> dict[str, _CountedTree]:
        """The tree of each rule.

        Raises:
            _NotLinear: if the equations are not linear in this direction.
        """
        equations = {name: self._linear(self.grammar.rules[name]) for name in sorted(self.group)}
        for name in equations:
            equations[name] = self._without_itself(name, equations[name])
            for other in equations:
                if other != name and name in equations[other].factors:
                    equations[other] = self._substituted(equations[other], name, equations[name])
        # Every equation is a constant now, as each rule was put in for its name.
        return {name: one.constant or _CountedTree(regular.Alternation(()), 0) for name, one in equations.items()}

    def _without_itself(self, name: str, one: _Linear) -> _Linear:
        factors = dict(one.factors)
        again = factors.pop(name, None)
        if again is None:
            return one
        loop = _CountedTree(regular.Repeat(again.tree, 0, None, True), again.size)
        return self._times(loop, _Linear(one.constant, factors))

    def _substituted(self, one: _Linear, name: str, value: _Linear) -> _Linear:
        factors = dict(one.factors)
        return self._either([_Linear(one.constant, factors), self._times(factors.pop(name), value)])

    def _linear(self, node: Node) -> _Linear:
        if isinstance(node, Reference) and node.name in self.group:
            return _Linear(None, {node.name: _EMPTY})
        if self.group.isdisjoint(references(node)):
            return _Linear(self._tree(node), {})
        if isinstance(node, RuleChoice):
            return self._either([self._linear(option) for option in node.options])
        if isinstance(node, RuleSequence):
            first, last = (node.parts[1:], node.parts[0]) if self.backwards else (node.parts[:-1], node.parts[-1])
            if any(not self.group.isdisjoint(references(part)) for part in first):
                raise _NotLinear
            return self._times(self._joined([self._tree(part) for part in first]), self._linear(last))
        if isinstance(node, RuleRepeat) and node.most == 1:
            found = self._linear(node.part)
            return self._either([found, _Linear(_EMPTY, {})]) if node.least == 0 else found
        raise _NotLinear

    # --- regular operations ---------------------------------------------------------------------------------------

    def _tree(self, node: Node) -> _CountedTree:
        """The tree of a node that names known rules only."""
        if isinstance(node, Reference):
            return self.known[node.name]
        if isinstance(node, Chars):
            return _CountedTree(_characters(node.ranges), 1)
        if isinstance(node, LiteralText):
            return self._joined([_CountedTree(_characters(each.ranges), 1) for each in spelled(node)])
        if isinstance(node, RuleRepeat):
            part = self._tree(node.part)
            count = max(node.least, 1) if node.most is None else node.most
            return self._checked(regular.Repeat(part.tree, node.least, node.most, True), part.size * count)
        if isinstance(node, RuleChoice):
            return self._alternatives([self._tree(option) for option in node.options])
        return self._joined([self._tree(part) for part in node.parts])

    def _checked(self, tree: Any, size: int) -> _CountedTree:
        if size > self.most:
            raise BudgetExceeded(
                f"The grammar has more than {self.most} characters where every rule is written out. Shorten it, or "
                f"use an engine that follows rules."
            )
        return _CountedTree(tree, size)

    def _joined(self, parts: Iterable[_CountedTree]) -> _CountedTree:
        kept = [part for part in parts if part is not _EMPTY]
        if len(kept) == 1:
            return kept[0]
        found = self._checked(regular.Concatenation(tuple(part.tree for part in kept)), sum(part.size for part in kept))
        return found if kept else _EMPTY

    def _alternatives(self, parts: list[_CountedTree]) -> _CountedTree:
        if len(parts) == 1:
            return parts[0]
        return self._checked(regular.Alternation(tuple(part.tree for part in parts)), sum(part.size for part in parts))

    def _times(self, factor: _CountedTree, one: _Linear) -> _Linear:
        def times(part: _CountedTree) -> _CountedTree:
            return self._joined((part, factor) if self.backwards else (factor, part))

        constant = None if one.constant is None else times(one.constant)
        return _Linear(constant, {name: times(part) for name, part in one.factors.items()})

    def _either(self, many: list[_Linear]) -> _Linear:
        constants = [one.constant for one in many if one.constant is not None]
        factors: dict[str, list[_CountedTree]] = {}
        for one in many:
            for name, part in one.factors.items():
                factors.setdefault(name, []).append(part)
        return _Linear(
            self._alternatives(constants) if constants else None,
            {name: self._alternatives(parts) for name, parts in factors.items()},
        )


@lru_cache(maxsize=1024)
def _characters(ranges: tuple[tuple[int, int], ...]) -> regular.Node:
    return regular.parse_pattern("[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]")


def _groups(grammar: ContextFreeGrammar) -> list[frozenset[str]]:
    """Groups of mutually recursive rules; each group stands after the groups that it names (Tarjan's algorithm, with a
    stack).
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_rules: list[str] = []
    found: list[frozenset[str]] = []
    done: set[str] = set()
    for root in grammar.rules:
        if root in number:
            continue
        work = [(root, iter(grammar.named[root]))]
        number[root] = lowest[root] = len(number)
        open_rules.append(root)
        while work:
            name, names = work[-1]
            following = next(names, None)
            if following is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    at = open_rules.index(name)
                    found.append(frozenset(open_rules[at:]))
                    done.update(open_rules[at:])
                    del open_rules[at:]
            elif following not in number:
                number[following] = lowest[following] = len(number)
                open_rules.append(following)
                work.append((following, iter(grammar.named[following])))
            elif following not in done:
                lowest[name] = min(lowest[name], number[following])
    return found
