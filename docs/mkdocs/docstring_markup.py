"""Turns the markup of docstrings into Markdown: headings of examples, and the roles of Sphinx.

Roles (``:class:`~package.Name```) are what editors and ``help()`` show; in pages they become code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import griffe

__all__ = ["DocstringMarkup", "comment_above", "without_roles"]

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`(~?)([^`]+)`")


def without_roles(text: str) -> str:
    """The text with roles replaced by code; ``~`` leaves the last part of a dotted name.

    >>> without_roles("see :meth:`~logitloom.Chain.process` and :data:`NEEDS`")
    'see `process` and `NEEDS`'
    """
    return _ROLE.sub(lambda role: f"`{role[2].rpartition('.')[2] if role[1] else role[2]}`", text)


def comment_above(lines: Sequence[str], number: int) -> str:
    """The text of the ``#:`` comment that ends right above a line, empty if there is none.

    >>> comment_above(["#: Widths,", "#: in tokens.", "WIDTHS = (1, 2)"], 3)
    'Widths,\\nin tokens.'
    """
    above = itertools.takewhile(lambda line: line.lstrip().startswith("#:"), reversed(lines[: number - 1]))
    return "\n".join(line.lstrip().removeprefix("#:").strip() for line in reversed(list(above)))


class DocstringMarkup(griffe.Extension):
    """Rewrites docstrings before they are parsed (Griffe knows the heading of examples in the plural only).

    The ``#:`` comment above a constant becomes its docstring.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was read."""
        if obj.is_attribute and obj.docstring is None and obj.lineno is not None:
            comment = comment_above(obj.lines_collection[obj.filepath], obj.lineno)
            obj.docstring = griffe.Docstring(comment, parent=obj) if comment else None
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value.replace("Example:\n", "Examples:\n"))
