"""Lazy automata accept what ``re`` matches, state by state what the whole automaton accepts."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.automata import Budget, Dfa, LazyDfa, compile_automaton, compile_pattern
from logitloom.automata.compilation import _subsets
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.deterministic import subsets
from logitloom.automata.patterns.nfa import RedundantCopies
from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.contract import State
from logitloom.errors import BudgetExceeded, UnsupportedPattern
from logitloom.masks.kernels import load_kernels
from tests.cases import EXHAUSTIVE
from tests.core.automata.pattern_strategies import FLAGS, TEXTS, patterns

#: Their whole automata have at least hundreds of thousands of states.
LARGE = [
    r".{0,100} Darwin/\d.{0,100}\((?:Mac|iMac).{0,100}x",
    r"(?:.*a.{12}b){2}",
    r"(a|b)*a(a|b){30}",
    r"(\d{0,100}){0,100}b",
    r"(?i)[\w.-]{0,50}?(?:key)(?:[ \t\w.-]{0,20})[\s'\"]{0,3}(?:=|>|:{1,3}=)[\s'\"]{0,5}([a-z0-9]{32})\b",
    r"^(.{0,200})-iPad/(\d+)(?:\.(\d+)|) CFNetwork$",
    r"\bfoo\b.{0,100}é.{0,100}x\b",
    ".{0,20000}",
]
#: A search for words: after each character the states hold a position of each word.
SEARCH = ".*(?:" + "|".join(f"{first}{second}word" for first in "abcdefgh" for second in "abcdefgh") + ").*"


def lazy(pattern: str, flags: int = 0) -> LazyDfa:
    tracker = BudgetTracker()
    return LazyDfa(*_subsets(parse_pattern(pattern, flags, tracker), pattern, flags, tracker))


def expected(pattern: str, flags: int, text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.fullmatch(pattern, text, flags) is not None


def is_alive_together(whole: Dfa, visited: LazyDfa, text: bytes) -> None:
    state, other = whole.start, visited.start()
    for byte in text:
        state = whole.walk(bytes((byte,)), state)
        other = visited.step(other, byte)
        assert (state < 0) == (other is None)
        if other is None:
            return
        assert bool(whole.accepting[state]) == visited.accepts(other)
        assert pickle.loads(pickle.dumps(other)) == other


@pytest.mark.long
@settings(max_examples=400 if EXHAUSTIVE else 37)
@given(patterns(anchors=True), FLAGS, st.lists(TEXTS, min_size=1, max_size=8))
def test_random_patterns_agree_with_re_and_the_whole_automaton(pattern: str, flags: int, texts: list[str]) -> None:
    try:
        whole = compile_pattern(pattern, flags)
    except UnsupportedPattern:
        return
    visited = lazy(pattern, flags)
    for text in texts:
        assert visited.fullmatch(text) == expected(pattern, flags, text)
        if not whole.is_empty:
            is_alive_together(whole, visited, text.encode())


@pytest.mark.parametrize("pattern", ["(?:(?:a{1,3}b?){3}){0,3}", "(?:(?:(?:a{1,3}b?)){3}){0,3}a?"])
@pytest.mark.parametrize("text", ["aaba", "aba", "aaa", "aabaaba", "b"])
def test_repeats_in_repeats_in_repeats_agree_with_re(pattern: str, text: str) -> None:
    assert lazy(pattern).fullmatch(text) == expected(pattern, 0, text)


@pytest.mark.long
@settings(max_examples=300 if EXHAUSTIVE else 30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["a", "b", "[ab]", "(?:a|bb)", "(?:ab?){0,2}", "(?:a{1,3}b?)", r"\b", "(?:^|a)", "(?:b$|b)"]
            ),
            st.sampled_from(["", "{0,4}", "{2,5}", "{3,}", "{0,3}?", "{1,2}", "{3}", "*"]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.lists(st.text("ab", max_size=12), min_size=1, max_size=10),
)
def test_counted_repeats_agree_with_re(parts: list[tuple[str, str]], nested: bool, texts: list[str]) -> None:
    pattern = "".join(f"(?:{part}){count}" for part, count in parts)
    if nested:
        pattern = f"(?:{pattern}){{0,3}}a?"
    visited = lazy(pattern)
    whole = compile_pattern(pattern)
    for text in texts:
        assert visited.fullmatch(text) == whole.fullmatch(text) == expected(pattern, 0, text)


@pytest.mark.parametrize("pattern", LARGE)
def test_large_patterns_are_visited(pattern: str) -> None:
    found = compile_automaton(pattern)
    assert isinstance(found, LazyDfa)
    rng = random.Random(0)
    for _ in range(30):
        text = "".join(rng.choice("ab019 .-/(xDarwinMac\"'=éfokey") for _ in range(rng.randrange(60)))
        assert found.fullmatch(text) == expected(pattern, 0, text)
    for text in (
        "",
        " Darwin/1(Macx",
        " Darwin/12 (iMac, x",
        "a" + "b" * 30,
        "12b",
        "key = 'x",
        "foo é x",
        "-iPad/3 CFNetwork",
    ):
        assert found.fullmatch(text) == expected(pattern, 0, text)


@pytest.mark.parametrize("pattern", [*LARGE, r"[\w.-]{0,50}?(?:ключ|键)[^a]", "é|🙂a"])
@pytest.mark.parametrize("count", [1, 12, 400])
def test_many_steps_together_are_the_steps_one_by_one(pattern: str, count: int) -> None:
    visited, rng = lazy(pattern), random.Random(count)
    states, text = [visited.start()], "key😀é🙂 ключ键 Darwin/9".encode()
    for begin in range(len(text)):
        state: State | None = visited.start()
        for byte in text[begin:]:
            state = None if state is None else visited.step(state, byte)
            states += [state] if state is not None else []
    which = np.array([rng.randrange(len(states)) for _ in range(count)])
    read = np.array([rng.choice([*text, rng.randrange(256)]) for _ in range(count)], dtype=np.uint8)
    reached, index = visited.steps(states, which, read)
    expected_states = [visited.step(states[at], byte) for at, byte in zip(which.tolist(), read.tolist(), strict=True)]
    assert [None if at < 0 else reached[at] for at in index.tolist()] == expected_states


@pytest.mark.parametrize("pattern", [r"[a-z]{1,200}", r"(?:ab|cd){2,40}x", r"\w+@\w+\.com", r"^a\b.{0,3}$", "yes|no"])
def test_small_patterns_are_built_whole(pattern: str) -> None:
    assert isinstance(compile_automaton(pattern), Dfa)


def test_a_construction_ends_where_the_states_have_many_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = []
    original = subsets.Subsets.targets
    monkeypatch.setattr(subsets.Subsets, "targets", lambda *given: visited.append(given) or original(*given))
    found = compile_automaton(SEARCH)
    assert isinstance(found, LazyDfa)
    tried = len(visited)
    assert compile_pattern(SEARCH).states > 4 * tried
    for text in ("", "abword", "- abword -", "a bword", "hhwor"):
        assert found.fullmatch(text) == expected(SEARCH, 0, text)


@pytest.mark.extras
@pytest.mark.skipif(load_kernels() is None, reason="no compiled kernels are installed")
@pytest.mark.parametrize(
    "pattern",
    [*LARGE, SEARCH, r"[a-z]{1,200}", r"(?:a|b|cd|ef|gh|ij|kl|mn)*x(?:ab|cd|ef|gh)y", r"(?:a|b)*a(?:a|b){9}(?:xy){9}"],
)
def test_which_of_the_two_it_is_does_not_depend_on_kernels(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_kernels = compile_automaton(pattern)
    monkeypatch.setattr("logitloom.automata.deterministic.determinize.automaton_kernels", lambda work=0: None)
    without = compile_automaton(pattern)
    assert type(without) is type(with_kernels)
    assert without.fingerprint == with_kernels.fingerprint


def test_states_are_equal_in_every_process() -> None:
    program = (
        "from logitloom.automata import compile_automaton\n"
        "a = compile_automaton(r'.{0,100} Darwin/\\d.{0,100}\\((?:Mac|iMac).{0,100}x\\b')\n"
        "s = a.start()\n"
        "for byte in ' Darwin/1 é( Darwi é'.encode()[:-1]: s = a.step(s, byte)\n"
        "print(s, a.fingerprint)\n"
    )
    run = [sys.executable, "-c", program]
    outputs = {
        subprocess.run(run, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in "12"
    }
    assert len(outputs) == 1
    assert "b'" in outputs.pop()


def test_equal_patterns_have_equal_fingerprints() -> None:
    assert lazy("a{3,9}").fingerprint == lazy("a{3,9}").fingerprint
    others = ["a{3,8}", "a{3,9}?b", "[ab]{3,9}", r"[a-]{3,9}\b"]
    assert len({lazy(pattern).fingerprint for pattern in ["a{3,9}", *others]}) == 5


def test_repeats_that_overlap_keep_small_sets() -> None:
    """Ten thousand positions; after any text two of them say all there is to say."""
    automaton = lazy(r"(\d{0,100}){0,100}b")
    state = automaton.start()
    for byte in b"1" * 150:
        state = automaton.step(state, byte)
        assert len(state) <= 4 * 4


def test_too_many_positions_are_refused() -> None:
    with pytest.raises(BudgetExceeded, match=r"takes more than 1000 positions\."):
        compile_automaton(r".{0,1001}", budget=Budget(states=1000))
    assert isinstance(compile_automaton(r"(?:.a?){0,400}x", budget=Budget(states=1000)), LazyDfa | Dfa)


def test_a_target_that_many_characters_share_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    united: list[int] = []

    def noted(positions: frozenset[int], order: RedundantCopies) -> frozenset[int]:
        united.append(len(positions))
        return undominated(positions, order)

    undominated = subsets._undominated
    monkeypatch.setattr(subsets, "_undominated", noted)
    pairs = "|".join(f"[a{letter}][b{letter}]" for letter in "cdefghijklmn")
    automaton = lazy(f"(?:{pairs}){{0,9}}z")
    state = automaton.step(automaton.start(), ord("a"))
    united.clear()
    assert state is not None
    assert all(automaton.step(state, byte) is not None for byte in b"bcdefghijklmn")
    # After the second character of any pair come the first characters, or the end.
    assert united == [13]
