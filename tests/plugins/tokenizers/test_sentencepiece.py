from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

spm = pytest.importorskip("sentencepiece", reason="needs the sentencepiece library")

pytestmark = pytest.mark.extras

Check = Any

MODELS = [
    "tokenizer.model.v1",
    "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_instruct_tokenizer_241114.model.v7m1",
]


@pytest.fixture(scope="module", params=MODELS)
def processor(request: pytest.FixtureRequest, mistral_data: Path) -> Any:
    return spm.SentencePieceProcessor(model_file=str(mistral_data / request.param))


@pytest.fixture(scope="module")
def vocabulary(processor: Any) -> Vocabulary:
    found = SentencePieceReader().vocabulary(processor)
    assert found is not None
    return found


def trained(corpus: list[str], **options: Any) -> Any:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, minloglevel=2, hard_vocab_limit=False, **options
    )
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def pieces_that_agree(processor: Any, check_every_token: Check) -> int:
    vocabulary = SentencePieceReader().vocabulary(processor)
    assert vocabulary is not None
    assert vocabulary.size == processor.get_piece_size()
    assert all(processor.is_control(i) or processor.is_unknown(i) or processor.is_unused(i) for i in vocabulary.special)
    anchor = next(i for i, data in enumerate(vocabulary.token_bytes) if data.strip(b" ").isalpha() and data.isascii())
    return int(check_every_token(vocabulary, processor.decode, anchor=anchor))


@pytest.mark.long
def test_every_piece_of_the_mistral_models_agrees_with_decode(processor: Any, check_every_token: Check) -> None:
    assert pieces_that_agree(processor, check_every_token) > 31_000


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "vocab_size": 500, "byte_fallback": True},
        {"model_type": "bpe", "vocab_size": 500, "byte_fallback": True},
        {"model_type": "char", "vocab_size": 200},
        {"model_type": "word", "vocab_size": 60},
        {
            "model_type": "unigram",
            "vocab_size": 400,
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
        },
        {"model_type": "bpe", "vocab_size": 400, "user_defined_symbols": ["<tool>", "▁▁▁", "naïve"]},
        {"model_type": "unigram", "vocab_size": 400, "control_symbols": ["<think>"], "pad_id": 3},
    ],
    ids=str,
)
def test_every_piece_of_a_trained_model_agrees_with_decode(
    options: dict[str, Any], corpus: list[str], check_every_token: Check
) -> None:
    assert pieces_that_agree(trained(corpus, **options), check_every_token) > 40


def test_a_space_belongs_to_the_piece_in_the_middle_of_a_text(processor: Any, vocabulary: Vocabulary) -> None:
    the = processor.piece_to_id("▁the")
    assert vocabulary.token_bytes[the] == b" the"
    assert processor.decode([the]) == "the"


def test_byte_pieces_are_bytes_and_control_pieces_are_special(processor: Any, vocabulary: Vocabulary) -> None:
    assert vocabulary.token_bytes[processor.piece_to_id("<0x0A>")] == b"\n"
    assert vocabulary.token_bytes[processor.piece_to_id("<0xFF>")] == b"\xff"
    assert vocabulary.eos == (processor.eos_id(),)
    assert {0, 1, 2} <= vocabulary.special
    assert vocabulary.describe(2) == "</s>"


@given(text=st.text())
def test_text_comes_back(processor: Any, vocabulary: Vocabulary, text: str) -> None:
    ids = processor.encode(text)
    written = processor.decode(ids, out_type=bytes) or b""
    assert vocabulary.text_bytes(ids) in (written, b" " + written)


def test_a_processor_without_model_is_an_error() -> None:
    with pytest.raises(VocabularyError, match=r"has no pieces\. Load a model"):
        SentencePieceReader().vocabulary(spm.SentencePieceProcessor())


def test_a_model_that_rewrites_its_output_is_refused(corpus: list[str], tmp_path: Path) -> None:
    rules = tmp_path / "rules.tsv"
    rules.write_text("65\t62\n")  # e becomes b whenever a text is decoded
    processor = trained(corpus, model_type="char", vocab_size=200, denormalization_rule_tsv=str(rules))
    with pytest.raises(VocabularyError, match="not the concatenation of its tokens"):
        SentencePieceReader().vocabulary(processor)
