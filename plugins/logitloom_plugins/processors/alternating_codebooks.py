"""Alternating codebooks: two ranges of ids in turn, as audio models interleave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import MASK, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import OptionError

__all__ = ["AlternatingCodebooks"]


@dataclass(frozen=True)
class AlternatingCodebooks(Processor):
    """Allow the ids of the first codebook and of the second one in turn.

    At even steps ``offset <= id < offset + size``, at odd ones ``id >= offset + size``.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("alternating_codebooks", {"offset": 1, "size": 2}))
        >>> logits = np.zeros((1, 5), dtype=np.float32)
        >>> context = Context.start(logits)
        >>> first, state = chain.process(logits, chain.init_state(context), context)
        >>> np.isfinite(first), np.isfinite(chain.process(logits, state, context.accept([1]))[0])
        (array([[False,  True,  True, False, False]]), array([[False, False, False,  True,  True]]))

    References:
        Suno, "Bark: text-prompted generative audio model", 2023 (the coarse stage).
    """

    stage = "constraint"
    needs = frozenset({"length"})
    effect = MASK

    offset: int = option(help="First id of the first codebook (the size of the semantic vocabulary).", ge=0, unit="id")
    size: int = option(help="Ids of the first codebook.", ge=1, unit="ids")

    def init_state(self, context: Context) -> tuple[()]:
        """Nothing.

        Raises:
            OptionError: if no id is left for the second codebook.
        """
        if self.offset + self.size >= context.vocab_size:
            raise OptionError(
                f"'alternating_codebooks' has a second codebook from id {self.offset + self.size} (offset + size), but "
                f"the logits have ids 0 to {context.vocab_size - 1}. Lower offset or size."
            )
        return ()

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Two comparisons and a masked fill."""
        ids = context.backend.arange(logits.shape[-1])[None, :]
        even = (context.step % 2 == 0)[:, None]
        second = ids >= self.offset + self.size
        forbidden = (ids < self.offset) | (second == even)
        return context.backend.masked_fill(logits, forbidden, NEG_INF, context.donate), state
