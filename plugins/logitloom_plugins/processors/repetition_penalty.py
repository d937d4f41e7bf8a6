"""Repetition penalty: make tokens that already occurred less likely, by a factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from logitloom import PENALTY, Array, Backend, Context, Effect, option
from logitloom.arrays.row_operations import RESCALE_SEEN, RowOperation
from logitloom_plugins.occurrences import OccurrencePenalty, Recent, Seen
from logitloom_plugins.processors._precision import is_float16, saturated

__all__ = ["RepetitionPenalty", "penalized"]


@dataclass(frozen=True)
class RepetitionPenalty(OccurrencePenalty):
    """Divide the positive logits of tokens that already occurred by a penalty, and multiply the negative ones.

    ``out = logits / penalty if logits > 0 else logits * penalty``, once per token however often it occurred. By
    default the whole text counts, prompt included (as in transformers); with ``window`` only its last
    tokens (as in mlx-lm, whose default is 20).

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("repetition_penalty", {"penalty": 2.0}))
        >>> logits = np.array([[4.0, -1.0, 3.0]], dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[0, 1]])
        >>> chain.process(logits, chain.init_state(context), context)[0]
        array([[ 2., -2.,  3.]], dtype=float32)

    References:
        N. Keskar et al., "CTRL: a conditional transformer language model for controllable generation", 2019.
    """

    counts = "bool"

    penalty: float = option(
        help="Factor of tokens that occurred; above 1 discourages them, below 1 encourages them.", ge=0.01, le=100.0
    )
    window: int | None = option(
        None, help="How many of the last tokens count; default: all.", ge=1, le=1 << 20, unit="tokens"
    )
    include_prompt: bool = option(True, help="Whether the prompt's tokens count.")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A penalty, an operation if all tokens count."""
        operation = RowOperation(RESCALE_SEEN, self.penalty) if self.window is None else None
        return PENALTY.but(writes="scales", reads=("logit", "seen"), operation=operation)

    def process(self, logits: Array, state: Seen | Recent, context: Context) -> tuple[Array, Seen | Recent]:
        """A look at the table, and a store per token that occurred; with a window two small gathers."""
        backend, xp = context.backend, context.backend.xp
        state = self.next_state(state, context)
        if isinstance(state, Seen):
            change = partial(penalized, backend, self.penalty)
            return backend.update_where(logits, state.table, change, context.donate), state
        entries = backend.gather(logits, xp.where(state.tokens < 0, 0, state.tokens))
        entries = penalized(backend, self.penalty, entries)
        return backend.write_at(logits, state.tokens, entries, context.donate), state


def penalized(backend: Backend, penalty: float, x: Array, occurred: object = None) -> Array:
    """``x / penalty`` where ``x`` is positive, else ``x * penalty``."""
    del occurred
    # A positive x shrinks to the smaller of x * penalty and x / penalty, and a negative x grows to the same one.
    choose = backend.xp.minimum if penalty >= 1.0 else backend.xp.maximum
    changed = choose(backend.scale(x, penalty), backend.divide(x, penalty))
    return saturated(backend, x, changed) if is_float16(backend, x) else changed
