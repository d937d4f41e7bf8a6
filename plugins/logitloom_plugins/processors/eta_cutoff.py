"""Eta cutoff: keep tokens above a probability that falls with the entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Processor, option
from logitloom_plugins.processors._entropy import entropy
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["EtaCutoff"]


@dataclass(frozen=True)
class EtaCutoff(Processor):
    """Forbid every token whose probability is below ``eta``, except the ``min_keep`` most likely.

    ``eta = min(epsilon, sqrt(epsilon) * exp(-entropy))``: the flatter the distribution, the lower the bar.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("eta_cutoff", {"epsilon": 0.25}))
        >>> logits = np.log(np.array([[0.8, 0.15, 0.05]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[ True, False, False]])

    References:
        J. Hewitt, C. Manning, P. Liang, "Truncation sampling as language model desmoothing", 2022.
    """

    stage = "warp"
    effect = TRUNCATION

    epsilon: float = option(help="Upper bound of the cutoff; usually 3e-4 to 4e-3.", gt=0.0, lt=1.0)
    min_keep: int = option(1, help="Least number of tokens that stay.", ge=1, unit="tokens")

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A log-softmax, its entropy, a selection and a masked fill."""
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        xp = backend.xp
        certain = backend.kth_largest(logits, min(self.min_keep, logits.shape[-1]))
        log_probability = backend.log_softmax(logits)
        spread = entropy(backend, log_probability, xp.exp(log_probability))
        log_epsilon = math.log(self.epsilon)
        log_eta = log_epsilon / 2 - xp.where(spread > -log_epsilon / 2, spread, -log_epsilon / 2)
        return (log_probability < log_eta) & (logits < certain)
