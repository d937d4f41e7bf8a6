"""OpenAI's ``response_format`` as a list of processors, for engines and servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from logitloom.errors import NeedsNotMet

__all__ = ["FORMS", "processors_of"]

#: The values of ``type``.
FORMS: Final = ("text", "json_object", "json_schema", "structural_tag")


def processors_of(form: Any) -> list[dict[str, Any]] | None:
    """The processors that a ``response_format`` stands for; None if it asks for nothing.

    Args:
        form: ``{"type": "text"}``, ``{"type": "json_object"}``, or ``{"type": "json_schema", "json_schema": {"name",
            "strict", "schema"}}``, or a structural tag; ``json_object`` may have a ``schema``, as in llama.cpp. The
            processor reports errors in a schema or tag.

    Raises:
        NeedsNotMet: if ``form`` is none of these.

    Example:
        >>> processors_of({"type": "json_object"})
        [{'use': 'json', 'options': {'schema': {'type': 'json_object'}}}]
    """
    kind = form.get("type") if isinstance(form, Mapping) else form
    if kind in (None, "text"):
        return None
    if not isinstance(form, Mapping) or kind not in FORMS:
        told = "a list" if isinstance(form, list) else f"{form!r:.200}"
        raise NeedsNotMet(
            f"response_format is {told}. Give {{'type': 'text'}}, {{'type': 'json_object'}} or {{'type': "
            f"'json_schema', 'json_schema': {{'schema': ...}}}}, or a structural tag."
        )
    if kind == "structural_tag":
        return [{"use": "structural_tag", "options": {"tag": dict(form)}}]
    if kind == "json_object" and form.get("schema") is not None:  # llama.cpp's way to give a schema
        form = {"type": "json_schema", "json_schema": {"schema": form["schema"]}}
    return [{"use": "json", "options": {"schema": dict(form)}}]
