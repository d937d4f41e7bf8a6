"""Progress bars for long operations: tqdm's, where tqdm is installed, in terminals and notebooks."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from logitloom.errors import NeedsNotMet

__all__ = ["progress_bar", "until_shown", "waiting"]

#: Seconds until a wait is shown, and between two looks at the clock.
_SHOWN_AFTER: Final = 1.0
_INTERVAL: Final = 0.25


class _Wait(threading.local):
    """What this thread waits for, since when, and its bar.

    The time is that of ``time.perf_counter``; it is infinite while the thread waits for nothing that is shown.
    """

    what = ""
    since = math.inf
    bar: Any = None


_WAIT: Final = _Wait()


@contextmanager
def progress_bar(total: int, what: str, *, shown: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error.

    Args:
        total: how many there are.
        what: their name, such as ``sequences``.
        shown: whether to show it; by default in terminals and notebooks, if tqdm is installed.

    Yields:
        A function that is told how many more are done.

    Raises:
        NeedsNotMet: it is to be shown, and tqdm is not installed.

    Example:
        >>> with progress_bar(2, "schemas", shown=False) as advance:
        ...     advance(1)
    """
    wanted = _is_watched() if shown is None else shown
    made = _tqdm() if wanted else None
    if made is None:
        if shown:
            raise NeedsNotMet("A bar of progress needs the package tqdm. Install it: pip install tqdm.")
        yield lambda count: None
        return
    with made(total=total, unit=f" {what}", leave=False) as bar:
        yield bar.update


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show how long the block takes, from its second second on, where :func:`progress_bar` shows bars.

    What runs in the block has to call :func:`until_shown` now and then, as compilations do.

    Args:
        what: the name of what is waited for, such as ``compiling 'json'``.

    Example:
        >>> with waiting("compiling 'regex'"):
        ...     until_shown() > 0
        True
    """
    if _WAIT.since != math.inf or not _is_watched():
        yield
        return
    _WAIT.what, _WAIT.since = what, time.perf_counter()
    try:
        yield
    finally:
        bar, _WAIT.bar, _WAIT.since = _WAIT.bar, None, math.inf
        if bar is not None:
            bar.close()


def until_shown() -> float:
    """Bring what :func:`waiting` shows up to date, and tell the seconds until that should be done again; infinite where
    nothing is shown.
    """
    if _WAIT.since == math.inf:
        return math.inf
    left = _WAIT.since + _SHOWN_AFTER - time.perf_counter()
    if left > 0:
        return left
    if _WAIT.bar is None:
        made = _tqdm()
        if made is None:
            _WAIT.since = math.inf
            return math.inf
        _WAIT.bar = made(desc=_WAIT.what, bar_format="{desc}: {elapsed}", leave=False)
    _WAIT.bar.refresh()
    return _INTERVAL


def _is_watched() -> bool:
    """Whether somebody looks: standard error is a terminal, or the program is the kernel of a notebook."""
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
