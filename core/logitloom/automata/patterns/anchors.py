"""Anchors and word boundaries that the surrounding characters decide, and the tree after that decision.

An anchor depends on the kinds of the characters before and after it (:mod:`.boundaries`). In many patterns these kinds
are known: nothing comes before the ``^`` that begins a pattern, and a word character comes after the ``\\b`` in
``" \\bcat"``. An anchor that always holds at its place is replaced by the empty text; an anchor that never holds at its
place is replaced by a node that matches nothing. A pattern without other anchors needs no contexts, so its automaton is
smaller.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from logitloom.automata.patterns.boundaries import (
    AFTER,
    BEGIN,
    END,
    KINDS,
    LAST_NEWLINE,
    NEWLINE,
    context_bit,
    kind_sets,
)
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.pattern import (
    EMPTY,
    Alternation,
    Atomic,
    Boundary,
    Characters,
    Concatenation,
    LookAround,
    Node,
    Repeat,
)

__all__ = ["without_decided_anchors"]

_NEWLINES: Final = 1 << NEWLINE | 1 << LAST_NEWLINE


class _Edges(NamedTuple):
    """The kinds of the first and of the last character of a tree's texts, as bits, and whether a text may be empty.

    Kinds may be too many, never too few.
    """

    first: int
    last: int
    nullable: bool


def without_decided_anchors(tree: Node) -> Node:
    """An equivalent tree without the anchors that always hold, or never hold, at their places.

    Args:
        tree: the whole pattern, without look-around.
    """
    return _AnchorReader(tree).decided(tree, 1 << BEGIN, 1 << END)


class _AnchorReader:
    def __init__(self, tree: Node) -> None:
        #: By the identity of a node, which the tree keeps alive.
        self._known: dict[int, _Edges] = {}
        self._bounded: set[int] = set()
        self._find_bounded(tree)

    def _find_bounded(self, node: Node) -> bool:
        """Whether a tree has anchors; remembers all nodes of the tree that contain anchors."""
        if isinstance(node, Concatenation | Alternation):
            found = True in [type(part) is not Characters and self._find_bounded(part) for part in node[0]]
        elif isinstance(node, Repeat | Atomic | LookAround):
            found = self._find_bounded(node.part)
        else:
            found = isinstance(node, Boundary)
        if found:
            self._bounded.add(id(node))
        return found

    def decided(self, node: Node, before: int, after: int) -> Node:
        """A tree between characters of the given kinds, as bits."""
        if isinstance(node, Boundary):
            met = _contexts(before, after)
            held = node.contexts & met
            return EMPTY if held == met else node if held else Alternation(())
        if isinstance(node, Atomic) or id(node) not in self._bounded:
            # An atomic part ends before the character after it is known, so that character cannot decide an anchor
            # inside.
            return node
        if isinstance(node, Concatenation):
            return Concatenation(tuple(self._sequence(node.parts, before, after)))
        if isinstance(node, Alternation):
            return Alternation(tuple([self.decided(branch, before, after) for branch in node.branches]))
        assert isinstance(node, Repeat)
        if node.most != 1:
            inner = self._edges(node.part)
            before, after = before | inner.last, after | inner.first
        return node._replace(part=self.decided(node.part, before, after))

    def _sequence(self, parts: tuple[Node, ...], before: int, after: int) -> list[Node]:
        afters = []
        for part in reversed(parts):
            afters.append(after)
            edges = self._edges(part)
            after = edges.first | after if edges.nullable else edges.first
        found = []
        for part, following in zip(parts, reversed(afters), strict=True):
            found.append(self.decided(part, before, following))
            edges = self._edges(part)
            before = edges.last | before if edges.nullable else edges.last
        return found

    def _edges(self, node: Node) -> _Edges:
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = self._found(node)
        return known

    def _found(self, node: Node) -> _Edges:
        if isinstance(node, Characters):
            return _edges_of_set(node.chars)
        if isinstance(node, Concatenation):
            first = last = 0
            # After a part that cannot be empty, no later part can be at the edge.
            for part in node.parts:
                first |= self._edges(part).first
                if not self._edges(part).nullable:
                    break
            for part in reversed(node.parts):
                last |= self._edges(part).last
                if not self._edges(part).nullable:
                    return _Edges(first, last, False)
            return _Edges(first, last, True)
        if isinstance(node, Alternation):
            first = last = 0
            nullable = False
            for edges in map(self._edges, node.branches):
                first, last, nullable = first | edges.first, last | edges.last, nullable or edges.nullable
            return _Edges(first, last, nullable)
        if isinstance(node, Boundary | LookAround):
            return _Edges(0, 0, True)
        edges = self._edges(node.part)
        return edges._replace(nullable=True) if isinstance(node, Repeat) and node.least == 0 else edges


@lru_cache(maxsize=4096)
def _edges_of_set(chars: CharSet) -> _Edges:
    kinds = 0
    for kind, each in enumerate(kind_sets()):
        if each.ascii & chars.ascii or (each.high.ranges and chars.high.ranges):
            kinds |= 1 << kind
    return _Edges(kinds | (_NEWLINES if kinds >> NEWLINE & 1 else 0), kinds, False)


@lru_cache(maxsize=256)
def _contexts(before: int, after: int) -> int:
    """All contexts of a kind before and a kind after."""
    pairs = [(one, two) for one in range(KINDS + 1) for two in range(AFTER) if before >> one & 1 and after >> two & 1]
    return sum(context_bit(one, two) for one, two in pairs)
