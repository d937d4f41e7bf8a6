"""Code points become exactly their encodings, and nothing else is ever text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import any_text, compile_pattern
from logitloom.automata.compilation_budget import BudgetTracker
from logitloom.automata.patterns.char_sets import CharSet, category, normalized
from logitloom.automata.patterns.utf8 import DEAD, byte_sequences, high_partition

EDGES = [
    0,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xFFF,
    0x1000,
    0xD7FF,
    0xE000,
    0xFFFF,
    0x10000,
    0x3FFFF,
    0x40000,
    0xFFFFF,
    0x10FFFF,
]


def is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def expanded(low: int, high: int) -> list[bytes]:
    return [
        bytes(combination)
        for sequence in byte_sequences(low, high)
        for combination in itertools.product(*[range(first, last + 1) for first, last in sequence])
    ]


@given(st.sampled_from(EDGES), st.integers(-70, 70), st.integers(0, 300))
def test_a_range_expands_to_the_encodings_of_its_characters(edge: int, offset: int, length: int) -> None:
    low = min(max(edge + offset, 0), 0x10FFFF)
    high = min(low + length, 0x10FFFF)
    points = [p for p in range(low, high + 1) if not 0xD800 <= p < 0xE000]
    assert expanded(low, high) == [chr(p).encode() for p in points]


def test_the_range_of_everything_has_nine_sequences() -> None:
    assert len(list(byte_sequences(0, 0x10FFFF))) == 9
    assert not list(byte_sequences(0xD800, 0xDFFF))


@given(
    st.lists(st.sampled_from([0x41, 0x80, 0xBF, 0xA0, 0x9F, 0x8F, 0x90, *range(0xBE, 0x100)]), max_size=5).map(bytes)
)
def test_text_is_what_decodes(data: bytes) -> None:
    assert any_text().fullmatch(data) == is_text(data)
    assert compile_pattern("(?s).*").fullmatch(data) == is_text(data)


@pytest.mark.parametrize("prefix", [b"", b"\xe0", b"\xed", b"\xf0\x90", b"\xf4", b"\xf1\x80"])
def test_every_short_continuation_is_judged_as_the_decoder_does(prefix: bytes) -> None:
    text = any_text()
    for tail in itertools.chain.from_iterable(itertools.product(range(0x7E, 0x100), repeat=n) for n in (1, 2)):
        data = prefix + bytes(tail)
        assert text.fullmatch(data) == is_text(data), data


def test_no_set_contains_surrogates() -> None:
    assert not compile_pattern("[\ud700-\ue100]").fullmatch(b"\xed\xa0\x80")
    assert not compile_pattern("[^a]").fullmatch("\ud800")
    assert compile_pattern("\ud800").is_empty
    assert compile_pattern("a|\ud800b").fullmatch("a")


@given(
    st.characters(exclude_categories=["Cs"]),
    st.characters(exclude_categories=["Cs"]),
    st.characters(exclude_categories=["Cs"]),
)
def test_ranges_and_their_negation_split_all_characters(low: str, high: str, char: str) -> None:
    low, high = min(low, high), max(low, high)
    inside = compile_pattern(f"[\\U{ord(low):08x}-\\U{ord(high):08x}]")
    outside = compile_pattern(f"[^\\U{ord(low):08x}-\\U{ord(high):08x}]")
    assert inside.fullmatch(char) == (low <= char <= high)
    assert outside.fullmatch(char) == (not low <= char <= high)


@pytest.mark.parametrize("groups", [(0, 0, 0), (0, DEAD, 1), (DEAD, 0, DEAD), (1, 0, 1), (DEAD, DEAD, DEAD)])
def test_a_shape_leads_each_character_to_the_group_of_its_class(groups: tuple[int, ...]) -> None:
    word = category("w", 0).high
    astral = normalized([(0x1F000, 0x1FFFF), (0x2000, 0x20FF)])
    partition = high_partition(frozenset([word, astral]), BudgetTracker())
    assert partition.classes == 3  # both, one, the other
    nodes, root = partition.shape(groups)
    in_both = set(partition.members[word]) & set(partition.members[astral])
    of_kind = {(True, True): in_both, (True, False): set(partition.members[word]) - in_both}
    of_kind[False, True] = set(partition.members[astral]) - in_both
    for point in [*range(0x80, 0xD800, 97), *range(0xE000, 0x110000, 997), *range(0x1F000, 0x1FFFF, 97)]:
        kind = CharSet(0, word).contains(point), CharSet(0, astral).contains(point)
        expected = DEAD if kind == (False, False) else groups[min(of_kind[kind])]
        code = None
        for byte in chr(point).encode():
            row = root if code is None else nodes[code]
            code = int(row[partition.column_of[byte - 0x80]])
            if code < 0:
                break
        assert code == (DEAD if expected == DEAD else -2 - expected), hex(point)
