"""A cache of token automata, in memory and optionally on disk.

Keys are content fingerprints, so a changed vocabulary or pattern gets a new entry. A file is written under a temporary
name and renamed, so readers see the whole file or none; concurrent writers write the same content. A damaged file is
ignored and the automaton is built again: the checksum is compared, and every number that is used as an index is
checked, so no file can cause an access outside a table. Anyone with write access to the folder can still store an
automaton of another language, so the folder must be as trusted as the code.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.compilation import compile_pattern
from logitloom.automata.compilation_budget import Budget
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.deterministic.finite_language import choice
from logitloom.automata.lift.token_automaton import TokenAutomaton, allowed_steps
from logitloom.automata.store.array_file import packed, unpacked, within
from logitloom.contract import FINISHED, TokenTables
from logitloom.display.warning import warn
from logitloom.process_memory import ProcessLock, made_here
from logitloom.rows.atomic_file import write_whole
from logitloom.vocabulary import Vocabulary

__all__ = ["CACHE_DIRECTORY_VARIABLE", "AutomatonCache", "default_cache"]

CACHE_DIRECTORY_VARIABLE: Final = "LOGITLOOM_CACHE_DIR"
_FORMAT: Final = b"logitloom token automaton 3\n"


class AutomatonCache:
    """A bounded store of token automata.

    Args:
        capacity: number of entries in memory; the least recently used entry is removed first.
        most_bytes: limit on the bytes of all entries and of their vocabularies; above it, entries are removed in the
            same order, except the entry that was used last.
        directory: the folder for tables on disk; default: the environment variable ``LOGITLOOM_CACHE_DIR``, and no
            disk if that is not set.

    Example:
        >>> words = Vocabulary([b"", b"a", b"b"], eos=[0])
        >>> store = AutomatonCache(capacity=8)
        >>> store.pattern("a+b", words) is store.pattern("a+b", words)
        True
    """

    def __init__(
        self,
        capacity: int = 128,
        directory: str | os.PathLike[str] | None = None,
        most_bytes: int = 256 << 20,
    ) -> None:
        self.capacity = capacity
        self.most_bytes = most_bytes
        directory = directory if directory is not None else os.environ.get(CACHE_DIRECTORY_VARIABLE) or None
        self.directory = None if directory is None else Path(os.path.expanduser(directory))
        self._entries: OrderedDict[str, TokenAutomaton] = OrderedDict()
        self._lock = ProcessLock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries, and of their vocabularies and the tries of these vocabularies."""
        entries = list(self._entries.values())
        vocabularies = {id(entry.vocabulary): entry for entry in entries}
        return sum(entry.nbytes for entry in entries) + sum(entry.vocabulary_bytes for entry in vocabularies.values())

    def clear(self) -> None:
        """Remove all entries from memory; files stay."""
        with self._lock:
            self._entries.clear()

    def pattern(
        self,
        pattern: str,
        vocabulary: Vocabulary,
        *,
        flags: int = 0,
        vocab_size: int | None = None,
        budget: Budget | None = None,
        compiled: Dfa | None = None,
    ) -> TokenAutomaton:
        """The token automaton of a regular expression.

        Args:
            pattern: as for :func:`~logitloom.automata.compile_pattern`.
            vocabulary: the bytes of each id.
            flags: flags of ``re``.
            vocab_size: width of the model's logits; default: the size of the vocabulary.
            budget: the limits of the compilation.
            compiled: the result of ``compile_pattern`` for the same pattern and flags, if it is known.
        """
        # The character sets of \\w and similar escapes depend on the version of Unicode, so it is part of the key.
        subject = repr(("pattern", pattern, int(flags), unicodedata.unidata_version))

        def build() -> Dfa:
            return compile_pattern(pattern, flags, budget=budget) if compiled is None else compiled

        return self._get(subject, build, vocabulary, vocab_size, budget)

    def texts(self, texts: Sequence[str], vocabulary: Vocabulary, *, vocab_size: int | None = None) -> TokenAutomaton:
        """The token automaton of a list of texts, as :func:`~logitloom.automata.choice` builds it."""
        subject = repr(("texts", sorted(set(texts))))
        return self._get(subject, lambda: choice(texts), vocabulary, vocab_size, None)

    def automaton(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        *,
        vocab_size: int | None = None,
        budget: Budget | None = None,
    ) -> TokenAutomaton:
        """The token automaton of any byte automaton."""
        return self._get(repr(("dfa", dfa.fingerprint)), lambda: dfa, vocabulary, vocab_size, budget)

    def _get(
        self,
        subject: str,
        build: Callable[[], Dfa],
        vocabulary: Vocabulary,
        vocab_size: int | None,
        budget: Budget | None,
    ) -> TokenAutomaton:
        width = vocabulary.size if vocab_size is None else int(vocab_size)
        ends = vocabulary.eos
        parts = repr((subject, vocabulary.fingerprint, width, ends)).encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(_FORMAT + parts, digest_size=24).hexdigest()
        here: dict[str, TokenAutomaton] | None = made_here(self)
        if here is not None and key in here:
            return here[key]
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
                self._remove_old()
                return known
        path = None if self.directory is None else self.directory / f"{key}.automaton"
        built = None if path is None else _read(path, vocabulary, width, budget)
        if built is None:
            built = TokenAutomaton(build(), vocabulary, width, budget=budget)
            if path is not None:
                _write(path, built)
        if here is not None:
            return here.setdefault(key, built)
        with self._lock:
            # Another thread may have added the automaton meanwhile. All callers share one automaton and its rows.
            known = self._entries.setdefault(key, built)
            self._entries.move_to_end(key)
            self._remove_old()
        return known

    def _remove_old(self) -> None:
        while len(self._entries) > self.capacity or (len(self._entries) > 1 and self.nbytes > self.most_bytes):
            self._entries.popitem(last=False)


@cache
def default_cache() -> AutomatonCache:
    """The cache that all callers in this process share by default."""
    return AutomatonCache()


def _write(path: Path, automaton: TokenAutomaton) -> None:
    """Write the tables of an automaton; a failure gives a warning, not an exception."""
    takes_little, tables = automaton.takes_little, automaton.tables()
    content = packed(
        _FORMAT,
        {
            "byte_class": automaton.dfa.byte_class,
            "bytes_next": automaton.dfa.next,
            "bytes_accepting": automaton.dfa.accepting,
            "start": np.array([automaton.dfa.start, automaton.vocab_size, takes_little], dtype=np.int64),
            "token_class": tables.token_class,
            "tokens_next": tables.next,
        },
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        warn(
            f"The token automaton could not be kept in {path.parent}: {error}. It is used all the same; give a "
            f"directory that can be written to keep it.",
        )


def _read(path: Path, vocabulary: Vocabulary, width: int, budget: Budget | None) -> TokenAutomaton | None:
    """The automaton in a file, or ``None`` if the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    arrays = unpacked(_FORMAT, content, _ARRAYS)
    if arrays is None or not _fits_together(arrays, width):
        return None
    start, table = int(arrays["start"][0]), arrays["tokens_next"]
    dfa = Dfa(arrays["byte_class"], arrays["bytes_next"], arrays["bytes_accepting"], start)
    if dfa.trimmed() is not dfa:
        return None
    accepting = np.concatenate([dfa.accepting, [True, False]])
    tables = TokenTables(arrays["token_class"], table, allowed_steps(table), accepting, start)
    takes_little = bool(arrays["start"][2])
    return TokenAutomaton(dfa, vocabulary, width, budget=budget, tables=(tables, takes_little))


#: The arrays of a file, with their types and numbers of axes.
_ARRAYS: Final[dict[str, tuple[type[np.generic], int]]] = {
    "byte_class": (np.uint8, 1),
    "bytes_next": (np.int32, 2),
    "bytes_accepting": (np.bool_, 1),
    "start": (np.int64, 1),
    "token_class": (np.int32, 1),
    "tokens_next": (np.int32, 2),
}


def _fits_together(arrays: dict[str, NDArray[Any]], width: int) -> bool:
    """Whether every number that is used as an index is a valid index of its table."""
    step, token_step = arrays["bytes_next"], arrays["tokens_next"]
    states, classes = step.shape
    return (
        arrays["byte_class"].shape == (256,)
        and arrays["bytes_accepting"].shape == (states,)
        and arrays["token_class"].shape == (width,)
        and len(token_step) == states + 2
        and arrays["start"].shape == (3,)
        and 0 <= arrays["start"][0] < states
        and arrays["start"][1] == width
        and bool((arrays["byte_class"] < classes).all())
        and within(step, DEAD, states)
        and within(arrays["token_class"], 0, token_step.shape[1])
        and within(token_step, FINISHED.value, states)
    )
