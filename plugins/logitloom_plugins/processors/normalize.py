"""Normalisation: logits as log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import BIAS, Array, Context, Processor
from logitloom_plugins.processors._precision import in_dtype_of

__all__ = ["Normalize"]


@dataclass(frozen=True)
class Normalize(Processor):
    """Subtract the logarithm of the sum of exponentials, so that the exponentials of the logits add up to one.

    ``out = logits - log(sum(exp(logits)))``. No sampler notices; beam search does, because it adds logits up
    (``renormalize_logits`` of transformers).

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load("normalize")
        >>> logits = np.log(np.array([[1.0, 3.0]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.exp(chain.process(logits, chain.init_state(context), context)[0])
        array([[0.25, 0.75]], dtype=float32)

    References:
        J. Bridle, "Probabilistic interpretation of feedforward classification network outputs", 1990 (softmax).
    """

    stage = "warp"
    effect = BIAS.but(reads=("distribution",), keeps=("order",))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A log-softmax."""
        return in_dtype_of(logits, context.backend, context.backend.log_softmax(logits)), state
