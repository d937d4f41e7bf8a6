"""Assisted decoding: a smaller model with the same tokenizer drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Context, option
from logitloom.errors import GenerationError
from logitloom_plugins.candidates._model_drafts import ModelDrafts, ModelState

__all__ = ["Assistant"]


@dataclass(frozen=True, kw_only=True)
class Assistant(ModelDrafts):
    """Draft with a smaller model of the same tokenizer.

    The model keeps a cache of its own, cropped to the accepted tokens; it may live on another backend or device than
    the target. The weights are only read.

    References:
        Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding", 2023.
    """

    model: Any = option(help="The drafting model: any model adapter.")

    def init_state(self, context: Context) -> ModelState:
        """An empty cache, after comparing the vocabularies' sizes."""
        if self.model.vocab_size != context.vocab_size:
            raise GenerationError(
                f"The assistant has {self.model.vocab_size} tokens and the target {context.vocab_size}, so their ids "
                f"mean different things. Use 'universal' or 'assistant_retokenized' for models of different tokenizers."
            )
        return super().init_state(context)
