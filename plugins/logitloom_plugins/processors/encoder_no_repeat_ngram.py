"""No n-grams of the prompt: forbid tokens that would copy an n-gram from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import MASK, Array, Context, Processor, option
from logitloom_plugins.processors.no_repeat_ngram import forbid_repeated

__all__ = ["EncoderNoRepeatNgram"]


@dataclass(frozen=True)
class EncoderNoRepeatNgram(Processor):
    """Forbid each token that would complete an n-gram which the prompt contains.

    ``no_repeat_ngram`` looks at the whole text, this processor at the prompt alone; the generated text may repeat
    itself. The last ``n - 1`` tokens may begin in the prompt.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("encoder_no_repeat_ngram", {"n": 2}))
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[1, 2, 3]], max_length=8)
        >>> chain.process(logits, chain.init_state(context), context.accept([[0, 0, 1]]))[0]
        array([[  0.,   0., -inf,   0.]], dtype=float32)

    References:
        S. Roller et al., "Recipes for building an open-domain chatbot", 2020 (n-grams of the context blocked).
    """

    stage = "constraint"
    needs = frozenset({"prompt", "history"})
    effect = MASK

    n: int = option(help="Length of the n-grams.", ge=1, unit="tokens")

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One scan over the history with ``n - 1`` comparisons, and a store per repetition."""
        return forbid_repeated(logits, self.n, context, within=context.prompt_length), state
