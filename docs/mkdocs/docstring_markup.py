"""Turns the markup of docstrings into Markdown: headings of examples, and the roles of Sphinx.

Roles (``:class:`~package.Name```) are what editors and ``help()`` show; in pages they become code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["DocstringMarkup", "without_roles"]

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`(~?)([^`]+)`")


def without_roles(text: str) -> str:
    """The text with roles replaced by code; ``~`` leaves the last part of a dotted name.

    >>> without_roles("see :meth:`~logitloom.Chain.process` and :data:`NEEDS`")
    'see `process` and `NEEDS`'
    """
    return _ROLE.sub(lambda role: f"`{role[2].rpartition('.')[2] if role[1] else role[2]}`", text)


class DocstringMarkup(griffe.Extension):
    """Rewrites docstrings before they are parsed (Griffe knows the heading of examples in the plural only)."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value.replace("Example:\n", "Examples:\n"))
