"""Shows the ``Example:`` sections of docstrings as code (Griffe knows the heading in the plural only)."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["ExampleSections"]


class ExampleSections(griffe.Extension):
    """Renames the sections before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
