"""Reads ``sentencepiece.SentencePieceProcessor`` objects."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.tokenizers._agreement import require_agreement
from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers._token_text import SPACE_MARK, byte_fallback

__all__ = ["SentencePieceReader"]


class SentencePieceReader:
    """Turns a loaded ``SentencePieceProcessor`` into a vocabulary.

    SentencePiece drops the space of the first piece of a text. The table holds what a piece adds in the
    middle of a text, as in generation after a prompt: ``▁the`` is ``b" the"``. Byte pieces (``<0x0A>``) are
    their byte. Control, unknown and unused pieces are special; user-defined pieces are text.
    """

    def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
        """Read a processor.

        Args:
            tokenizer: any object.

        Returns:
            The vocabulary, or None if the object is no ``SentencePieceProcessor``.

        Raises:
            VocabularyError: if no model is loaded, or if the model rewrites text when it decodes (a
                denormalizer), so that its pieces have no bytes of their own.
        """
        if not comes_from(tokenizer, "sentencepiece", "SentencePieceProcessor"):
            return None
        size = tokenizer.get_piece_size()
        if size == 0:
            raise VocabularyError("The SentencePieceProcessor has no pieces. Load a model into it first.")
        ids = list(range(size))
        pieces: list[str] = tokenizer.id_to_piece(ids)
        silent = zip(tokenizer.is_control(ids), tokenizer.is_unknown(ids), tokenizer.is_unused(ids), strict=True)
        special = [i for i, kinds in enumerate(silent) if any(kinds)]
        table = [piece.replace(SPACE_MARK, " ").encode() for piece in pieces]
        for i, is_byte in enumerate(tokenizer.is_byte(ids)):
            if is_byte:
                table[i] = byte_fallback(pieces[i]) or b""
        eos = tokenizer.eos_id()
        vocabulary = Vocabulary(
            table,
            eos=[eos] if eos >= 0 else [],
            special=special,
            special_text={i: pieces[i] for i in special},
            name="SentencePiece model",
        )
        return require_agreement(vocabulary, tokenizer.decode)

    def encode_text(self, tokenizer: Any, text: str) -> list[int] | None:
        """The ids of a text, as the model's own options say; None if the object is no ``SentencePieceProcessor``."""
        if not comes_from(tokenizer, "sentencepiece", "SentencePieceProcessor"):
            return None
        ids: list[int] = tokenizer.encode(text)
        return ids

    def vocabulary_version(self, tokenizer: Any) -> Hashable | None:
        """The model that is loaded, as a digest; None if the object is no ``SentencePieceProcessor``."""
        if not comes_from(tokenizer, "sentencepiece", "SentencePieceProcessor"):
            return None
        return hashlib.blake2b(tokenizer.serialized_model_proto()).digest()
