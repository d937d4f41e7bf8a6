"""The position automaton: copies of repeated parts, compared with a construction that builds each copy."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns import nfa
from logitloom.automata.patterns.char_sets import CharSet
from logitloom.automata.patterns.nfa import END_POSITION, PositionAutomaton, position_automaton
from logitloom.automata.patterns.pattern import Alternation, Characters, Concatenation, Repeat, parse_pattern

PATTERNS = [
    "abc",
    "a{3}",
    "a{0,4}",
    "(?:ab?){2,5}c",
    "(?:a{2,4}|b*){0,3}",
    "(?:(?:ab){1,3}c){2,}x",
    "(?:(?:a?b?){3}|c{2,})+",
    "(?:[ab]{3,}c?){2,4}[ab]",
    "(?:a|bc{0,3}|){4}d?",
    "(?:(?:(?:a{2}b){1,2}){0,2}c){3}",
    "(?:(?:a|b|c)*d){3,}(?:a|b)*",
    "x?y?z?a{0,3}",
    "(?:ab|cd|ef|gh|ij|kl|mn|op|q[rs]){0,3}z",
    "(?:(?:a|b|c|d|e|f|g|h|ij){2,3}k?){1,3}z?",
]


class _Copies(NamedTuple):
    """The result of building each copy of each part: the definition of the automaton."""

    chars: list[CharSet | None]
    follow: list[set[int]]
    ranks: list[list[tuple[int, int]]]


def _expanded(pattern: str) -> tuple[_Copies, set[int]]:
    copies = _Copies([None], [set()], [[]])

    def connect(last: set[int], first: set[int]) -> None:
        for position in last:
            copies.follow[position] |= first

    def build(node: Any) -> tuple[set[int], set[int], bool]:
        if isinstance(node, Characters):
            copies.chars.append(node.chars)
            copies.follow.append(set())
            copies.ranks.append([])
            here = {len(copies.chars) - 1}
            return here, here, False
        if isinstance(node, Concatenation):
            first, last, empty = set[int](), set[int](), True
            for part in node.parts:
                found = build(part)
                connect(last, found[0])
                first |= found[0] if empty else set()
                last = found[1] | (last if found[2] else set())
                empty = empty and found[2]
            return first, last, empty
        if isinstance(node, Alternation):
            several = [build(branch) for branch in node.branches]
            return (
                set().union(*[each[0] for each in several]),
                set().union(*[each[1] for each in several]),
                any(each[2] for each in several),
            )
        assert isinstance(node, Repeat)
        start = len(copies.chars)
        parts = [build(node.part)]
        required = max(0 if parts[0][2] else node.least, 1)
        while len(parts) < (required if node.most is None else node.most):
            parts.append(build(node.part))
            connect(parts[-2][1], parts[-1][0])
        size = (len(copies.chars) - start) // len(parts)
        # Without an upper bound a later copy permits what earlier copies permit; else the reverse.
        lowest, sign = (0, -1) if node.most is None else (required - 1, 1)
        if len(parts) - lowest > 1:
            for copy in range(lowest, len(parts)):
                for offset in range(size):
                    copies.ranks[start + copy * size + offset].append((start + lowest * size + offset, sign * copy))
        ends = parts[required - 1 :]
        if node.most is None:
            connect(parts[-1][1], parts[-1][0])
        return parts[0][0], set().union(*[each[1] for each in ends]), parts[0][2] or node.least == 0

    first, last, empty = build(parse_pattern(pattern))
    connect(last, {END_POSITION})
    return copies, first | ({END_POSITION} if empty else set())


def _automaton(pattern: str) -> PositionAutomaton:
    def refuse(part: object) -> Any:
        raise AssertionError(part)

    return position_automaton(parse_pattern(pattern), BudgetTracker(), refuse)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_copies_equal_those_built_one_by_one(pattern: str) -> None:
    automaton, (expected, first) = _automaton(pattern), _expanded(pattern)
    assert automaton.first == first
    assert [automaton.sets[number] for number in automaton.set_at[1:]] == expected.chars[1:]
    assert automaton.follow.sets() == expected.follow
    assert [list(automaton.order[position]) for position in range(len(expected.chars))] == expected.ranks
    assert automaton.order.exist == any(expected.ranks)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_edges_are_the_pairs_of_the_sets(pattern: str) -> None:
    automaton = _automaton(pattern)
    edges = automaton.follow.edges()
    after: list[set[int]] = [set() for _ in automaton.set_at]
    for source, target in zip(edges.sources.tolist(), edges.targets.tolist(), strict=True):
        after[source].add(target)
    assert [after[each] for each in edges.alike.tolist()] == automaton.follow.sets()


def test_positions_that_share_a_set_share_its_edges() -> None:
    edges = _automaton("(?:ab|cd|ef|gh|ij|kl)*").follow.edges()
    # The last letter of each word is followed by all first letters and the end: one set.
    assert len(edges.sources) == 6 + 7


def test_positions_of_a_copy_that_share_a_set_share_its_edges() -> None:
    automaton = _automaton("(?:ab|cd|ef|gh|ij|kl|mn|op|qr){0,3}z")
    # Each of three copies: 9 edges within, and those from the last positions, which share them.
    assert len(automaton.follow.edges().sources) == 3 * 9 + 2 * (9 + 1) + 1 + 1
    for copy in range(2):
        assert len({id(automaton.follow[18 * copy + at]) for at in range(2, 19, 2)}) == 1


def test_optional_parts_in_a_row_are_connected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nfa, "_extended")
    automaton = _automaton("(?:ab)?(?:cd)?(?:ef)?(?:gh)?x?y")
    assert [sorted(automaton.follow[position]) for position in (2, 4, 8)] == [[3, 5, 7, 9, 10], [5, 7, 9, 10], [9, 10]]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_chosen_position_is_the_first_of_the_largest_size(pattern: str) -> None:
    automaton, (expected, _) = _automaton(pattern), _expanded(pattern)
    sizes = (np.arange(25)[::-1] % 4)[automaton.set_at]
    best = [max(sorted(after), key=sizes.__getitem__, default=END_POSITION) for after in expected.follow]
    assert automaton.follow.edges().chosen(sizes).tolist() == best


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pickled_automaton_is_equal(pattern: str) -> None:
    automaton = _automaton(pattern)
    copy = pickle.loads(pickle.dumps(automaton))
    assert copy.follow.sets() == automaton.follow.sets()
    assert copy.follow.described() == automaton.follow.described()
    assert copy.order.described() == automaton.order.described()


def test_only_the_first_copy_of_a_part_is_built() -> None:
    automaton = _automaton("(?:ab{1,50}){0,900}")
    assert len(automaton.set_at) == 1 + 900 * 51
    assert len(automaton.follow) == len(automaton.order) == 0
    assert automaton.follow[51] == frozenset({52, END_POSITION})
