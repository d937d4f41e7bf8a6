"""Exponential decay of length: the end of sequence gets ever more likely after some length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Array, Context, Processor, option
from logitloom_plugins.processors._ends import end_ids, end_needs, ends_table
from logitloom_plugins.processors._precision import at_least_float32, in_dtype_of

__all__ = ["ExponentialDecayLengthPenalty"]


@dataclass(frozen=True)
class ExponentialDecayLengthPenalty(Processor):
    """Raise the logits of end-of-sequence ids, exponentially in the number of tokens beyond a start.

    ``out = logits + abs(logits) * (factor ** (generated - start) - 1)`` for rows that generated more than ``start``
    tokens. A forbidden end stays forbidden.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> options = {"start": 1, "factor": 1.5, "eos": [0]}
        >>> chain = processors.load(("exponential_decay_length_penalty", options))
        >>> logits = np.array([[-2.0, 1.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context.accept([[1, 1, 1]]))[0]
        array([[0.5, 1. ]], dtype=float32)

    References:
        T. Wolf et al., "Transformers: state-of-the-art natural language processing", 2020 (its
        ``exponential_decay_length_penalty``).
    """

    stage = "penalty"
    preserves_masked = True
    keeps_last = True

    start: int = option(help="Generated tokens before the decay begins.", ge=0, unit="tokens")
    factor: float = option(
        help="Growth per token; above 1 hastens the end, below 1 delays it.", gt=0.0, lt=float("inf")
    )
    eos: tuple[int, ...] | None = option(
        None, help="Ids that end a sequence; default: those of the tokenizer.", ge=0, unit="id"
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The length, and the vocabulary if the ids are not given."""
        return end_needs(self.eos, "length")

    def init_state(self, context: Context) -> tuple[()]:
        """Check the ids and upload them; no state.

        Raises:
            NeedsNotMet: if there is no end-of-sequence id.
            OptionError: if an id lies outside the logits.
        """
        ends_table(end_ids(self.eos, context, "exponential_decay_length_penalty")).on(context.backend)
        return ()

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A store per end-of-sequence id and row."""
        backend, xp = context.backend, context.backend.xp
        ids = ends_table(end_ids(self.eos, context, "exponential_decay_length_penalty")).on(backend)
        beyond = backend.cast(xp.maximum(context.step - self.start, 0 * context.step), "float32")[:, None]
        index = xp.broadcast_to(ids, (logits.shape[0], ids.shape[1]))
        ends = at_least_float32(backend, backend.gather(logits, index))
        size = backend.masked_fill(xp.abs(ends), xp.abs(ends) == float("inf"), 0.0)
        raised = ends + size * (self.factor**beyond - 1.0)
        return backend.write_at(logits, index, in_dtype_of(logits, backend, raised), context.donate), state
