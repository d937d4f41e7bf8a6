"""Typical sampling: keep the tokens whose surprise is closest to the expected one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logitloom import TRUNCATION, Array, Backend, Context, Processor, option
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.processors._entropy import entropy
from logitloom_plugins.processors._row_blocks import fill_forbidden

__all__ = ["TypicalP"]


@dataclass(frozen=True)
class TypicalP(Processor):
    """Keep the tokens of the most typical information content until they have the mass ``p``.

    A token's distance is ``| -log(probability) - entropy |``. From the smallest distance up, tokens stay until their
    cumulative probability reaches ``p``; all tokens at the distance that reaches ``p`` stay. Libraries add up in
    different orders, so a token at the very border may stay on one and go on another.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("typical_p", {"p": 0.2}))
        >>> logits = np.log(np.array([[0.5, 0.3, 0.2]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> np.isfinite(chain.process(logits, chain.init_state(context), context)[0])
        array([[False,  True, False]])

    References:
        C. Meister, T. Pimentel, G. Wiher, R. Cotterell, "Locally typical sampling", 2022.
    """

    stage = "warp"
    effect = TRUNCATION.but(keeps=("last",))

    p: float = option(help="Probability to keep; 1 keeps all tokens.", gt=0.0, le=1.0)
    min_keep: int = option(1, help="Least number of tokens that stay.", ge=1, unit="tokens")

    @as_one_function
    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """A log-softmax, an entropy, the border of a mass, and a masked fill."""
        if self.p == 1.0:
            return logits, state
        return fill_forbidden(self._forbidden, logits, context), state

    def _forbidden(self, logits: Array, backend: Backend) -> Array:
        xp = backend.xp
        log_probability = backend.log_softmax(logits)
        probability = xp.exp(log_probability)
        closeness = -xp.abs(log_probability + entropy(backend, log_probability, probability))
        reached = backend.mass_threshold(closeness, probability, self.p)
        certain = backend.kth_largest(closeness, min(self.min_keep, logits.shape[-1]))
        threshold = xp.minimum(reached, certain)
        return closeness < threshold
