"""The built-in formats of tool calls, by name: the rows of the table ``formats.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["rows"]


@cache
def rows() -> dict[str, dict[str, Any]]:
    """The rows of the table, by the name of the format."""
    return tomllib.loads(files(__package__).joinpath("formats.toml").read_text(encoding="utf-8"))


def __getattr__(name: str) -> dict[str, Any]:
    try:
        return rows()[name]
    except KeyError:
        raise AttributeError(f"There is no format of tool calls {name!r}.") from None
