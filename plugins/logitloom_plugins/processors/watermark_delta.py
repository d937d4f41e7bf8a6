"""Delta-reweight: a keyed number chooses the token by the inverse of the distribution function in a keyed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom import Array, Context, Effect, Processor, load_backend, option
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF
from logitloom.generation import draw
from logitloom_plugins.watermarks.detection import Detection, gamma, text_ids
from logitloom_plugins.watermarks.keyed_context import (
    KeyedContext,
    advance,
    first_grams,
    hashes,
    seeds_of,
    start,
    unmarked_yet,
)  # fmt: skip

__all__ = ["WatermarkDelta"]

#: Number of this processor's random stream, so that its draws differ from the draws of all other processors.
_STREAM = 0x64656C74


@dataclass(frozen=True)
class WatermarkDelta(Processor):
    """Choose the first token of an order up to which the tokens have more probability than ``u``, and forbid the rest.

    A key and the last ``width`` tokens decide both: ``u``, a number between 0 and 1, and the order of the vocabulary.
    Over keys the chosen token has the distribution that comes in. A context that came before in the row is not marked
    again, so whole texts are not distorted either.

    In a text with the mark the rank ``r`` (0 to 1) of a token in the order is near ``u``. In other texts ``r`` and
    ``u`` are independent, so ``-log(1 - (1 - |u - r|)**2)`` is exponentially distributed; the detector adds it up, and
    needs no model. Put it last in a chain. Drafts keep the whole mark, since one token is legal; beams are of no use
    with it.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("watermark_delta", {"key": 5, "width": 1}))
        >>> logits = np.zeros((1, 6), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[2]])
        >>> int(np.isfinite(chain.process(logits, chain.init_state(context), context)[0]).sum())
        1
        >>> chain["watermark_delta"].detect([2, 1, 4, 3, 3], vocab_size=6).scored
        4

    References:
        Z. Hu et al., "Unbiased watermark for large language models", 2024 (delta-reweight; their detector asks the
        model); R. Kuditipudi et al., "Robust distortion-free watermarks for language models", 2024 (detection by the
        distance between number and rank).
    """

    stage = "warp"
    needs = frozenset({"prompt"})
    effect = Effect("forbids", reads=("distribution", "ids", "seen"), keeps=("last",))

    key: int = option(help="The secret; the mark can be detected with it alone.")
    width: int = option(4, help="How many tokens decide number and order.", ge=1, le=1024, unit="tokens")

    def init_state(self, context: Context) -> KeyedContext:
        """The end of the prompt."""
        return start(context, self.width)

    def process(self, logits: Array, state: KeyedContext, context: Context) -> tuple[Array, KeyedContext]:
        """A softmax, a sort of the vocabulary, a running sum, and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        state = advance(state, context, self.key)
        if logits.shape[0] == 0:  # no library takes the largest of nothing
            return logits, state
        seeds = seeds_of(state.recent.tokens, self.key, xp)
        marked = unmarked_yet(state, seeds, backend)[:, None]
        ids = backend.arange(logits.shape[-1])[None, :]
        order = xp.argsort(hashes(seeds[:, None], ids, xp), axis=-1, stable=True)
        p = backend.gather(backend.softmax(logits), order)
        first = draw(backend, p, rng.uniform(xp, seeds, seeds * 0, _STREAM))
        chosen = backend.gather(order, first[:, None])
        return backend.masked_fill(logits, marked & (ids != chosen), NEG_INF, context.donate), state

    def detect(self, ids: Sequence[int], *, vocab_size: int = 0) -> Detection:
        """Look for the mark in a text.

        Args:
            ids: the text's tokens; best without the prompt.
            vocab_size: unused; the rank of a token follows from its hash, which is uniform.

        Raises:
            InvalidContext: ``ids`` are not the ids of one text.
        """
        del vocab_size
        ids = text_ids(ids)
        grams = first_grams(ids, self.width)
        if not len(grams):
            return gamma(0.0, 0)
        xp = load_backend("numpy").xp
        with np.errstate(over="ignore"):
            seeds = seeds_of(grams[:, :-1], self.key, xp)
            rank = np.asarray(hashes(seeds, grams[:, -1], xp), dtype=np.float64) / 2.0**32 + 0.5
            u = np.asarray(rng.uniform(xp, seeds, seeds * 0, _STREAM), dtype=np.float64) + 2.0**-24
        near = 1.0 - np.square(1.0 - np.abs(u - rank))
        return gamma(math.fsum(-np.log(np.maximum(near, 2.0**-60))), len(grams))
