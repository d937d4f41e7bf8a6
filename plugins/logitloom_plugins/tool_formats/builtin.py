"""The built-in formats of tool calls, by name: the tables of ``formats.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["tables"]


@cache
def tables() -> dict[str, dict[str, Any]]:
    """The table of each format, by name."""
    return tomllib.loads(files(__package__).joinpath("formats.toml").read_text(encoding="utf-8"))


def __getattr__(name: str) -> dict[str, Any]:
    try:
        return tables()[name]
    except KeyError:
        raise AttributeError(f"There is no format of tool calls {name!r}.") from None
