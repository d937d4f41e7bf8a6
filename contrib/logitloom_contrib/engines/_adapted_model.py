"""The model that a chain runs beside its engine, as a model adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitloom import Chain
from logitloom.errors import NeedsNotMet
from logitloom_contrib.engines._given import NoModel

__all__ = ["adapted"]


def adapted(chain: Chain, model: Any, engine: str, adapter: Callable[[Any], Any]) -> Any:
    """The adapter of the model that a chain runs (guidance); None if the chain runs none.

    Args:
        chain: the processors.
        model: a model of the engine, or a model adapter.
        engine: the engine's name, for messages.
        adapter: makes the adapter of a model of the engine.

    Raises:
        NeedsNotMet: the model is neither.
        ModelError: of the adapter.
    """
    if model is None or "model" not in chain.needs:
        return None
    if hasattr(model, "empty_cache"):
        return model
    try:
        return adapter(model)
    except (AttributeError, TypeError, NoModel) as error:
        raise NeedsNotMet(
            f"{engine} cannot run {', '.join(chain.labels)} with the {type(model).__name__} that it was given as "
            f"model: {error!s:.200}. Give the engine's model (or a model adapter) as model, and the tokenizer as "
            f"tokenizer."
        ) from error
