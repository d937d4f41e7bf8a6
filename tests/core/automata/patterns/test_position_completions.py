"""Completions of lazy automata: they are shortest, rests of each other, and bounded, against a search of all bytes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given

from logitloom import Vocabulary
from logitloom.automata import LazyDfa
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.automata.lift.trie_walk import fewest_tokens
from logitloom.automata.patterns import position_completions
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.constraints import UNKNOWN, lift
from logitloom.contract import TextTokens
from logitloom.errors import LogitloomError
from tests.cases import examples
from tests.core.automata.pattern_strategies import FLAGS, TEXTS, patterns

BYTES = Vocabulary(
    [b"</s>", *[bytes([byte]) for byte in range(256)], b"ab", b"aab", b"a" * 7, "é".encode() * 2], eos=[0]
)
MOST_SEARCHED = 400


def lazy(pattern: str, flags: int = 0) -> LazyDfa:
    tracker = BudgetTracker()
    return LazyDfa(*_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker))


def shortest(automaton: LazyDfa, state: Any) -> int | None:
    """The bytes of a shortest text to the end, by a search of all bytes; ``None`` if it is too large."""
    level, seen, size = {state}, {state}, 0
    while level and len(seen) < MOST_SEARCHED:
        if any(automaton.accepts(each) for each in level):
            return size
        after = {automaton.step(each, byte) for each in level for byte in range(256)}
        level = {each for each in after if each is not None and each not in seen}
        seen |= level
        size += 1
    return None


@examples(60)
@given(patterns(anchors=False), FLAGS, TEXTS)
def test_completions_are_shortest_texts_and_rests_of_each_other(pattern: str, flags: int, text: str) -> None:
    try:
        automaton = lazy(pattern, flags)
    except LogitloomError:
        return
    state: Any = automaton.start()
    for byte in text.encode("utf-8", "surrogatepass"):
        found = automaton.completion(state)
        if found is None:  # boundaries
            return
        assert shortest(automaton, state) in (None, len(found))
        for size in range(len(found)):
            after: Any = state
            for each in found[:size]:
                after = automaton.step(after, each)
            assert automaton.completion(after) == found[size:]
        state = automaton.step(state, byte)
        if state is None:
            return


def texts(pattern: str, flags: int, many: int) -> list[Any]:
    """The text, the tokens and the farthest tokens of each position, where so many positions are looked at together."""
    with mock.patch.object(position_completions, "_MANY", many):
        automaton = lazy(pattern, flags)
        completions = automaton._subsets.completions
        if completions is None:
            return []
        count = len(completions.set_at)
        single = frozenset(range(256))
        tokens = TextTokens(7, single, partial(fewest_tokens, vocabulary_trie(BYTES)))
        distances = completions.distances(tokens)
        assert distances is not None
        order = [completions.first({one, other}) for one in range(count) for other in range(one)]
        return [
            [completions.shortest([each]) for each in range(count)],
            order,
            distances.needed.tolist(),
            distances.farthest,
        ]


@examples(80)
@given(patterns(anchors=True), FLAGS)
@example("(?:a.{0,9}){0,9}b|.{30}", 0)
@example("[ab]{40}", 0)
@example("x(?:[a-c]|é|.{0,4}z){0,9}", 0)
def test_texts_of_positions_are_the_same_one_by_one_and_together(pattern: str, flags: int) -> None:
    with suppress(LogitloomError):
        assert texts(pattern, flags, 1) == texts(pattern, flags, 3) == texts(pattern, flags, 1 << 30)


@pytest.mark.parametrize(
    "pattern", ["[a-z ]{40,60}", "(?:.*a.{12}b){2}", "x?[é-ü]{3,9}", ".{0,30}Darwin(?:abc|z){4}", "a{5}|b[0-9]{30}c"]
)
def test_no_token_leads_farther_than_the_bound(pattern: str) -> None:
    constraint = lift(lazy(pattern), BYTES)
    state: Any = constraint.start()
    dice = np.random.default_rng(0)
    for _ in range(25):
        ids, least = constraint.least_after(state)
        assert UNKNOWN > constraint.most_after(state) >= least.max(initial=0)
        if not len(ids):
            break
        state = constraint.advance(state, int(dice.choice(ids)))


@pytest.mark.parametrize("pattern", [r"x.{1,4}? Mobile (?:Safari)?", "(?:ab(?:a{9})?){0,9}b", "[é-ü]{1,3}b{0,3}aab"])
@pytest.mark.parametrize("counted", [0, 4096])
def test_bounds_are_the_most_tokens_from_any_state_that_can_be_reached(
    pattern: str, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_completions, "_MOST_TEXTS", counted)
    constraint = lift(lazy(pattern), BYTES)
    texts, above_ascii = constraint.automaton(), "." in pattern or not pattern.isascii()
    measure = constraint.least_tokens if counted else lambda state: len(texts.completion(state) or b"")
    after: dict[Any, set[Any]] = {}
    waiting = [constraint.start()]
    for state in waiting:
        if state not in after:
            after[state] = {texts.step(state, byte) for byte in range(256)} - {None}
            waiting += after[state]
    for state in after:
        reached = {state}
        waiting = [state]
        for at in waiting:
            waiting += after[at] - reached
            reached |= after[at]
        most = max(measure(each) for each in reached)
        # The bound looks at each position of a state by itself.
        farthest = max(measure(part) for each in reached for part in texts.alternatives(each))
        assert most <= constraint.most_after(state)
        if isinstance(state, bytes):  # between two characters
            assert constraint.most_after(state) <= farthest + 3 * above_ascii


def test_bounds_need_tokens_for_all_bytes_of_completions() -> None:
    letters = Vocabulary([b"</s>", *[bytes([byte]) for byte in range(128)], "é".encode()], eos=[0])
    assert lift(lazy("[ab]{30}"), letters).most_after(lazy("[ab]{30}").start()) == 30
    constraint = lift(lazy("é{30}"), letters)
    assert constraint.least_tokens(constraint.start()) == 30
    assert constraint.most_after(constraint.start()) == UNKNOWN


@pytest.mark.parametrize("longest", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["(?:日{2,}x?){1,400}", "[😀-😂]{2,}(?:x{1,400}é?){0,90}", "a{3}é{0,3000}🙂{3}"])
@pytest.mark.long
def test_characters_may_be_longer_than_every_token(pattern: str, longest: int) -> None:
    words = Vocabulary([*BYTES.token_bytes[:257], *[b"a" * n for n in range(2, longest + 1)]], eos=[0])
    constraint = lift(lazy(pattern), words)
    state: Any = constraint.start()
    assert isinstance(state, bytes)
    for byte in constraint.automaton().completion(state) or b"":
        ids, least = constraint.least_after(state)
        needed = np.array([constraint.least_tokens(constraint.advance(state, token)) for token in ids.tolist()])
        np.testing.assert_array_equal(least, needed)
        assert UNKNOWN > constraint.most_after(state) >= needed.max()
        for most in range(12):
            assert constraint.allowed_within(state, most).listed(words.size).tolist() == ids[needed <= most].tolist()
        state = constraint.advance(state, 1 + byte)
    assert constraint.may_end(state)


def test_counted_repeats_count_down() -> None:
    constraint = lift(lazy("[a-z ]{400,600}"), BYTES)
    state: Any = constraint.start()
    for left in range(400, 300, -1):
        assert constraint.most_after(state) == max(size // 7 + size % 7 for size in range(left + 1))
        assert constraint.least_tokens(state) == left // 7 + left % 7
        state = constraint.advance(state, 1 + ord("q"))


def test_fewest_tokens_of_every_end_of_a_text() -> None:
    words = Vocabulary([b"</s>", b"a", b"b", b"ab", b"bab"], eos=[0])
    trie = vocabulary_trie(words)
    assert fewest_tokens(trie, b"abab") == [2, 1, 1, 1, 0]
    assert fewest_tokens(trie, b"acb") == [None, None, 1, 0]
    assert fewest_tokens(trie, b"") == [0]


@pytest.mark.parametrize("pattern", ["[a-z ]{40,60}", "(?:.*a.{12}b){2}", "[b-é]{3,9}"])
def test_masks_of_vocabularies_that_lack_bytes_are_those_of_single_steps(pattern: str) -> None:
    lacking = Vocabulary([text for text in BYTES.token_bytes if text not in (b"\x02", b"\xff", b"\xc0")], eos=[0])
    automaton = lazy(pattern)
    constraint = lift(automaton, lacking)
    state: Any = constraint.start()
    for token in (1 + ord("a"), lacking.size - 4, lacking.size - 1, 1 + ord("b")):
        expected = []
        for each, text in enumerate(lacking.token_bytes[1:], 1):
            after: Any = state
            for byte in text:
                after = None if after is None else automaton.step(after, byte)
            expected += [] if after is None else [each]
        found = constraint.allowed(state).listed(lacking.size).tolist()
        assert found == expected
        if token in found:
            state = constraint.advance(state, token)


def test_states_that_bytes_complete_and_tokens_do_not_are_not_entered() -> None:
    lacking = Vocabulary([text for text in BYTES.token_bytes if text != b"\x02"], eos=[0])
    constraint = lift(lazy(r"b\x02{30}|c.{5,30}"), lacking)
    assert [lacking.token_bytes[each] for each in constraint.allowed(constraint.start()).listed(lacking.size)] == [b"c"]
