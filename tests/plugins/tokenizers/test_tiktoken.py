from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.vocabulary import Vocabulary
from logitloom_plugins.tokenizers.tiktoken import TiktokenReader

tiktoken = pytest.importorskip("tiktoken", reason="needs the tiktoken library")

pytestmark = pytest.mark.extras

Check = Any


@pytest.fixture(scope="module")
def ranks(mistral_data: Path) -> dict[bytes, int]:
    def entry(found: dict[str, Any]) -> Any:
        # As dictionaries, the entries take 80 MB more.
        return (b64decode(found["token_bytes"]), found["rank"]) if "token_bytes" in found else found

    return dict(json.loads((mistral_data / "tekken_240718.json").read_text(), object_hook=entry)["vocab"][:120_000])


@pytest.fixture(scope="module")
def encoding(ranks: dict[bytes, int]) -> Any:
    special = {"<|endoftext|>": 120_000, "<|fim_prefix|>": 120_001, "<|return|>": 120_010}
    return tiktoken.Encoding("tekken-ranks", pat_str=r"\s?\S+|\s+", mergeable_ranks=ranks, special_tokens=special)


@pytest.fixture(scope="module")
def vocabulary(encoding: Any) -> Vocabulary:
    found = TiktokenReader().vocabulary(encoding)
    assert found is not None
    return found


def test_every_token_agrees_with_decode(
    encoding: Any, vocabulary: Vocabulary, ranks: dict[bytes, int], check_every_token: Check
) -> None:
    assert check_every_token(vocabulary, encoding.decode, anchor=ranks[b"a"]) == len(ranks)
    assert all(vocabulary.token_bytes[rank] == data for data, rank in ranks.items())


def test_end_names_are_eos_and_holes_are_special(vocabulary: Vocabulary) -> None:
    assert vocabulary.size == 120_011
    assert vocabulary.eos == (120_010, 120_000)
    assert vocabulary.special == frozenset(range(120_000, 120_011))
    assert vocabulary.describe(120_001) == "<|fim_prefix|>"
    assert vocabulary.describe(120_005) == "<id 120005>"


@given(text=st.text())
def test_text_comes_back(encoding: Any, vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.decode(encoding.encode_ordinary(text)) == text


def test_a_special_token_spelled_like_an_ordinary_one_leaves_it_text() -> None:
    ranks = {bytes([b]): b for b in range(256)} | {b"<s": 256, b"<s>": 257}
    encoding = tiktoken.Encoding("twice", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<s>": 258})
    vocabulary = TiktokenReader().vocabulary(encoding)
    assert vocabulary is not None
    assert vocabulary.token_bytes[257] == b"<s>"
    assert vocabulary.special == {258}


def test_ranks_with_holes_leave_special_ids() -> None:
    ranks = {bytes([b]): b for b in range(256)} | {b"ab": 300}
    encoding = tiktoken.Encoding("holes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})
    vocabulary = TiktokenReader().vocabulary(encoding)
    assert vocabulary is not None
    assert vocabulary.size == 301
    assert vocabulary.token_bytes[300] == b"ab"
    assert vocabulary.special == frozenset(range(256, 300))
    assert vocabulary.eos == ()
