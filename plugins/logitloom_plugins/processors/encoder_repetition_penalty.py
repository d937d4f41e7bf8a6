"""Encoder repetition penalty: make the prompt's tokens more likely, by a factor (hallucination penalty)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from logitloom import PENALTY, Array, Context, Processor, option
from logitloom_plugins.occurrences import Seen, seen
from logitloom_plugins.processors.repetition_penalty import penalized

__all__ = ["EncoderRepetitionPenalty"]


@dataclass(frozen=True)
class EncoderRepetitionPenalty(Processor):
    """Multiply the positive logits of the prompt's tokens by a penalty, and divide the negative ones.

    ``out = logits * penalty if logits > 0 else logits / penalty``. The effect is a penalty on tokens outside the
    prompt: the processor is ``repetition_penalty`` with ``1 / penalty`` for the prompt's tokens alone, whatever was
    generated.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("encoder_repetition_penalty", {"penalty": 2.0}))
        >>> logits = np.array([[4.0, -1.0, 3.0]], dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[0, 1]])
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[ 8. , -0.5,  3. ]], dtype=float32)

    References:
        N. Keskar et al., "CTRL: a conditional transformer language model for controllable generation", 2019 (the
        penalty that is inverted).
    """

    stage = "penalty"
    needs = frozenset({"prompt"})
    effect = PENALTY.but(writes="scales", reads=("logit", "seen"))

    penalty: float = option(help="Factor of the prompt's tokens; above 1 favours them.", ge=0.01, le=100.0)

    def init_state(self, context: Context) -> Seen:
        """The tokens of the prompt: a table over the vocabulary."""
        return seen(context, True, "bool")

    def process(self, logits: Array, state: Seen, context: Context) -> tuple[Array, Seen]:
        """A look at the table, and a store per token of the text."""
        favour = partial(penalized, context.backend, 1.0 / self.penalty)
        return context.backend.update_where(logits, state.table, favour, context.donate), state
