"""Automata over bytes that several processes compile once: a folder that they share.

The key of a file is the content of what was compiled, so a changed pattern is another file. Files are written whole,
have a checksum, and hold arrays alone, of which every index is checked: one that is damaged is compiled anew.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitloom.atomic_file import write_whole
from logitloom.automata.array_file import packed, unpacked, within
from logitloom.automata.dfa import DEAD, Dfa
from logitloom.errors import WriteError

__all__ = ["compiled_in", "kept"]

_FORMAT: Final = b"logitloom automaton over bytes 1\n"
_ARRAYS: Final[dict[str, tuple[type[np.generic], int]]] = {
    "byte_class": (np.uint8, 1), "next": (np.int32, 2), "accepting": (np.bool_, 1), "start": (np.int64, 1)
}  # fmt: skip
#: What is compiled sooner is compiled again sooner than it is read.
_LEAST_SECONDS: Final = 0.002

Automaton = TypeVar("Automaton")


class _Store(threading.local):
    """The folder of this thread, and how many bytes it may hold."""

    directory: Path | None = None
    most_bytes = 0


_STORE: Final = _Store()


@contextmanager
def compiled_in(directory: Path | None, most_bytes: int = 256 << 20) -> Iterator[None]:
    """Keep whole automata of patterns that are compiled within, in this thread, in a folder, and take them from there.

    Args:
        directory: exists, and belongs to whom the code belongs to; ``None``: nothing is kept.
        most_bytes: of all files in the folder; the oldest go first.

    Example:
        >>> import tempfile
        >>> from logitloom.automata import compile_pattern
        >>> with compiled_in(Path(tempfile.mkdtemp())):
        ...     compile_pattern("[a-z]{1,40}").fullmatch("abc")
        True
    """
    before = _STORE.directory, _STORE.most_bytes
    _STORE.directory, _STORE.most_bytes = directory, most_bytes
    try:
        yield
    finally:
        _STORE.directory, _STORE.most_bytes = before


def kept(subject: Callable[[], tuple[Any, ...]], build: Callable[[], Automaton]) -> Automaton | Dfa:
    """What ``build`` gives, or the automaton that it gave before in a process with the same folder.

    Args:
        subject: gives everything that the result depends on, as values that their texts tell apart.
        build: compiles. Only a :class:`Dfa` is kept.
    """
    directory = _STORE.directory
    if directory is None:
        return build()
    # The sets behind \\w and the like belong to the version of Unicode, and the syntax to that of Python.
    try:
        parts = repr((*subject(), unicodedata.unidata_version, sys.version_info[:2])).encode("utf-8", "surrogatepass")
    except RecursionError:
        return build()
    path = directory / f"{hashlib.blake2b(_FORMAT + parts, digest_size=24).hexdigest()}.dfa"
    found = _read(path)
    if found is not None:
        return found
    begin = time.thread_time()
    made = build()
    if isinstance(made, Dfa) and time.thread_time() - begin >= _LEAST_SECONDS:
        # A disk that is full, or a folder that is gone, costs time and nothing else.
        with suppress(WriteError, OSError):
            start = np.array([made.start], dtype=np.int64)
            arrays: dict[str, NDArray[Any]] = {
                "byte_class": made.byte_class,
                "next": made.next,
                "accepting": made.accepting,
                "start": start,
            }
            write_whole(path, packed(_FORMAT, arrays))
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
    """Remove the oldest files beyond a number of bytes."""
    files = [(path.stat(), path) for path in directory.iterdir()]
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
