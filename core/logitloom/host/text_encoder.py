"""Encoding text with a tokenizer of any library."""

from __future__ import annotations

import functools
import inspect
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from logitloom.arguments import number_of, shown
from logitloom.errors import VocabularyError
from logitloom.host.registry import tokenizer_readers
from logitloom.vocabulary import Vocabulary

__all__ = ["TextEncoder", "text_encoder"]


class TextEncoder(Protocol):
    """Encodes text as token ids; any object with this method."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ...


@dataclass(frozen=True)
class _Encoder:
    """A tokenizer and the function that encodes with it."""

    tokenizer: Any
    function: Callable[[str], Any]

    def __reduce__(self) -> Any:
        """A copy asks the readers again."""
        return text_encoder, (self.tokenizer,)

    def encode(self, text: str) -> list[int]:
        """The ids of a text.

        Raises:
            VocabularyError: the tokenizer returns no ids, or the text holds half a surrogate pair.
        """
        try:
            text.encode()  # tokenizers refuse such a text each in its own way, or write it as something else
        except UnicodeEncodeError as error:
            raise VocabularyError(
                f"The text {shown(text[max(error.start - 9, 0) : error.end + 9])} holds half a surrogate pair at "
                f"character {error.start}, which is no character. Give whole characters."
            ) from None
        found = self.function(text)
        try:
            return [operator.index(number_of(token)) for token in found]
        except (TypeError, ValueError):
            raise VocabularyError(
                f"The tokenizer {_named(self.tokenizer)} encodes a text as {shown(found)}, and not as a list of ids. "
                f"Give an object whose method encode(text) returns ids."
            ) from None


def text_encoder(tokenizer: Any) -> TextEncoder:
    """Encodes as the tokenizer does for the prompt of a model, special tokens around the text included.

    Args:
        tokenizer: a tokenizer of any library that an installed tokenizer reader can encode with, the path of one, or an
            object with ``encode(text) -> ids``.

    Raises:
        VocabularyError: a tokenizer that no text can be encoded with, such as a :class:`~logitloom.Vocabulary`.

    Example:
        >>> class Letters:
        ...     def encode(self, text):
        ...         return [ord(letter) for letter in text]
        >>> text_encoder(Letters()).encode("ab")
        [97, 98]
    """
    if isinstance(tokenizer, _Encoder):
        return tokenizer
    readers = tokenizer_readers()
    for found in reversed(readers.manager.hook.encode_text.get_hookimpls()):
        encode = readers.manager.implementation(found.plugin_name, "encode_text")
        try:
            if encode is not None and encode(tokenizer, "") is not None:
                return _Encoder(tokenizer, functools.partial(encode, tokenizer))
        except Exception as error:
            error.add_note(f"Raised by encode_text of the tokenizer reader {found.plugin_name!r}.")
            raise
    if isinstance(tokenizer, type) and not isinstance(
        inspect.getattr_static(tokenizer, "encode", None), staticmethod | classmethod
    ):
        name = tokenizer.__qualname__
        raise VocabularyError(f"The tokenizer must be an object, but is the class {name}. Make one: {name}(...).")
    if isinstance(tokenizer, Vocabulary):
        raise VocabularyError(
            f"{tokenizer!r} has the bytes of the tokens, but not the rules by which a tokenizer cuts a text. Give the "
            f"model's tokenizer, or the prompt as token ids."
        )
    own = None if isinstance(tokenizer, (str, os.PathLike)) else getattr(tokenizer, "encode", None)
    if not callable(own):
        raise VocabularyError(
            f"No text can be encoded with {_named(tokenizer)}: no installed tokenizer reader does, and it has no "
            f"method encode(text). Give the model's tokenizer, or the prompt as token ids."
        )
    return _Encoder(tokenizer, own)


def _named(tokenizer: Any) -> str:
    if isinstance(tokenizer, (str, os.PathLike)):
        return shown(tokenizer)
    return f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
