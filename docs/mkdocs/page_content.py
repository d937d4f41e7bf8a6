"""Every built page is checked for markup that is shown as text, and the code in its tables is made to fit."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError

__all__ = ["on_page_content"]

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):")
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Raise if a role of Sphinx is left; let names in tables break after dots and underscores, and show pipes as such.

    MkDocs calls this function for each page.
    """
    found = _ROLE.search(html)
    if found:
        place = html[max(found.start() - 60, 0) : found.end() + 60]
        raise PluginError(f"{page.file.src_uri} shows a role of Sphinx as text: ...{place}...")
    return _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), html)


def _breakable(code: re.Match[str]) -> str:
    # A pipe is escaped in the source, because it would end the cell where the source itself is read.
    text = code[1].replace(r"\|", "|")
    return f"<code>{re.sub(r'(?<=[._/])(?=[A-Za-z])', '<wbr>', text)}</code>"
