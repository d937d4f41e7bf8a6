"""Reads ``tiktoken.Encoding`` objects."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from logitloom import Vocabulary
from logitloom_plugins.tokenizers._origin import comes_from

__all__ = ["TiktokenReader"]

# Encodings do not say which of their special tokens end a text; special tokens with these names always do.
_END_NAMES = (
    "<|return|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|call|>",
)


class TiktokenReader:
    """Turns a ``tiktoken.Encoding`` into a vocabulary; ranks are the tokens' bytes already.

    Special tokens never stand for text. Special tokens with a usual end name (``<|endoftext|>``, ``<|return|>``,
    ``<|im_end|>``, ...) become the end-of-sequence ids. Ids without a token are special, too.
    """

    def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
        """Read an encoding.

        Args:
            tokenizer: any object.

        Returns:
            The vocabulary, or None if the object is no ``tiktoken.Encoding``.

        Raises:
            VocabularyError: if the encoding has no token with text.
        """
        if not comes_from(tokenizer, "tiktoken", "Encoding"):
            return None
        ranks: dict[int, bytes] = {tokenizer.encode_single_token(data): data for data in tokenizer.token_byte_values()}
        # A special token spelled like an ordinary one is found under the ordinary id, which stays text.
        specials: dict[int, str] = {
            number: text
            for text in tokenizer.special_tokens_set
            if (number := tokenizer.encode_single_token(text)) not in ranks
        }
        size = tokenizer.max_token_value + 1
        by_name = {text: number for number, text in specials.items()}
        return Vocabulary(
            [ranks.get(i, b"") for i in range(size)],
            eos=[by_name[text] for text in _END_NAMES if text in by_name],
            special=[i for i in range(size) if i not in ranks],
            special_text=specials,
            name=f"tiktoken encoding {tokenizer.name}",
        )

    def encode_text(self, tokenizer: Any, text: str) -> list[int] | None:
        """The ids of a text, special tokens read as such; None if the object is no ``tiktoken.Encoding``."""
        if not comes_from(tokenizer, "tiktoken", "Encoding"):
            return None
        ids: list[int] = tokenizer.encode(text, allowed_special="all")
        return ids

    def vocabulary_version(self, tokenizer: Any) -> Hashable | None:
        """The name and size of an encoding, which nothing changes; None if the object is no ``tiktoken.Encoding``."""
        if not comes_from(tokenizer, "tiktoken", "Encoding"):
            return None
        return (tokenizer.name, tokenizer.max_token_value, frozenset(tokenizer.special_tokens_set))
