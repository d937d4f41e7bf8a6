"""DiPmark: reweigh probabilities along a keyed order of the vocabulary; over keys nothing is distorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom import REWEIGHT, Array, Context, Processor, load_backend, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._precision import in_dtype_of
from logitloom_plugins.watermarks.detection import Detection, binomial, text_ids
from logitloom_plugins.watermarks.keyed_context import (
    KeyedContext,
    advance,
    first_grams,
    hashes,
    seeds_of,
    start,
    unmarked_yet,
)  # fmt: skip

__all__ = ["WatermarkDipmark"]


@dataclass(frozen=True)
class WatermarkDipmark(Processor):
    """Move probability towards the end of an order of the vocabulary that a key and the last ``width`` tokens draw.

    With ``F(i)`` the probability of the tokens up to the i-th of the order, that becomes
    ``max(F(i) - alpha, 0) + max(F(i) - (1 - alpha), 0)``. An order and its reverse are equally probable, and the mean
    of the two is the given distribution. So over all keys nothing is distorted, whatever ``alpha`` is: 0 leaves no
    mark, and 0.5, which doubles the upper half and forbids the lower half, is the gamma-reweight of Hu et al.

    A context that came before in the row is not marked again, so whole texts are not distorted either. The detector
    counts tokens of the upper half of the order, which chance puts there half of the time. Put it last in a chain,
    after temperature and truncations. Drafts keep the whole mark.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("watermark_dipmark", {"key": 5, "width": 1, "alpha": 0.5}))
        >>> logits = np.zeros((1, 4), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[2]])
        >>> np.exp(chain.process(logits, chain.init_state(context), context)[0]).round(3) * 0.25
        array([[0. , 0. , 0.5, 0.5]], dtype=float32)
        >>> chain["watermark_dipmark"].detect([2, 1, 3, 0, 2, 3], vocab_size=4).scored
        4

    References:
        Y. Wu et al., "A resilient and accessible distribution-preserving watermark for large language models", 2024
        (DiPmark); Z. Hu et al., "Unbiased watermark for large language models", 2024 (gamma-reweight, and that
        contexts must not be marked twice).
    """

    stage = "warp"
    needs = frozenset({"prompt"})
    effect = REWEIGHT

    key: int = option(help="The secret; the mark can be detected with it alone.")
    width: int = option(4, help="How many tokens decide the order.", ge=1, le=1024, unit="tokens")
    alpha: float = option(0.45, help="Strength of the mark; 0.5 is the gamma-reweight.", ge=0.0, le=0.5)

    def init_state(self, context: Context) -> KeyedContext:
        """The end of the prompt."""
        return start(context, self.width)

    def process(self, logits: Array, state: KeyedContext, context: Context) -> tuple[Array, KeyedContext]:
        """A softmax, a sort of the vocabulary, and a running sum."""
        backend, xp = context.backend, context.backend.xp
        state = advance(state, context, self.key)
        seeds = seeds_of(state.recent.tokens, self.key, xp)
        marked = unmarked_yet(state, seeds, backend)[:, None]
        order = xp.argsort(hashes(seeds[:, None], backend.arange(logits.shape[-1])[None, :], xp), axis=-1, stable=True)
        p = backend.gather(backend.softmax(backend.at_least_float32(logits)), order)
        upto = xp.cumulative_sum(p, axis=-1)
        # The part of each token's own share of the sum that lies above each border: exact where all or nothing does.
        kept = xp.minimum(p, xp.clip(upto - self.alpha, 0.0, None))
        kept = kept + xp.minimum(p, xp.clip(upto - (1.0 - self.alpha), 0.0, None))
        # Tokens whose probability rounds to 0 keep their logits.
        possible = p > 0
        factor = xp.where(possible, kept / xp.where(possible, p, xp.ones_like(p)), xp.ones_like(p))
        factor = backend.gather(factor, xp.argsort(backend.cast(order, "int32"), axis=-1, stable=True))
        left = factor > 0
        added = xp.log(xp.where(left, factor, xp.ones_like(factor)))
        out = in_dtype_of(logits, backend, logits + added)
        out = backend.masked_fill(out, xp.logical_not(left), NEG_INF)
        return xp.where(marked, out, logits), state

    def detect(self, ids: Sequence[int], *, vocab_size: int = 0) -> Detection:
        """Look for the mark in a text: how many of its tokens are of the upper half of their order.

        Args:
            ids: the text's tokens; best without the prompt.
            vocab_size: unused; the half of the order follows from the sign of the token's hash.

        Raises:
            InvalidContext: ``ids`` are not the ids of one text.
        """
        del vocab_size
        ids = text_ids(ids)
        grams = first_grams(ids, self.width)
        if not len(grams):
            return binomial(0, 0, 0.5, ids)
        xp = load_backend("numpy").xp
        with np.errstate(over="ignore"):
            upper = np.asarray(hashes(seeds_of(grams[:, :-1], self.key, xp), grams[:, -1], xp)) >= 0
        return binomial(int(upper.sum()), len(upper), 0.5, ids)
