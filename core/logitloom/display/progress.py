"""Progress bars for long operations: tqdm's, where tqdm is installed, in terminals and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from logitloom.errors import NeedsNotMet

__all__ = ["progress_bar"]


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
