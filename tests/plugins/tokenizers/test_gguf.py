from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.tokenizers.gguf import GGUFReader
from logitloom_plugins.tokenizers.huggingface import HuggingFaceReader
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

gguf = pytest.importorskip("gguf", reason="needs the package gguf to write and open files")

pytestmark = pytest.mark.extras

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def read(tokenizer: Any) -> Vocabulary:
    vocabulary = GGUFReader().vocabulary(tokenizer)
    assert vocabulary is not None
    return vocabulary


def written(
    path: Path,
    tokens: list[str],
    types: list[int] | None,
    *,
    model: str | None = "llama",
    ends: dict[str, int] | None = None,
    endian: Any = None,
) -> Path:
    """A file with a vocabulary and no tensors, as converters write it."""
    writer = gguf.GGUFWriter(str(path), "llama", endianess=endian or gguf.GGUFEndian.LITTLE)
    writer.add_float32("before.number", 1.5)
    writer.add_array("before.names", ["a", "b"])
    if model is not None:
        writer.add_tokenizer_model(model)
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
    if types is not None:
        writer.add_token_types(types)
    for name, number in (ends or {}).items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_file_and_its_transformers_tokenizer_give_the_same_table(
    smollm2_file: Path, smollm2_tokenizer: Any
) -> None:
    from_file = read(smollm2_file)
    from_transformers = HuggingFaceReader().vocabulary(smollm2_tokenizer)
    assert from_transformers is not None
    assert from_file.token_bytes == from_transformers.token_bytes
    assert from_file.special == from_transformers.special
    assert from_file.special_text == from_transformers.special_text
    assert from_file.eos == from_transformers.eos
    assert from_file.fingerprint == from_transformers.fingerprint


def test_a_path_a_text_and_an_opened_file_give_the_same_table(tmp_path: Path) -> None:
    path = written(tmp_path / "model.GGUF", ["<unk>", "a", "▁b"], [UNKNOWN, NORMAL, NORMAL])
    assert read(path).token_bytes == read(str(path)).token_bytes == (b"", b"a", b" b")
    assert read(gguf.GGUFReader(str(path))).fingerprint == read(path).fingerprint


@pytest.mark.parametrize("version", ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"])
def test_a_converted_sentencepiece_model_keeps_its_table(version: str, mistral_data: Path, tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece", reason="needs the sentencepiece library")
    processor = spm.SentencePieceProcessor(model_file=str(mistral_data / version))
    ids = list(range(processor.get_piece_size()))
    kinds = [
        UNKNOWN
        if processor.is_unknown(i)
        else CONTROL
        if processor.is_control(i)
        else BYTE
        if processor.is_byte(i)
        else NORMAL
        for i in ids
    ]
    path = written(tmp_path / "model.gguf", processor.id_to_piece(ids), kinds, ends={"eos": processor.eos_id()})
    expected = SentencePieceReader().vocabulary(processor)
    assert expected is not None
    assert read(path).fingerprint == expected.fingerprint


def test_types_decide_what_is_text(tmp_path: Path) -> None:
    tokens = ["<unk>", "</s>", "<0x0A>", "▁▁", "<tool>", "[PAD5]", "<0x0B>"]
    types = [UNKNOWN, CONTROL, BYTE, USER_DEFINED, USER_DEFINED, UNUSED, NORMAL]
    vocabulary = read(written(tmp_path / "m.gguf", tokens, types, ends={"eos": 1}))
    assert vocabulary.token_bytes == (b"", b"", b"\n", b"  ", b"<tool>", b"", b"<0x0B>")
    assert vocabulary.special == {0, 1, 5}
    assert vocabulary.describe(5) == "[PAD5]"


def test_user_defined_tokens_of_byte_level_models_are_not_in_the_alphabet(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.gguf", ["Ġa", "é", "é", "Ġ"], [NORMAL, NORMAL, USER_DEFINED, USER_DEFINED], model="gpt2"
    )
    assert read(path).token_bytes == (b" a", b"\xe9", "é".encode(), "Ġ".encode())


def test_all_ends_are_eos_and_the_absent_mark_is_none(tmp_path: Path) -> None:
    tokens, types = ["a", "<end>", "<turn>", "<message>"], [NORMAL, CONTROL, CONTROL, NORMAL]
    vocabulary = read(written(tmp_path / "m.gguf", tokens, types, ends={"eom": 3, "eot": 2, "eos": 1}))
    assert vocabulary.eos == (1, 2, 3)
    assert vocabulary.special == {1, 2, 3}
    assert vocabulary.describe(3) == "<message>"
    without = read(written(tmp_path / "n.gguf", tokens, types, ends={"eos": 2**32 - 1}))
    assert without.eos == ()


def test_files_in_the_other_byte_order_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", ["a", "▁b"], [NORMAL, CONTROL], ends={"eos": 1}, endian=gguf.GGUFEndian.BIG)
    assert read(path).token_bytes == (b"a", b"")
    assert read(path).eos == (1,)


@pytest.mark.parametrize("length", [*range(0, 24, 3), 30, 60, 100, 150])
def test_a_cut_off_file_is_an_error(length: int, tmp_path: Path) -> None:
    whole = written(tmp_path / "m.gguf", ["a", "▁b"], [NORMAL, NORMAL]).read_bytes()
    assert length < len(whole)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[:length])
    remedy = r"Give a whole GGUF file|Give the path of one|Download it again"
    with pytest.raises(VocabularyError, match=rf"cut\.gguf .*({remedy})\.$"):
        GGUFReader().vocabulary(cut)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"could not be read as a GGUF file: .* Give a whole GGUF file"):
        GGUFReader().vocabulary(tmp_path / "missing.gguf")


def test_another_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(VocabularyError, match="does not begin with the letters GGUF"):
        GGUFReader().vocabulary(path)


def test_an_old_version_of_the_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    with pytest.raises(VocabularyError, match="version 1 of the GGUF format; versions 2 and 3"):
        GGUFReader().vocabulary(path)


def test_a_file_without_vocabulary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"has no 'tokenizer\.ggml\.tokens'"):
        GGUFReader().vocabulary(written(tmp_path / "m.gguf", [], None, model=None))


def test_a_file_without_token_types_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="has 0 entries for 2 tokens"):
        GGUFReader().vocabulary(written(tmp_path / "m.gguf", ["a", "b"], None))


def test_an_unknown_kind_of_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="of the kind 'rwkv'"):
        GGUFReader().vocabulary(written(tmp_path / "m.gguf", ["a"], [NORMAL], model="rwkv"))


def test_a_byte_that_is_not_written_as_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="token 1 is declared to be a byte"):
        GGUFReader().vocabulary(written(tmp_path / "m.gguf", ["a", "0A"], [NORMAL, BYTE]))


def test_a_byte_level_token_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", ["xyz", "b"], [NORMAL, NORMAL], model="gpt2")
    path.write_bytes(path.read_bytes().replace(b"xyz", b"x\xffz"))
    with pytest.raises(VocabularyError, match="not written in UTF-8"):
        GGUFReader().vocabulary(path)


def test_an_absurd_length_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", ["xyz", "b"], [NORMAL, NORMAL])
    path.write_bytes(path.read_bytes().replace(struct.pack("<Q", 3) + b"xyz", b"\xff" * 8 + b"xyz"))
    with pytest.raises(VocabularyError, match="is damaged"):
        GGUFReader().vocabulary(path)
