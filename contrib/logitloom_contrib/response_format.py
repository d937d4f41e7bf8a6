"""OpenAI's ``response_format`` as a list of processors, for engines and servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from logitloom.errors import NeedsNotMet

__all__ = ["FORMS", "KINDS", "constraint_entry", "processors_of"]

#: The values of ``type``.
FORMS: Final = ("text", "json_object", "json_schema", "structural_tag")

#: Kinds of constraints of engines, as their grammar backends call them -> processor, and the option with the text.
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "json": ("json", "schema"),
    "regex": ("regex", "pattern"),
    "choice": ("choice", "choices"),
    "grammar": ("grammar", "grammar"),
    "structural_tag": ("structural_tag", "tag"),
}


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


def constraint_entry(kind: str, text: str, **options: Any) -> dict[str, Any]:
    """The processor, as an entry of a chain document, that a constraint of an engine's grammar backend stands for.

    Args:
        kind: a key of :data:`KINDS`, or ``json_object``, which has no text.
        text: a schema, a list of choices or a structural tag as JSON text; a pattern; a grammar.
        options: further options of the processor.

    Raises:
        NeedsNotMet: there is no such kind, or the choices are no list.

    Example:
        >>> constraint_entry("choice", '["yes", "no"]')
        {'use': 'choice', 'options': {'choices': ['yes', 'no']}}
    """
    if kind == "json_object":
        [entry] = processors_of({"type": kind}) or []
        return {"use": entry["use"], "options": entry["options"] | options}
    if kind not in KINDS:
        raise NeedsNotMet(f"logitloom has no constraint of the kind {kind!r}; it has json_object, {', '.join(KINDS)}.")
    name, option = KINDS[kind]
    value: Any = text
    if kind in ("choice", "structural_tag"):  # the processor json reads a schema's text itself
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NeedsNotMet(f"The text of the kind {kind!r} is no JSON: {error}.") from error
    return {"use": name, "options": {option: value} | options}
