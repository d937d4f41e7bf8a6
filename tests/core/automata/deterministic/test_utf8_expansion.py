"""Tables that are filled where they are read say what they say when they are filled at once."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom.automata import compile_pattern
from logitloom.automata.deterministic import utf8_expansion
from logitloom.automata.lift.dense_table import DenseTable
from logitloom.automata.lift.level_walk import level_walk
from logitloom.automata.lift.trie import vocabulary_trie
from tests.core.automata.vocabularies import mixed

LARGE = [r"\w{1,12}", ".{0,40}x", r"[\w .]{2,9}\. \w*", "(é|a){7}[^z]{3}", r"(\d{1,4}\w?){5}"]


@pytest.mark.parametrize("pattern", LARGE)
def test_rows_read_one_by_one_are_those_of_the_whole_table(pattern: str) -> None:
    lazy, whole = compile_pattern(pattern), compile_pattern(pattern)
    table = whole.next
    assert lazy.characters is not None
    # States between bytes are filled together with the states before them, so those are asked for.
    for state in range(len(lazy.characters.characters)):
        row = lazy.rows(np.array([state]))[state]
        assert row.tolist() == table[state].tolist()
        for inner in row[row >= len(lazy.characters.characters)].tolist():
            assert lazy.rows(np.array([inner]))[inner].tolist() == table[inner].tolist()
    assert np.array_equal(lazy.next, table)
    assert not lazy.next.flags.writeable
    assert lazy.fingerprint == whole.fingerprint


@pytest.mark.parametrize("pattern", LARGE)
def test_walking_text_fills_what_it_needs(pattern: str) -> None:
    lazy, whole = compile_pattern(pattern), compile_pattern(pattern)
    table = whole.by_byte
    for text in ("é" * 8, "aéb1", "日本語x", "1a2b3é", "ab. é", "aaaaaaaq日q"):
        state, expected = lazy.start, whole.start
        for byte in text.encode():
            state = lazy.walk(bytes([byte]), state)
            expected = int(table[expected, byte])
            assert state == expected
            if state < 0:
                break


def test_a_first_row_touches_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    fill = utf8_expansion.Utf8Expansion._fill
    monkeypatch.setattr(
        utf8_expansion.Utf8Expansion, "_fill", lambda self, state: (filled.append(state), fill(self, state))[1]
    )
    dfa = compile_pattern(r"ab: \w{200}")
    assert dfa.states > 50_000
    trie = vocabulary_trie(mixed())
    level_walk(trie, DenseTable(dfa, trie), [(0, dfa.start)])
    assert len(filled) <= 6
