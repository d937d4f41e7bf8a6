"""What a process remembers from one chain to the next, and work that is done as if nothing had been remembered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["forgotten_after", "made_here"]


class _Here(threading.local):
    """By the identity of a memory the values made in this thread's innermost block; ``None`` outside of blocks."""

    made: dict[int, dict[Any, Any]] | None = None


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
        owner: the memory, which outlives the block.
    """
    return None if _HERE.made is None else _HERE.made.setdefault(id(owner), {})
