"""Forced end: at a given length, only the end of sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import MASK, Array, Context, option
from logitloom_plugins.processors._ends import EndProcessor, end_needs

__all__ = ["ForcedEos"]


@dataclass(frozen=True)
class ForcedEos(EndProcessor):
    """Forbid everything but end-of-sequence ids where the next token is the last one that has room.

    A row ends with its ``max_length``-th token at the latest. With ``include_prompt`` the prompt counts, as in
    transformers. There the end ids get the logit 0; here they keep their logits, so that the likeliest of several end
    ids is chosen.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("forced_eos", {"max_length": 3, "eos": [0]}))
        >>> logits = np.array([[1.0, 2.0]], dtype=np.float32)
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context.accept([[1, 1]]))[0]
        array([[  1., -inf]], dtype=float32)

    References:
        M. Lewis et al., "BART: denoising sequence-to-sequence pre-training", 2020 (end of sequence forced at the
        greatest length).
    """

    owner = "forced_eos"
    stage = "constraint"
    effect = MASK

    max_length: int = option(
        help="Number of tokens of a row at which it ends, end-of-sequence included.", ge=1, unit="tokens"
    )
    include_prompt: bool = option(False, help="Whether the prompt's tokens count.")
    eos: tuple[int, ...] | None = option(
        None, help="Ids that end a sequence; default: those of the tokenizer.", ge=0, unit="id"
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The length, the prompt if it counts, and the vocabulary if the ids are not given."""
        return end_needs(self.eos, "length", *(("prompt",) if self.include_prompt else ()))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A comparison and a masked fill, and a store per end-of-sequence id and row."""
        ids = self._ends(context)
        index = context.backend.xp.broadcast_to(ids, (logits.shape[0], ids.shape[1]))
        last = (self._length(context) == self.max_length - 1)[:, None]
        return self._only_ends(logits, last, index, context), state

    def forced_tokens(self, context: Context) -> list[list[int]]:
        """The end id of each row that must end now, if there is a single end id."""
        ids = self._end_ids(context)
        due = (context.backend.to_numpy(self._length(context)) == self.max_length - 1).tolist()
        return [[ids[0]] if here and len(ids) == 1 else [] for here in due]

    def _length(self, context: Context) -> Array:
        return context.length if self.include_prompt else context.step
