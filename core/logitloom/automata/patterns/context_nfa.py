"""The position automaton of a pattern with anchors. Each transition has the contexts in which it is possible.

The construction is that of :mod:`logitloom.automata.patterns.nfa` with sets of contexts instead of truth values: a
concatenation is their intersection, an alternation their union. Position 0 stands for the beginning of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.boundaries import ALL_CONTEXTS
from logitloom.automata.patterns.char_sets import NEVER, CharSet
from logitloom.automata.patterns.nfa import OrderedCopies, RedundantCopies, position_count, with_copies
from logitloom.automata.patterns.pattern import Alternation, Atomic, Boundary, Characters, Concatenation, Node, Repeat

__all__ = ["ContextAutomaton", "context_automaton", "without_boundaries"]

Positions = dict[int, int]

#: Units of work between two checks of the time limit, and the approximate size of a transition in bytes.
_WORK: Final = 20_000
_EDGE_BYTES: Final = 64


class ContextAutomaton(NamedTuple):
    """A position automaton with contexts.

    ``follow[follow_at[p]][q]`` are the contexts in which ``q`` may come after ``p``, ``accept[p]`` those in which the
    text may end after ``p``. ``order`` compares positions that were just read; see :class:`.nfa.RedundantCopies`.
    """

    chars: list[CharSet]
    follow: list[Positions]
    follow_at: list[int]
    accept: list[int]
    order: RedundantCopies

    def members(self) -> list[list[int]]:
        """The positions that have each of ``follow``."""
        found: list[list[int]] = [[] for _ in self.follow]
        for p, number in enumerate(self.follow_at):
            found[number].append(p)
        return found


def context_automaton(node: Node, tracker: BudgetTracker) -> ContextAutomaton:
    """Build the position automaton of any tree without look-around."""
    tracker.check_states(position_count(node), "positions")
    builder = _ContextPositionBuilder(tracker)
    first, last, empty = builder.build(node)
    builder.follow_at[0] = len(builder.follow)
    accept = [0] * len(builder.chars)
    accept[0] = empty
    for p, contexts in last.items():
        accept[p] = contexts
    follow = [*builder.follow, first]
    return ContextAutomaton(builder.chars, follow, builder.follow_at, accept, RedundantCopies(builder.copies))


def without_boundaries(node: Node) -> Node:
    """A tree with every boundary replaced by the empty text."""
    if isinstance(node, Boundary):
        return Concatenation(())
    if isinstance(node, Concatenation):
        return Concatenation(tuple(without_boundaries(part) for part in node.parts))
    if isinstance(node, Alternation):
        return Alternation(tuple(without_boundaries(part) for part in node.branches))
    if isinstance(node, Characters):
        return node
    return node._replace(part=without_boundaries(node.part))


def repeated_atomic_parts(node: Node, inside: bool = False) -> Iterator[Atomic]:
    """Yield the atomic parts that a quantifier repeats.

    The positions do not show whether such a part is left and entered again, or not left. The anchors between two
    repetitions apply only in the first case. So repeated atomic parts are not supported together with anchors.
    """
    if isinstance(node, Atomic):
        if inside:
            yield node
        yield from repeated_atomic_parts(node.part, inside)
    elif isinstance(node, Repeat):
        yield from repeated_atomic_parts(node.part, inside or node.most != 1)
    elif isinstance(node, Concatenation | Alternation):
        for part in node.parts if isinstance(node, Concatenation) else node.branches:
            yield from repeated_atomic_parts(part, inside)


def _united(first: Positions, second: Positions) -> Positions:
    result = dict(first)
    for p, contexts in second.items():
        result[p] = result.get(p, 0) | contexts
    return result


def _restricted(some: Positions, contexts: int) -> Positions:
    if contexts == ALL_CONTEXTS:
        return some
    return {p: kept for p, known in some.items() if (kept := known & contexts)}


class _ContextPositionBuilder:
    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self.chars: list[CharSet] = [NEVER]
        #: What may follow, by number; each position's number, and how many positions have each. Number 0 is nothing.
        self.follow: list[Positions] = [{}]
        self.follow_at = [0]
        self.sharing = [1]
        self.copies: list[OrderedCopies | None] = [None]
        self.work = 0
        self.edges = 0

    def connect(self, last: Positions, first: Positions) -> None:
        alike: dict[tuple[int, int], list[int]] = {}
        for p, ending in last.items() if first else ():
            alike.setdefault((self.follow_at[p], ending), []).append(p)
        for (number, ending), positions in alike.items():
            if not number or self.sharing[number] > len(positions):
                self.sharing[number] -= len(positions)
                self.follow.append(dict(self.follow[number]))
                self.sharing.append(len(positions))
                number = len(self.follow) - 1
                for p in positions:
                    self.follow_at[p] = number
            known = self.follow[number]
            for q, beginning in first.items():
                if contexts := ending & beginning:
                    known[q] = known.get(q, 0) | contexts
            self.work += len(positions) + len(known)
            self.edges += len(first)
            if self.work > _WORK:
                self.work = 0
                self.tracker.check_time()
                self.tracker.check_bytes(_EDGE_BYTES * self.edges, "the connections of its positions")

    def build(self, node: Node) -> tuple[Positions, Positions, int]:
        """``(first, last, contexts of the empty text)`` of a tree, its positions appended."""
        if isinstance(node, Characters):
            p = len(self.chars)
            self.chars.append(node.chars)
            self.follow_at.append(0)
            self.sharing[0] += 1
            self.copies.append(None)
            return {p: ALL_CONTEXTS}, {p: ALL_CONTEXTS}, 0
        if isinstance(node, Boundary):
            return {}, {}, node.contexts
        if isinstance(node, Concatenation):
            return self.sequence(node.parts)
        if isinstance(node, Alternation):
            first: Positions = {}
            last: Positions = {}
            empty = 0
            for branch in node.branches:
                branch_first, branch_last, branch_empty = self.build(branch)
                first, last = _united(first, branch_first), _united(last, branch_last)
                empty |= branch_empty
            return first, last, empty
        if isinstance(node, Repeat):
            return self.repeat(node)
        return self.build(node.part)

    def sequence(self, parts: tuple[Node, ...]) -> tuple[Positions, Positions, int]:
        first: Positions = {}
        last: Positions = {}
        empty = ALL_CONTEXTS
        for part in parts:
            part_first, part_last, part_empty = self.build(part)
            first, last, empty = self.join((first, last, empty), (part_first, part_last, part_empty))
        return first, last, empty

    def join(
        self, before: tuple[Positions, Positions, int], after: tuple[Positions, Positions, int]
    ) -> tuple[Positions, Positions, int]:
        self.connect(before[1], after[0])
        return (
            _united(before[0], _restricted(after[0], before[2])),
            _united(after[1], _restricted(before[1], after[2])),
            before[2] & after[2],
        )

    def repeat(self, node: Repeat) -> tuple[Positions, Positions, int]:
        start = len(self.chars)
        result = part = self.build(node.part)
        if len(self.chars) == start:
            return {}, {}, ALL_CONTEXTS if node.least == 0 else part[2]
        for _ in range(node.least - 1):
            part = self.build(node.part)
            result = self.join(result, part)
        if node.most is None:
            self.connect(part[1], part[0])
            self.compare(start, max(node.least, 1), range(max(node.least, 1)), shorter_first=False)
            # If a copy matches the empty text, its neighbours are adjacent, so further repetitions change nothing.
            return (*result[:2], ALL_CONTEXTS) if node.least == 0 else result
        optional = []
        for _ in range(node.most - max(node.least, 1)):
            optional.append(self.build(node.part))
            self.tracker.check_time()
        if optional:
            tail = optional.pop()
            while optional:
                tail = self.join(optional.pop(), (tail[0], tail[1], ALL_CONTEXTS))
            result = self.join(result, (tail[0], tail[1], ALL_CONTEXTS))
        self.compare(start, node.most, range(max(node.least, 1) - 1, node.most), shorter_first=True)
        return (*result[:2], ALL_CONTEXTS) if node.least == 0 else result

    def compare(self, start: int, copies: int, comparable: range, shorter_first: bool) -> None:
        """Record the order of the copies that were added last."""
        size = (len(self.chars) - start) // copies
        with_copies(self.copies, start, size, copies, comparable, shorter_first)
