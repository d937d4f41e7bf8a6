"""Tokenizer readers, with tokenizers that are made on the spot."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logitloom.testing import VocabularyConformance

_CORPUS = ["a few words, 1234 and naïve café", "日本語のテキスト", "tab\tand  spaces 🚀 words words few"] * 8

#: Byte strings by rank: every byte, and a few merges, one of them inside a character.
_RANKS = {bytes([i]): i for i in range(256)} | {b"wo": 256, b"rd": 257, b"word": 258, b"\xe6\x97": 259}
_PATTERN = r"\s?\S+|\s+"


class _WithFolder(VocabularyConformance):
    """Readers of files need a folder."""

    @pytest.fixture(autouse=True)
    def _make_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path


def _byte_pairs() -> Any:
    """Byte-level byte-pair encoding."""
    library = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    made = library.ByteLevelBPETokenizer()
    made.train_from_iterator(_CORPUS, vocab_size=400, special_tokens=["</s>"], show_progress=False)
    return made._tokenizer


def _pieces() -> bytes:
    """The bytes of a SentencePiece model with byte fallback."""
    library = pytest.importorskip("sentencepiece", reason="needs the package sentencepiece")
    model = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(_CORPUS), model_writer=model, minloglevel=2, hard_vocab_limit=False,
        model_type="bpe", vocab_size=400, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=False,
    )  # fmt: skip
    return model.getvalue()


class _File(os.PathLike[str]):
    """The path of a GGUF file, and the tokenizer that it was written from."""

    def __init__(self, path: Path, origin: Any) -> None:
        self.path, self.origin = path, origin

    def __fspath__(self) -> str:
        return str(self.path)


def _gguf(path: Path, origin: Any, model: str, tokens: Sequence[str], types: Sequence[int], eos: int) -> _File:
    """A file with a vocabulary and no tensors, as converters write it."""
    library = pytest.importorskip("gguf", reason="needs the package gguf")
    writer = library.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    writer.add_eos_token_id(eos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return _File(path, origin)


class TestGguf(_WithFolder):
    reader = "gguf"

    def tokenizer(self) -> _File:
        """A file with byte-level byte pairs; type 1 is text, type 3 control."""
        made = _byte_pairs()
        tokens = [made.id_to_token(i) for i in range(made.get_vocab_size())]
        types = [3 if token == "</s>" else 1 for token in tokens]
        return _gguf(self.folder / "pairs.gguf", made, "gpt2", tokens, types, tokens.index("</s>"))

    def encode(self, tokenizer: _File, text: str) -> Sequence[int]:
        """As the library that made the vocabulary."""
        ids: Sequence[int] = tokenizer.origin.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokenizer: _File, ids: Sequence[int]) -> str:
        """As the library that made the vocabulary."""
        return str(tokenizer.origin.decode(list(ids), skip_special_tokens=False))


class TestGgufPieces(_WithFolder):
    reader = "gguf"

    def tokenizer(self) -> _File:
        """A file with SentencePiece pieces; type 2 is unknown, 3 control, 6 a byte."""
        model = _pieces()
        made = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=model)
        ids = range(made.get_piece_size())
        types = [2 if made.is_unknown(i) else 3 if made.is_control(i) else 6 if made.is_byte(i) else 1 for i in ids]
        tokens = [made.id_to_piece(i) for i in ids]
        return _gguf(self.folder / "pieces.gguf", made, "llama", tokens, types, made.eos_id())

    def encode(self, tokenizer: _File, text: str) -> Sequence[int]:
        """As the library that made the vocabulary."""
        ids: Sequence[int] = tokenizer.origin.encode(text)
        return ids

    def decode(self, tokenizer: _File, ids: Sequence[int]) -> str:
        """As the library that made the vocabulary."""
        return str(tokenizer.origin.decode(list(ids)))


class TestHuggingface(VocabularyConformance):
    reader = "huggingface"

    def tokenizer(self) -> Any:
        """Byte-level byte-pair encoding."""
        return _byte_pairs()

    def encode(self, tokenizer: Any, text: str) -> Sequence[int]:
        """Without special ids."""
        ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """As the library tells it."""
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))


class TestMistral(VocabularyConformance):
    reader = "mistral"

    def tokenizer(self) -> Any:
        """Tekken: special ids first, then ranked byte strings."""
        library = pytest.importorskip("mistral_common.tokens.tokenizers.tekken", reason="needs mistral-common")
        versions = pytest.importorskip("mistral_common.tokens.tokenizers.base", reason="needs mistral-common")
        ranked = [
            {"rank": rank, "token_bytes": base64.b64encode(data).decode(), "token_str": None}
            for data, rank in _RANKS.items()
        ]
        special = [
            {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(("<unk>", "<s>", "</s>"))
        ]
        count = 8  # the others are fillers
        version = versions.TokenizerVersion.v3
        return library.Tekkenizer(ranked, special, _PATTERN, len(_RANKS) + count, count, version)

    def encode(self, tokenizer: Any, text: str) -> Sequence[int]:
        """Without special ids."""
        ids: Sequence[int] = tokenizer.encode(text, bos=False, eos=False)
        return ids

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """As the library tells it."""
        return str(tokenizer.decode(list(ids)))


class TestMistralPieces(_WithFolder, TestMistral):
    def tokenizer(self) -> Any:
        """mistral-common's tokenizer over a SentencePiece model; the end of a file's name tells its version."""
        pytest.importorskip("sentencepiece", reason="needs the package sentencepiece")
        library = pytest.importorskip("mistral_common.tokens.tokenizers.sentencepiece", reason="needs mistral-common")
        path = self.folder / "tokenizer.model.v3"
        path.write_bytes(_pieces())
        return library.SentencePieceTokenizer(path)


class TestSentencepiece(VocabularyConformance):
    reader = "sentencepiece"

    def tokenizer(self) -> Any:
        """A SentencePiece model with byte fallback."""
        library = pytest.importorskip("sentencepiece", reason="needs the package sentencepiece")
        return library.SentencePieceProcessor(model_proto=_pieces())

    def encode(self, tokenizer: Any, text: str) -> Sequence[int]:
        """Pieces."""
        ids: Sequence[int] = tokenizer.encode(text)
        return ids

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """As the library tells it."""
        return str(tokenizer.decode(list(ids)))


class TestTiktoken(VocabularyConformance):
    reader = "tiktoken"

    def tokenizer(self) -> Any:
        """Bytes and a few merges."""
        library = pytest.importorskip("tiktoken", reason="needs the package tiktoken")
        special = {"<|endoftext|>": len(_RANKS)}
        return library.Encoding("few", pat_str=_PATTERN, mergeable_ranks=_RANKS, special_tokens=special)

    def encode(self, tokenizer: Any, text: str) -> Sequence[int]:
        """Ordinary ids."""
        ids: Sequence[int] = tokenizer.encode_ordinary(text)
        return ids

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """As the library tells it."""
        return str(tokenizer.decode(list(ids)))


__all__ = [name for name in tuple(globals()) if name.startswith("Test")]
