"""What a tokenizer's ids stand for: the exact bytes of each token, and which ids are special."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import ids, shown, whole
from logitloom.errors import VocabularyError
from logitloom.process_memory import ProcessLock, made_here

__all__ = ["Vocabulary", "kept_with_vocabulary", "read_tokenizers_with", "vocabulary_of"]

P = ParamSpec("P")
R = TypeVar("R")

#: The largest number of results of one function that are remembered for a vocabulary.
_MOST_KEPT: Final = 64


class Vocabulary:
    """An immutable table from token id to bytes.

    Args:
        token_bytes: the bytes that each id adds to a text, indexed by id. An id without text (special
            or unused) has ``b""``. The text of a sequence is the concatenation of its tokens' bytes;
            a single token need not be valid UTF-8.
        eos: ids that end a sequence, most usual first.
        special: ids that never stand for text (control tokens, padding, unused ids). Ids in ``eos``
            are special whether listed or not. Special ids always have ``b""`` as their bytes.
        special_text: how special ids are written when a person looks at them, ``{id: "<|im_end|>"}``.
        name: where the vocabulary came from, for messages.

    Raises:
        VocabularyError: if an id is out of range, or no token has any bytes.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        *,
        eos: Iterable[int] = (),
        special: Iterable[int] = (),
        special_text: dict[int, str] | None = None,
        name: str = "vocabulary",
    ) -> None:
        if not isinstance(token_bytes, Sequence) or isinstance(token_bytes, (str, bytes)):
            raise VocabularyError(
                f"The argument 'token_bytes' must be a list with the bytes of each token, but is {shown(token_bytes)}."
            )
        size = len(token_bytes)
        self.name = name
        self.eos: tuple[int, ...] = tuple(dict.fromkeys(ids(eos, "eos", VocabularyError)))
        specials = frozenset(ids(special, "special", VocabularyError)) | frozenset(self.eos)
        outside = sorted(i for i in specials if not 0 <= i < size)
        if outside:
            raise VocabularyError(
                f"{name}: ids {outside[:5]} are declared special or end-of-sequence, but the vocabulary "
                f"has ids 0 to {size - 1} only. Give a table that covers every declared id."
            )
        self.special: frozenset[int] = specials
        self.special_text: dict[int, str] = dict(special_text or {})
        try:
            self.token_bytes: tuple[bytes, ...] = tuple(
                b"" if i in specials else b if type(b) is bytes else bytes(memoryview(b))
                for i, b in enumerate(token_bytes)
            )
        except TypeError:
            wrong = next(i for i, b in enumerate(token_bytes) if not isinstance(b, (bytes, bytearray, memoryview)))
            raise VocabularyError(
                f"{name}: token {wrong} is {shown(token_bytes[wrong])}, and not bytes. Give the bytes of each token."
            ) from None
        if not any(self.token_bytes):
            raise VocabularyError(f"{name}: no token has any bytes, so no text could be written with it.")

    def __deepcopy__(self, memo: Any) -> Vocabulary:
        """The vocabulary itself: it never changes, and cached tables belong to this very object."""
        return self

    @property
    def size(self) -> int:
        """Number of ids, special ones included. A model's logits may be wider (padded vocabularies)."""
        return len(self.token_bytes)

    def __len__(self) -> int:
        return len(self.token_bytes)

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r}, size={self.size}, eos={list(self.eos)})"

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the content: equal for equal tables, whatever object or file they came from."""
        import hashlib  # here, because importing logitloom costs little more than importing NumPy

        digest = hashlib.blake2b(digest_size=16)
        digest.update(np.asarray(self.offsets, dtype="<i8").tobytes())
        digest.update(self.flat_bytes.tobytes())
        digest.update(repr((self.eos, sorted(self.special))).encode())
        return digest.hexdigest()

    @cached_property
    def flat_bytes(self) -> NDArray[np.uint8]:
        """All tokens' bytes, one after the other: ``[offsets[-1]] uint8``, read-only."""
        return np.frombuffer(b"".join(self.token_bytes), dtype=np.uint8)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Token ``i`` is ``flat_bytes[offsets[i]:offsets[i + 1]]``: ``[size + 1] int64``."""
        lengths = np.fromiter((len(b) for b in self.token_bytes), dtype=np.int64, count=self.size)
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])

    def tokens_with(self, which: NDArray[np.bool_]) -> NDArray[np.int32]:
        """``[n] int32``: the tokens that contain at least one byte of ``which``, in ascending order.

        Args:
            which: ``[offsets[-1]] bool``: the bytes of :attr:`flat_bytes`.

        Example:
            >>> words = Vocabulary([b"", b"ab", b"c", b"bb"], eos=[0])
            >>> words.tokens_with(words.flat_bytes == ord("b")).tolist()
            [1, 3]
        """
        holding = self.offsets.searchsorted(which.nonzero()[0], "right") - 1
        return holding[np.diff(holding, prepend=-1) > 0].astype(np.int32)

    def tokens_holding(self, texts: Iterable[bytes]) -> tuple[NDArray[np.int32], set[bytes]]:
        """The tokens whose bytes contain one of several texts, and the texts that tokens contain.

        The bytes of all tokens are read once for each length of a text, however many texts there are.

        Args:
            texts: the texts, none of them empty.

        Returns:
            ``[n] int32``, in ascending order; and some of the texts.

        Example:
            >>> words = Vocabulary([b"", b"stop", b"top", b"t", b"pot"], eos=[0])
            >>> ids, held = words.tokens_holding([b"op", b"top", b"tp"])
            >>> ids.tolist(), sorted(held)
            ([1, 2], [b'op', b'top'])
        """
        flat, every = self.flat_bytes, self.flat_bytes.tobytes()
        by_size: dict[int, set[bytes]] = {}
        for text in texts:
            by_size.setdefault(len(text), set()).add(text)
        found, held = np.zeros(self.size, dtype=np.bool_), set[bytes]()
        for size, some in by_size.items():
            # Most places are ruled out by two bytes.
            second, count = min(1, size - 1), max(len(flat) - size + 1, 0)
            begins = np.zeros((256, 256), dtype=np.bool_)
            begins[[text[0] for text in some], [text[second] for text in some]] = True
            places = begins[flat[:count], flat[second : second + count]].nonzero()[0].tolist()
            at = np.array([place for place in places if every[place : place + size] in some], dtype=np.int64)
            token = self.offsets.searchsorted(at, "right") - 1
            inside = at + size <= self.offsets[token + 1]
            found[token[inside]] = True
            held.update(every[place : place + size] for place in at[inside].tolist())
        return found.nonzero()[0].astype(np.int32), held

    @cached_property
    def writes_every_byte(self) -> bool:
        """Whether each byte is a token by itself, so that the tokens can write every text."""
        return len({text for text in self.token_bytes if len(text) == 1}) == 256

    def with_eos(self, eos: Iterable[int]) -> Vocabulary:
        """This table with other end-of-sequence ids (for tokenizers that cannot name theirs).

        >>> Vocabulary([b"a", b"b", b"</s>"]).with_eos([2])
        Vocabulary('vocabulary', size=3, eos=[2])
        """
        return Vocabulary(
            self.token_bytes, eos=eos, special=self.special, special_text=self.special_text, name=self.name
        )

    def check_width(self, width: int) -> None:
        """Check that logits have a column for each id.

        Args:
            width: the number of columns.

        Raises:
            VocabularyError: if there are fewer columns than ids.
        """
        if width < self.size:
            raise VocabularyError(
                f"vocab_size={width} is less than the {self.size} ids of {self.name}. Give the width of the model's "
                f"logits, which is at least the size of the vocabulary."
            )

    def text_bytes(self, tokens: Iterable[int]) -> bytes:
        """The bytes that a sequence of ids writes. Ids outside the table (padded vocabularies) write none.

        >>> Vocabulary([b"he", b"llo"]).text_bytes([0, 1])
        b'hello'
        """
        size = self.size
        try:
            return b"".join(self.token_bytes[i] for i in tokens if 0 <= i < size)
        except (TypeError, ValueError):
            ids(tokens, "tokens", VocabularyError)
            raise

    def decode(self, tokens: Iterable[int], errors: str = "replace") -> str:
        """The text that a sequence of ids writes; incomplete UTF-8 is treated as ``bytes.decode`` does.

        For broken UTF-8 a tokenizer's own decoder may show another number of U+FFFD; the bytes are the same.
        """
        return self.text_bytes(tokens).decode("utf-8", errors)

    def describe(self, token: int) -> str:
        """How one id is shown to a person: its text, its special name, or its number."""
        token = whole(token, "token", VocabularyError)
        if token in self.special_text:
            return self.special_text[token]
        if 0 <= token < self.size and self.token_bytes[token]:
            return repr(self.token_bytes[token].decode("utf-8", "backslashreplace"))
        return f"<id {token}>"


def kept_with_vocabulary(
    function: Callable[Concatenate[Vocabulary, P], R],
) -> Callable[Concatenate[Vocabulary, P], R]:
    """Remember the last results of a function of a vocabulary for as long as the vocabulary is in use.

    The further arguments of the function are hashable. The results must not refer to the vocabulary,
    which would stay in use otherwise. If several threads ask for the same result, only one of them computes it.

    Example:
        >>> @kept_with_vocabulary
        ... def ids_of(vocabulary, text):
        ...     return [token for token, each in enumerate(vocabulary.token_bytes) if each == text]
        >>> words = Vocabulary([b"a", b"b", b"a"])
        >>> ids_of(words, b"a"), ids_of(words, b"a") is ids_of(words, b"a")
        ([0, 2], True)
    """
    kept: WeakKeyDictionary[Vocabulary, dict[Any, R]] = WeakKeyDictionary()
    lock = ProcessLock()

    @wraps(function)
    def remembered(vocabulary: Vocabulary, /, *more: P.args, **named: P.kwargs) -> R:
        known, key = kept.setdefault(vocabulary, {}), (more, *named.items())
        if key in known:
            return known[key]
        here: dict[Any, R] | None = made_here(known)
        if here is not None:
            if key not in here:
                here[key] = function(vocabulary, *more, **named)
            return here[key]
        with lock:
            if key not in known:
                found = function(vocabulary, *more, **named)
                if len(known) >= _MOST_KEPT:
                    known.clear()
                known[key] = found
            return known[key]

    return remembered


def read_tokenizers_with(read: Callable[[Any], Vocabulary]) -> None:
    """Set the function that reads tokenizers for :func:`vocabulary_of`.

    :mod:`logitloom.host.registry` sets :func:`~logitloom.host.registry.read_vocabulary` when the module is imported.

    Args:
        read: takes a tokenizer of any library; raises :class:`.VocabularyError` where no reader knows the tokenizer.
    """
    global _read
    _read = read


def vocabulary_of(given: Any) -> Vocabulary:
    """A vocabulary, or that of a tokenizer of any library.

    Raises:
        VocabularyError: if no installed reader knows the tokenizer.
    """
    if isinstance(given, Vocabulary):
        return given
    if _read is None:
        raise VocabularyError(f"Give a Vocabulary, not {shown(given)}: readers of tokenizers are not loaded yet.")
    return _read(given)


_read: Callable[[Any], Vocabulary] | None = None
