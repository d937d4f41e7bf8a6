"""Options of a command that take one value: a second value is refused instead of silently replacing the first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["Once"]


class Once(argparse.Action):
    """Stores the value of an option that is given once.

    Args:
        remedy: what to write in place of the option given twice.

    Example:
        >>> parser = argparse.ArgumentParser(prog="p", exit_on_error=False)
        >>> _ = parser.add_argument("--regex", action=Once, remedy="Write A|B.")
        >>> parser.parse_args(["--regex", "a", "--regex", "b"])
        Traceback (most recent call last):
        argparse.ArgumentError: argument --regex: given twice, as 'a' and 'b'. Write A|B.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, remedy: str = "Give it once.", **more: Any) -> None:
        super().__init__(option_strings, dest, **more)
        self.remedy = remedy

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store the value, or raise."""
        before = getattr(namespace, self.dest)
        if before is not self.default:
            raise argparse.ArgumentError(self, f"given twice, as {before!r:.60} and {values!r:.60}. {self.remedy}")
        setattr(namespace, self.dest, values)
