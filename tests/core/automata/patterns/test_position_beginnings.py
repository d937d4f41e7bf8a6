"""States that begin the same texts share one token set, and only those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom.automata.deterministic.subsets import Subsets
from logitloom.automata.patterns.position_beginnings import position_beginnings
from logitloom.constraints import lift
from logitloom.vocabulary import Vocabulary
from tests.core.automata.patterns.test_position_completions import BYTES, lazy

PATTERNS = [
    "[a-z ]{400,600}",
    "(?:.*a.{12}b){2}",
    "x?[é-ü]{3,9}[a-c]{20,40}",
    ".{0,30}Darwin(?:abc|z){4}",
    "(?:ab|a{9}){5,30}c",
]

#: The byte "c" is no token, so some states have no completion.
FEW = Vocabulary([b"</s>", b"a", b"b", b"ab", b"abc", b"z", b"zz", b" "], eos=[0])


def texts(
    subsets: Subsets, position: int, length: int, memory: dict[tuple[int, int], frozenset[tuple[int, ...]]]
) -> frozenset[tuple[int, ...]]:
    """All texts of up to some length that begin at a position, as numbers of character sets."""
    key = position, length
    if key not in memory:
        found: set[tuple[int, ...]] = {()}
        if position and length:
            own = subsets._set_at[position]
            found |= {
                (own, *rest) for p in subsets.nfa.follow[position] for rest in texts(subsets, p, length - 1, memory)
            }
            found.add((own,))
        memory[key] = frozenset(found)
    return memory[key]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [1, 2, 4])
def test_positions_with_one_number_begin_the_same_texts(pattern: str, length: int) -> None:
    subsets: Any = lazy(pattern)._subsets
    numbers = position_beginnings(subsets.nfa.set_at, subsets.nfa.follow.edges(), length, 1 << 30)
    assert numbers is not None
    memory: dict[tuple[int, int], frozenset[tuple[int, ...]]] = {}
    of_number: dict[int, frozenset[tuple[int, ...]]] = {}
    for position, number in enumerate(numbers):
        own = texts(subsets, position, length, memory)
        assert of_number.setdefault(number, own) == own
    assert len(set(numbers)) < len(numbers)


def test_positions_that_take_much_work_are_not_divided() -> None:
    automaton: Any = lazy(r"(?:\w{1,50}\W){0,50}")
    assert automaton._subsets.count < 3072
    assert automaton.beginnings(automaton.start(), 128) is None
    assert automaton.beginnings(automaton.start(), 2) is not None


@pytest.mark.parametrize("words", [BYTES, FEW], ids=["all bytes", "few bytes"])
@pytest.mark.parametrize("pattern", [*PATTERNS[:2], *PATTERNS[4:], "(?:[ab]{5}c?|b{9}){9,30}"])
@pytest.mark.long
def test_states_allow_what_they_allow_alone(pattern: str, words: Vocabulary) -> None:
    shared, dice = lift(lazy(pattern), words), np.random.default_rng(1)
    state: Any = shared.start()
    for _ in range(20):
        found = shared.allowed(state).listed(shared.vocab_size)
        alone = lift(lazy(pattern), words)
        assert found.tolist() == alone.allowed(state).listed(alone.vocab_size).tolist()
        if not len(found):
            break
        state = shared.advance(state, int(dice.choice(found)))


def test_states_of_a_counted_repeat_share_a_token_set_until_its_end_is_near() -> None:
    constraint = lift(lazy("[a-z ]{400,600}"), BYTES)
    state: Any = constraint.start()
    sets = []
    for _ in range(600):
        sets.append(constraint.allowed(state))
        state = constraint.advance(state, 1 + ord("q"))
    longest = int(np.diff(BYTES.offsets).max())
    assert len({id(found) for found in sets}) < 8 + longest
    assert len(sets[4 : 600 - longest]) > 500
    assert len({id(found) for found in sets[4 : 600 - longest]}) == 1


def test_more_positions_than_are_divided_in_a_step_are_left_alone() -> None:
    subsets: Any = lazy("a{5000}")._subsets
    assert subsets.beginnings(subsets.start, 4) is None
    few: Any = lazy("a{3000}")._subsets
    assert few.beginnings(few.start, 4) == few.beginnings(frozenset({1000}), 4) is not None
