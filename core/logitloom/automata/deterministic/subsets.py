"""Sets of positions as the states of a deterministic automaton over classes of characters.

A state is a set of positions of a pattern, and a transition is computed from the positions alone.
:func:`logitloom.automata.deterministic.determinize.determinize` visits all states and builds the whole automaton.
:class:`.lazy_dfa.LazyDfa` computes only the states that a text visits. Both use the same sets.

A position is left out of a set if another position of the set permits the same texts and perhaps more
(:class:`.nfa.RedundantCopies`), or if no text can end after the position. So the sets stay small for counted repeats
that can begin at many positions, such as ``.{0,100}`` after a word that may occur again.

References:
    M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.patterns.boundaries import ALL_CONTEXTS, BEGIN, END, KINDS, LAST_NEWLINE, NEWLINE, context_bit
from logitloom.automata.patterns.char_sets import HIGH_ALL, NEVER, CharSet
from logitloom.automata.patterns.context_completions import PlainPositions
from logitloom.automata.patterns.context_nfa import ContextAutomaton
from logitloom.automata.patterns.nfa import END_POSITION, NextPositions, PositionAutomaton, RedundantCopies
from logitloom.automata.patterns.position_beginnings import position_beginnings
from logitloom.automata.patterns.position_completions import PositionCompletions
from logitloom.automata.patterns.utf8 import DEAD

__all__ = ["ContextSubsets", "PositionsRead", "Runs", "SubsetAutomaton", "Subsets", "numbered_sets"]

S = TypeVar("S", bound=Hashable)

_EMPTY: Final[frozenset[int]] = frozenset()
#: The largest number of positions that all rounds of a division by beginnings look at; each takes some microseconds.
_MOST_DIVIDED: Final = 3072
#: The least number of character sets that a state reads for a check whether positions share their next positions.
_MANY: Final = 8
#: The most transitions of a pattern whose positions are divided, by beginnings or by the kinds of their characters.
_MOST_DIVIDED_EDGES: Final = 1 << 16


class Runs(NamedTuple):
    """Per position of a pattern the characters that are read whatever comes next, and the position after them.

    Attributes:
        sets: the sets of characters; the last is empty.
        set_at: ``[positions]``: the index of the set of each position.
        then: ``[positions]``: the next position.
    """

    sets: list[CharSet]
    set_at: NDArray[np.intp]
    then: NDArray[np.intp]


class SubsetAutomaton(Protocol[S]):
    """A deterministic automaton over classes of characters, state by state."""

    classes: int

    @property
    def start(self) -> S:
        """The state before the first character."""
        ...

    def accepts(self, state: S) -> bool:
        """Whether a text may end in a state."""
        ...

    def targets(self, state: S) -> tuple[list[S], Sequence[int]]:
        """The distinct next states of a state, and per class the index of its next state, -1 for none."""
        ...

    def size(self, state: S) -> int:
        """The number of positions of a state."""
        ...

    def members(self, state: S) -> list[S]:
        """The single-position states whose union is the state."""
        ...

    def packed(self, state: S) -> bytes:
        """A state as bytes, equal in every process."""
        ...

    def unpacked(self, data: bytes) -> S:
        """The inverse of :meth:`packed`."""
        ...

    def positions(self, state: S) -> list[int]:
        """The positions of a state, as indices of :attr:`runs`."""
        ...

    @property
    def runs(self) -> Runs:
        """The characters that each position reads, whatever character comes next."""
        ...

    @property
    def completions(self) -> PositionCompletions | None:
        """The shortest texts of positions; ``None`` where they are not known."""
        ...

    def read_next(self, state: S) -> Collection[int]:
        """The positions with which a text may go on from a state, as :attr:`completions` numbers them."""
        ...

    def costs(self, of_next: NDArray[np.int64]) -> NDArray[np.int64]:
        """By position, as indices of :attr:`runs`: a bound on the cost after the first character of its run.

        Args:
            of_next: the costs of the positions that :meth:`read_next` returns, of which a state has the least.
        """
        ...

    def beginnings(self, state: S, length: int) -> S | None:
        """A state that begins the same texts of up to ``length`` characters; equivalent states often share this state.

        ``None`` if that is unknown.
        """
        ...

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal automata with equal states."""
        ...

    @property
    def is_deterministic(self) -> bool:
        """Whether each character leads to at most one position; then there are about as many states as positions."""
        ...


def numbered_sets(chars: list[CharSet]) -> tuple[list[CharSet], list[int]]:
    """The distinct sets, and the index of each set among them.

    The copies of a counted repeat share one object, so sets are compared by identity first.
    """
    numbers: dict[CharSet, int] = {}
    of_object = {key: numbers.setdefault(one, len(numbers)) for key, one in {id(one): one for one in chars}.items()}
    return list(numbers), [of_object[id(one)] for one in chars]


def _undominated(positions: frozenset[int], order: RedundantCopies) -> frozenset[int]:
    """A set without the positions that are redundant according to ``order``."""
    ranked = [(p, ranks) for p in positions if (ranks := order[p])]
    dropped: set[int] = set()
    level = 0
    while len(ranked) > 1:
        # Mostly no two positions are copies.
        if len({ranks[level][0] for _, ranks in ranked}) < len(ranked):
            best: dict[int, tuple[int, int]] = {}
            for p, ranks in ranked:
                key, rank = ranks[level]
                known = best.get(key)
                if known is None or rank < known[0]:
                    best[key] = rank, p
                if known is not None:
                    dropped.add(p if rank >= known[0] else known[1])
        level += 1
        ranked = [(p, ranks) for p, ranks in ranked if len(ranks) > level and p not in dropped]
    return positions - dropped if dropped else positions


class _SubsetPlan(NamedTuple):
    """The groups of classes that a combination of sets does not distinguish.

    Attributes:
        groups: per group, the numbers of the character sets that contain its classes.
        group_of: the group of each class, -1 for a class in none of the sets.
    """

    groups: list[tuple[int, ...]]
    group_of: list[int]


def _plan(sets: Iterable[int], classes_of: list[tuple[int, ...]], classes: int) -> _SubsetPlan:
    holding: dict[int, list[int]] = {}
    for s in sets:
        for c in classes_of[s]:
            holding.setdefault(c, []).append(s)
    number: dict[tuple[int, ...], int] = {}
    group_of = [DEAD] * classes
    for c in sorted(holding):
        group_of[c] = number.setdefault(tuple(holding[c]), len(number))
    return _SubsetPlan(list(number), group_of)


def _is_deterministic(follow: Iterable[Collection[int]], set_at: list[int], classes_of: list[tuple[int, ...]]) -> bool:
    for positions in follow:
        if len(positions) > 1:
            seen: set[int] = set()
            for p in positions:
                classes = classes_of[set_at[p]]
                if not seen.isdisjoint(classes):
                    return False
                seen.update(classes)
    return True


def _sizes(sets: list[CharSet], set_at: NDArray[np.intp]) -> NDArray[np.int64]:
    """``[positions]``: the sizes of the character sets of positions, those with many characters above ASCII equal."""
    of_set = [s.ascii.bit_count() + min(len(s.high.ranges), 64) + 128 * (s.high is HIGH_ALL) for s in sets]
    return np.array(of_set).take(set_at)


def _digest(*parts: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(repr(part).encode() + b"\n")
    return digest.digest()


def _described(sets: list[CharSet]) -> list[tuple[int, Any]]:
    return [(s.ascii, s.high.ranges) for s in sets]


class Subsets:
    """The subset automaton of a pattern without boundaries.

    A state is the set of positions that may be read next; position 0 stands for the end of the text.

    Args:
        nfa: the position automaton; the end of the text can be reached from each position.
        members: the classes of each character set in ``nfa``.
        classes: number of classes.

    Attributes:
        count: number of positions.
    """

    def __init__(self, nfa: PositionAutomaton, members: Mapping[CharSet, tuple[int, ...]], classes: int) -> None:
        self.nfa = nfa
        self.classes = classes
        self._sets, self._set_at = nfa.sets, nfa.set_at
        self._order = nfa.order if nfa.order.exist else None
        self.classes_of = [members[chars] for chars in self._sets]
        self.count = len(nfa.set_at)
        self._plans: dict[tuple[int, ...], _SubsetPlan] = {}
        self._beginnings: dict[int, list[int] | None] = {}
        self.start: frozenset[int] = nfa.first if self._order is None else _undominated(nfa.first, self._order)

    def accepts(self, state: frozenset[int]) -> bool:
        """See :class:`SubsetAutomaton`."""
        return END_POSITION in state

    def size(self, state: frozenset[int]) -> int:
        """See :class:`SubsetAutomaton`."""
        return len(state)

    def members(self, state: frozenset[int]) -> list[frozenset[int]]:
        """See :class:`SubsetAutomaton`."""
        return [frozenset((position,)) for position in state]

    def packed(self, state: frozenset[int]) -> bytes:
        """See :class:`SubsetAutomaton`."""
        return struct.pack(f"<{len(state)}i", *sorted(state))

    def unpacked(self, data: bytes) -> frozenset[int]:
        """See :class:`SubsetAutomaton`."""
        return frozenset(struct.unpack(f"<{len(data) // 4}i", data))

    def positions(self, state: frozenset[int]) -> list[int]:
        """See :class:`SubsetAutomaton`."""
        return list(state)

    @cached_property
    def runs(self) -> Runs:
        """See :class:`SubsetAutomaton`. A position of a state is read next; none is read at the end of the text."""
        set_at = np.fromiter(self._set_at, dtype=np.int64, count=len(self._set_at))
        then = self._edges.chosen(_sizes(self._sets, set_at))
        set_at[END_POSITION] = len(self._sets)
        return Runs([*self._sets, NEVER], set_at, then)

    @cached_property
    def completions(self) -> PositionCompletions:
        """See :class:`SubsetAutomaton`."""
        return PositionCompletions(self._sets, self._set_at, self._edges)

    @cached_property
    def _edges(self) -> NextPositions:
        return self.nfa.follow.edges()

    def read_next(self, state: frozenset[int]) -> Collection[int]:
        """See :class:`SubsetAutomaton`."""
        return state

    def costs(self, of_next: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`SubsetAutomaton`. A run begins with the position itself; a next position follows."""
        found = np.full(self.count, np.iinfo(np.int64).max)
        sources, targets, alike = self.completions.edges
        np.minimum.at(found, sources, of_next.take(targets))
        return found.take(alike)

    def beginnings(self, state: frozenset[int], length: int) -> frozenset[int] | None:
        """See :class:`SubsetAutomaton`. All positions are divided when the first state is asked for."""
        if self.count > _MOST_DIVIDED:
            return None
        if length not in self._beginnings:
            first: dict[int, int] = {}
            edges = self._edges
            few = len(edges.sources) <= _MOST_DIVIDED_EDGES
            numbers = position_beginnings(self._set_at, edges, length, _MOST_DIVIDED) if few else None
            found = None if numbers is None else [first.setdefault(number, p) for p, number in enumerate(numbers)]
            self._beginnings[length] = found
        known = self._beginnings[length]
        return None if known is None else frozenset([known[position] for position in state if position != END_POSITION])

    @cached_property
    def is_deterministic(self) -> bool:
        """See :class:`SubsetAutomaton`."""
        return _is_deterministic([self.nfa.first, *self.nfa.follow.sets()], self._set_at, self.classes_of)

    @property
    def is_unordered(self) -> bool:
        """Whether no position is left out of a set because another one permits its texts.

        Copies of a position read the same characters, so where characters determine positions no set holds two copies.
        """
        return self._order is None or self.is_deterministic

    @cached_property
    def fingerprint(self) -> bytes:
        """See :class:`SubsetAutomaton`."""
        nfa = self.nfa
        return _digest(
            _described(nfa.sets), nfa.set_at, sorted(nfa.first), nfa.follow.described(), nfa.order.described()
        )

    def targets(self, state: frozenset[int]) -> tuple[list[frozenset[int]], Sequence[int]]:
        """See :class:`SubsetAutomaton`."""
        follow, set_at = self.nfa.follow, self._set_at
        read: dict[int, list[frozenset[int]]] = {}
        for p in state:
            if p != END_POSITION:
                s = set_at[p]
                if s in read:
                    read[s].append(follow[p])
                else:
                    read[s] = [follow[p]]
        combined = tuple(sorted(read)) if len(read) > 1 else tuple(read)
        plan = self._plans.get(combined)
        if plan is None:
            plan = self._plans[combined] = _plan(combined, self.classes_of, self.classes)
        if len(read) >= _MANY and 2 * len({id(some[0]) for some in read.values()}) <= len(read):
            return self._shared_targets(read, plan)
        order = self._order
        found = []
        for group in plan.groups:
            followers = read[group[0]] if len(group) == 1 else [positions for s in group for positions in read[s]]
            target = followers[0] if len(followers) == 1 else followers[0].union(*followers[1:])
            found.append(target if order is None or len(target) < 2 else _undominated(target, order))
        return found, plan.group_of

    def _shared_targets(
        self, read: dict[int, list[frozenset[int]]], plan: _SubsetPlan
    ) -> tuple[list[frozenset[int]], Sequence[int]]:
        """:meth:`targets` where many positions share their next positions, so that groups of classes share targets."""
        known: dict[frozenset[int], int] = {}
        found: list[frozenset[int]] = []
        numbers: list[int] = []
        for group in plan.groups:
            followers = {id(positions): positions for s in group for positions in read[s]}
            numbers.append(known.setdefault(frozenset(followers), len(found)))
            if numbers[-1] == len(found):
                first, *others = followers.values()
                target = first.union(*others) if others else first
                found.append(target if self._order is None else _undominated(target, self._order))
        numbers.append(DEAD)  # index -1
        return found, [numbers[at] for at in plan.group_of]


def _reading(of_set: int, going: int, ends: bool) -> int:
    """A character set that may be read next, as one number.

    Args:
        of_set: the number of the set.
        going: the kinds of characters, as bits, after which the text can be completed.
        ends: whether a newline that is the last character may be read.
    """
    return of_set << KINDS + 1 | going << 1 | ends


class _ContextPlan(NamedTuple):
    """The groups of classes that a combination of readings does not distinguish.

    Attributes:
        groups: per group the kind of its characters, the readings that continue the text, and the readings that end the
            text, as :func:`_reading` numbers them.
        group_of: the group of each class, -1 for a class without a transition.
    """

    groups: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
    group_of: list[int]


class PositionsRead(NamedTuple):
    """A state of a pattern with boundaries.

    Attributes:
        before: the kind of the character before.
        positions: the positions just read.
        ending: the positions that read a newline as the last character: they may accept and have no transitions.
    """

    before: int
    positions: frozenset[int]
    ending: frozenset[int]


class ContextSubsets:
    """The subset automaton of a pattern with anchors or word boundaries.

    Args:
        nfa: the positions and the contexts of their transitions.
        members: the classes of each character set in ``nfa``.
        kind_of: the kind of each class.
        classes: number of classes.

    Attributes:
        count: number of positions.
    """

    def __init__(
        self,
        nfa: ContextAutomaton,
        members: Mapping[CharSet, tuple[int, ...]],
        kind_of: list[int],
        classes: int,
    ) -> None:
        self.nfa = nfa
        self.classes = classes
        self._kind_of = kind_of
        self._classes_at = [members[chars] for chars in nfa.chars]
        self._sets, self._set_at = numbered_sets(nfa.chars)
        self._classes_of = [members[chars] for chars in self._sets]
        #: By the kind of the character before and the number of what may follow.
        self._after: dict[tuple[int, int], list[tuple[int, frozenset[int]]]] = {}
        self.count = len(nfa.chars)
        self._plans: dict[tuple[int, ...], _ContextPlan] = {}
        self._alive = self._living()
        self._alike = [*zip(self._set_at, self._alive, nfa.accept, strict=True)]
        self.start = PositionsRead(BEGIN, frozenset([END_POSITION]), _EMPTY)

    def _living(self) -> list[int]:
        """Per position the kinds, as bits, of the character read there after which the text can be completed."""
        nfa = self.nfa
        kinds_at = [sum({1 << self._kind_of[c] for c in classes}) for classes in self._classes_at]
        kinds_at[END_POSITION] = 1 << BEGIN
        self._kinds_at = kinds_at
        alive = [0] * len(nfa.chars)
        before: list[list[tuple[int, int]]] = [[] for _ in nfa.chars]
        ends = context_bit(NEWLINE, END)
        last = [
            bool(accept & ends and kinds >> NEWLINE & 1) for accept, kinds in zip(nfa.accept, kinds_at, strict=True)
        ]
        kinds = range(KINDS + 1)
        #: Per set of contexts and kind after, the kinds before that are in a context with it, as bits.
        fitting: dict[tuple[int, int], int] = {}

        def fits(contexts: int, after: int) -> int:
            found = fitting.get((contexts, after))
            if found is None:
                found = sum(1 << kind for kind in kinds if contexts & context_bit(kind, after))
                fitting[contexts, after] = found
            return found

        queue: list[tuple[int, int]] = []
        members, going = nfa.members(), [0] * len(nfa.follow)

        def add(p: int, living: int) -> None:
            if new := living & kinds_at[p] & ~alive[p]:
                alive[p] |= new
                queue.extend([(p, kind) for kind in kinds if new >> kind & 1])

        for number, following in enumerate(nfa.follow):
            for q, contexts in following.items():
                before[q].append((number, contexts))
                if last[q]:
                    going[number] |= fits(contexts, LAST_NEWLINE)
        for p, accept in enumerate(nfa.accept):
            add(p, fits(accept, END) | going[nfa.follow_at[p]])
        for q, after in queue:
            for number, contexts in before[q]:
                new = fits(contexts, after) & ~going[number]
                if new:
                    going[number] |= new
                    for p in members[number]:
                        add(p, new)
        return alive

    def accepts(self, state: PositionsRead) -> bool:
        """See :class:`SubsetAutomaton`."""
        at_end, accept = context_bit(state.before, END), self.nfa.accept
        return any(accept[p] & at_end for p in state.positions) or any(accept[p] & at_end for p in state.ending)

    def size(self, state: PositionsRead) -> int:
        """See :class:`SubsetAutomaton`."""
        return len(state.positions) + len(state.ending)

    def members(self, state: PositionsRead) -> list[PositionsRead]:
        """See :class:`SubsetAutomaton`."""
        return [
            *(PositionsRead(state.before, frozenset((position,)), _EMPTY) for position in state.positions),
            *(PositionsRead(state.before, _EMPTY, frozenset((position,))) for position in state.ending),
        ]

    def packed(self, state: PositionsRead) -> bytes:
        """See :class:`SubsetAutomaton`."""
        numbers = (state.before, len(state.positions), *sorted(state.positions), *sorted(state.ending))
        return struct.pack(f"<{len(numbers)}i", *numbers)

    def unpacked(self, data: bytes) -> PositionsRead:
        """See :class:`SubsetAutomaton`."""
        before, count, *positions = struct.unpack(f"<{len(data) // 4}i", data)
        return PositionsRead(before, frozenset(positions[:count]), frozenset(positions[count:]))

    def positions(self, state: PositionsRead) -> list[int]:
        """See :class:`SubsetAutomaton`."""
        return list(state.positions)

    @cached_property
    def _plain(self) -> PlainPositions | None:
        edges = sum(map(len, self.nfa.follow))
        return None if edges > _MOST_DIVIDED_EDGES else PlainPositions(self.nfa, self._alive)

    @cached_property
    def completions(self) -> PositionCompletions | None:
        """See :class:`SubsetAutomaton`."""
        plain = self._plain
        return None if plain is None else PositionCompletions(plain.sets, plain.set_at, plain.edges)

    def read_next(self, state: PositionsRead) -> Collection[int]:
        """See :class:`SubsetAutomaton`."""
        assert self._plain is not None
        found = _EMPTY.union(*[self._plain.after(position, state.before) for position in state.positions])
        return found | {END_POSITION} if self.accepts(state) else found

    def costs(self, of_next: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`SubsetAutomaton`. A position that follows is read, with a character of any kind."""
        assert self._plain is not None
        return self._plain.largest_of_least(of_next).take(self.runs.then)

    def beginnings(self, state: PositionsRead, length: int) -> PositionsRead | None:
        """See :class:`SubsetAutomaton`."""
        del state, length
        return None

    @cached_property
    def runs(self) -> Runs:
        """See :class:`SubsetAutomaton`. A position of a state was read before."""
        alive, kinds_at = self._alive, self._kinds_at
        always = [
            [q for q, contexts in following.items() if contexts == ALL_CONTEXTS and alive[q] == kinds_at[q]]
            for following in self.nfa.follow
        ]
        set_at = np.array(self._set_at)
        # Of the positions that may follow the one with the largest set, of several the first.
        sizes = _sizes(self._sets, set_at).tolist()
        then = np.array([max(sorted(after), key=sizes.__getitem__, default=END_POSITION) for after in always])
        there = np.where([*map(bool, always)], set_at.take(then), len(self._sets))
        return Runs([*self._sets, NEVER], there.take(self.nfa.follow_at), then.take(self.nfa.follow_at))

    @property
    def is_deterministic(self) -> bool:
        """See :class:`SubsetAutomaton`."""
        return _is_deterministic(self.nfa.follow, self._set_at, self._classes_of)

    @cached_property
    def fingerprint(self) -> bytes:
        """See :class:`SubsetAutomaton`."""
        nfa = self.nfa
        follow = [sorted(following.items()) for following in nfa.follow], nfa.follow_at
        return _digest(_described(self._sets), self._set_at, follow, nfa.accept, nfa.order.described())

    def targets(self, state: PositionsRead) -> tuple[list[PositionsRead], Sequence[int]]:
        """See :class:`SubsetAutomaton`."""
        read: dict[int, list[frozenset[int]]] = {}
        for p in state.positions:
            for reading, positions in self._readings(state.before, p):
                if reading in read:
                    read[reading].append(positions)
                else:
                    read[reading] = [positions]
        combined = tuple(sorted(read))
        plan = self._plans.get(combined)
        if plan is None:
            plan = self._plans[combined] = self._plan(combined)
        index: dict[PositionsRead, int] = {}
        numbers = []
        for kind, going, stopping in plan.groups:
            ending = self._united(read, stopping) if stopping else _EMPTY
            target = PositionsRead(kind, self._united(read, going) if going else _EMPTY, ending)
            numbers.append(index.setdefault(target, len(index)))
        numbers.append(DEAD)  # index -1
        return list(index), [numbers[group] for group in plan.group_of]

    def _readings(self, before: int, p: int) -> list[tuple[int, frozenset[int]]]:
        """The possible readings after a position, as :func:`_reading` numbers them, each with its positions."""
        number = self.nfa.follow_at[p]
        known = self._after.get((before, number))
        if known is None:
            # Positions with equal contexts, sets and possible ends have the same readings, so they are grouped.
            alike: dict[tuple[int, tuple[int, int, int]], list[int]] = {}
            for q, contexts in self.nfa.follow[number].items():
                alike.setdefault((contexts, self._alike[q]), []).append(q)
            at_last, newline_end = context_bit(before, LAST_NEWLINE), context_bit(NEWLINE, END)
            every, kinds = {contexts for contexts, _ in alike}, range(KINDS)
            kinds_in = {each: sum([1 << kind for kind in kinds if each & context_bit(before, kind)]) for each in every}
            found: dict[int, list[int]] = {}
            for (contexts, (of_set, alive, accept)), positions in alike.items():
                fitting = kinds_in[contexts]
                ends = not fitting >> NEWLINE & 1 and contexts & at_last and accept & newline_end
                if fitting & alive or ends:
                    found.setdefault(_reading(of_set, fitting & alive, bool(ends)), []).extend(positions)
            known = self._after[before, number] = [
                (reading, frozenset(positions)) for reading, positions in found.items()
            ]
        return known

    def _plan(self, readings: tuple[int, ...]) -> _ContextPlan:
        going: dict[int, list[int]] = {}
        stopping: dict[int, list[int]] = {}
        for reading in readings:
            for c in self._classes_of[reading >> KINDS + 1]:
                if reading >> 1 + self._kind_of[c] & 1:
                    going.setdefault(c, []).append(reading)
                elif reading & 1 and self._kind_of[c] == NEWLINE:
                    stopping.setdefault(c, []).append(reading)
        groups: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        group_of = [DEAD] * self.classes
        for c in sorted(going.keys() | stopping.keys()):
            group = (self._kind_of[c], tuple(going.get(c, ())), tuple(stopping.get(c, ())))
            group_of[c] = groups.setdefault(group, len(groups))
        return _ContextPlan(list(groups), group_of)

    def _united(self, read: Mapping[int, list[frozenset[int]]], readings: tuple[int, ...]) -> frozenset[int]:
        parts = read[readings[0]]
        if len(readings) > 1:
            parts = [positions for reading in readings for positions in read[reading]]
        return self._reduced(parts[0] if len(parts) == 1 else parts[0].union(*parts[1:]))

    def _reduced(self, positions: frozenset[int]) -> frozenset[int]:
        order = self.nfa.order
        return _undominated(positions, order) if order.exist and len(positions) > 1 else positions
