"""Adaptive-p: prefer tokens whose probability is near a target, and steer the average towards it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logitloom import REWEIGHT, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._feedback import nothing_told, observed, told
from logitloom_plugins.processors._precision import in_dtype_of

__all__ = ["AdaptiveP", "AdaptivePState"]

#: Shape of the preference curve: highest logit, width and steepness.
_PEAK, _WIDTH, _STEEPNESS = 5.0, 0.3, 10.0


class AdaptivePState(NamedTuple):
    """State: a row tree.

    Attributes:
        total: ``[rows] float32``, the decayed sum of probabilities of chosen tokens.
        weight: ``[rows] float32``, the decayed number of chosen tokens.
        told: ``[rows, vocab] float32``, log-probabilities that came in at the last step.
    """

    total: Array
    weight: Array
    told: Array


@dataclass(frozen=True)
class AdaptiveP(Processor):
    """Replace each logit by the closeness of its probability to a target, which makes up for earlier choices.

    ``out = 5 - 10 * d ** 2 / (1 + d)`` with ``d = abs(p - aim) / 0.3`` and ``aim = 2 target - average``, between 0 and
    1. The average is over the probabilities that chosen tokens had before the replacement, with older tokens decayed;
    it begins at the target. All unlikely tokens get about the same logit, so put a truncation such as ``min_p`` before
    this processor; forbidden tokens stay forbidden. Put it last in a chain.

    The state depends on the logits of every step, so nothing can be skipped or rebuilt.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("adaptive_p", {"target": 0.3}))
        >>> logits = np.log(np.array([[0.6, 0.3, 0.1]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> chain.process(logits, chain.init_state(context), context)[0].round(2)
        array([[0.  , 5.  , 2.33]], dtype=float32)

    References:
        MrJackSpade and ddh0, "Adaptive-p sampler", pull request 17927 to llama.cpp, 2025.
    """

    stage = "warp"
    sees_every_step = True
    effect = REWEIGHT

    target: float = option(0.55, help="The average probability that chosen tokens should have.", ge=0.0, le=1.0)
    decay: float = option(
        0.9, help="Weight of earlier tokens in the running average; 0 counts only the newest token.", ge=0.0, le=0.99
    )

    def init_state(self, context: Context) -> AdaptivePState:
        """An average that is the target."""
        weight = np.full(context.batch, 1.0 / (1.0 - self.decay), dtype=np.float32)
        upload = context.backend.asarray
        return AdaptivePState(upload(weight * np.float32(self.target)), upload(weight), nothing_told(context, "own"))

    def process(self, logits: Array, state: AdaptivePState, context: Context) -> tuple[Array, AdaptivePState]:
        """A softmax and a few sweeps over the vocabulary."""
        backend, xp = context.backend, context.backend.xp
        total, weight = state.total, state.weight
        found = observed(state.told, context, "own")
        if found is not None:
            total = xp.where(found.present, self.decay * total + xp.exp(found.logprob), total)
            weight = xp.where(found.present, self.decay * weight + 1.0, weight)
        aim = xp.clip(2.0 * self.target - total / weight, 0.0, 1.0)[:, None]
        distance = xp.abs(backend.softmax(logits) - aim) / _WIDTH
        out = in_dtype_of(logits, backend, _PEAK - _STEEPNESS * distance**2 / (1.0 + distance))
        out = backend.masked_fill(out, logits == NEG_INF, NEG_INF, True)
        return out, AdaptivePState(total, weight, told(backend, logits, "own", state.told))
