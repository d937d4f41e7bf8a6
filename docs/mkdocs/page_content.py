"""What every built page goes through: a check for markup that is shown as text, and room for long names in tables."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError

__all__ = ["on_page_content"]

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):")
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Raise if a role of Sphinx is left; let names in tables break after dots and underscores (an event of MkDocs)."""
    found = _ROLE.search(html)
    if found:
        place = html[max(found.start() - 60, 0) : found.end() + 60]
        raise PluginError(f"{page.file.src_uri} shows a role of Sphinx as text: ...{place}...")
    return _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), html)


def _breakable(code: re.Match[str]) -> str:
    return f"<code>{re.sub(r'(?<=[._/])(?=[A-Za-z])', '<wbr>', code[1])}</code>"
