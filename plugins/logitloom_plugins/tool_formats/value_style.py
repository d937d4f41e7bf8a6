"""The options of the processor ``json`` that other processors take for the JSON values in their texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from logitloom.errors import OptionError
from logitloom.host.registry import load_plugin

__all__ = ["check_style"]


def check_style(given: Mapping[str, Any], owner: str) -> None:
    """Check that options of ``json`` can be used where another processor makes the schema.

    Args:
        given: the options.
        owner: the name of the other processor, for messages.

    Raises:
        OptionError: for ``schema``, and for a name that is no option of ``json``.
    """
    if "schema" in given:
        raise OptionError(
            f"Option 'json' of {owner!r} has 'schema', but {owner!r} makes the schema of each value, so this one "
            f"would be ignored. Leave it out; for a text that is one JSON value load the processor 'json'."
        )
    known = sorted(field.name for field in dataclasses.fields(load_plugin("processors", "json")) if field.init)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise OptionError(
            f"Option 'json' of {owner!r} has {unknown[0]!r}, which is no option of the processor 'json'. It has "
            f"{', '.join(name for name in known if name != 'schema')}."
        )
