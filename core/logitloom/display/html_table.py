"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in HTML; what the cells say is text.

    Example:
        >>> html_table(["a"], [["<b>"]])
        '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
