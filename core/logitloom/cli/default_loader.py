"""Models of commands, and the model plug-in that commands use unless they are told another."""

from __future__ import annotations

import inspect
from typing import Any

from logitloom.arguments import shown
from logitloom.errors import InvalidSignature, UnknownPlugin
from logitloom.host import registry
from logitloom.vocabulary import Vocabulary

__all__ = ["default_loader", "load_model", "model_vocabulary"]


def default_loader() -> str:
    """The name of the first model plug-in, plug-ins of this distribution before others.

    Raises:
        UnknownPlugin: if none is installed.
    """
    found = registry.available("models")
    if not found:
        raise UnknownPlugin("No plug-in of the group 'logitloom.models' is installed. Install logitloom again.")
    return min(found, key=lambda record: (record.distribution != "logitloom", record.name)).name


def model_vocabulary(path: str) -> Vocabulary:
    """The vocabulary in a model file; for an empty path, of the model that the default loader reads without a path."""
    return registry.read_vocabulary(path or load_model(default_loader()).vocabulary)


def load_model(name: str, path: str | None = None, **where: Any) -> Any:
    """The model that a model plug-in loads.

    Args:
        name: of the plug-in.
        path, where: the arguments of a :class:`~logitloom.generation.ModelLoader`.

    Raises:
        InvalidSignature: if the plug-in does not take these arguments, or returns no
            :class:`~logitloom.generation.LoadedModel`.
    """
    loader = registry.load_plugin("models", name)
    try:
        inspect.signature(loader).bind(path, **where)
    except TypeError as error:
        raise InvalidSignature(
            f"The model plug-in {name!r} cannot be called as commands call it: {error}. Write def load(path=None, "
            f"backend='numpy', device=None)."
        ) from None
    model = loader(path, **where)
    absent = [each for each in ("forward", "tokenizer", "vocabulary") if not hasattr(model, each)]
    if absent:
        raise InvalidSignature(
            f"The model plug-in {name!r} returned {shown(model)}, which has no attribute {absent[0]!r}. Return a "
            f"logitloom.generation.LoadedModel."
        )
    return model
