"""Early exit: the target's own first layers draft."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from logitloom import Context, option
from logitloom.errors import GenerationError
from logitloom.generation import ModelAdapter
from logitloom_plugins.candidates._model_drafts import ModelDrafts

__all__ = ["EarlyExit"]


@dataclass(frozen=True, kw_only=True)
class EarlyExit(ModelDrafts):
    """Draft with the first layers of the target model and its output head.

    Needs a model adapter with ``first_layers(n)``, which returns an adapter that shares the weights and runs ``n``
    layers. Drafts are good from models that were trained for early exits; any
    other model gives the same output, only no faster.

    References:
        M. Elhoushi et al., "LayerSkip: enabling early exit inference and self-speculative decoding", 2024.
    """

    layers: int = option(help="Number of the model's first layers that draft.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_parts", weakref.WeakKeyDictionary())

    def drafter(self, context: Context) -> ModelAdapter:
        """The first layers of the target, the same object for one target."""
        parts: Any = self.__dict__["_parts"]
        found: ModelAdapter | None = parts.get(context.model)
        if found is None:
            cut = getattr(context.model, "first_layers", None)
            if cut is None:
                raise GenerationError(
                    f"Early exit needs a model that can run its first layers alone, but {type(context.model).__name__} "
                    f"has no method first_layers(n). Use another candidate generator, such as 'prompt_lookup'."
                )
            found = parts[context.model] = cut(self.layers)
        return found
