"""End on a threshold: once the end of sequence is likely enough, nothing else is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import Array, Context, Effect, option
from logitloom_plugins.processors._ends import EndProcessor, end_needs

__all__ = ["EosAbove"]


@dataclass(frozen=True)
class EosAbove(EndProcessor):
    """Forbid everything but end-of-sequence ids in rows where one of them is more likely than ``p``.

    Audio models go on with noise after an end that was not sampled.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("eos_above", {"p": 0.3, "eos": [0]}))
        >>> logits = np.log(np.array([[0.4, 0.6], [0.2, 0.8]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True, False],
               [ True,  True]])

    References:
        Suno, "Bark: text-prompted generative audio model", 2023 (``min_eos_p`` of its semantic stage).
    """

    owner = "eos_above"
    stage = "warp"
    effect = Effect("forbids", reads=("distribution", "ids"), keeps=("last",))

    p: float = option(help="Probability of end-of-sequence from which the row ends.", ge=0.0, le=1.0)
    eos: tuple[int, ...] | None = option(
        None, help="Ids that end a sequence; default: those of the tokenizer.", ge=0, unit="id"
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The vocabulary if the ids are not given."""
        return end_needs(self.eos)

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A softmax, a masked fill, and a store per end-of-sequence id and row."""
        backend, xp = context.backend, context.backend.xp
        ids = self._ends(context)
        index = xp.broadcast_to(ids, (logits.shape[0], ids.shape[1]))
        ending = xp.max(backend.gather(backend.softmax(logits), index), axis=-1, keepdims=True) > self.p
        return self._only_ends(logits, ending, index, context), state
