"""A folder of compilation results that several processes share, so that each automaton is compiled once.

The name of a file is a hash of the compiled content, so a changed pattern has another file. A file is replaced
atomically and has a checksum. A file holds either the arrays of an automaton over bytes, of which every index is
checked, or values in the format of :mod:`logitloom.rows.tree_format`. Nothing is unpickled. If a file is damaged, its
content is compiled again.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import backend_of
from logitloom.automata.deterministic.dfa import DEAD, Dfa
from logitloom.automata.store.array_file import checked, packed, unpacked, with_checksum, within
from logitloom.errors import StateMismatch, WriteError
from logitloom.rows.atomic_file import write_whole
from logitloom.rows.tree_format import decode, encode

__all__ = ["Stored", "compiled_in", "stored_automaton", "stored_values"]

_FORMAT: Final = b"logitloom automaton over bytes 1\n"
_ARRAYS: Final[dict[str, tuple[type[np.generic], int]]] = {
    "byte_class": (np.uint8, 1), "next": (np.int32, 2), "accepting": (np.bool_, 1), "start": (np.int64, 1)
}  # fmt: skip
#: Automata that compile faster than this are not stored, because compiling again is faster than reading a file.
_LEAST_SECONDS: Final = 0.002
_VALUES_FORMAT: Final = b"logitloom values of a compilation 1\n"
#: Values of a compilation that takes fewer seconds are not stored.
_LEAST_SECONDS_OF_VALUES: Final = 0.02

Automaton = TypeVar("Automaton")


@dataclass(slots=True)
class Stored:
    """The results that were compiled and stored within a ``with`` block.

    Attributes:
        seconds: processor time of the compilations that another process need not repeat.
    """

    seconds: float = 0.0


class _Store(threading.local):
    """The folder of this thread, the largest total size of its files in bytes, and a record of the stored results."""

    directory: Path | None = None
    most_bytes = 0
    stored = Stored()


_STORE: Final = _Store()


@contextmanager
def compiled_in(directory: Path | None, most_bytes: int = 256 << 20) -> Iterator[Stored]:
    """Store each :class:`Dfa` that this thread compiles within the ``with`` block in a folder, and read it from there.

    Args:
        directory: an existing folder that must be as trusted as the code; ``None`` stores nothing.
        most_bytes: the largest total size of the files in the folder; the oldest files are removed first.

    Example:
        >>> import tempfile
        >>> from logitloom.automata import compile_pattern
        >>> with compiled_in(Path(tempfile.mkdtemp())):
        ...     compile_pattern("[a-z]{1,40}").fullmatch("abc")
        True
    """
    before = _STORE.directory, _STORE.most_bytes, _STORE.stored
    try:
        _STORE.directory, _STORE.most_bytes, _STORE.stored = directory, most_bytes, Stored()
        yield _STORE.stored
    finally:
        _STORE.directory, _STORE.most_bytes, _STORE.stored = before


def stored_automaton(subject: Callable[[], tuple[Any, ...]], build: Callable[[], Automaton]) -> Automaton | Dfa:
    """The result of ``build``, or the stored result of an earlier call with an equal subject.

    Args:
        subject: returns all values that the result depends on; different values must have a different ``repr``.
        build: compiles the automaton. Only a :class:`Dfa` is stored.
    """
    path = _path(_FORMAT, subject, "dfa")
    if path is None:
        return build()
    found = _read(path)
    if found is not None:
        return found
    clock = _Clock()
    made = build()
    if isinstance(made, Dfa) and clock.seconds >= _LEAST_SECONDS:
        start = np.array([made.start], dtype=np.int64)
        arrays: dict[str, NDArray[Any]] = {
            "byte_class": made.byte_class,
            "next": made.next,
            "accepting": made.accepting,
            "start": start,
        }
        _write(path, packed(_FORMAT, arrays), clock)
    return made


@dataclass(slots=True)
class StoredValues:
    """The values of a compilation.

    Attributes:
        known: the values of an earlier compilation of an equal subject, perhaps in another process; ``None`` if there
            are none. The caller must check the values: a forged file can hold any.
        made: returns the values of this compilation that are slow to compute, of types that
            :mod:`logitloom.rows.tree_format` can write; set within the ``with`` block.
    """

    known: Any
    made: Callable[[], Any] | None = None


@contextmanager
def stored_values(subject: Callable[[], tuple[Any, ...]], packages: Collection[str]) -> Iterator[StoredValues]:
    """Read the values of an earlier compilation of an equal subject, and store those of the ``with`` block.

    Args:
        subject: returns all values that the result depends on; different values must have a different ``repr``.
        packages: top-level packages whose classes the values may be made of.
    """
    path = _path(_VALUES_FORMAT, subject, "values")
    if path is None:
        yield StoredValues(None)
        return
    values = StoredValues(_read_values(path, packages))
    clock = _Clock()
    yield values
    if values.known is not None or values.made is None:
        return
    if clock.seconds >= _LEAST_SECONDS_OF_VALUES:
        with suppress(StateMismatch):  # one of the values has no form in a file
            _write(path, with_checksum(_VALUES_FORMAT, encode(values.made())), clock)


class _Clock:
    """The processor time since it was made. The time includes the compilations that were stored since then."""

    def __init__(self) -> None:
        self._begin, self._before = time.thread_time(), _STORE.stored.seconds

    @property
    def seconds(self) -> float:
        return time.thread_time() - self._begin

    def count_as_stored(self) -> None:
        """Count all of the time as that of compilations which another process need not repeat."""
        _STORE.stored.seconds = self._before + self.seconds


def _path(format: bytes, subject: Callable[[], tuple[Any, ...]], suffix: str) -> Path | None:
    """The file of a subject; ``None`` if there is no folder."""
    if _STORE.directory is None:
        return None
    # The character sets of \w and similar escapes depend on the version of Unicode, the syntax on that of Python.
    try:
        parts = repr((*subject(), unicodedata.unidata_version, sys.version_info[:2])).encode("utf-8", "surrogatepass")
    except RecursionError:
        return None
    return _STORE.directory / f"{hashlib.blake2b(format + parts, digest_size=24).hexdigest()}.{suffix}"


def _write(path: Path, content: bytes, clock: _Clock) -> None:
    # If the disk is full or the folder is missing, the result is only not stored.
    with suppress(WriteError, OSError):
        write_whole(path, content)
        clock.count_as_stored()
        _prune(path.parent, _STORE.most_bytes)


def _read(path: Path) -> Dfa | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    arrays = unpacked(_FORMAT, content, _ARRAYS)
    if arrays is None:
        return None
    step, start = arrays["next"], arrays["start"]
    states, classes = step.shape
    fits = (
        arrays["byte_class"].shape == (256,)
        and arrays["accepting"].shape == (states,)
        and start.shape == (1,)
        and within(start, 0, states)
        and within(arrays["byte_class"], 0, classes)
        and within(step, DEAD, states)
    )
    if not fits:
        return None
    found = Dfa(arrays["byte_class"], step, arrays["accepting"], int(start[0]))
    return found if found.trimmed() is found else None


def _read_values(path: Path, packages: Collection[str]) -> Any:
    try:
        content = checked(_VALUES_FORMAT, path.read_bytes())
        return None if content is None else decode(content, backend_of(np.empty(0)), packages=packages)
    except (OSError, StateMismatch):
        return None


def _prune(directory: Path, most_bytes: int) -> None:
    """Remove the oldest files until the total size is at most ``most_bytes``."""
    files = [(path.stat(), path) for path in directory.iterdir()]
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
