"""The position automaton of a pattern: one state per character of the pattern, without epsilon transitions.

Every character set of the tree becomes a position. ``first`` are the positions that a text may begin with,
``follow[p]`` the positions that may come after ``p``. Position 0 stands for the end of the text. Counted repeats are
expanded as ``x(x(x)?)?``, which keeps the sets small and most patterns deterministic. Only the first copy of a repeated
part is built, except for a few copies of a single character. The set of a position of a later copy is computed from the
first copy when it is asked for.

References:
    V. M. Glushkov, "The abstract theory of automata", 1961.
    R. McNaughton and H. Yamada, "Regular expressions and state graphs for automata", 1960.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.array_ranges import by_key, members
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.char_sets import NEVER, CharSet
from logitloom.automata.patterns.pattern import Alternation, Atomic, Characters, Concatenation, Node, Repeat
from logitloom.errors import UnsupportedPattern

__all__ = [
    "END_POSITION",
    "FollowSets",
    "NextPositions",
    "OrderedCopies",
    "PositionAutomaton",
    "RedundantCopies",
    "position_automaton",
    "with_copies",
]

END_POSITION: Final = 0
#: Units of work between two checks of the time limit, and the approximate size of a position in a set, in bytes.
_WORK: Final = 50_000
_EDGE_BYTES: Final = 32
#: Up to this number, the sets of copies of a single position are made at once.
_FEW_COPIES: Final = 16
#: Positions that share a set of next positions of at least this size in the first copy share a set in each copy.
_SHARED: Final = 8
_NONE: Final[frozenset[int]] = frozenset()
_END: Final = frozenset((END_POSITION,))
_NO_POSITIONS: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)

Positions = frozenset[int]
Ranges = tuple[range, ...]
"""Disjoint ranges of positions."""


class _Copied(NamedTuple):
    """The positions that follow a position of a copy: those of its place in the first copy, moved by the distance.

    Attributes:
        start: the first position of the first copy.
        part: the positions that follow each position of the first copy.
    """

    start: int
    part: FollowSets


class _Extended(NamedTuple):
    """The positions that follow within copies, and ``more`` positions that follow after the copies."""

    within: _Copied
    more: Positions


_Following = Positions | _Copied | _Extended


class NextPositions(NamedTuple):
    """Pairs of a position and a position that may come after it. Many positions can share one set of next positions.

    Attributes:
        sources, targets: ``[edges]``, the pairs; of positions that are alike only a representative is in ``sources``. A
            pair may come twice.
        alike: by position, its representative in ``sources``.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    alike: NDArray[np.int64]

    def chosen(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[positions]``: of the positions after each position the one of the largest size; of several the first.

        Args:
            sizes: ``[positions]``, not negative.
        """
        count = len(self.alike)
        best = np.full(count, -1, dtype=np.int64)
        np.maximum.at(best, self.sources, sizes.take(self.targets) * count + (count - 1 - self.targets))
        found: NDArray[np.int64] = np.where(best < 0, END_POSITION, count - 1 - best % count).take(self.alike)
        return found


class FollowSets(dict[int, Positions]):
    """The positions that may come after each position; a set of a copy is computed when it is first asked for.

    Args:
        following: by position.
        start: the first position.

    Example:
        >>> FollowSets([frozenset(), frozenset({2}), frozenset({0, 2})])[2]
        frozenset({0, 2})
    """

    def __init__(self, following: Sequence[_Following], start: int = 0) -> None:
        self.following = following
        self._start = start
        #: Shifted sets, each with the sets from which it was made; the keys hold the ``id`` of these original sets.
        self._moved: dict[tuple[int, int, int], tuple[Positions, Positions, Positions]] = {}

    def __reduce__(self) -> tuple[type[FollowSets], tuple[Sequence[_Following], int]]:
        return FollowSets, (self.following, self._start)

    def __missing__(self, position: int) -> Positions:
        following = self.following[position - self._start]
        if isinstance(following, frozenset):
            found = following
        else:
            (start, part), more = following if isinstance(following, _Extended) else (following, _NONE)
            offset = (position - start) % len(part.following)
            within, by = part.following[offset], position - start - offset
            found = within if isinstance(within, frozenset) else part[start + offset]
            few = len(found) + len(more) < _SHARED
            found = frozenset([p + by for p in found]) | more if few else part.moved(found, by, more)
        self[position] = found
        return found

    def moved(self, positions: Positions, by: int, more: Positions) -> Positions:
        """A set of many positions moved, and ``more`` positions: the same object each time."""
        known = self._moved.get((id(positions), by, id(more)))
        if known is None:
            found = _moved(positions, by)
            known = self._moved[id(positions), by, id(more)] = positions, more, found | more if more else found
        return known[-1]

    def sets(self) -> list[Positions]:
        """All sets, by position."""
        return [self[position] for position in range(len(self.following))]

    def edges(self) -> NextPositions:
        """Which positions may come after each position."""
        alike = np.arange(len(self.following))
        sets, first_of, short, parts = list[Positions](), list[int](), list[_Short](), []
        for following, positions in self._groups():
            if isinstance(following, frozenset):
                if len(positions) > 1:
                    alike[positions - self._start] = positions[0] - self._start
                sets.append(following)
                first_of.append(positions[0])
                continue
            (start, part), more = following if isinstance(following, _Extended) else (following, _NONE)
            if len(part.following) == 1 and isinstance(part.following[0], frozenset):
                short.append(_Short(positions, [each - start for each in part.following[0]], more))
                continue
            first = _first_alike(following, positions)
            alike[positions - self._start] = first - self._start
            parts.append(self._edges(following, positions[first == positions]))
        plain = np.array(first_of, dtype=np.int64).repeat([*map(len, sets)]), _numbers(sets)
        sources, targets = (np.concatenate(each) for each in zip(plain, _edges_of(short), *parts, strict=True))
        return NextPositions(sources, targets, alike + self._start)

    def _edges(
        self, following: _Following, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The edges from some positions that share an entry."""
        if isinstance(following, _Extended):
            within, more = (self._edges(part, positions) for part in following)
            return np.concatenate([within[0], more[0]]), np.concatenate([within[1], more[1]])
        if not isinstance(following, _Copied):
            after = np.array(sorted(following), dtype=np.int64)
            return positions.repeat(len(after)), np.tile(after, len(positions))
        start, part = following
        copies, offsets = np.divmod(positions - start, len(part.following))
        targets, begins, alike = part._by_place
        at = alike.take(offsets)
        counts = begins.take(at + 1) - begins.take(at)
        moved = targets.take(members(begins.take(at), counts)) + (copies * len(part.following)).repeat(counts)
        return positions.repeat(counts), moved

    @cached_property
    def _by_place(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The targets of :meth:`edges` by source, where those of each source begin, and the source of each place."""
        edges = self.edges()
        targets, begins = by_key(edges.sources - self._start, edges.targets, len(self.following))
        return targets, begins, edges.alike - self._start

    def _groups(self) -> list[tuple[_Following, NDArray[np.int64]]]:
        """The distinct entries of ``following``, each with the positions that share the entry."""
        if len(self.following) == 1:
            return [(self.following[0], np.array([self._start]))]
        # Mostly neighbours share an entry.
        changes = np.frombuffer(bytes(map(operator.is_not, self.following[1:], self.following)), dtype=bool)
        begins = np.append(0, changes.nonzero()[0] + 1)
        ids = np.array([id(self.following[at]) for at in begins.tolist()], dtype=np.int64)
        _, first, which = np.unique(ids, return_index=True, return_inverse=True)
        which = which.repeat(np.diff(begins, append=len(self.following)))
        # Numbers of two bytes are sorted many times faster.
        which = which.astype(np.uint16) if len(first) < 1 << 16 else which
        positions, ends = by_key(which, np.arange(len(which)) + self._start, len(first))
        entries = [self.following[at] for at in begins.take(first).tolist()]
        return [(each, positions[at:end]) for each, (at, end) in zip(entries, pairwise(ends.tolist()), strict=True)]

    def described(self) -> object:
        """A description, equal for equal sets of the same pattern."""
        numbers: dict[int, int] = {}
        which = [numbers.setdefault(id(one), len(numbers)) for one in self.following]
        distinct = {id(one): one for one in self.following}.values()
        return which, [_description(one) for one in distinct]


class _Short(NamedTuple):
    """Positions that share an entry: the copies of a part that has only one position.

    Attributes:
        positions: the positions.
        moved: the next positions that have the same distance from each position, as distances.
        fixed: the next positions that are the same for each position.
    """

    positions: NDArray[np.int64]
    moved: list[int]
    fixed: Positions


def _edges_of(short: list[_Short]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The edges of many small groups, all at once."""
    positions = np.concatenate([_NO_POSITIONS, *[each.positions for each in short]])
    many = [len(each.positions) for each in short]
    found = []
    for lists, moves in (([each.moved for each in short], 1), ([each.fixed for each in short], 0)):
        sizes = np.array([*map(len, lists)], dtype=np.int64)
        counts = sizes.repeat(many)
        at = members((sizes.cumsum() - sizes).repeat(many), counts)
        sources = positions.repeat(counts)
        found.append((sources, _numbers(lists).take(at) + moves * sources))
    sources, targets = (np.concatenate(each) for each in zip(*found, strict=True))
    return sources, targets


def _numbers(lists: Sequence[Collection[int]]) -> NDArray[np.int64]:
    """The numbers of some lists, one after the other."""
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=sum(map(len, lists)))


def _first_alike(following: _Copied | _Extended, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each position of an entry, the first position of the same copy that has the same next positions."""
    start, part = following.within if isinstance(following, _Extended) else following
    alike = part._by_place[2]
    if (alike == np.arange(len(alike))).all():
        return positions
    copies, offsets = np.divmod(positions - start, len(alike))
    places = copies * len(alike) + alike.take(offsets)
    _, first, which = np.unique(places, return_index=True, return_inverse=True)
    return positions.take(first).take(which)


def _description(following: _Following) -> object:
    if isinstance(following, _Extended):
        return _description(following.within), sorted(following.more)
    return (following.start, following.part.described()) if isinstance(following, _Copied) else sorted(following)


class OrderedCopies(NamedTuple):
    """Consecutive copies of a repeated part.

    Attributes:
        start: the first position of the first copy.
        part: by position of the first copy the copies within the part that hold the position.
        comparable: the copies that are comparable; the first copy is 0.
        shorter_first: whether an earlier copy permits all texts that a later copy permits (else the reverse).
    """

    start: int
    part: list[OrderedCopies | None]
    comparable: range
    shorter_first: bool

    def described(self) -> tuple[object, ...]:
        """A description, equal for equal copies."""
        inner = [copies and copies.described() for copies in _without_repetitions(self.part)]
        return self.start, len(self.part), inner, self.comparable, self.shorter_first


class RedundantCopies(dict[int, tuple[tuple[int, int], ...]]):
    """Per position, from the innermost repeat outwards, pairs of a key and a rank, computed when they are asked for.

    Positions with equal keys at one level are copies of the same position of a repeated part. Every text that may
    follow the position of higher rank may also follow the position of lower rank: in ``x{0,9}``, every text that may
    follow four ``x`` may also follow three. So a set with both positions needs only the position of lower rank.

    Args:
        copies: by position the outermost copies that hold the position.
    """

    def __init__(self, copies: list[OrderedCopies | None]) -> None:
        self._copies = copies
        #: Whether there are any.
        self.exist = any(copies)

    def __reduce__(self) -> tuple[type[RedundantCopies], tuple[list[OrderedCopies | None]]]:
        return RedundantCopies, (self._copies,)

    def __missing__(self, position: int) -> tuple[tuple[int, int], ...]:
        found = self[position] = _ranks(self._copies[position], position)
        return found

    def described(self) -> list[object]:
        """A description, equal for equal orders."""
        return [copies and copies.described() for copies in _without_repetitions(self._copies)]


def _ranks(copies: OrderedCopies | None, position: int) -> tuple[tuple[int, int], ...]:
    if copies is None:
        return ()
    start, part, comparable, shorter_first = copies
    copy, offset = divmod(position - start, len(part))
    by = copy * len(part)
    found = [(key + by, rank) for key, rank in _ranks(part[offset], start + offset)]
    if copy in comparable:
        found.append((start + comparable[0] * len(part) + offset, copy if shorter_first else -copy))
    return tuple(found)


def _without_repetitions(copies: list[OrderedCopies | None]) -> Iterable[OrderedCopies | None]:
    """Each object once, in the order of their first positions."""
    return {id(one): one for one in copies}.values()


def with_copies(
    copies: list[OrderedCopies | None], start: int, size: int, count: int, comparable: range, shorter_first: bool
) -> None:
    """Record consecutive copies of a repeated part.

    Args:
        copies: by position the outermost copies that hold the position; extended by the positions of the copies.
        start: the first position of the first copy.
        size: number of positions of a copy.
        count: number of copies.
        comparable: the copies that are comparable; the first copy is 0.
        shorter_first: as for :class:`OrderedCopies`.
    """
    part = copies[start : start + size]
    found = None
    if len(comparable) > 1 or (count > 1 and any(part)):
        found = OrderedCopies(start, part, comparable if len(comparable) > 1 else range(0), shorter_first)
    if found or count > 1:
        copies[start:] = [found] * (count * size)


class PositionAutomaton(NamedTuple):
    """The positions of a pattern.

    Attributes:
        sets: the distinct character sets.
        set_at: by position the index of its set.
        first: the positions that a text may begin with.
        follow: for each position, the positions that may come next.
        order: which positions of a set are redundant because of other positions of the set.
    """

    sets: list[CharSet]
    set_at: list[int]
    first: Positions
    follow: FollowSets
    order: RedundantCopies


class _AtomicPart(NamedTuple):
    node: Atomic
    first: Positions
    last: Ranges
    nullable: bool
    inside: range
    follow: FollowSets


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
    follow = FollowSets(builder.following)
    sets, set_at = builder.numbered_sets()
    for part in builder.atomic:
        check_atomic(part, [sets[number] for number in set_at], follow, refuse, tracker)
    if nullable:
        first = first | {END_POSITION}
    if builder.fails:
        first, follow = _without_dead_ends(first, follow.sets())
    return PositionAutomaton(sets, set_at, first, follow, RedundantCopies(builder.copies))


def _without_dead_ends(first: Positions, follow: list[Positions]) -> tuple[Positions, FollowSets]:
    """``first`` and ``follow`` without the positions from which the end of the text cannot be reached."""
    before = _predecessors(follow)
    alive = {END_POSITION}
    queue = [END_POSITION]
    for q in queue:
        for p in before[q]:
            if p not in alive:
                alive.add(p)
                queue.append(p)
    return first & alive, FollowSets([following & alive for following in follow])


def _predecessors(follow: Sequence[Positions]) -> list[list[int]]:
    """For each position, the positions that may come before it."""
    before: list[list[int]] = [[] for _ in follow]
    for p, following in enumerate(follow):
        for q in following:
            before[q].append(p)
    return before


class _PositionBuilder:
    def __init__(self, tracker: BudgetTracker) -> None:
        self.tracker = tracker
        #: The sets of the tree; the index of each set by its identity, and by position.
        self.sets: list[CharSet] = [NEVER]
        self.numbers: dict[int, int] = {id(NEVER): 0}
        self.set_at = [0]
        self.following: list[_Following] = [_NONE]
        self.copies: list[OrderedCopies | None] = [None]
        self.atomic: list[_AtomicPart] = []
        self.fails = False
        self.work = 0
        #: The number of pairs of a position and a next position, and the number of these pairs in sets that are not
        #: shared.
        self.pairs = 0
        self.edges = 0

    def numbered_sets(self) -> tuple[list[CharSet], list[int]]:
        """The distinct sets, and by position the index of its set among them."""
        numbers: dict[CharSet, int] = {}
        distinct = [numbers.setdefault(one, len(numbers)) for one in self.sets]
        if len(numbers) == len(distinct):
            return list(numbers), self.set_at
        return list(numbers), [distinct[number] for number in self.set_at]

    def connect(self, last: Ranges, first: Positions) -> None:
        following = self.following
        extended: dict[int, _Following] = {}
        count = edges = 0
        for some in last:
            count += len(some)
            for p in some:
                before = following[p]
                if before:
                    key = id(before)
                    if key not in extended:
                        extended[key] = _extended(before, first)
                    following[p] = extended[key]
                    edges += 1
                else:
                    # The set is ``first`` itself. Otherwise (w1|w2|...)* would copy a large set per word.
                    following[p] = first
        self.pairs += len(first) * count
        self.spend(count * (1 + len(first) // 64), len(first) * edges)

    def spend(self, work: int, edges: int) -> None:
        self.work += work
        self.edges += edges
        if self.work > _WORK:
            self.work = 0
            self.tracker.check_time()
            self.tracker.check_bytes(_EDGE_BYTES * self.edges, "the connections of its positions")

    def build(self, node: Node) -> tuple[Positions, Ranges, bool]:
        """Append the positions of a tree and return its ``(first, last, nullable)``."""
        if isinstance(node, Characters):
            p, chars = len(self.set_at), node.chars
            number = self.numbers.setdefault(id(chars), len(self.sets))
            if number == len(self.sets):
                self.sets.append(chars)
            self.set_at.append(number)
            self.following.append(_NONE)
            self.copies.append(None)
            if not chars:
                self.fails = True
                return _NONE, (), False
            return frozenset((p,)), (range(p, p + 1),), False
        if isinstance(node, Concatenation):
            first, lasts, nullable = _NONE, list[Ranges](), True
            # From the last part on, all that may come after a part is known, so each position is connected once.
            for part_first, part_last, part_nullable in reversed([self.build(part) for part in node.parts]):
                if part_last and first:
                    self.connect(part_last, first)
                if part_nullable and first:
                    first = part_first | first
                    # The sets of optional parts in a row take more memory than time.
                    self.spend(len(first), len(first))
                else:
                    first = part_first
                if nullable:
                    lasts.append(part_last)
                nullable = nullable and part_nullable
            return first, tuple(chain.from_iterable(reversed(lasts))), nullable
        if isinstance(node, Alternation):
            results = [self.build(branch) for branch in node.branches]
            self.fails |= not results
            return (
                _NONE.union(*[r[0] for r in results]),
                tuple([some for r in results for some in r[1]]),
                any(r[2] for r in results),
            )
        if isinstance(node, Repeat):
            return self.repeat(node)
        if isinstance(node, Atomic):
            start = len(self.set_at)
            first, last, nullable = self.build(node.part)
            inside = range(start, len(self.set_at))
            self.atomic.append(_AtomicPart(node, first, last, nullable, inside, FollowSets(self.following[:])))
            return first, last, nullable
        raise TypeError(f"{node!r} has no position automaton without contexts.")

    def repeat(self, node: Repeat) -> tuple[Positions, Ranges, bool]:
        start, atomic, pairs = len(self.set_at), len(self.atomic), self.pairs
        first, last, nullable = self.build(node.part)
        size = len(self.set_at) - start
        if not size:
            return _NONE, (), nullable or node.least == 0
        # If a part can be empty, copies may match the empty text, so the lower bound has no effect.
        required = max(0 if nullable else node.least, 1)
        count = required if node.most is None else node.most
        if count == 1:
            if node.most is None:
                self.connect(last, first)
            return first, last, nullable or node.least == 0
        if len(self.atomic) == atomic:
            self.multiply(first, last, start, count)
            copied = (count - 1) * (self.pairs - pairs)
            self.pairs += copied
            self.spend(copied, copied)
        else:  # Each copy of an atomic part must be checked, so it is built again.
            for copy in range(1, count):
                self.connect(_copies_of(last, size, range(copy - 1, copy)), self.build(node.part)[0])
        if node.most is None:
            ends = _copies_of(last, size, range(count - 1, count))
            self.connect(ends, _moved(first, (count - 1) * size))
            with_copies(self.copies, start, size, count, range(count), shorter_first=False)
        else:
            comparable = range(required - 1, count)
            ends = _copies_of(last, size, comparable)
            with_copies(self.copies, start, size, count, comparable, shorter_first=True)
        return first, ends, nullable or node.least == 0

    def multiply(self, first: Positions, last: Ranges, start: int, count: int) -> None:
        """Append copies of the part that was built last, each connected with the next."""
        size = len(self.set_at) - start
        self.set_at += self.set_at[start:] * (count - 1)
        if size == 1 and count <= _FEW_COPIES and not self.following[start]:
            self.following[start:] = [*[frozenset((p,)) for p in range(start + 1, start + count)], _NONE]
            return
        final = FollowSets(self.following[start:], start)
        self.connect(last, _moved(first, size))
        part = FollowSets(self.following[start:], start)
        self.following[start:] = [_Copied(start, part)] * (size * (count - 1)) + [_Copied(start, final)] * size


def _extended(following: _Following, more: Positions) -> _Following:
    if isinstance(following, _Extended):
        return _Extended(following.within, following.more | more)
    if isinstance(following, _Copied):
        return _Extended(following, more)
    return following | more


def _copies_of(last: Ranges, size: int, copies: range) -> Ranges:
    """The positions of some consecutive copies of a part, of which the first copy has the positions ``last``."""
    if len(copies) == 1:
        by = copies[0] * size
        return tuple([range(some.start + by, some.stop + by, some.step) for some in last])
    return tuple(
        [
            range(position + copies[0] * size, position + copies[-1] * size + 1, size)
            for some in last
            for position in some
        ]
    )


def _moved(positions: Positions, by: int) -> Positions:
    return frozenset([p + by for p in positions])


def check_atomic(
    part: _AtomicPart,
    chars: list[CharSet],
    follow: FollowSets,
    refuse: Callable[[Atomic], UnsupportedPattern],
    tracker: BudgetTracker,
) -> None:
    """Refuse an atomic part unless it provably matches the same texts as the part without the atomic group.

    A sufficient condition is checked: the part is greedy, the next character determines the next position at every
    position in the part, and no character can both continue the part and begin the text after it.
    """
    exits: set[int] = set()
    last = {p for some in part.last for p in some}
    for p in last:
        exits |= follow[p] - part.follow[p]
    exits.discard(END_POSITION)
    if not is_greedy(part.node.part):
        raise refuse(part.node)
    for p in part.inside:
        going_on = part.follow[p]
        if not _pairwise_disjoint(going_on, chars, tracker):
            raise refuse(part.node)
        if p in last and not _disjoint(going_on, exits - going_on, chars, tracker):
            raise refuse(part.node)
    if not _pairwise_disjoint(part.first, chars, tracker):
        raise refuse(part.node)
    if part.nullable and not _disjoint(part.first, exits - part.first, chars, tracker):
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
