"""Trigger strings, which end a section: validation, search in free text, and their tokenisations."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.array_ranges import distinct
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.automata.lift.trie_walk import nodes_along
from logitloom.errors import OptionError, VocabularyError
from logitloom.vocabulary import kept_with_vocabulary

__all__ = [
    "TokenTexts",
    "TriggerMatcher",
    "check_sizes",
    "check_triggers",
    "textless_ids",
    "token_texts",
    "trigger_texts",
]

#: The largest sum of the squares of the bytes of the strings of one section: all their prefixes are kept.
_MOST_SQUARES: Final = 1 << 26


def trigger_texts(given: str | tuple[str, ...], option: str, owner: str) -> tuple[str, ...]:
    """The distinct strings of an option.

    Raises:
        OptionError: if there is no string, or if one is empty; the message names the option.
    """
    strings = (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))
    if not strings or not all(strings):
        raise OptionError(
            f"Option {option!r} of {owner!r} is {given!r}, but an empty text is found before anything is written. Give "
            f"at least one text, and none that is empty."
        )
    return strings


def check_sizes(texts: Sequence[str], owner: str) -> None:
    """Check that the strings of a section are not too long.

    Raises:
        OptionError: if the strings are too long.
    """
    sizes = [len(text.encode()) for text in texts]
    if sum(size * size for size in sizes) > _MOST_SQUARES:
        raise OptionError(
            f"A text of {owner!r} that begins or ends a section has {max(sizes)} bytes, and texts of at most "
            f"{math.isqrt(_MOST_SQUARES // len(sizes))} are possible there. Give shorter ones."
        )


def check_triggers(texts: Sequence[str], owner: str) -> None:
    """Check that each of the strings that end a section can be found.

    Raises:
        OptionError: if a string is empty, or if one string contains another, which is then always found first.
    """
    if not all(texts):
        raise OptionError(
            f"A trigger of {owner!r} is the empty string, which is found before anything is written. Leave it out."
        )
    inside = "\0".join(text[:-1] for text in texts)
    for other in texts:
        one = next((text for text in texts if other in text[:-1]), None) if other in inside else None
        if one is not None:
            raise OptionError(
                f"The trigger {one!r} of {owner!r} contains {other!r}, which would always be found first. Leave one of "
                f"them out."
            )


class TriggerMatcher:
    """Finds the first occurrence of any of several strings in a text, byte by byte.

    A node is a pair: the longest suffix of the text that is a proper prefix of a string, and whether this suffix is the
    whole text so far. Strings that count only at the start of the text need the second part.

    Args:
        strings: the strings to find.
        at_start: per string whether it counts only at the start of the text.

    Example:
        >>> matcher = TriggerMatcher([b"</t>", b"##"], [False, True])
        >>> node, found = matcher.step(matcher.start, ord("#"))
        >>> matcher.step(node, ord("#"))[1], matcher.step(matcher.step(node, ord("a"))[0], ord("<"))[0]
        (1, (b'<', False))

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    Node = tuple[bytes, bool]

    def __init__(self, strings: Sequence[bytes], at_start: Sequence[bool]) -> None:
        self.strings, self.at_start = tuple(strings), tuple(at_start)
        later = [text for text, first in zip(strings, at_start, strict=True) if not first]
        self._prefixes = {text[:n] for text in later for n in range(len(text))} | {b""}
        self._first = {t[:n] for t, first in zip(strings, at_start, strict=True) if first for n in range(len(t))}
        #: The numbers of the strings, by string and by prefix.
        self._numbers: dict[bytes, list[int]] = {}
        self._begun: dict[bytes, list[int]] = {}
        for i, text in enumerate(strings):
            self._numbers.setdefault(text, []).append(i)
            for n in range(1, len(text) + 1):
                self._begun.setdefault(text[:n], []).append(i)
        self._sizes = sorted({*map(len, strings)}, reverse=True)
        self.start: TriggerMatcher.Node = (b"", bool(self._first))
        self._steps: dict[tuple[TriggerMatcher.Node, int], tuple[TriggerMatcher.Node, int]] = {}

    def step(self, node: Node, byte: int) -> tuple[Node, int]:
        """The node after one more byte, and the number of the string that this byte completes, or -1."""
        known = self._steps.get((node, byte))
        if known is None:
            known = self._steps[node, byte] = self._step(node, byte)
        return known

    def _step(self, node: Node, byte: int) -> tuple[Node, int]:
        text, whole = node
        text += bytes([byte])
        done = (
            i
            for size in self._sizes
            if size <= len(text)
            for i in self._numbers.get(text[-size:], ())
            if not self.at_start[i] or (whole and size == len(text))
        )
        if whole and text in self._first:
            after = (text, True)
        else:
            after = (next(text[n:] for n in range(len(text) + 1) if text[n:] in self._prefixes), False)
        return after, next(done, -1)

    def finds(self, node: Node, number: int, written: int) -> bool:
        """Whether the rest of a string, of which ``written`` bytes have come, is read with no other string before."""
        *before, last = self.strings[number][written:]
        for byte in before:
            node, done = self.step(node, byte)
            if done >= 0:
                return False
        return self.step(node, last)[1] == number

    def rests(self, node: Node) -> list[tuple[int, int]]:
        """The strings that have a prefix at the end of a node's text: their numbers, and the lengths of the prefixes.

        The empty prefix counts, so every string that is looked for at all positions is in the result.
        """
        fresh = [(i, 0) for i, first in enumerate(self.at_start) if not first or node == (b"", True)]
        return self.begun(node) + fresh

    def begun(self, node: Node) -> list[tuple[int, int]]:
        """Of :meth:`rests` those whose prefix is not empty."""
        text, whole = node
        return [
            (i, len(text) - n)
            for n in range(len(text))
            for i in self._begun.get(text[n:], ())
            if not self.at_start[i] or (whole and not n)
        ]


class TokenTexts:
    """The texts of a vocabulary's tokens, sorted for prefix search.

    Attributes:
        order: ``[n] int32``, the ids of tokens that have bytes, sorted by these bytes.
        texts: the bytes of each of ``order``.
        every_byte: whether each single byte is a token.
        longest: the number of bytes of the longest of ``texts``.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._trie = trie = vocabulary_trie(vocabulary)
        self.vocabulary, self.order, self.every_byte = vocabulary, trie.order, trie.every_byte
        self.texts = [vocabulary.token_bytes[token] for token in trie.order.tolist()]
        self.longest = max(map(len, self.texts), default=0)

    def range_of(self, prefix: bytes) -> slice:
        """The range of :attr:`texts` that begin with a prefix."""
        end = prefix.rstrip(b"\xff")
        after = bisect_left(self.texts, end[:-1] + bytes([end[-1] + 1])) if end else len(self.texts)
        return slice(bisect_left(self.texts, prefix), after)

    def ids_of(self, text: bytes) -> list[int]:
        """The ids of the tokens whose text is ``text``."""
        found: list[int] = self.order[bisect_left(self.texts, text) : bisect_right(self.texts, text)].tolist()
        return found

    def beginning_with(self, prefix: bytes) -> list[bytes]:
        """The distinct texts that begin with a prefix."""
        return list(dict.fromkeys(self.texts[self.range_of(prefix)]))

    def ids(self, texts: Iterable[bytes]) -> list[int]:
        """The ids of the tokens whose text is one of ``texts``."""
        return [token for text in texts for token in self.ids_of(text)]

    def ending_with(self, text: bytes, among: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """The ids of the tokens whose text ends with ``text``, in order; of ``among`` if it is given."""
        offsets, flat = self.vocabulary.offsets, self.vocabulary.flat_bytes
        ids = np.arange(self.vocabulary.size, dtype=np.int32) if among is None else among
        ends = offsets.take(ids + 1)
        kept = ends - offsets.take(ids) >= len(text)
        for back, byte in enumerate(reversed(text), 1):
            ids, ends = ids[kept], ends[kept]
            kept = flat.take(ends - back) == byte
        return ids[kept]

    def begun_in(self, needles: Iterable[bytes], first_only: bool = False) -> NDArray[np.int32]:
        """The ids of the tokens in whose text one of ``needles`` begins, in order: the text contains the needle, or
        ends with a non-empty prefix of the needle.

        Args:
            needles: texts that are not empty.
            first_only: whether the needle must begin at the first byte of the text.
        """
        flat, offsets = self.vocabulary.flat_bytes, self.vocabulary.offsets
        places_of: dict[int, NDArray[np.intp]] = {}
        found = [np.empty(0, dtype=np.intp)]
        for needle in needles:
            if needle[0] not in places_of:
                here = flat == needle[0]
                if first_only:
                    begins = np.zeros(len(flat) + 1, dtype=bool)
                    begins[offsets] = True
                    here &= begins[:-1]
                places_of[needle[0]] = here.nonzero()[0]
            places = places_of[needle[0]]
            tokens = offsets.searchsorted(places, "right") - 1
            for at, byte in enumerate(needle[1 : self.longest], 1):
                further = places + at
                over = further >= offsets.take(tokens + 1)
                kept = over | (flat.take(further, mode="clip") == byte)
                places, tokens = places[kept], tokens[kept]
            found.append(tokens)
        return distinct(np.concatenate(found), self.vocabulary.size).astype(np.int32)

    def spelling(self, text: bytes, owner: str) -> list[bytes]:
        """Per position of a text the longest token text there after which tokens can write the rest.

        The entry is ``b""`` if there is no such token.

        Raises:
            VocabularyError: if tokens cannot write the whole text.
        """
        pieces = [b""] * len(text)
        for position in reversed(range(len(text))):
            # No token has more of the text.
            most = len(nodes_along(self._trie, text[position : position + self.longest]))
            for end in range(position + most, position, -1):
                if (end == len(text) or pieces[end]) and self.ids_of(text[position:end]):
                    pieces[position] = text[position:end]
                    break
        if text and not pieces[0]:
            raise VocabularyError(
                f"The tokens of {self.vocabulary.name} cannot write {text.decode(errors='replace')!r}, which "
                f"{owner!r} waits for. Give the string as the model's tokenizer writes it."
            )
        return pieces


@lru_cache(maxsize=8)
def token_texts(vocabulary: Vocabulary) -> TokenTexts:
    """The sorted texts of a vocabulary, cached."""
    return TokenTexts(vocabulary)


@kept_with_vocabulary
def textless_ids(vocabulary: Vocabulary, vocab_size: int) -> NDArray[np.int32]:
    """``[n] int32``: the ids below ``vocab_size`` that have no bytes, without end-of-sequence ids."""
    written = np.zeros(vocab_size, dtype=bool)
    written[: vocabulary.size] = np.diff(vocabulary.offsets) > 0
    written[[token for token in vocabulary.eos if token < vocab_size]] = True
    return np.flatnonzero(~written).astype(np.int32)
