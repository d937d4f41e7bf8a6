"""Progress bars for long operations: tqdm's, where tqdm is installed, in terminals and notebooks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from logitloom.errors import NeedsNotMet

__all__ = ["progress_bar", "waiting"]

#: Seconds until a wait is shown, and until it is shown again.
_SHOWN_AFTER: Final = 1.0
_INTERVAL: Final = 0.25


class _Wait(threading.local):
    """Whether this thread is in a block of :func:`waiting` that may be shown."""

    shown = False


_WAIT: Final = _Wait()


@contextmanager
def progress_bar(total: int, what: str, *, shown: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error.

    Args:
        total: number of items.
        what: the name of the items, such as ``sequences``.
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

    Another thread shows it, so the block may be a single call of a library. A block within a block is not shown.

    Args:
        what: the name of the task, such as ``compiling 'json'``.

    Example:
        >>> with waiting("compiling 'regex'"):
        ...     pass
    """
    if _WAIT.shown or not _is_watched():
        yield
        return
    done = threading.Event()
    shower = threading.Thread(target=_show, args=(what, time.time(), done), daemon=True)
    _WAIT.shown = True
    shower.start()
    try:
        yield
    finally:
        _WAIT.shown = False
        done.set()
        shower.join()


def _show(what: str, since: float, done: threading.Event) -> None:
    """Show a bar of the time since some point until something is done, if that takes long."""
    made = None if done.wait(_SHOWN_AFTER) else _tqdm()
    if made is None:
        return
    bar = made(desc=what, bar_format="{desc}: {elapsed}", leave=False)
    bar.start_t = since
    while not done.wait(_INTERVAL):
        bar.refresh()
    bar.close()


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
