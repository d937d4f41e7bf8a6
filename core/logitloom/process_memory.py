"""What a process remembers from one chain to the next, and blocks of work whose results are forgotten at the end.

A forked child inherits what its parent remembers. The parent's other threads do not go on in the child, so the child
renews the locks and the half-finished work of these threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["ProcessLock", "forgotten_after", "made_here", "renewed_in_children"]

T = TypeVar("T")


class _Here(threading.local):
    """By the identity of a memory this memory, and the values made in this thread's innermost block.

    ``None`` outside of blocks. A memory is kept until the end of the block, so that no other one gets its identity.
    """

    made: dict[int, tuple[object, dict[Any, Any]]] | None = None


_HERE: Final = _Here()


@contextmanager
def forgotten_after() -> Iterator[None]:
    """Remember what this thread makes for several chains only until the end of the ``with`` block.

    Automata of :func:`~logitloom.automata.default_cache` are forgotten, and results of functions that are kept with a
    vocabulary. What was remembered before the block is used in the block. So repeated work within such blocks takes as
    long as the first time in another process.

    Example:
        >>> from logitloom import Vocabulary
        >>> from logitloom.automata import default_cache
        >>> words = Vocabulary([b"", b"a", b"b"], eos=[0])
        >>> with forgotten_after():
        ...     first = default_cache().pattern("b+a?", words)
        ...     first is default_cache().pattern("b+a?", words)
        True
        >>> first is default_cache().pattern("b+a?", words)
        False
    """
    before = _HERE.made
    try:
        _HERE.made = {}
        yield
    finally:
        _HERE.made = before


def made_here(owner: object) -> dict[Any, Any] | None:
    """The values that a memory holds until the end of the block of :func:`forgotten_after`; ``None`` outside of blocks.

    Args:
        owner: the memory.
    """
    return None if _HERE.made is None else _HERE.made.setdefault(id(owner), (owner, {}))[1]


#: For each object that is in use, the function that a forked child calls with the object.
_RENEWED: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def renewed_in_children(owner: T, renew: Callable[[T], object]) -> None:
    """Call a function of an object in each forked child, for as long as the object is in use.

    A child calls these functions in the order in which its parent registered the objects.

    Args:
        owner: the object, which must not be referred to by the function.
        renew: drops references to threads, and work that threads may have left unfinished.
    """
    _RENEWED[owner] = renew


def _renew_all() -> None:
    if sys.version_info < (3, 12):
        for cached in _cached_properties():
            cached.lock = _free(cached.lock)
    for owner, renew in list(_RENEWED.items()):
        renew(owner)


def _cached_properties() -> Iterator[Any]:
    """The cached properties of the library's classes, and of its plug-ins. Before Python 3.12 each has a lock."""
    for name, module in list(sys.modules.items()):
        if name.startswith("logitloom"):
            for kind in [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == name]:
                yield from [each for each in vars(kind).values() if isinstance(each, cached_property)]


def _free(lock: Any) -> Any:
    """The lock, or a new lock if another thread of the parent holds it. The thread that forked may hold the lock."""
    if not lock.acquire(blocking=False):
        return threading.RLock()
    lock.release()
    return lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class ProcessLock:
    """A reentrant lock for ``with`` blocks. In a forked child no thread of the parent holds it.

    What the lock guards must be usable wherever a thread is stopped, or be renewed, too.

    Example:
        >>> lock = ProcessLock()
        >>> with lock, lock:
        ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renewed_in_children(self, ProcessLock._renew)

    def _renew(self) -> None:
        self._lock = _free(self._lock)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
