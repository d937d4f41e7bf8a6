"""Messages to the user: on standard error, coloured only on a terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

from logitloom.errors import LogitloomWarning, OptionError

__all__ = ["complain", "harmless", "said_by_user", "say", "styled", "table", "warnings_said"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def styled(text: str, style: str, stream: TextIO) -> str:
    """The text in a style, if the stream is a terminal that wants colours (see https://no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_CODES[style]}m{text}\033[0m"


def harmless(text: str, stream: TextIO) -> str:
    """The text for a stream; on a terminal, with what would steer the terminal written out.

    A model's text, or a name out of a file, could move the cursor, set the title or the clipboard, or turn the
    direction of writing. Line ends and tabs stay. A pipe or file gets the text as it is.

    Example:
        >>> import io
        >>> class Terminal(io.StringIO):
        ...     def isatty(self):
        ...         return True
        >>> print(harmless("a\x1b[2Jb", Terminal()), len(harmless("a\x1b[2Jb", io.StringIO())))
        a\\x1b[2Jb 6
    """
    return _STEERING.sub(_written_out, text) if stream.isatty() else text


#: Control characters but tab and line end, and those that turn the direction of writing.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def say(text: str, end: str = "\n") -> None:
    """Write to standard error."""
    print(text, end=end, file=sys.stderr, flush=True)


def said_by_user() -> str:
    """All of standard input.

    Raises:
        OptionError: it is closed, or no text in UTF-8.
    """
    if sys.stdin is None:
        raise OptionError("Standard input is closed, so - stands for nothing. Give the text, or a file.")
    try:
        text = sys.stdin.read()
        text.encode()  # in the C locale Python reads other bytes as halves of surrogate pairs
    except UnicodeError as error:
        raise OptionError(f"Standard input is no text in UTF-8: {error!s:.200}. Give UTF-8.") from None
    return text


def complain(text: str) -> None:
    """Write an error to standard error."""
    _say_after("logitloom:", "red", text)


def _say_after(word: str, style: str, text: str) -> None:
    text = text.encode("utf-8", "backslashreplace").decode()
    say(f"{styled(word, style, sys.stderr)} {harmless(text, sys.stderr)}")


@contextlib.contextmanager
def warnings_said() -> Iterator[None]:
    """Within it, each warning of logitloom is said once, without a place in the source; others are shown as before."""
    said = set[str]()
    with warnings.catch_warnings():
        shown_before = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, LogitloomWarning):
                shown_before(message, category, filename, lineno, file, line)
            elif str(message) not in said:
                said.add(str(message))
                _say_after("warning:", "yellow", str(message))

        warnings.showwarning = show
        yield


def table(rows: Sequence[Sequence[str]], header: Sequence[str], stream: TextIO) -> str:
    """Rows in aligned columns, with a header line."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([styled(line(header), "bold", stream), *map(line, rows)])
