"""The position automaton of a pattern: one state per character of the pattern, without epsilon transitions.

Every character set of the tree becomes a position. ``first`` are the positions that a text may begin with,
``follow[p]`` the positions that may come after ``p``. Position 0 stands for the end of the text. Counted repeats are
expanded as ``x(x(x)?)?``, which keeps the sets small and most patterns deterministic.

References:
    V. M. Glushkov, "The abstract theory of automata", 1961.
    R. McNaughton and H. Yamada, "Regular expressions and state graphs for automata", 1960.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.char_sets import NEVER, CharSet
from logitloom.automata.patterns.pattern import Alternation, Atomic, Characters, Concatenation, Node, Repeat
from logitloom.errors import UnsupportedPattern

__all__ = [
    "END_POSITION",
    "Order",
    "PositionAutomaton",
    "ordered_copies",
    "position_automaton",
    "predecessors",
]

END_POSITION: Final = 0
#: Units of work between two checks of the time limit, and the approximate size of a position in a set, in bytes.
_WORK: Final = 50_000
_EDGE_BYTES: Final = 32
_NONE: Final[frozenset[int]] = frozenset()
_END: Final = frozenset((END_POSITION,))

Positions = frozenset[int]

Order = dict[int, tuple[tuple[int, int], ...]]
"""Per position, from the innermost repeat outwards, pairs of a key and a rank.

Positions with equal keys at one level are copies of the same position of a repeated part. Every text that may follow
the position of higher rank may also follow the position of lower rank: in ``x{0,9}``, every text that may follow four
``x`` may also follow three. So a set with both positions needs only the position of lower rank.
"""


class PositionAutomaton(NamedTuple):
    """Positions of a pattern: ``chars[p]`` is the character set of ``p``, ``follow[p]`` the positions after it."""

    chars: list[CharSet]
    first: Positions
    follow: list[Positions]
    order: Order


class _RepeatedPart(NamedTuple):
    """The positions of a repeated part before transitions that leave the part are added; the first is ``start``."""

    first: Positions
    last: Positions
    chars: list[CharSet]
    follow: list[Positions]
    start: int
    edges: int


class _AtomicPart(NamedTuple):
    node: Atomic
    first: Positions
    last: Positions
    inside: range
    follow: dict[int, Positions]


def position_count(node: Node) -> int:
    """The number of positions of a tree after its counted repeats are expanded."""
    if isinstance(node, Characters):
        return 1
    if isinstance(node, Concatenation | Alternation):
        return sum([1 if type(part) is Characters else position_count(part) for part in node[0]])
    if isinstance(node, Repeat):
        return position_count(node.part) * (max(node.least, 1) if node.most is None else node.most)
    if isinstance(node, Atomic):
        return position_count(node.part)
    return 0


def position_automaton(
    node: Node, tracker: BudgetTracker, refuse: Callable[[Atomic], UnsupportedPattern]
) -> PositionAutomaton:
    """Build the position automaton of a tree without boundaries.

    Args:
        node: the tree.
        tracker: the budget tracker.
        refuse: makes the error for an atomic part that may change the language.

    Raises:
        UnsupportedPattern: the result of ``refuse``.
        BudgetExceeded: if the tree has too many positions, or the construction exceeds the budget.
    """
    tracker.check_states(position_count(node), "positions")
    builder = _PositionBuilder(tracker)
    first, last, nullable = builder.build(node)
    builder.connect(last, _END)
    follow = builder.follow
    for part in builder.atomic:
        check_atomic(part, builder.chars, follow, refuse, tracker)
    if nullable:
        first = first | {END_POSITION}
    if builder.fails:
        first, follow = _without_dead_ends(first, follow)
    return PositionAutomaton(builder.chars, first, follow, builder.order)


def _without_dead_ends(first: Positions, follow: list[Positions]) -> tuple[Positions, list[Positions]]:
    """``first`` and ``follow`` without the positions from which the end of the text cannot be reached."""
    before = predecessors(follow)
    alive = {END_POSITION}
    queue = [END_POSITION]
    for q in queue:
        for p in before[q]:
            if p not in alive:
                alive.add(p)
                queue.append(p)
    return first & alive, [following & alive for following in follow]


def predecessors(follow: Sequence[Positions]) -> list[list[int]]:
    """By position the positions that it may follow."""
    before: list[list[int]] = [[] for _ in follow]
    for p, following in enumerate(follow):
        for q in following:
            before[q].append(p)
    return before


def ordered_copies(order: Order, start: int, size: int, copies: range, shorter_first: bool) -> None:
    """Record the order of the positions of consecutive copies of a repeated part.

    Args:
        order: the order to extend.
        start: the first position of the first copy.
        size: number of positions of a copy.
        copies: the copies that are comparable; the first copy is 0.
        shorter_first: whether an earlier copy permits all texts that a later copy permits (else the reverse).
    """
    if len(copies) < 2:
        return
    base = start + copies[0] * size
    if size == 1 and base not in order:  # a repeated character, whose positions are new
        ranks = copies if shorter_first else range(-copies[0], -copies[-1] - 1, -1)
        order.update([(p, ((base, rank),)) for p, rank in zip(range(base, start + copies[-1] + 1), ranks, strict=True)])
        return
    for copy in copies:
        rank = copy if shorter_first else -copy
        for offset in range(size):
            p = start + copy * size + offset
            order[p] = (*order.get(p, ()), (base + offset, rank))


class _PositionBuilder:
    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        self.chars: list[CharSet] = [NEVER]
        self.follow: list[Positions] = [_NONE]
        self.atomic: list[_AtomicPart] = []
        self.order: Order = {}
        self.fails = False
        self.work = 0
        self.edges = 0

    def connect(self, last: Positions, first: Positions) -> None:
        follow = self.follow
        for p in last:
            known = follow[p]
            # Empty sets are replaced by the shared ``first``. Otherwise (w1|w2|...)* would copy a large set per word.
            if known:
                follow[p] = known | first
                self.edges += len(follow[p])
            else:
                follow[p] = first
        self.work += len(last) * (1 + len(first) // 64)
        if self.work > _WORK:
            self.work = 0
            self.tracker.check_time()
            self.tracker.check_bytes(_EDGE_BYTES * self.edges, "the connections of its positions")

    def build(self, node: Node) -> tuple[Positions, Positions, bool]:
        """Append the positions of a tree and return its ``(first, last, nullable)``."""
        kind = type(node)
        if kind is Characters:
            p = len(self.chars)
            self.chars.append(node.chars)  # type: ignore[union-attr]
            self.follow.append(_NONE)
            if not node.chars:  # type: ignore[union-attr]
                self.fails = True
                return _NONE, _NONE, False
            alone = frozenset((p,))
            return alone, alone, False
        if isinstance(node, Concatenation):
            first, last, nullable = _NONE, _NONE, True
            for part in node.parts:
                part_first, part_last, part_nullable = self.build(part)
                if last:
                    self.connect(last, part_first)
                if nullable:
                    first = first | part_first if first else part_first
                last = last | part_last if part_nullable and last else part_last
                nullable = nullable and part_nullable
            return first, last, nullable
        if isinstance(node, Alternation):
            results = [self.build(branch) for branch in node.branches]
            self.fails |= not results
            return (
                _NONE.union(*[r[0] for r in results]),
                _NONE.union(*[r[1] for r in results]),
                any(r[2] for r in results),
            )
        if isinstance(node, Repeat):
            return self.repeat(node)
        if isinstance(node, Atomic):
            start = len(self.chars)
            first, last, nullable = self.build(node.part)
            inside = range(start, len(self.chars))
            follow = {p: self.follow[p] for p in inside}
            self.atomic.append(_AtomicPart(node, first, last, inside, follow))
            return first, last, nullable
        raise TypeError(f"{node!r} has no position automaton without contexts.")

    def repeat(self, node: Repeat) -> tuple[Positions, Positions, bool]:
        start = len(self.chars)
        if isinstance(node.part, Characters) and node.part.chars:
            return self.chain(node.part.chars, node)
        atomic = len(self.atomic)
        first, last, nullable = self.build(node.part)
        if len(self.chars) == start:
            return _NONE, _NONE, nullable or node.least == 0
        # Each copy of an atomic part must be checked, so it is built again. Copying other parts is faster than that.
        part = None
        if len(self.atomic) == atomic:
            follow = self.follow[start:]
            part = _RepeatedPart(first, last, self.chars[start:], follow, start, sum(map(len, follow)))
        # If a part can be empty, copies may match the empty text, so the lower bound has no effect.
        required = 0 if nullable else node.least
        ends = last
        if node.most is None:
            repeated = first
            for _ in range(required - 1):
                repeated, ends = self.copy(node.part, part, ends)
            self.connect(ends, repeated)
            size = (len(self.chars) - start) // max(required, 1)
            ordered_copies(self.order, start, size, range(required), shorter_first=False)
            return first, ends, required == 0
        collected = [last] if required <= 1 else []
        for count in range(2, node.most + 1):
            _, ends = self.copy(node.part, part, ends)
            if count >= required:
                collected.append(ends)
        size = (len(self.chars) - start) // node.most
        ordered_copies(self.order, start, size, range(max(required, 1) - 1, node.most), shorter_first=True)
        return first, _NONE.union(*collected), required == 0

    def chain(self, chars: CharSet, node: Repeat) -> tuple[Positions, Positions, bool]:
        """The repetition of a single character set, the most common case: a chain of positions."""
        start = len(self.chars)
        required = max(node.least, 1)
        stop = start + (required if node.most is None else node.most)
        self.chars += [chars] * (stop - start)
        self.follow += [frozenset((p,)) for p in range(start + 1, stop)]
        self.follow.append(_NONE if node.most is not None else frozenset((stop - 1,)))
        bounded = node.most is not None
        comparable = range(required - 1 if bounded else 0, stop - start)
        ordered_copies(self.order, start, 1, comparable, shorter_first=bounded)
        self.work += stop - start
        return frozenset((start,)), frozenset(range(start + required - 1, stop)), node.least == 0

    def copy(self, node: Node, part: _RepeatedPart | None, after: Positions) -> tuple[Positions, Positions]:
        if part is None:
            first, last, _ = self.build(node)
        else:
            by = len(self.chars) - part.start
            self.chars += part.chars
            self.follow += [_moved(each, by) for each in part.follow]
            first, last = _moved(part.first, by), _moved(part.last, by)
            for p in range(part.start, part.start + len(part.chars)):
                if p in self.order:
                    self.order[p + by] = tuple([(key + by, rank) for key, rank in self.order[p]])
            self.work += len(part.chars)
            self.edges += part.edges
        self.connect(after, first)
        return first, last


def _moved(positions: Positions, by: int) -> Positions:
    return frozenset([p + by for p in positions])


def check_atomic(
    part: _AtomicPart,
    chars: list[CharSet],
    follow: list[Positions],
    refuse: Callable[[Atomic], UnsupportedPattern],
    tracker: BudgetTracker,
) -> None:
    """Refuse an atomic part unless it provably matches the same texts as the part without the atomic group.

    A sufficient condition is checked: the part is greedy, the next character determines the next position at every
    position in the part, and no character can both continue the part and begin the text after it.
    """
    exits: set[int] = set()
    for p in part.last:
        exits |= follow[p] - part.follow[p]
    exits.discard(END_POSITION)
    if not is_greedy(part.node.part):
        raise refuse(part.node)
    for p in part.inside:
        going_on = part.follow[p]
        if not _pairwise_disjoint(going_on, chars, tracker):
            raise refuse(part.node)
        if p in part.last and not _disjoint(going_on, exits - going_on, chars, tracker):
            raise refuse(part.node)
    if not _pairwise_disjoint(part.first, chars, tracker) or not _disjoint(
        part.first, exits - part.first, chars, tracker
    ):
        raise refuse(part.node)


def is_greedy(node: Node) -> bool:
    """Whether backtracking provably tries the longest match first everywhere in a tree; only the syntax is checked."""
    if isinstance(node, Characters):
        return True
    if isinstance(node, Concatenation):
        return all(is_greedy(part) for part in node.parts)
    if isinstance(node, Alternation):
        return all(is_greedy(part) for part in node.branches) and not any(
            can_be_empty(part) for part in node.branches[:-1]
        )
    if isinstance(node, Repeat):
        return node.greedy and is_greedy(node.part)
    if isinstance(node, Atomic):
        return is_greedy(node.part)
    return False


def can_be_empty(node: Node) -> bool:
    """Whether a tree may match the empty text (in some context)."""
    if isinstance(node, Characters):
        return False
    if isinstance(node, Concatenation):
        return all(can_be_empty(part) for part in node.parts)
    if isinstance(node, Alternation):
        return any(can_be_empty(part) for part in node.branches)
    if isinstance(node, Repeat):
        return node.least == 0 or can_be_empty(node.part)
    if isinstance(node, Atomic):
        return can_be_empty(node.part)
    return True


def _pairwise_disjoint(positions: Positions, chars: list[CharSet], tracker: BudgetTracker) -> bool:
    ordered = [p for p in positions if p != END_POSITION]
    return all(_disjoint({p}, set(ordered[:i]), chars, tracker) for i, p in enumerate(ordered))


def _disjoint(
    first: set[int] | Positions, second: set[int] | Positions, chars: list[CharSet], tracker: BudgetTracker
) -> bool:
    for p in first:
        tracker.check_time()
        if not all(chars[p].disjoint(chars[q]) for q in second):
            return False
    return True
