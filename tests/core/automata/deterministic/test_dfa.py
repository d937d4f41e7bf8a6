"""The table form of an automaton: shapes, trimming, fingerprints."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom.automata import Dfa, compile_pattern


def letters(*used: str) -> np.ndarray:
    byte_class = np.full(256, len(used), dtype=np.uint8)
    byte_class[[ord(c) for c in used]] = range(len(used))
    return byte_class


def test_dead_and_unreachable_states_are_trimmed() -> None:
    table = [[1, 2, -1], [1, -1, -1], [2, 2, 2], [0, 1, -1]]
    dfa = Dfa(letters("a", "b"), table, [False, True, False, True]).trimmed()
    assert dfa.states == 2
    assert dfa.fullmatch("aa")
    assert not dfa.fullmatch("b")


def test_an_automaton_that_accepts_nothing_keeps_its_start() -> None:
    dfa = Dfa(letters("a"), [[0, -1]], [False])
    assert dfa.is_empty
    assert dfa.trimmed().states == 1
    assert dfa.trimmed().shortest() is None


def test_tables_cannot_be_changed() -> None:
    dfa = compile_pattern("a")
    with pytest.raises(ValueError, match="read-only"):
        dfa.next[0, 0] = 1


def test_disagreeing_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shapes \(256,\), \(1, 1\), \(2,\)"):
        Dfa(letters(), [[0]], [True, False])


def test_fingerprints_tell_tables_apart() -> None:
    patterns = ["a", "b", "ab", "a*", "a+", "[ab]", "(?:a|b)*", "é", ".", ""]
    assert len({compile_pattern(p, minimal=True).fingerprint for p in patterns}) == len(patterns)
    assert compile_pattern("a+b").fingerprint == compile_pattern("a+b").fingerprint


@pytest.mark.parametrize(("pattern", "length"), [("a{3}|b{2}", 2), ("", 0), ("é", 2), (r"(foo|fo)+bar?", 4)])
def test_a_shortest_text_is_accepted_and_shortest(pattern: str, length: int) -> None:
    dfa = compile_pattern(pattern)
    text = dfa.shortest()
    assert text is not None
    assert len(text) == length
    assert dfa.fullmatch(text)


def test_texts_without_an_encoding_are_not_accepted() -> None:
    assert not compile_pattern("(?s).*").fullmatch("a\ud800")
