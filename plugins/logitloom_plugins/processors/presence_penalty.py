"""Presence penalty: lower the logits of tokens that already occurred, once."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom import PENALTY, Array, Context, Effect, option
from logitloom.arrays.row_operations import LOWER_SEEN, RowOperation
from logitloom_plugins.occurrences import OccurrencePenalty, Recent, Seen
from logitloom_plugins.processors._precision import is_float16, saturated

__all__ = ["PresencePenalty"]


@dataclass(frozen=True)
class PresencePenalty(OccurrencePenalty):
    """Subtract a penalty from the logit of each token that already occurred.

    ``out = logits - penalty * (count > 0)``. By default the generated tokens count (as in the OpenAI API and
    vLLM); mlx-lm counts the last 20 tokens, prompt included: ``window = 20, include_prompt = true``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("presence_penalty", {"penalty": 0.5}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> state = chain.init_state(context)
        >>> chain.process(logits, state, context.accept([[1, 1]]))[0]
        array([[1. , 1.5]], dtype=float32)

    References:
        OpenAI, "API reference: completions, frequency and presence penalties", 2021.
    """

    counts = "bool"

    penalty: float = option(
        help="Number subtracted from the logit of a token that occurred; usually -2 to 2, a negative one encourages.",
        ge=-100.0,
        le=100.0,
    )
    window: int | None = option(
        None, help="How many of the last tokens count; default: all.", ge=1, le=1 << 20, unit="tokens"
    )
    include_prompt: bool = option(False, help="Whether the prompt's tokens count.")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A penalty, an operation if all tokens count."""
        return PENALTY.but(operation=RowOperation(LOWER_SEEN, self.penalty) if self.window is None else None)

    def process(self, logits: Array, state: Seen | Recent, context: Context) -> tuple[Array, Seen | Recent]:
        """A look at the table, and a store per token that occurred; with a window a small gather."""
        backend, xp = context.backend, context.backend.xp
        state = self.next_state(state, context)

        def lowered(x: Array, occurred: object = None) -> Array:
            del occurred
            return saturated(backend, x, x - self.penalty) if is_float16(backend, x) else x - self.penalty

        if isinstance(state, Seen):
            return backend.update_where(logits, state.table, lowered, context.donate), state
        entries = backend.gather(logits, xp.where(state.tokens < 0, 0, state.tokens))
        return backend.write_at(logits, state.tokens, lowered(entries), context.donate), state
