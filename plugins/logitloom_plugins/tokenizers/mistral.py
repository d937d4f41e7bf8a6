"""Reads the tokenizers of ``mistral-common``: Tekken and SentencePiece, bare or wrapped."""

from __future__ import annotations

from typing import Any

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

__all__ = ["MistralReader"]


class MistralReader:
    """Turns a mistral-common tokenizer into a vocabulary.

    Accepts a ``Tekkenizer``, a ``SentencePieceTokenizer``, the instruct tokenizer around one, a
    ``MistralTokenizer`` around that, and the transformers class around a ``MistralTokenizer``. Tekken ids are
    the special tokens first and the ranks after them.
    """

    def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
        """Read a tokenizer.

        Args:
            tokenizer: any object.

        Returns:
            The vocabulary, or None if the object does not come from mistral-common.

        Raises:
            VocabularyError: if it is a mistral-common tokenizer of a kind that is not known here.
        """
        tokenizer = _innermost(tokenizer)
        if tokenizer is None:
            return None
        if comes_from(tokenizer, "mistral_common", "Tekkenizer"):
            return _tekken(tokenizer)
        if comes_from(tokenizer, "mistral_common", "SentencePieceTokenizer"):
            # The processor is not public, but the public methods cannot tell byte and unused pieces apart.
            vocabulary = SentencePieceReader().vocabulary(getattr(tokenizer, "_model", None))
            if vocabulary is not None:
                return vocabulary
        if comes_from(tokenizer, "mistral_common", "Tokenizer"):
            raise VocabularyError(
                f"mistral-common's {type(tokenizer).__name__} is not a known kind of tokenizer. Give a "
                f"Tekkenizer, a SentencePieceTokenizer or a MistralTokenizer."
            )
        return None

    def encode_text(self, tokenizer: Any, text: str) -> list[int] | None:
        """The ids of a text, after the beginning-of-sequence token; None if it does not come from mistral-common."""
        inner = _innermost(tokenizer)
        if not callable(getattr(inner, "encode", None)):
            return None
        ids: list[int] = inner.encode(text, bos=True, eos=False)
        return ids


def _innermost(tokenizer: Any) -> Any:
    """The tokenizer inside its wrappers; None if it does not come from mistral-common."""
    if comes_from(tokenizer, "transformers", "MistralCommonBackend", "MistralCommonTokenizer"):
        return _innermost(tokenizer.tokenizer)
    if comes_from(tokenizer, "mistral_common", "MistralTokenizer"):
        return _innermost(tokenizer.instruct_tokenizer)
    if comes_from(tokenizer, "mistral_common", "InstructTokenizer"):
        return _innermost(tokenizer.tokenizer)
    return tokenizer if comes_from(tokenizer, "mistral_common") else None


def _tekken(tokenizer: Any) -> Vocabulary:
    """The table of a ``Tekkenizer``."""
    special = sorted(tokenizer.special_ids)
    return Vocabulary(
        [tokenizer.id_to_byte_piece(i) for i in range(tokenizer.n_words)],
        eos=[tokenizer.eos_id],
        special=special,
        special_text={i: tokenizer.id_to_piece(i) for i in special},
        name=f"Tekken tokenizer {tokenizer.version.value}",
    )
