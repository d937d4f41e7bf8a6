"""Warnings that name the line of a program which called the library."""

from __future__ import annotations

import sys
import warnings
from typing import Final

from logitloom.errors import LogitloomWarning

__all__ = ["warn"]

#: Modules of other packages that stand between the library's own calls.
_BETWEEN: Final = frozenset({"contextlib", "functools", "pluggy"})


def warn(message: str, category: type[LogitloomWarning] = LogitloomWarning) -> None:
    """Warn at the innermost line of a program that is no part of the library or of a plug-in.

    Packages whose names begin with ``logitloom`` count as parts.

    Args:
        message: whole sentences: the value, the place and the remedy.
        category: the class of the warning.
    """
    level, frame = 1, sys._getframe()
    while (caller := frame.f_back) is not None and _is_part(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, caller
    warnings.warn(message, category, stacklevel=level)


def _is_part(module: str) -> bool:
    package = module.partition(".")[0]
    return package.startswith("logitloom") or package in _BETWEEN
