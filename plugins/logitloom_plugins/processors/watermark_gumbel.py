"""Gumbel watermark: the randomness of sampling comes from a key and the tokens before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom import Array, Context, Effect, Processor, load_backend, option
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.compiled_steps import as_one_function
from logitloom_plugins.occurrences import Recent, recent, slide, windows
from logitloom_plugins.watermarks.detection import Detection, gamma, text_ids
from logitloom_plugins.watermarks.keyed_context import seeds_of

__all__ = ["WatermarkGumbel"]

#: Number of this processor's random stream, so that its draws differ from the draws of all other processors.
_STREAM = 0x67756D62


@dataclass(frozen=True)
class WatermarkGumbel(Processor):
    """Choose the token with the largest ``logit - log(-log(u))``, and forbid all others.

    ``u`` is a number between 0 and 1 for each token, which a key and the last ``width`` tokens decide. Over keys the
    chosen token has the distribution that comes in, so nothing is distorted; but the same context and logits give the
    same token, whatever the seed. Put it last in a chain. Rows with fewer tokens than ``width`` are not marked.

    In a text with the mark, chosen tokens have large ``u``: the detector adds up ``-log(1 - u)``, which in other texts
    is exponentially distributed. Drafts keep the whole mark, since one token is legal; beams are of no use with it.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("watermark_gumbel", {"key": 5, "width": 1}))
        >>> logits = np.zeros((1, 6), dtype=np.float32)
        >>> context = Context.start(logits, prompt=[[2]])
        >>> int(np.isfinite(chain.process(logits, chain.init_state(context), context)[0]).sum())
        1
        >>> chain["watermark_gumbel"].detect([2, 1, 4, 3, 3], vocab_size=6).scored
        4

    References:
        S. Aaronson, "My AI safety lecture for UT effective altruism", 2022; C. Maddison, D. Tarlow, T. Minka, "A*
        sampling", 2014 (the largest perturbed logit is a sample).
    """

    stage = "warp"
    needs = frozenset({"prompt"})
    effect = Effect("forbids", reads=("distribution", "ids", "seen"), keeps=("last",))

    key: int = option(help="The secret key; the watermark can be detected with it alone.")
    width: int = option(
        4, help="Number of tokens that seed the random numbers of the next token.", ge=1, le=1024, unit="tokens"
    )

    def init_state(self, context: Context) -> Recent:
        """The end of the prompt."""
        return recent(context, True, self.width)

    def states_after(self, state: Recent, context: Context) -> Recent:
        """A window per token."""
        return windows(state, context)

    @as_one_function
    def process(self, logits: Array, state: Recent, context: Context) -> tuple[Array, Recent]:
        """A random number per token, a maximum, and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        state = slide(state, context)
        if logits.shape[0] == 0:  # no library takes the largest of nothing
            return logits, state
        ids = backend.arange(logits.shape[-1])[None, :]
        u = rng.uniform(xp, seeds_of(state.tokens, self.key, xp)[:, None], ids, _STREAM) + 2.0**-24
        perturbed = backend.log_softmax(logits) - xp.log(-xp.log(u))
        perturbed = backend.masked_fill(perturbed, logits == NEG_INF, NEG_INF)
        chosen = xp.argmax(perturbed, axis=-1)[:, None]
        marked = xp.all(state.tokens >= 0, axis=-1)[:, None]
        return backend.masked_fill(logits, marked & (ids != chosen), NEG_INF, context.donate), state

    def detect(self, ids: Sequence[int], *, vocab_size: int = 0) -> Detection:
        """Look for the mark in a text.

        Args:
            ids: the text's tokens; best without the prompt.
            vocab_size: unused; the numbers do not depend on it.

        Raises:
            InvalidContext: ``ids`` are not the ids of one text.
        """
        del vocab_size
        ids = text_ids(ids)
        grams = [tuple(ids[i : i + self.width + 1]) for i in range(len(ids) - self.width)]
        if not grams:
            return gamma(0.0, 0)
        # A token after the same context is the same token again, and proves nothing.
        unique = np.asarray(list(dict.fromkeys(grams)), dtype=np.int32)
        xp = load_backend("numpy").xp
        with np.errstate(over="ignore"):
            u = rng.uniform(xp, seeds_of(unique[:, :-1], self.key, xp), unique[:, -1], _STREAM) + 2.0**-24
        return gamma(math.fsum(-np.log1p(-np.asarray(u, dtype=np.float64))), len(unique))
