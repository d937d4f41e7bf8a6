"""The command ``logitloom``; an interruption of its first imports shows no traceback."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit code."""
    came: list[int] = []
    # An interruption inside an import may come out as an ImportError of the library, so it waits for the end.
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        from logitloom.cli.main import main as run
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        if came:
            raise KeyboardInterrupt
        return run()
    except KeyboardInterrupt:
        print("logitloom: Interrupted.", file=sys.stderr)
        return 130
