"""Mirostat: a top-k whose k keeps the surprise of the text near a target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logitloom import TRUNCATION, Array, Context, HostTable, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.processors._feedback import Observe, told
from logitloom_plugins.processors.mirostat_v2 import MirostatState, began, corrected

__all__ = ["Mirostat"]


@dataclass(frozen=True)
class Mirostat(Processor):
    """Keep the ``k`` most likely tokens, with ``k`` such that the surprise is about ``mu`` bits if ranks follow Zipf.

    With ``p_1 >= p_2 >= ...``: the exponent is estimated from the first ``m`` tokens,
    ``s = sum(t_i * b_i) / sum(t_i ** 2)``, ``t_i = log((i + 1) / i)``, ``b_i = log(p_i / p_(i+1))``; then
    ``k = (e * 2 ** mu / (1 - n ** -e)) ** (1 / s)`` with ``e = s - 1`` and ``n`` the size of the vocabulary, at least
    1. After a token ``mu -= eta * (surprise - tau)``, where ``surprise`` is the token's surprise in the normalised
    distribution of the kept tokens; ``mu`` begins at ``2 tau``. Tokens with the logit of the ``k``-th stay. Put it last
    in a chain.

    The state depends on the logits of every step, so nothing can be skipped or rebuilt.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("mirostat", {"tau": 0.6, "m": 3}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True,  True, False]])

    References:
        S. Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", 2021,
        algorithm 1.
    """

    stage = "warp"
    sees_every_step = True
    effect = TRUNCATION.but(reads=("distribution", "seen"))

    tau: float = option(5.0, help="The average surprise that tokens should have.", gt=0.0, le=100.0, unit="bits")
    eta: float = option(
        0.1, help="Learning rate: the share of the error that is corrected at each token.", ge=0.0, le=100.0
    )
    m: int = option(
        100, help="How many of the most likely tokens the estimate of the exponent uses.", ge=2, unit="tokens"
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
        _ranks(min(self.m, context.vocab_size)).on(context.backend)
        return began(context, self.tau, self.observe)

    @as_one_function
    def process(self, logits: Array, state: MirostatState, context: Context) -> tuple[Array, MirostatState]:
        """A sort, the estimate, a masked fill, and a log-softmax of what is left."""
        backend, xp = context.backend, context.backend.xp
        mu = corrected(state, context, self.tau, self.eta, self.observe)
        vocab = logits.shape[-1]
        if vocab == 1:
            return logits, MirostatState(mu, told(backend, logits, self.observe, state.told))
        ordered = backend.sort_descending(logits)
        logprob = backend.log_softmax(ordered)[:, : min(self.m, vocab)]
        # A step to a forbidden token tells nothing about the exponent.
        known = logprob[:, 1:] > NEG_INF
        logprob = backend.masked_fill(logprob, logprob == NEG_INF, 0.0)
        b = logprob[:, :-1] - logprob[:, 1:]
        b = xp.where(known, b, xp.zeros_like(b))
        t = xp.where(known, _ranks(logprob.shape[-1]).on(backend), xp.zeros_like(b))
        squares = xp.sum(t * t, axis=-1)
        s = xp.sum(t * b, axis=-1) / backend.masked_fill(squares, squares == 0, 1.0)
        # In logarithms: 2 ** mu overflows long before mu is unreasonable. At s = 1 the limit is taken just beside it.
        e = s - 1.0
        e = xp.where(xp.abs(e) < 1e-4, 0.0 * e + 1e-4, e)
        inner = xp.log(xp.abs(e / (1.0 - float(vocab) ** -e))) + mu * float(np.log(2.0))
        s = backend.masked_fill(s, s < 1e-3, 1e-3)
        k = xp.exp(xp.clip(inner / s, 0.0, float(np.log(vocab))))
        index = backend.cast(xp.floor(k + 1e-4), "int32") - 1
        index = xp.clip(index, 0, vocab - 1)[:, None]
        out = backend.masked_fill(logits, logits < backend.gather(ordered, index), NEG_INF, context.donate)
        return out, MirostatState(mu, told(backend, out, self.observe, state.told))


def _ranks(m: int) -> HostTable:
    """``log((i + 1) / i)`` for the ranks 1 to m - 1, ``[1, m - 1] float32``, uploaded once per backend."""
    if m not in _RANKS:
        rank = np.arange(1, m, dtype=np.float64)
        _RANKS[m] = HostTable(np.log((rank + 1.0) / rank)[None, :].astype(np.float32))
    return _RANKS[m]


_RANKS: dict[int, HostTable] = {}
