"""Writes the tables of the array namespace into the page on backends: ``python docs/mkdocs/namespace_tables.py``.

A test compares the page with what this would write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from logitloom.testing.array_namespace import DTYPES, FUNCTIONS, OPERATORS, Entry

__all__ = ["PAGE", "written"]

PAGE = Path(__file__).parent.parent / "plugins" / "backends.md"
_BETWEEN = re.compile(r"(?<=<!-- begin: namespace -->\n).*?(?=<!-- end: namespace -->)", re.DOTALL)


def written(page: str) -> str:
    """The page with its tables as the code has them."""
    parts = [
        _table("function", {f"`{name}`": entry for name, entry in FUNCTIONS.items()}),
        "Arrays must have:",
        _table("what", OPERATORS),
        "Dtypes, as attributes of the namespace:",
        "\n".join(["| dtype | for |", "| --- | --- |", *(f"| `{name}` | {use} |" for name, use in DTYPES.items())]),
    ]
    return _BETWEEN.sub("\n" + "\n\n".join(parts).replace("\\", "\\\\") + "\n\n", page)


def _table(head: str, entries: Mapping[str, Entry]) -> str:
    lines = [f"| {head} | forms | what is relied on |", "| --- | --- | --- |"]
    for name, entry in entries.items():
        forms = entry.call.replace("|", "\\|")
        lines.append(f"| {name} | `{forms}` | {entry.needs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
