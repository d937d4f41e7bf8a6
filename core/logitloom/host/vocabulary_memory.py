"""Vocabularies that were read from tokenizers in this process, so that each tokenizer is read once."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from logitloom.vocabulary import Vocabulary

__all__ = ["VocabularyMemory"]


class VocabularyMemory:
    """The vocabulary of each tokenizer object that was read, with the version of the tokenizer.

    A tokenizer is known by identity and held by a weak reference, so its entry is removed with it. Vocabularies of
    equal content are one object, whatever tokenizers they were read from, because tables of constraints are kept per
    vocabulary.

    Example:
        >>> class Tokenizer:
        ...     pass
        >>> memory, one, two = VocabularyMemory(), Tokenizer(), Tokenizer()
        >>> kept = memory.keep(one, 1, Vocabulary([b"a", b"b"]))
        >>> memory.get(one, 1) is kept, memory.get(one, 2), memory.get(two, 1)
        (True, None, None)
        >>> memory.keep(two, 1, Vocabulary([b"a", b"b"])) is kept
        True
    """

    def __init__(self) -> None:
        self._by_tokenizer: dict[int, tuple[weakref.ref[Any], Hashable, Vocabulary]] = {}
        self._by_content: weakref.WeakValueDictionary[Hashable, Vocabulary] = weakref.WeakValueDictionary()

    def get(self, tokenizer: Any, version: Hashable) -> Vocabulary | None:
        """The vocabulary that was read from this very object in this version; None if there is none."""
        entry = self._by_tokenizer.get(id(tokenizer))
        if entry is None or entry[0]() is not tokenizer or entry[1] != version:
            return None
        return entry[2]

    def keep(self, tokenizer: Any, version: Hashable, vocabulary: Vocabulary) -> Vocabulary:
        """Remember a vocabulary and return it; a vocabulary of equal content that is remembered already replaces it.

        A tokenizer that cannot be held weakly is not remembered.
        """
        content = (vocabulary.fingerprint, vocabulary.name, tuple(sorted(vocabulary.special_text.items())))
        vocabulary = self._by_content.setdefault(content, vocabulary)
        identity, entries = id(tokenizer), self._by_tokenizer
        with suppress(TypeError):
            reference = weakref.ref(tokenizer, lambda ended: entries.pop(identity, None))
            entries[identity] = (reference, version, vocabulary)
        return vocabulary

    def clear(self) -> None:
        """Forget the vocabularies of all tokenizers (other readers may read the tokenizers differently)."""
        self._by_tokenizer.clear()
