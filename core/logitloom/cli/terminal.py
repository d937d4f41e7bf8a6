"""What is said to a person: on standard error, coloured only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["complain", "say", "styled", "table"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def styled(text: str, style: str, stream: TextIO) -> str:
    """The text in a style, if the stream is a terminal that wants colours (see https://no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_CODES[style]}m{text}\033[0m"


def say(text: str, end: str = "\n") -> None:
    """Write to standard error."""
    print(text, end=end, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """Write an error to standard error."""
    say(f"{styled('logitloom:', 'red', sys.stderr)} {text}")


def table(rows: Sequence[Sequence[str]], header: Sequence[str], stream: TextIO) -> str:
    """Rows in aligned columns, with a header line."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([styled(line(header), "bold", stream), *map(line, rows)])
