"""XTC (exclude top choices): now and then, forbid the most likely tokens but the least of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from logitloom import TRUNCATION, Array, Context, Effect, Processor, option
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.processors._token_table import TokenTable

__all__ = ["Xtc", "XtcState"]

#: Distinguishes the random draws of this processor from the draws of other processors at the same step.
_STREAM = 0x787463


class XtcState(NamedTuple):
    """State: a row tree.

    Attributes:
        seed: ``[rows] int32``.
    """

    seed: Array


@dataclass(frozen=True)
class Xtc(Processor):
    """With some probability, forbid all tokens above a threshold except the least likely of them.

    If at least two tokens have a probability ``>= threshold``, the likelier ones are forbidden and the least likely of
    these tokens stays (several, if they tie). Each row draws from its own seed and length, so a row draws the same in
    any batch, on any backend, and after it is rebuilt.

    mlx-lm compares with ``>`` instead of ``>=`` and draws once for the whole batch.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("xtc", {"threshold": 0.25, "probability": 1.0}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[False,  True,  True]])

    References:
        P. E. Weidmann, "Exclude Top Choices (XTC): a sampler that boosts creativity, breaks writing clichés, and
        inhibits non-verbatim repetition", pull request to text-generation-webui, 2024.
    """

    stage = "warp"
    needs = frozenset({"length"})

    threshold: float = option(0.1, help="Least probability of a top choice.", gt=0.0, le=1.0)
    probability: float = option(0.5, help="Probability that top choices are excluded at a step.", ge=0.0, le=1.0)
    keep: tuple[int, ...] = option((), help="Ids that are never excluded, such as end of sequence.", ge=0, unit="id")

    @property
    def effect(self) -> Effect:  # type: ignore[override]
        """A truncation from the top, which some ids may be exempt from."""
        return TRUNCATION.but(reads=("distribution", *(("ids",) if self.keep else ())), keeps=("last",))

    @cached_property
    def _excludable(self) -> TokenTable:
        return TokenTable(self.keep, "keep", "xtc", invert=True)

    def init_state(self, context: Context) -> XtcState:
        """One seed per row."""
        if self.keep:
            self._excludable.on(context.backend, context.vocab_size)
        return XtcState(context.backend.asarray(context.row_seeds()))

    def states_after(self, state: XtcState, context: Context) -> XtcState:
        """The seeds, once per token and once more: they never change."""
        assert context.tokens is not None
        return XtcState(context.backend.concat_rows([state.seed] * (context.tokens.shape[1] + 1)))

    @as_one_function
    def process(self, logits: Array, state: XtcState, context: Context) -> tuple[Array, XtcState]:
        """A softmax, a masked minimum, a comparison and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        drawn = rng.uniform(backend.xp, state.seed, context.length, _STREAM) < self.probability
        others = (backend.softmax(logits) < self.threshold) | (logits == NEG_INF)
        least = xp.min(backend.masked_fill(logits, others, float("inf")), axis=-1, keepdims=True)
        excluded = (logits > least) & drawn[:, None]
        if self.keep:
            excluded = excluded & self._excludable.on(backend, logits.shape[-1])
        return backend.masked_fill(logits, excluded, NEG_INF, context.donate), state
