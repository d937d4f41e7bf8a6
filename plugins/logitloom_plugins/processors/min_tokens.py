"""Minimum length: no end of sequence before enough tokens were generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import MASK, Array, Context, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._ends import EndProcessor, end_needs

__all__ = ["MinTokens"]


@dataclass(frozen=True)
class MinTokens(EndProcessor):
    """Forbid every end-of-sequence id while a row has generated fewer than ``n`` tokens.

    The prompt does not count (``min_new_tokens`` of transformers), or it does with ``include_prompt`` (``min_length``).

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("min_tokens", {"n": 1, "eos": [0]}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> first, state = chain.process(logits, chain.init_state(context), context)
        >>> second, state = chain.process(logits, state, context.accept([1]))
        >>> first, second
        (array([[-inf,   2.]], dtype=float32), array([[1., 2.]], dtype=float32))

    References:
        G. Klein et al., "OpenNMT: open-source toolkit for neural machine translation", 2017 (minimum decoding length).
    """

    owner = "min_tokens"
    stage = "constraint"
    effect = MASK

    n: int = option(help="Number of tokens that must be generated before the text may end.", ge=0, unit="tokens")
    include_prompt: bool = option(False, help="Whether the prompt's tokens count.")
    eos: tuple[int, ...] | None = option(
        None, help="Ids that end a sequence; default: those of the tokenizer.", ge=0, unit="id"
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The length, the prompt if it counts, and the vocabulary if the ids are not given."""
        return end_needs(self.eos, "length", *(("prompt",) if self.include_prompt else ()))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A store per end-of-sequence id and row."""
        if self.n == 0:
            return logits, state
        ids = self._ends(context)
        length = context.length if self.include_prompt else context.step
        assert length is not None
        index = context.backend.xp.where(length[:, None] < self.n, ids, -1)
        return context.backend.set_at(logits, index, NEG_INF, context.donate), state
