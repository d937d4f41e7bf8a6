"""Mirostat 2: a truncation that keeps the surprise of the text near a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logitloom import TRUNCATION, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._feedback import Observe, nothing_told, observed, told

__all__ = ["MirostatState", "MirostatV2"]


class MirostatState(NamedTuple):
    """State: a row tree.

    Attributes:
        mu: ``[rows] float32``, bits: the surprise up to which tokens stay.
        told: ``[rows, vocab] float32``, log-probabilities of the last step; ``[rows, 0]`` if the sampler tells.
    """

    mu: Array
    told: Array


def began(context: Context, tau: float, observe: Observe) -> MirostatState:
    """The state of a start: ``mu = 2 tau``."""
    mu = context.backend.asarray(np.full(context.batch, 2.0 * tau, dtype=np.float32))
    return MirostatState(mu, nothing_told(context, observe))


def corrected(state: MirostatState, context: Context, tau: float, eta: float, observe: Observe) -> Array:
    """``mu - eta * (surprise - tau)`` in rows that chose a token, in bits."""
    found = observed(state.told, context, observe)
    if found is None:
        return state.mu
    surprise = -found.logprob / math.log(2.0)
    return context.backend.xp.where(found.present, state.mu - eta * (surprise - tau), state.mu)


@dataclass(frozen=True)
class MirostatV2(Processor):
    """Forbid tokens with more surprise than ``mu`` bits, and move ``mu`` by how surprising the chosen token was.

    ``keep = -log2(p) <= mu``, and the most likely token always. After a token: ``mu -= eta * (surprise - tau)``, where
    ``surprise`` is the token's surprise in the normalised distribution of the kept tokens; ``mu`` begins at ``2 tau``.
    Put this processor last in a chain (as llama.cpp does); with processors after it, ``observe = "chosen"`` takes the
    surprise from the sampler itself.

    The state depends on the logits of every step, so nothing can be skipped or rebuilt.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("mirostat_v2", {"tau": 1.0, "eta": 0.5}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> first, state = chain.process(logits, chain.init_state(context), context)
        >>> second, state = chain.process(logits, state, context.accept([0]))
        >>> np.isfinite(first), state.processors[0].mu.round(2)
        (array([[ True,  True, False]]), array([2.16], dtype=float32))

    References:
        S. Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", 2021 (and its
        simplified second algorithm, as llama.cpp and ExLlama have it).
    """

    stage = "warp"
    sees_every_step = True
    effect = TRUNCATION.but(reads=("distribution", "seen"))

    tau: float = option(5.0, help="The average surprise that tokens should have.", gt=0.0, le=100.0, unit="bits")
    eta: float = option(
        0.1, help="Learning rate: the share of the error that is corrected at each token.", ge=0.0, le=100.0
    )
    observe: Observe = option(
        "own",
        help="Which probability of the chosen token counts: 'own', after this processor, or 'chosen', after the "
        "whole chain.",
    )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The sampler's own log-probability of the chosen token, if that counts."""
        return frozenset({"chosen_logprob"}) if self.observe == "chosen" else frozenset()

    def init_state(self, context: Context) -> MirostatState:
        """``mu = 2 tau``, and nothing told."""
        return began(context, self.tau, self.observe)

    def process(self, logits: Array, state: MirostatState, context: Context) -> tuple[Array, MirostatState]:
        """A log-softmax, a masked fill, and a log-softmax of what is left."""
        backend, xp = context.backend, context.backend.xp
        mu = corrected(state, context, self.tau, self.eta, self.observe)
        logprob = backend.log_softmax(logits)
        border = xp.minimum(-mu[:, None] * math.log(2.0), xp.max(logprob, axis=-1, keepdims=True))
        out = backend.masked_fill(logits, logprob < border, NEG_INF, context.donate)
        return out, MirostatState(mu, told(backend, out, self.observe, state.told))
