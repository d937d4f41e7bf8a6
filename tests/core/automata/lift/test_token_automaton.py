"""A token is allowed exactly if its bytes keep the text completable, lazily and eagerly alike."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import (
    DEAD,
    AhoCorasick,
    Budget,
    Dfa,
    any_bytes,
    compile_pattern,
    complement,
    literal,
)
from logitloom.automata.lift.token_tables import _Functions
from logitloom.constraints import Ended
from logitloom.contract import UNKNOWN
from logitloom.errors import BudgetExceeded, VocabularyError
from logitloom.vocabulary import Vocabulary
from tests.cases import examples
from tests.core.automata.pattern_strategies import patterns
from tests.core.automata.patterns.test_pattern import supported
from tests.core.automata.vocabularies import mixed, small, smollm2, tekken
from tests.oracles.walk import Walk, walked

FINISHED = Ended.FINISHED.value

PRACTICAL = [
    r"\d{4}-\d{2}-\d{2}",
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    r"[a-z]{10}@[a-z]{5}\.[a-z]{3}",
    r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
    r"[0-9a-f]{8}-[0-9a-f]{4}",
    "yes|no|maybe",
    r'\{"name": "[^"]{1,20}", "tags": \[("[a-z]+"(, "[a-z]+")*)?\]\}',
    r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
    "[^Z]*",
    "Z*",
    r"\w+",
    ".*",
    "(?s).*",
    r"(?i)(select|insert) \w+",
    ".{0,40}",
    r"\w{1,6}",
    r"[^\W\d]+ ?",
    r"\S+\s\S*",
    "[а-я]+|日本*",
    r"\W+",
    r"(\w+|[^\w\s])*",
    "[^é]*",
]


def brute_force(automaton: Walk, state: int) -> list[int]:
    """The allowed set by trying every token, for vocabularies that can write every byte."""
    vocabulary, dfa = automaton.vocabulary, automaton.dfa
    allowed = [t for t, text in enumerate(vocabulary.token_bytes) if text and dfa.walk(text, state) >= 0]
    return sorted(allowed + list(automaton.eos if dfa.accepting[state] else ()))


def visited(automaton: Walk, steps: int, most: int, seed: int = 0) -> list[int]:
    """States met on a random walk along allowed tokens."""
    choose = random.Random(seed)
    state, states = automaton.start, [automaton.start]
    for _ in range(steps):
        state = automaton.advance(state, choose.choice(automaton.row(state).tolist()))
        assert state != DEAD
        if state == FINISHED:
            state = automaton.start
        if state not in states:
            states.append(state)
    return states[:most]


def check(automaton: Walk, eager: Walk, states: list[int]) -> None:
    for state in states:
        expected = brute_force(automaton, state)
        assert automaton.row(state).tolist() == expected
        assert eager.row(state).tolist() == expected
        kind = automaton.row_kind(state)
        rest = sorted(set(range(automaton.vocab_size)) - set(expected))
        assert kind.ids.tolist() == (expected if kind.allowed else rest)
        assert len(kind.ids) <= automaton.vocab_size / 2
        assert automaton.mask(state).nonzero()[0].tolist() == expected
        row_kind = eager.row_kind(state)
        assert row_kind.allowed == kind.allowed
        assert row_kind.ids.tolist() == kind.ids.tolist()


def pair(dfa: Dfa, vocabulary: Vocabulary, extra: int = 5) -> tuple[Walk, Walk]:
    lazy = walked(dfa, vocabulary, vocabulary.size + extra)
    eager = walked(dfa, vocabulary, vocabulary.size + extra)
    eager.tables()
    return lazy, eager


@pytest.mark.long
@examples(150)
@given(patterns(anchors=True))
def test_rows_of_random_patterns_are_those_of_brute_force(pattern: str) -> None:
    if not supported(pattern, 0) or compile_pattern(pattern).is_empty:
        return
    lazy, eager = pair(compile_pattern(pattern), mixed())
    check(lazy, eager, visited(lazy, 20, 8))


@pytest.mark.parametrize("pattern", PRACTICAL)
def test_rows_of_practical_patterns_on_a_mixed_vocabulary(pattern: str) -> None:
    lazy, eager = pair(compile_pattern(pattern), mixed())
    check(lazy, eager, visited(lazy, 60, 40))


@pytest.mark.extras
@pytest.mark.parametrize("pattern", PRACTICAL)
@pytest.mark.parametrize("read", [smollm2, tekken])
@pytest.mark.long
def test_rows_of_practical_patterns_on_real_vocabularies(pattern: str, read: object) -> None:
    vocabulary = read()  # type: ignore[operator]
    lazy, eager = pair(compile_pattern(pattern), vocabulary)
    check(lazy, eager, visited(lazy, 30, 3))


@pytest.mark.extras
@pytest.mark.parametrize("pattern", PRACTICAL)
def test_minimal_automata_allow_the_same_tokens(pattern: str) -> None:
    lazy = walked(compile_pattern(pattern), tekken())
    smallest = walked(compile_pattern(pattern, minimal=True), tekken())
    assert lazy.row(lazy.start).tolist() == smallest.row(smallest.start).tolist()


@pytest.mark.parametrize("pattern", PRACTICAL)
def test_texts_written_by_allowed_tokens_match(pattern: str) -> None:
    vocabulary = mixed()
    automaton = walked(compile_pattern(pattern), vocabulary)
    for seed in range(20):
        choose = random.Random(seed)
        state, tokens = automaton.start, []
        while state != FINISHED and len(tokens) < 60:
            row = automaton.row(state).tolist()
            token = 0 if 0 in row and choose.random() < 0.3 else choose.choice(row)
            state = automaton.advance(state, token)
            tokens.append(token)
        if state == FINISHED:
            text = vocabulary.text_bytes(tokens).decode()
            assert re.fullmatch(pattern, text), text


@examples(60)
@given(st.sampled_from(PRACTICAL), st.integers(0, 2**31))
def test_steps_agree_with_walking_bytes(pattern: str, seed: int) -> None:
    lazy, eager = pair(compile_pattern(pattern), mixed())
    tables, dfa, vocabulary = eager.tables(), lazy.dfa, lazy.vocabulary
    total = tables.total()
    choose = random.Random(seed)
    for state in [*choose.sample(range(dfa.states), min(dfa.states, 12)), FINISHED, DEAD]:
        for token in [*choose.sample(range(lazy.vocab_size), 60), 0, 1]:
            text = vocabulary.token_bytes[token] if token < vocabulary.size else b""
            if state == FINISHED:
                expected = FINISHED
            elif token == 0:
                expected = FINISHED if state >= 0 and bool(dfa.accepting[state]) else DEAD
            else:
                expected = dfa.walk(text, state) if text and state >= 0 else DEAD
            assert lazy.advance(state, token) == expected
            assert eager.advance(state, token) == expected
            assert tables.next[state, tables.token_class[token]] == expected
            legal = token == 0 if state == FINISHED else expected != DEAD
            assert tables.allowed[state, tables.token_class[token]] == legal
            assert total[state, tables.token_class[token]] == expected % len(tables.next)


@examples(40)
@given(st.sampled_from(PRACTICAL), st.integers(0, 2**31), st.booleans())
def test_many_rows_step_as_single_ones(pattern: str, seed: int, large: bool) -> None:
    lazy, eager = pair(compile_pattern(pattern), mixed())
    rng = np.random.default_rng(seed)
    batch = 300 if large else 5
    states = rng.integers(-2, lazy.dfa.states, size=batch).astype(np.int32)
    tokens = rng.integers(-1, lazy.vocab_size + 2, size=(batch, 3)).astype(np.int32)
    tokens[:, 1][rng.random(batch) < 0.4] = -1
    expected = []
    for state, row in zip(states.tolist(), tokens.tolist(), strict=True):
        for token in row:
            state = lazy.advance(state, token)
        expected.append(state)
    for automaton in (lazy, eager, walked(lazy.dfa, mixed(), lazy.vocab_size)):
        result = automaton.advance_many(states, tokens)
        assert result.dtype == np.int32
        assert result.tolist() == expected
    assert lazy.advance_many(states, tokens[:, 0]).tolist() == [
        lazy.advance(s, t) for s, t in zip(states.tolist(), tokens[:, 0].tolist(), strict=True)
    ]


def test_packed_masks_hold_the_rows_as_bits() -> None:
    automaton = walked(compile_pattern(r"\d+(\.\d+)?"), mixed(), mixed().size + 3)
    states = [*range(automaton.dfa.states), FINISHED, DEAD]
    packed = automaton.memory.bits([automaton.memory.node(state) for state in states]).view(np.uint32)
    assert packed.shape == (len(states), -(-automaton.vocab_size // 32))
    for place, state in enumerate(states):
        bits = [i for i in range(packed.shape[1] * 32) if packed[place, i // 32] >> np.uint32(i % 32) & np.uint32(1)]
        assert bits == automaton.row(state).tolist()


def test_end_of_sequence_is_allowed_in_accepting_states_and_after_itself_only() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"", b"", b""], eos=[3, 2], special=[4])
    automaton = walked(compile_pattern("ab?"), vocabulary, 9)
    start, after_a = automaton.start, automaton.advance(automaton.start, 0)
    assert automaton.row(start).tolist() == [0]
    assert automaton.row(after_a).tolist() == [1, 2, 3]
    assert automaton.advance(start, 2) == DEAD
    for eos in (2, 3):
        assert automaton.advance(after_a, eos) == FINISHED
        assert automaton.advance(FINISHED, eos) == FINISHED
    assert automaton.row(FINISHED).tolist() == [2, 3]
    assert automaton.advance(FINISHED, 0) == FINISHED
    assert automaton.row(DEAD).tolist() == []
    assert [automaton.advance(after_a, t) for t in (4, 5, 8, 9, 10**6)] == [DEAD] * 5


def reference_traps(automaton: Walk) -> dict[int, list[int]]:
    """Rows without traps, by brute force over the graph of tokens."""
    dfa, tokens = automaton.dfa, automaton.vocabulary.token_bytes
    steps = {s: {t: dfa.walk(x, s) for t, x in enumerate(tokens) if x} for s in range(dfa.states)}
    good = {s for s in range(dfa.states) if dfa.accepting[s]}
    while more := {s for s in steps if s not in good and any(to in good for to in steps[s].values())}:
        good |= more
    return {
        s: sorted([t for t, to in steps[s].items() if to in good] + (list(automaton.eos) if dfa.accepting[s] else []))
        for s in good
    }


@examples(150)
@given(
    patterns(anchors=False),
    st.lists(st.sampled_from(["a", "b", "ab", "é", b"\xc3", "1 ", "\n", b"\xa9b", "A"]), max_size=6),
)
def test_vocabularies_without_all_bytes_have_no_traps(pattern: str, tokens: list[str | bytes]) -> None:
    if not supported(pattern, 0):
        return
    dfa = compile_pattern(pattern)
    if dfa.is_empty or not tokens:
        return
    vocabulary = small(*tokens)
    # The reference needs an automaton to look at, and any vocabulary can write the bytes of this one.
    model = walked(dfa, small(*[bytes([i]) for i in range(256)]))
    model.vocabulary = vocabulary
    rows = reference_traps(model)
    if model.start not in rows:
        with pytest.raises(VocabularyError, match="No sequence of tokens"):
            walked(dfa, vocabulary)
        return
    automaton = walked(dfa, vocabulary)
    for state in visited(automaton, 20, 20):
        assert automaton.row(state).tolist() == rows[state]


def test_one_state_that_the_vocabulary_cannot_leave_may_end_at_once() -> None:
    words = Vocabulary([b"", b"a", b"ab"], eos=[0])
    automaton = walked(compile_pattern("b*"), words)
    assert automaton.tables().allowed[automaton.start].tolist() == [False, True]


def test_a_vocabulary_that_cannot_write_the_text_is_refused() -> None:
    with pytest.raises(VocabularyError, match=r"No sequence of tokens of small writes .* shortest such text is b'ab'"):
        walked(compile_pattern("ab+"), small("a", "c"))
    assert walked(compile_pattern("ab+|cc"), small("a", "c")).row(0).tolist() == [3]


def test_contradicting_arguments_are_refused() -> None:
    vocabulary = small("a")
    with pytest.raises(VocabularyError, match="vocab_size=2 is less than the 3 ids"):
        walked(literal("a"), vocabulary, 2)
    with pytest.raises(VocabularyError, match="no end-of-sequence id"):
        walked(literal("a"), Vocabulary([b"a"]))
    with pytest.raises(VocabularyError, match="accepts no text at all"):
        walked(compile_pattern("a^b"), vocabulary)


def test_forced_runs_end_where_there_is_a_choice() -> None:
    vocabulary = small("a", "b", "ab", "c", '{"', "x", "y")
    automaton = walked(compile_pattern(r'\{"(x|y)cab'), vocabulary)
    assert automaton.forced_tokens(automaton.start) == [6]
    state = automaton.advance(automaton.advance(automaton.start, 6), 7)
    # "ab" is one token or two, so only its beginning is forced as tokens.
    assert automaton.forced_tokens(state) == [5]
    end = automaton.advance(automaton.advance(state, 5), 4)
    assert automaton.forced_tokens(end) == [0]
    assert automaton.forced_tokens(FINISHED) == []


def test_a_forced_run_goes_on_to_its_end() -> None:
    assert walked(literal("a" * 50), small("a")).forced_tokens(0) == [2] * 50 + [0]


@examples(40)
@given(st.sampled_from(PRACTICAL), st.integers(0, 1000))
def test_forced_runs_are_what_rows_allow(pattern: str, seed: int) -> None:
    automaton = walked(compile_pattern(pattern), mixed())
    for state in visited(automaton, 20, 6, seed):
        run = automaton.forced_tokens(state)
        for token in run:
            assert automaton.row(state).tolist() == [token]
            state = automaton.advance(state, token)
        if state != FINISHED:
            assert len(automaton.row(state)) != 1


def test_broken_encodings_are_never_allowed_in_text() -> None:
    automaton = walked(compile_pattern("(?s).*"), mixed())
    texts = automaton.vocabulary.token_bytes
    for state in visited(automaton, 200, 20):
        for token in automaton.row(state).tolist():
            assert b"\xff" not in texts[token]
            assert b"\xc0" not in texts[token]


def test_automata_over_arbitrary_bytes_allow_every_token_with_bytes() -> None:
    for dfa in (any_bytes(), complement(literal("a"), universe=any_bytes()), AhoCorasick(["foo"]).avoiding()):
        lazy, eager = pair(dfa, mixed())
        check(lazy, eager, visited(lazy, 30, 5))


def test_tables_keep_to_a_budget() -> None:
    dfa = compile_pattern(r"(\w{1,20} ?){3}")
    automaton = walked(dfa, mixed(), budget=Budget(table_bytes=10_000))
    assert len(automaton.row(automaton.start))
    with pytest.raises(BudgetExceeded, match=r"the token tables of .*table_bytes="):
        automaton.tables()


@pytest.mark.parametrize("pattern", PRACTICAL)
def test_the_tokens_allowed_by_the_constraint_leave_end_of_sequence_out(pattern: str) -> None:
    automaton = walked(compile_pattern(pattern), mixed(), mixed().size + 2)
    for state in visited(automaton, 10, 5):
        expected = [t for t in brute_force(automaton, state) if t not in automaton.eos]
        if state != FINISHED:
            assert automaton.constraint.allowed(state).listed(automaton.vocab_size).tolist() == expected


def test_forgotten_rows_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom.state_memory._CAPACITY", 100)
    automaton = walked(compile_pattern(r"(\w+|[^\w\s])*"), mixed())
    for state in visited(automaton, 40, 10) * 2:
        assert automaton.row(state).tolist() == brute_force(automaton, state)
    assert len(automaton.constraint.memory.sets) <= 1


@pytest.mark.parametrize("pattern", ["[a-c ]*", "a{3}|b[a-c]{9}c", "(a|bc)*b", "é{3}", "[a-é]{2,4}"])
def test_no_token_leads_farther_than_the_bound_where_bytes_are_no_tokens(pattern: str) -> None:
    letters = Vocabulary([b"</s>", *[bytes([byte]) for byte in range(128)], "é".encode()], eos=[0])
    automaton = walked(compile_pattern(pattern), letters)
    bound = automaton.constraint.most_after(automaton.start)
    assert (bound == UNKNOWN) == ("é" in pattern), "the bytes of é are no tokens"
    for state in visited(automaton, 20, 20):
        if state != FINISHED:
            assert automaton.constraint.least_after(state)[1].max(initial=0) <= bound


def test_states_with_equal_tables_share_a_row() -> None:
    automaton = walked(compile_pattern(".{0,60}"), mixed())
    automaton.tables()
    far = [automaton.start]
    for _ in range(5):
        far.append(automaton.advance(far[-1], automaton._trie.single[ord("a")].item()))
    assert len(set(far)) == 6
    assert len({id(automaton.constraint.allowed(state).ids) for state in far}) == 1
    assert automaton.row(far[-1]).tolist() == brute_force(automaton, far[-1])


@pytest.mark.parametrize("pattern", [*PRACTICAL, "(?:[^abc]|a[^abc]{3}|b[^abc]{3})*END", ".*(ab|ba)x.*1"])
def test_texts_end_in_time_where_tables_take_too_much_work(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom.automata.lift.token_automaton._MOST_WORK_OF_TABLES", 0)
    bounded = walked(compile_pattern(pattern), mixed()).constraint
    assert not bounded.exact_least
    monkeypatch.undo()
    exact = walked(compile_pattern(pattern), mixed())
    assert exact.constraint.exact_least
    for state in visited(exact, 30, 20):
        if state == FINISHED:
            continue
        here = bounded.least_tokens(state)
        assert here >= exact.constraint.least_tokens(state)
        ids, least = bounded.least_after(state)
        assert ids.tolist() == exact.constraint.allowed(state).listed(exact.vocab_size).tolist()
        assert least.tolist() == [bounded.least_tokens(bounded.advance(state, token)) for token in ids.tolist()]
        assert bounded.may_end(state) == (here == 0)
        assert not here or least.min() < here, "some token leads nearer"


@pytest.mark.extras
def test_no_step_computes_tables_that_take_too_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50_000
    monkeypatch.setattr("logitloom.automata.lift.token_automaton._MOST_WORK_OF_TABLES", most)
    taken: list[int] = []

    class Counted(_Functions):
        def _find_some(self, *given: Any) -> None:
            super()._find_some(*given)
            taken.append(self.work)

    monkeypatch.setattr("logitloom.automata.lift.token_tables._Functions", Counted)
    automaton = walked(compile_pattern("(?:[^a-e]|a[^a-e]{5}|b[^a-e]{5}|c[^a-e]{5}|d[^a-e]{5})*END"), smollm2())
    states = visited(automaton, 60, 30)
    assert automaton.constraint.least_tokens(automaton.start) == 1
    assert 0 < max(taken) <= most, "the walk of the functions is given up"
    for state in states[:5]:
        assert automaton.row(state).tolist() == brute_force(automaton, state)
    automaton.tables()
    assert max(taken) > 2 * most, max(taken)
