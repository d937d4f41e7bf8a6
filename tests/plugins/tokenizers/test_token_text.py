from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom_plugins.tokenizers._token_text import byte_fallback, byte_level, complete_utf8


@pytest.mark.extras
@given(st.lists(st.text()))
def test_the_byte_alphabet_is_the_one_of_the_tokenizers_library(texts: list[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the tokenizers library as the oracle")
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    written = ["".join(part for part, _ in split.pre_tokenize_str(text)) for text in texts]
    assert byte_level(written) == [text.encode() for text in texts]


@pytest.mark.extras
def test_every_byte_has_one_character_of_the_alphabet() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the tokenizers library as the oracle")
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    assert sorted(byte_level(alphabet)) == [bytes([b]) for b in range(256)]


def test_a_token_with_a_foreign_character_stands_for_itself() -> None:
    assert byte_level(["Ġé日", "a b", "", "Ġa"]) == ["Ġé日".encode(), b"a b", b"", b" a"]


@pytest.mark.parametrize("byte", range(256))
def test_byte_fallback_reads_both_cases(byte: int) -> None:
    assert byte_fallback(f"<0x{byte:02X}>") == byte_fallback(f"<0x{byte:02x}>") == bytes([byte])


@pytest.mark.parametrize("token", ["<0x0>", "<0x000>", "0x0A", "<0X0A>", "<0xGG>", " <0x0A>", ""])
def test_other_tokens_are_no_bytes(token: str) -> None:
    assert byte_fallback(token) is None


@given(st.binary(max_size=6))
def test_complete_utf8_means_text_that_comes_back(data: bytes) -> None:
    assert complete_utf8(data) == (data != b"" and data.decode("utf-8", "ignore").encode() == data)
