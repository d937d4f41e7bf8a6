"""Unions and intersections of lazy automata accept what they should, and every state of theirs can be completed."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from logitloom import Context, Vocabulary, processors
from logitloom.automata import (
    AhoCorasick,
    DenseAutomaton,
    Dfa,
    IntersectedAutomaton,
    LazyDfa,
    UnionAutomaton,
    compile_automaton,
    compile_pattern,
    intersection,
    literal,
    union,
)
from logitloom.automata import compilation as module
from logitloom.constraints import ByteAutomaton, LiftedAutomaton, State, TextTokens
from logitloom.errors import BudgetExceeded, OptionError
from tests.core.automata.pattern_strategies import patterns
from tests.core.automata.patterns.test_pattern import supported

LETTERS = "ab1é"
TEXTS = ["".join(letters) for length in range(5) for letters in itertools.product(LETTERS, repeat=length)]
BEGINNINGS = {text.encode()[:end] for text in TEXTS for end in range(len(text.encode()) + 1)}


def lazy(pattern: str) -> LazyDfa:
    """The automaton of a pattern, lazy however small it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WHOLE_STATES", 0)
        patch.setattr(module, "_listed", lambda *_, **__: None)
        found = compile_automaton(pattern)
    assert isinstance(found, LazyDfa)
    return found


def read(automaton: ByteAutomaton, text: bytes) -> State | None:
    state: State | None = automaton.start()
    for byte in text:
        if state is None:
            break
        state = automaton.step(state, byte)
    return state


def accepted(automaton: ByteAutomaton) -> set[str]:
    return {t for t in TEXTS if (state := read(automaton, t.encode())) is not None and automaton.accepts(state)}


def living(automaton: ByteAutomaton) -> set[bytes]:
    return {text for text in BEGINNINGS if read(automaton, text) is not None}


def usable(pattern: str) -> bool:
    return supported(pattern, 0) and not compile_pattern(pattern).is_empty


@pytest.mark.long
@given(first=patterns(anchors=True), second=patterns(anchors=True), whole=st.booleans())
def test_random_patterns(first: str, second: str, whole: bool) -> None:
    if not (usable(first) and usable(second)):
        return
    parts: Any = lazy(first), compile_pattern(second) if whole else lazy(second)
    matches = [{text for text in TEXTS if re.fullmatch(p, text)} for p in (first, second)]
    either = union(*parts)
    assert isinstance(either, UnionAutomaton)
    assert accepted(either) == matches[0] | matches[1]
    both = intersection(compile_pattern(first), compile_pattern(second))
    expected = {text for text in BEGINNINGS if both.walk(text) >= 0 and not both.is_empty}
    if both.is_empty:
        with pytest.raises(OptionError, match=r"No text satisfies all automata of this intersection\. Leave one out"):
            intersection(*parts)
        return
    found = intersection(*parts)
    assert isinstance(found, IntersectedAutomaton)
    assert accepted(found) == matches[0] & matches[1]
    assert living(found) == expected  # a state that could not be completed would live longer than that of the whole
    nested = intersection(union(found, lazy("b1")), lazy("[^a]*|a.*"))
    assert accepted(nested) == {t for t in (matches[0] & matches[1]) | {"b1"} if re.fullmatch("[^a]*|a.*", t)}


def test_whole_automata_stay_whole() -> None:
    assert isinstance(union(literal("a"), literal("b")), Dfa)
    assert isinstance(intersection(literal("a"), compile_pattern(".")), Dfa)


def test_an_intersection_of_one_automaton_is_that_automaton() -> None:
    one = DenseAutomaton(compile_pattern("[a-z]{2,}1?"))
    assert accepted(intersection(one)) == {text for text in TEXTS if re.fullmatch("[a-z]{2,}1?", text)} != set()


LOG = r".{0,100} Darwin/\d.{0,100}\((?:Mac|iPad).{0,100}"


@pytest.mark.long
def test_patterns_that_are_too_large_to_be_built_are_intersected_exactly() -> None:
    agent = compile_automaton(LOG)
    assert isinstance(agent, LazyDfa)
    no_pad = intersection(agent, compile_automaton(r"(?:[^i]|i[^P])*"))
    assert isinstance(no_pad, IntersectedAutomaton)
    for text, fits in (("x Darwin/1(Mac", True), ("x Darwin/1(iPad", False), ("iP Darwin/1(Mac", False)):
        state = read(no_pad, text.encode())
        assert (state is not None and no_pad.accepts(state)) == fits
    # What can no longer be completed is seen where it happens, not at the end.
    assert read(no_pad, b"x Darwin/1" + b"y" * 100 + b"(M") is not None
    assert read(no_pad, b"x Darwin/1" + b"y" * 100 + b"(i") is None
    again = pickle.loads(pickle.dumps(no_pad))
    assert again.fingerprint == no_pad.fingerprint
    assert read(again, "é Darwin/1é".encode()) == read(no_pad, "é Darwin/1é".encode())


def test_a_search_without_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom.automata.deterministic.lazy_product._MOST_STEPS", 20_000)

    class Counter(ByteAutomaton):
        fingerprint = b"counter"

        def start(self) -> State:
            return 0

        def step(self, state: State, byte: int) -> State | None:
            return int(state) + 1  # type: ignore[call-overload, no-any-return]

        def accepts(self, state: State) -> bool:
            return False

        def byte_classes(self) -> NDArray[np.uint8]:
            return np.zeros(256, np.uint8)

    with pytest.raises(BudgetExceeded, match="automata of this intersection have more than .* states together"):
        intersection(Counter(), lazy("(?s:.*)"))


def test_completions_decide_where_the_product_is_too_large_to_be_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom.automata.deterministic.lazy_product._MOST_STEPS", 0)
    monkeypatch.setattr("logitloom.automata.deterministic.lazy_product._MOST_STEPS_LATER", 0)
    no_tag = DenseAutomaton(compile_pattern("(?:[^<]|<[^/])*<?"))
    found = IntersectedAutomaton([no_tag, DenseAutomaton(compile_pattern("(?s).{2,2000}"))])
    for text, lives, ends in (
        ("", True, False),
        ("é<", True, True),
        ("</", False, False),
        ("a<" * 1000, True, True),
        ("a" * 2001, False, False),
    ):
        state = read(found, text.encode())
        assert (state is not None) == lives
        assert (state is not None and found.accepts(state)) == ends
    # Each third character must be "<", and the last one: three bytes further the completions agree.
    sparse = IntersectedAutomaton([no_tag, DenseAutomaton(compile_pattern("(?:..<)*"))])
    reached = {length: read(sparse, b"ab<ab<ab"[:length]) for length in range(8)}
    assert [length for length, at in reached.items() if at is not None and sparse.accepts(at)] == [0, 3, 6]
    # Neither shortest text has "a" and "b" where the other one needs them, but a text with one other byte does.
    wanted = "(?:|[ab]{50}a[ab]{19}b[ab]{30})", "(?:|[ab]{60}a[ab]{19}b[ab]{20})"
    near = IntersectedAutomaton([DenseAutomaton(compile_pattern(pattern)) for pattern in wanted])
    text = near.completion(read(near, b"a"))
    assert text is not None
    assert all(re.fullmatch(pattern, "a" + text.decode()) for pattern in wanted)
    # Where neither the completions, nor other bytes, nor a search tell, the state counts as dead.
    wanted = "(?:|(?:[ab]{9}b){20}[ab]{31})", "(?:|(?:[ab]{10}b){20}[ab]{11})"
    far = [DenseAutomaton(compile_pattern(pattern)) for pattern in wanted]
    assert read(IntersectedAutomaton(far), b"") is not None
    assert read(IntersectedAutomaton(far), b"a") is None
    monkeypatch.undo()
    assert read(IntersectedAutomaton(far), b"a") is not None


def reachable(automaton: IntersectedAutomaton, most: int = 400) -> list[tuple[State, ...]]:
    """The first tuples of states that bytes reach, whether a text can end after them or not."""
    queue = [cast(tuple[State, ...], automaton.start())]
    for states in queue:
        for byte in (*b"ab<>1 ", 0xC3, 0xA9):
            after = automaton._stepped(states, byte)
            if after is not None and after not in queue and len(queue) < most:
                queue.append(after)
    return queue


@pytest.mark.parametrize(
    ("phrases", "pattern", "whole_table", "lazily"),
    [
        (["<"], r"[\s\S]{2,30}", True, True),
        (["<"], r"\S(?:[\s\S]{0,20}\S)?", True, True),
        # Shortest texts are made of "a". If it is banned, a whole table has other texts, or the search finds some.
        (["a"], r"[\s\S]{2,30}", True, False),
        (["é"], r"[\s\S]{2,30}", True, False),
        (["<b", "b>"], r"(?:1{30}|a)*<?", True, True),
        (["<>"], r"(?:1{30}|a)*<>?", True, False),
        (["<>"], r"(?:a{2}<>)?b", False, False),
        (["ba", "1"], r"[abé]{2,9}", True, False),
        (["ba", "é"], r"[abé]{2,9}", False, False),
        (["ba", "bb"], r"(?:[ab]1){2,9}", False, False),
        (["ba", "1b"], r"(?:[a-c]1){2,9}[^a]", True, False),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole table", "lazy"])
def test_completions_of_one_automaton_that_the_others_read_leave_no_dead_ends(
    phrases: list[str], pattern: str, whole_table: bool, lazily: bool, whole: bool
) -> None:
    inner = DenseAutomaton(compile_pattern(pattern)) if whole else lazy(pattern)
    bans = DenseAutomaton(AhoCorasick(phrases).avoiding())
    found, searched = IntersectedAutomaton([bans, inner]), IntersectedAutomaton([bans, inner])
    assert (found.completing is not None) == (whole_table if whole else lazily)
    searched.completing = None
    for states in reachable(found):
        assert found._can_end(states) == searched._can_end(states)


def test_an_intersection_with_nothing_is_refused_before_dead_ends_are_looked_for() -> None:
    with pytest.raises(OptionError, match="No text satisfies all"):
        IntersectedAutomaton([DenseAutomaton(AhoCorasick(["<"]).avoiding()), lazy("a*<")])
    nothing = Dfa(np.zeros(256, dtype=np.uint8), [[-1]], [False])
    with pytest.raises(OptionError, match="No text satisfies all"):
        IntersectedAutomaton([DenseAutomaton(AhoCorasick(["<"]).avoiding()), DenseAutomaton(nothing)])


class NoTokenAtTheStart(DenseAutomaton):
    def token_border(self, state: State) -> State | None:
        return state if state != self.dfa.start else None


def test_an_intersection_counts_tokens_only_if_one_of_its_automata_does() -> None:
    plain, counting = DenseAutomaton(compile_pattern("a*b?")), NoTokenAtTheStart(compile_pattern("[ab]*c?"))
    assert not IntersectedAutomaton([plain, plain]).counts_tokens
    both: Any = pickle.loads(pickle.dumps(IntersectedAutomaton([plain, counting])))
    nested = IntersectedAutomaton([plain, both])
    for automaton in (both, nested):
        assert automaton.counts_tokens
        assert automaton.token_border(automaton.start()) is None
        # The second automaton is at its start again after each letter.
        assert automaton.token_border(read(automaton, b"a")) is None


@pytest.mark.parametrize("pattern", ["ab|cd*ef", "[a-c]{2}é?", "", "(?:ab)*", "a{3,5}|b"])
def test_a_whole_automaton_tells_a_shortest_text_of_each_state(pattern: str) -> None:
    automaton = DenseAutomaton(compile_pattern(pattern))
    for state in range(automaton.dfa.states):
        text = automaton.completion(state)
        assert text is not None
        assert automaton.dfa.accepting[automaton.dfa.walk(text, state)]
        shorter = [bytes(b) for length in range(len(text)) for b in itertools.product(b"abcdef\xc3\xa9", repeat=length)]
        assert not any((at := automaton.dfa.walk(b, state)) >= 0 and automaton.dfa.accepting[at] for b in shorter)


def test_fsm_takes_lazy_automata() -> None:
    words = Vocabulary([b"", b"a", b"b", b"ab", b"c"], eos=[0])
    automaton = union(intersection(lazy("[ab]*"), lazy("..")), lazy("b"))
    chain = processors.load(("fsm", {"automaton": automaton}), tokenizer=words)
    whole = union(intersection(compile_pattern("[ab]*"), compile_pattern("..")), compile_pattern("b"))
    other = processors.load(("fsm", {"automaton": whole}), tokenizer=words)
    blank = np.zeros((1, words.size), np.float32)
    context = step = Context.start(blank)
    states = [chain.init_state(context), other.init_state(context)]
    for _ in range(3):
        made = [one.process(blank, at, step) for one, at in zip((chain, other), states, strict=True)]
        assert np.array_equal(made[0][0], made[1][0])
        states = [at for _, at in made]
        step = context.accept([[int(made[0][0][0].argmax())]])
    assert not chain.compilable
    assert other.compilable


@given(first=patterns(anchors=False), second=patterns(anchors=False), third=patterns(anchors=False))
def test_whole_automata_have_the_shortest_texts_of_their_product(first: str, second: str, third: str) -> None:
    dfas = [compile_pattern(pattern) for pattern in (first, second, third) if usable(pattern)]
    if len(dfas) < 2 or (whole := intersection(dfas[0], *dfas[1:])).is_empty:
        return
    both = IntersectedAutomaton([DenseAutomaton(dfa.trimmed()) for dfa in dfas])
    expected = DenseAutomaton(whole)
    bound = both.completion_bound(TextTokens(1, frozenset(range(256)), lambda text, _: [*range(len(text), -1, -1)]))
    for text in sorted(BEGINNINGS)[::7]:
        state = read(both, text)
        if state is None:
            continue
        found, shortest = both.completion(state), expected.completion(read(expected, text))
        assert found is not None
        assert (end := read(both, text + found)) is not None
        assert both.accepts(end)
        assert bound is None or len(found) <= (bound(state) or 0)
        if both.completing is None:
            assert len(found) == len(shortest or b"")
            assert not found or both.completion(read(both, text + found[:1])) == found[1:]


def test_two_patterns_near_a_limit_are_not_searched_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = list[State]()
    monkeypatch.setattr(LiftedAutomaton, "_search", lambda _, state: searched.append(state))
    words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)], b"ab", b" a", b"a1"], eos=[0])
    inner = [["regex", {"pattern": r"\w+( \w+){3,9}"}], ["regex", {"pattern": r".*\d.*"}]]
    made: Any = processors.load(("budget", {"n": 0, "then": inner}), tokenizer=words)["budget"].constraint(words, 260)
    state = made.start()
    ids, least = made.least_after(state)
    assert made.least_tokens(state) == 5
    for token, needed in zip(ids.tolist(), least.tolist(), strict=True):
        assert made.least_tokens(made.advance(state, token)) == needed
    assert len(ids) > 60
    assert not searched
