"""Token automata that were built before: in memory always, on disk on request.

Keys are content fingerprints, so a changed vocabulary or pattern is another entry, never a wrong one. A file is written
beside its place and renamed into it, so readers see all of it or nothing, and whoever writes last wins with
the same content. A file that is damaged in any way is built anew.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import unicodedata
import uuid
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from logitloom.automata.budget import Budget
from logitloom.automata.compilation import compile_pattern
from logitloom.automata.dfa import Dfa
from logitloom.automata.token_automaton import TokenAutomaton, TokenTables, allowed_steps
from logitloom.vocabulary import Vocabulary

__all__ = ["CACHE_DIRECTORY_VARIABLE", "AutomatonCache", "default_cache"]

CACHE_DIRECTORY_VARIABLE: Final = "LOGITLOOM_CACHE_DIR"
_FORMAT: Final = b"logitloom token automaton 2\n"
_DIGEST: Final = 32


class AutomatonCache:
    """A bounded store of token automata.

    Args:
        capacity: entries kept in memory; the one not used for longest goes first.
        directory: where tables are kept on disk; default: the environment variable ``LOGITLOOM_CACHE_DIR``, and
            no disk if that is not set.

    Example:
        >>> words = Vocabulary([b"", b"a", b"b"], eos=[0])
        >>> store = AutomatonCache(capacity=8)
        >>> store.pattern("a+b", words) is store.pattern("a+b", words)
        True
    """

    def __init__(self, capacity: int = 128, directory: str | os.PathLike[str] | None = None) -> None:
        self.capacity = capacity
        directory = directory if directory is not None else os.environ.get(CACHE_DIRECTORY_VARIABLE) or None
        self.directory = None if directory is None else Path(directory)
        self._entries: OrderedDict[str, TokenAutomaton] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        with self._lock:
            self._entries.clear()

    def pattern(
        self,
        pattern: str,
        vocabulary: Vocabulary,
        *,
        flags: int = 0,
        vocab_size: int | None = None,
        eos: Iterable[int] | None = None,
        budget: Budget | None = None,
        compiled: Dfa | None = None,
    ) -> TokenAutomaton:
        """The token automaton of a regular expression.

        Args:
            pattern: as for :func:`~logitloom.automata.compile_pattern`.
            vocabulary: the bytes of each id.
            flags: flags of ``re``.
            vocab_size: width of the model's logits; default: the size of the vocabulary.
            eos: end-of-sequence ids; default: those of the vocabulary.
            budget: what building it may cost.
            compiled: what ``compile_pattern`` made of the pattern and flags, to save doing it again.
        """
        # The sets behind \\w and the like belong to the version of Unicode, so that is part of the key.
        subject = repr(("pattern", pattern, int(flags), unicodedata.unidata_version))

        def build() -> Dfa:
            return compile_pattern(pattern, flags, budget=budget) if compiled is None else compiled

        return self._get(subject, build, vocabulary, vocab_size, eos, budget)

    def automaton(
        self,
        dfa: Dfa,
        vocabulary: Vocabulary,
        *,
        vocab_size: int | None = None,
        eos: Iterable[int] | None = None,
        budget: Budget | None = None,
    ) -> TokenAutomaton:
        """The token automaton of any byte automaton."""
        return self._get(repr(("dfa", dfa.fingerprint)), lambda: dfa, vocabulary, vocab_size, eos, budget)

    def _get(
        self,
        subject: str,
        build: Callable[[], Dfa],
        vocabulary: Vocabulary,
        vocab_size: int | None,
        eos: Iterable[int] | None,
        budget: Budget | None,
    ) -> TokenAutomaton:
        width = vocabulary.size if vocab_size is None else int(vocab_size)
        ends = vocabulary.eos if eos is None else tuple(dict.fromkeys(int(i) for i in eos))
        parts = repr((subject, vocabulary.fingerprint, width, ends)).encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(_FORMAT + parts, digest_size=24).hexdigest()
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
                return known
        path = None if self.directory is None else self.directory / f"{key}.automaton"
        built = None if path is None else _read(path, vocabulary, width, ends, budget)
        if built is None:
            built = TokenAutomaton(build(), vocabulary, width, ends, budget=budget)
            if path is not None:
                _write(path, built)
        with self._lock:
            # Another thread may have been faster: all callers should share one automaton and its rows.
            known = self._entries.setdefault(key, built)
            self._entries.move_to_end(key)
            while len(self._entries) > self.capacity:
                self._entries.popitem(last=False)
        return known


@cache
def default_cache() -> AutomatonCache:
    """The cache that everything in this process shares unless given another."""
    return AutomatonCache()


def _write(path: Path, automaton: TokenAutomaton) -> None:
    """Write the tables of an automaton; failing to is worth a warning, not an exception."""
    tables = automaton.tables()
    buffer = io.BytesIO()
    np.savez(
        buffer,
        byte_class=automaton.dfa.byte_class,
        bytes_next=automaton.dfa.next,
        bytes_accepting=automaton.dfa.accepting,
        start=np.array([automaton.dfa.start, automaton.vocab_size], dtype=np.int64),
        token_class=tables.token_class,
        tokens_next=tables.next,
    )
    payload = buffer.getvalue()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_FORMAT + hashlib.blake2b(payload, digest_size=_DIGEST).digest() + payload)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"The token automaton could not be kept in {path.parent}: {error}. It is used all the same; give a "
            f"directory that can be written to keep it.",
            RuntimeWarning,
            stacklevel=2,
        )


def _read(
    path: Path, vocabulary: Vocabulary, width: int, eos: tuple[int, ...], budget: Budget | None
) -> TokenAutomaton | None:
    """The automaton in a file, or ``None`` if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(_FORMAT) + _DIGEST
    payload = content[head:]
    digest = hashlib.blake2b(payload, digest_size=_DIGEST).digest()
    if content[:head] != _FORMAT + digest:
        return None
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            start, stored_width = arrays["start"].tolist()
            dfa = Dfa(arrays["byte_class"], arrays["bytes_next"], arrays["bytes_accepting"], start, trim=True)
            token_class, table = arrays["token_class"], arrays["tokens_next"]
    except (KeyError, ValueError, zipfile.BadZipFile):
        return None
    if stored_width != width or token_class.shape != (width,) or len(table) != dfa.states + 2:
        return None
    accepting = np.concatenate([dfa.accepting, [True, False]])
    tables = TokenTables(token_class, table, allowed_steps(table), accepting, start)
    return TokenAutomaton(dfa, vocabulary, width, eos, budget=budget, tables=tables)
