"""The command ``logitloom``, begun so that an interruption of its first imports is no traceback."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        from logitloom.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("logitloom: Interrupted.", file=sys.stderr)
        return 130
