"""Frequency penalty: lower the logits of tokens in proportion to how often they occurred."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom import PENALTY, Array, Context, Effect, option
from logitloom.arrays.row_operations import LOWER_BY_COUNT, RowOperation
from logitloom_plugins.occurrences import OccurrencePenalty, Recent, Seen
from logitloom_plugins.processors._precision import is_float16, saturated

__all__ = ["FrequencyPenalty"]


@dataclass(frozen=True)
class FrequencyPenalty(OccurrencePenalty):
    """Subtract a penalty from the logit of each token, times how often it occurred.

    ``out = logits - penalty * count``. By default the generated tokens count (as in the OpenAI API and vLLM);
    mlx-lm counts the last 20 tokens, prompt included: ``window = 20, include_prompt = true``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("frequency_penalty", {"penalty": 0.5}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> state = chain.init_state(context)
        >>> chain.process(logits, state, context.accept([[1, 1]]))[0]
        array([[1., 1.]], dtype=float32)

    References:
        OpenAI, "API reference: completions, frequency and presence penalties", 2021.
    """

    counts = "float32"

    penalty: float = option(
        help="Number subtracted from a token's logit for each occurrence; usually -2 to 2, a negative one encourages.",
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
        return PENALTY.but(operation=RowOperation(LOWER_BY_COUNT, self.penalty) if self.window is None else None)

    def process(self, logits: Array, state: Seen | Recent, context: Context) -> tuple[Array, Seen | Recent]:
        """A look at the counts, and a store per token that occurred; with a window one more."""
        backend = context.backend
        state = self.next_state(state, context)
        if isinstance(state, Seen):
            counts = state.table
        else:
            blank = backend.xp.zeros(logits.shape, dtype=backend.xp.float32)
            counts = backend.add_at(blank, state.tokens, 1.0, donate=True)

        def lowered(x: Array, count: Array) -> Array:
            changed = backend.add(x, backend.scale(count, -self.penalty))
            return saturated(backend, x, changed) if is_float16(backend, x) else changed

        return backend.update_where(logits, counts, lowered, context.donate), state
