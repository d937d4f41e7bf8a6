"""The model plug-in that commands use unless they are told another."""

from __future__ import annotations

from typing import Any

from logitloom.errors import UnknownPlugin
from logitloom.host import registry

__all__ = ["default_loader", "default_model"]


def default_loader() -> str:
    """The name of the first model plug-in, plug-ins of this distribution before others.

    Raises:
        UnknownPlugin: if none is installed.
    """
    found = registry.available("models")
    if not found:
        raise UnknownPlugin("No plug-in of the group 'logitloom.models' is installed. Install logitloom again.")
    return min(found, key=lambda record: (record.distribution != "logitloom", record.name)).name


def default_model() -> Any:
    """The model that the default loader reads if no path is given."""
    return registry.load_plugin("models", default_loader())(None)
