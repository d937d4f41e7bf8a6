"""A folder of compiled automata over bytes that several processes share, so that each automaton is compiled once.

The name of a file is a hash of the compiled content, so a changed pattern has another file. A file is replaced
atomically, has a checksum, and holds only arrays, of which every index is checked. If a file is damaged, the automaton
is compiled again.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.atomic_file import write_whole
from logitloom.automata.array_file import packed, unpacked, within
from logitloom.automata.dfa import DEAD, Dfa
from logitloom.errors import WriteError

__all__ = ["Stored", "compiled_in", "kept"]

_FORMAT: Final = b"logitloom automaton over bytes 1\n"
_ARRAYS: Final[dict[str, tuple[type[np.generic], int]]] = {
    "byte_class": (np.uint8, 1), "next": (np.int32, 2), "accepting": (np.bool_, 1), "start": (np.int64, 1)
}  # fmt: skip
#: Automata that compile faster than this are not stored, because compiling again is faster than reading a file.
_LEAST_SECONDS: Final = 0.002

Automaton = TypeVar("Automaton")


@dataclass(slots=True)
class Stored:
    """What was compiled and stored within a ``with`` block.

    Attributes:
        seconds: processor time of the compilations that another process need not repeat.
    """

    seconds: float = 0.0


class _Store(threading.local):
    """The folder of this thread, the largest total size of its files in bytes, and what was stored."""

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
    _STORE.directory, _STORE.most_bytes, _STORE.stored = directory, most_bytes, Stored()
    try:
        yield _STORE.stored
    finally:
        _STORE.directory, _STORE.most_bytes, _STORE.stored = before


def kept(subject: Callable[[], tuple[Any, ...]], build: Callable[[], Automaton]) -> Automaton | Dfa:
    """The result of ``build``, or the stored result of an earlier call with an equal subject.

    Args:
        subject: returns all values that the result depends on; different values must have a different ``repr``.
        build: compiles the automaton. Only a :class:`Dfa` is stored.
    """
    directory = _STORE.directory
    if directory is None:
        return build()
    # The character sets of \\w and similar escapes depend on the version of Unicode, the syntax on that of Python.
    try:
        parts = repr((*subject(), unicodedata.unidata_version, sys.version_info[:2])).encode("utf-8", "surrogatepass")
    except RecursionError:
        return build()
    path = directory / f"{hashlib.blake2b(_FORMAT + parts, digest_size=24).hexdigest()}.dfa"
    found = _read(path)
    if found is not None:
        return found
    begin, before = time.thread_time(), _STORE.stored.seconds
    made = build()
    if isinstance(made, Dfa) and time.thread_time() - begin >= _LEAST_SECONDS:
        # If the disk is full or the folder is missing, the automaton is only not stored.
        with suppress(WriteError, OSError):
            start = np.array([made.start], dtype=np.int64)
            arrays: dict[str, NDArray[Any]] = {
                "byte_class": made.byte_class,
                "next": made.next,
                "accepting": made.accepting,
                "start": start,
            }
            write_whole(path, packed(_FORMAT, arrays))
            # Compilations within this one are part of it.
            _STORE.stored.seconds = before + time.thread_time() - begin
            _prune(directory, _STORE.most_bytes)
    return made


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


def _prune(directory: Path, most_bytes: int) -> None:
    """Remove the oldest files until the total size is at most ``most_bytes``."""
    files = [(path.stat(), path) for path in directory.iterdir()]
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
