"""The trie of a vocabulary holds every prefix once, and knows what occurs below it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata.lift.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED, Trie, vocabulary_trie
from logitloom.vocabulary import Vocabulary
from tests.core.automata.vocabularies import mixed, smollm2

TOKENS = st.lists(
    st.one_of(
        st.binary(max_size=4), st.text("ab é€😀\n", max_size=5).map(str.encode), st.binary(min_size=8, max_size=20)
    ),
    min_size=1,
    max_size=30,
)


def prefixes(trie: Trie) -> list[bytes]:
    found = [b""]
    for node in range(1, trie.nodes):
        found.append(found[trie.parent[node]] + bytes([trie.byte[node]]))
    return found


def contents(rest: bytes) -> int:
    """What the marks of a node must say about one continuation that begins between two characters."""
    marks, position = 0, 0
    while position < len(rest):
        for size in (1, 2, 3, 4):
            piece = rest[position : position + size]
            try:
                character = piece.decode()
            except UnicodeDecodeError:
                continue
            if len(character) == 1:
                break
        else:
            left = rest[position:]
            starts = any(
                (left + tail)[:4].decode(errors="ignore")[:1] and _decodes(left + tail)
                for tail in (b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0", b"\xa0\x80", b"\x90\x80", b"\x90\x80\x80")
            )
            return marks | (HIGH_PARTIAL if starts else MALFORMED)
        if ord(character) >= 128:
            marks |= HIGH_WORD if re.match(r"\w", character) else HIGH_OTHER
        position += size
    return marks


def _decodes(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def check(vocabulary: Vocabulary) -> None:
    trie = Trie(vocabulary)
    tokens = vocabulary.token_bytes
    order = sorted((i for i in range(vocabulary.size) if tokens[i]), key=lambda i: (tokens[i], i))
    assert trie.order.tolist() == order
    assert trie.textless.tolist() == [i for i in range(vocabulary.size) if not tokens[i]]
    found = prefixes(trie)
    assert sorted(found) == sorted({tokens[i][:n] for i in order for n in range(len(tokens[i]) + 1)})
    for node in range(trie.nodes):
        begin, count = trie.child_start[node], trie.child_count[node]
        assert (trie.parent[begin : begin + count] == node).all()
        assert np.count_nonzero(trie.parent[1:] == node) == count
        below = [tokens[i] for i in trie.order[trie.first[node] : trie.last[node]]]
        assert below == [tokens[i] for i in order if tokens[i].startswith(found[node])]
        assert [t for t in below if t == found[node]] == below[: trie.own[node] - trie.first[node]]
        rests = [t[len(found[node]) :] for t in below]
        characters = [sum(byte & 0xC0 != 0x80 for byte in rest) for rest in rests]
        assert trie.height[node] == max(characters, default=0)
        bits = int(trie.low[node]) | int(trie.high[node]) << 64
        assert bits == sum(1 << c for c in {c for rest in rests for c in rest if c < 128})
        if _between_characters(found[node]):
            expected = 0
            for rest in rests:
                expected |= contents(rest)
            # Marks may say more than there is below a malformed sequence, never less.
            assert expected & ~int(trie.marks[node]) == 0, (found[node], rests)
            assert (expected & MALFORMED) == (int(trie.marks[node]) & MALFORMED)


def _between_characters(prefix: bytes) -> bool:
    try:
        prefix.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(TOKENS)
def test_random_vocabularies(tokens: list[bytes]) -> None:
    if any(tokens):
        check(Vocabulary(tokens))


def test_a_mixed_vocabulary() -> None:
    check(mixed())


@pytest.mark.extras
def test_a_real_vocabulary_is_sorted_and_complete() -> None:
    vocabulary = smollm2()
    trie = Trie(vocabulary)
    tokens = vocabulary.token_bytes
    order = sorted((i for i in range(vocabulary.size) if tokens[i]), key=lambda i: (tokens[i], i))
    assert trie.order.tolist() == order
    assert trie.nodes == len({t[:n] for t in tokens for n in range(len(t) + 1)})


def test_the_trie_of_a_vocabulary_is_built_once() -> None:
    vocabulary = Vocabulary([b"a", b"b"])
    assert vocabulary_trie(vocabulary) is vocabulary_trie(vocabulary)


@pytest.mark.parametrize("byte", [0, 97, 255])
def test_single_bytes_are_found(byte: int) -> None:
    trie = Trie(mixed())
    assert mixed().token_bytes[trie.single[byte]] == bytes([byte])
