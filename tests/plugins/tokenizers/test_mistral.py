from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.tokenizers.mistral import MistralReader
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

pytest.importorskip("mistral_common", reason="needs mistral-common")
from mistral_common.tokens.tokenizers.base import Tokenizer
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

pytestmark = pytest.mark.extras

Check = Any


def read(tokenizer: Any) -> Vocabulary:
    vocabulary = MistralReader().vocabulary(tokenizer)
    assert vocabulary is not None
    return vocabulary


@pytest.fixture(scope="module")
def whole(mistral_data: Path) -> Any:
    return MistralTokenizer.from_file(str(mistral_data / "tekken_240911.json"))


@pytest.fixture(scope="module")
def tekken(whole: Any) -> Any:
    assert isinstance(whole.instruct_tokenizer.tokenizer, Tekkenizer)
    return whole.instruct_tokenizer.tokenizer


@pytest.fixture(scope="module")
def vocabulary(tekken: Any) -> Vocabulary:
    return read(tekken)


def test_every_tekken_token_agrees_with_decode(tekken: Any, vocabulary: Vocabulary, check_every_token: Check) -> None:
    anchor = tekken.encode("a", bos=False, eos=False)[0]
    asked = check_every_token(vocabulary, tekken.decode, anchor=anchor)
    assert asked == tekken.n_words - tekken.num_special_tokens


def test_tekken_control_tokens_are_special_and_write_nothing(tekken: Any, vocabulary: Vocabulary) -> None:
    assert vocabulary.size == 131_072
    assert vocabulary.special == tekken.special_ids
    assert vocabulary.eos == (tekken.eos_id,)
    assert vocabulary.describe(tekken.eos_id) == "</s>"
    assert vocabulary.decode(tekken.encode("text", bos=True, eos=True)) == "text"


@given(text=st.text())
def test_tekken_text_comes_back(tekken: Any, vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.decode(tekken.encode(text, bos=False, eos=False)) == text


def test_wrappers_give_the_table_of_what_they_wrap(whole: Any, vocabulary: Vocabulary) -> None:
    tables = {read(wrapper).fingerprint for wrapper in (whole, whole.instruct_tokenizer)}
    assert tables == {vocabulary.fingerprint}


def test_the_sentencepiece_kind_equals_the_processor(mistral_data: Path) -> None:
    spm = pytest.importorskip("sentencepiece", reason="needs the sentencepiece library")
    path = str(mistral_data / "mistral_instruct_tokenizer_240323.model.v3")
    processor = SentencePieceReader().vocabulary(spm.SentencePieceProcessor(model_file=path))
    assert processor is not None
    assert read(MistralTokenizer.from_file(path)).fingerprint == processor.fingerprint


def test_an_unknown_kind_of_tokenizer_is_an_error() -> None:
    kind: Any = type("Strange", (Tokenizer,), {})
    kind.__abstractmethods__ = frozenset()
    with pytest.raises(VocabularyError, match="Strange is not a known kind"):
        MistralReader().vocabulary(kind())


def test_other_objects_of_the_library_are_not_tokenizers(tekken: Any) -> None:
    assert MistralReader().vocabulary(tekken.version) is None
