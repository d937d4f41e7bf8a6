"""Vocabularies: exact bytes, special ids, and contradictions refused."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Vocabulary, errors
from logitloom.process_memory import forgotten_after
from logitloom.vocabulary import kept_with_vocabulary

TABLES = st.lists(st.binary(max_size=4), min_size=1, max_size=8).filter(any)


@given(TABLES, st.data())
def test_the_text_of_tokens_is_their_bytes_joined(table, data):
    vocabulary = Vocabulary(table)
    tokens = data.draw(st.lists(st.integers(0, len(table) - 1)))
    assert vocabulary.text_bytes(tokens) == b"".join(table[t] for t in tokens)
    assert vocabulary.text_bytes([*tokens, len(table), -1]) == vocabulary.text_bytes(tokens)
    assert vocabulary.decode(tokens) == vocabulary.text_bytes(tokens).decode("utf-8", "replace")


@given(TABLES)
def test_the_flat_form_holds_the_same_bytes(table):
    vocabulary = Vocabulary(table)
    flat, offsets = vocabulary.flat_bytes, vocabulary.offsets
    assert (flat.dtype, offsets.dtype) == (np.uint8, np.int64)
    assert [flat[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(table))] == table
    assert (vocabulary.size, len(vocabulary)) == (len(table), len(table))
    with pytest.raises(ValueError, match="read-only"):
        flat[...] = 0


@given(TABLES, TABLES)
def test_fingerprints_are_equal_exactly_for_equal_content(a, b):
    assert Vocabulary(a, name="x").fingerprint == Vocabulary(list(a), name="y").fingerprint
    assert (Vocabulary(a).fingerprint == Vocabulary(b).fingerprint) == (a == b)


def test_fingerprints_tell_special_ids_apart():
    table = [b"a", b"", b""]
    prints = {
        Vocabulary(table, eos=e, special=s).fingerprint for e, s in [((), ()), ((1,), ()), ((), (1,)), ((2,), (1,))]
    }
    assert len(prints) == 4


@given(st.lists(st.binary(max_size=6), min_size=1), st.lists(st.binary(min_size=1, max_size=4)))
def test_tokens_that_hold_a_text_are_found_as_one_by_one(table, texts):
    words = Vocabulary([*table, b"a"])
    texts += [text[1:] for text in table if len(text) > 1]
    ids, held = words.tokens_holding(texts)
    assert ids.tolist() == [n for n, token in enumerate(words.token_bytes) if any(text in token for text in texts)]
    assert held == {text for text in texts if any(text in token for token in words.token_bytes)}


def test_special_ids_have_no_bytes_and_ends_are_special():
    vocabulary = Vocabulary([b"a", b"<s>", b"</s>"], eos=[2, 2], special=[1], special_text={2: "</s>"})
    assert vocabulary.token_bytes == (b"a", b"", b"")
    assert vocabulary.eos == (2,)
    assert vocabulary.special == {1, 2}
    assert (vocabulary.describe(2), vocabulary.describe(0), vocabulary.describe(9)) == ("</s>", "'a'", "<id 9>")


@pytest.mark.parametrize("more", [{"eos": [3]}, {"special": [-1]}])
def test_ids_outside_the_table_are_refused(more):
    with pytest.raises(errors.VocabularyError, match=r"has ids 0 to 2 only"):
        Vocabulary([b"a", b"b", b"c"], **more)


def test_a_table_of_texts_is_refused():
    with pytest.raises(errors.VocabularyError, match=r"token 1 is 'b', and not bytes\. Give the bytes of each token"):
        Vocabulary([b"a", "b"])


def test_a_table_without_any_text_is_refused():
    with pytest.raises(errors.VocabularyError, match="tiny: no token has any bytes"):
        Vocabulary([b"", b"x"], special=[1], name="tiny")


def test_incomplete_characters_are_shown_and_decoded():
    vocabulary = Vocabulary([b"\xe2\x82", b"\xac"])
    assert vocabulary.decode([0, 1]) == "€"
    assert vocabulary.decode([0]) == "\ufffd"
    assert vocabulary.describe(0) == r"'\\xe2\\x82'"


def test_of_several_threads_that_ask_for_one_result_one_makes_it() -> None:
    begun, made = threading.Barrier(4), []

    @kept_with_vocabulary
    def slow(vocabulary: Vocabulary) -> list[int]:
        made.append(vocabulary.size)
        time.sleep(0.05)
        return [vocabulary.size]

    words = Vocabulary([b"a", b"b"])

    def ask() -> list[int]:
        begun.wait()
        return slow(words)

    with ThreadPoolExecutor(4) as pool:
        found = [each.result() for each in [pool.submit(ask) for _ in range(4)]]
    assert made == [2]
    assert all(each is found[0] for each in found)


def test_vocabularies_that_are_dropped_within_a_block_leave_no_results_to_later_ones() -> None:
    @kept_with_vocabulary
    def size(vocabulary: Vocabulary) -> int:
        return vocabulary.size

    with forgotten_after():
        assert [size(Vocabulary([b"a"] * count)) for count in range(1, 51)] == [*range(1, 51)]
