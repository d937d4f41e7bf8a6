"""The suite for tokenizer readers: the bytes of every token are those that the tokenizer itself writes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from logitloom.host import registry
from logitloom.testing.conformance import Conformance
from logitloom.vocabulary import Vocabulary

__all__ = ["VocabularyConformance", "surroundings"]

# Bytes that may stand before a token that begins inside a character, and after a token that ends inside a character.
_BEFORE = [
    b"", b"\xc3", b"\xe3", b"\xe3\x81", b"\xe0", b"\xed", b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xf4", b"\xf4\x80",
]  # fmt: skip
_AFTER = [b"", *(bytes(tail) for n in (1, 2, 3) for tail in itertools.product(b"\x80\x90\xa0\xbf", repeat=n))]


def surroundings(data: bytes) -> tuple[bytes, bytes] | None:
    """Bytes before and after that make a token's bytes valid UTF-8, or None if nothing can."""
    for before, after in itertools.product(_BEFORE, _AFTER):
        try:
            (before + data + after).decode()
        except UnicodeDecodeError:
            continue
        return before, after
    return None


class VocabularyConformance(Conformance):
    """Tests of a tokenizer reader with one tokenizer.

    Attributes:
        reader: the name of the plug-in, or its class.
        texts: what is encoded and must come back.
        tokens: how many ids are compared with the tokenizer's own decoding, spread over the vocabulary.

    Override ``tokenizer``, ``encode`` and ``decode``.

    Example:
        >>> from logitloom.testing import VocabularyConformance
        >>> class TestReader(VocabularyConformance):
        ...     reader = "tiktoken"
        ...     def tokenizer(self):
        ...         import tiktoken
        ...         ranks = {bytes([i]): i for i in range(256)}
        ...         return tiktoken.Encoding("bytes", pat_str=".|\\n", mergeable_ranks=ranks, special_tokens={})
        ...     def encode(self, tokenizer, text):
        ...         return tokenizer.encode_ordinary(text)
        ...     def decode(self, tokenizer, ids):
        ...         return tokenizer.decode(ids)
    """

    kind = "tokenizers"
    _named_by = "reader"

    reader: ClassVar[Any] = None
    texts: ClassVar[Sequence[str]] = ("a few words, 1234", "naïve café", "日本語", "tab\tand  spaces", "🚀")
    tokens: ClassVar[int] = 300

    def tokenizer(self) -> Any:
        """A tokenizer of the reader's kind."""
        raise NotImplementedError(f"{type(self).__name__} must define tokenizer().")

    def encode(self, tokenizer: Any, text: str) -> Sequence[int]:
        """The ids of a text, without special ones."""
        raise NotImplementedError(f"{type(self).__name__} must define encode(tokenizer, text).")

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        """The text of ids, as the tokenizer itself tells it."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(tokenizer, ids).")

    def _reader(self) -> Any:
        found = registry.load_plugin("tokenizers", self.reader) if isinstance(self.reader, str) else self.reader
        return found() if isinstance(found, type) else found

    def _read(self, tokenizer: Any) -> Vocabulary:
        found = self._reader().vocabulary(tokenizer)
        assert isinstance(found, Vocabulary), f"The reader gave {found!r} for a tokenizer of its kind."
        return found

    def test_tokenizers_of_other_kinds_are_declined_and_cost_nothing(self) -> None:
        """For anything else the reader answers None, and imports nothing to find that out."""
        reader = self._reader()
        before = set(sys.modules)
        for other in (object(), 3, "no such file", ["a"], Vocabulary([b"a"])):
            assert reader.vocabulary(other) is None, f"The reader took {other!r} for a tokenizer of its kind."
        new = sorted(set(sys.modules) - before)
        assert not new, f"The reader imported {new[:3]} to decline a tokenizer."

    def test_reading_again_gives_the_same(self) -> None:
        """The content depends on the tokenizer alone."""
        tokenizer = self.tokenizer()
        assert self._read(tokenizer).fingerprint == self._read(tokenizer).fingerprint

    def test_special_ids_have_no_bytes(self) -> None:
        """Special ids stand for no text, and end-of-sequence ids are special."""
        vocabulary = self._read(self.tokenizer())
        assert set(vocabulary.eos) <= vocabulary.special
        assert all(vocabulary.token_bytes[i] == b"" for i in vocabulary.special)

    def test_texts_come_back(self) -> None:
        """Encoding and then adding up the tokens' bytes gives the text."""
        tokenizer = self.tokenizer()
        vocabulary = self._read(tokenizer)
        for written in self.texts:
            ids = list(self.encode(tokenizer, written))
            assert vocabulary.decode(ids) == written, f"{written!r} came back as {vocabulary.decode(ids)!r}."

    def test_tokens_agree_with_decode(self) -> None:
        """In the middle of a text each id writes its bytes, also those that are a part of a character."""
        tokenizer = self.tokenizer()
        vocabulary = self._read(tokenizer)
        single = {data: i for i, data in enumerate(vocabulary.token_bytes) if len(data) == 1}
        anchor = next((i for i, d in enumerate(vocabulary.token_bytes) if d.isalpha() and d.isascii()), None)
        assert anchor is not None, "No token is an ASCII word, so none can be compared in the middle of a text."
        start = self.decode(tokenizer, [anchor, anchor])
        ordinary = [i for i in range(vocabulary.size) if i not in vocabulary.special]
        chosen = np.unique(np.linspace(0, len(ordinary) - 1, self.tokens).astype(int))
        for i in (ordinary[index] for index in chosen):
            data = vocabulary.token_bytes[i]
            around = surroundings(data)
            if around is None or any(bytes([b]) not in single for b in around[0] + around[1]):
                around = (b"", b"")  # no text has these bytes; the substitute characters can be compared
            before, after = ([single[bytes([b])] for b in part] for part in around)
            expected = start + (around[0] + data + around[1]).decode("utf-8", "replace")
            found = self.decode(tokenizer, [anchor, anchor, *before, i, *after])
            assert found == expected, f"Token {i} has the bytes {data!r}, but the tokenizer writes {found!r}."
