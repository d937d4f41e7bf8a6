"""The token that was chosen from a sampler's distribution, as the sampler with feedback sees it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from logitloom import Array, Backend, Context
from logitloom.arrays.backend import NEG_INF

__all__ = ["Observation", "Observe", "nothing_told", "observed", "told"]

#: Which log-probability of the chosen token counts: from the processor's own output, or from the sampler's choice.
Observe = Literal["own", "chosen"]


class Observation(NamedTuple):
    """The token that each row chose.

    Attributes:
        logprob: ``[rows] float32``, the token's log-probability; 0 in rows without a token to learn from.
        present: ``[rows]`` bool, whether the row has such a token.
    """

    logprob: Array
    present: Array


def nothing_told(context: Context, observe: Observe) -> Array:
    """The memory of a start: ``[rows, vocab] float32``, or ``[rows, 0]`` if the sampler tells."""
    width = context.vocab_size if observe == "own" else 0
    return context.backend.asarray(np.zeros((context.batch, width), dtype=np.float32))


def told(backend: Backend, logits: Array, observe: Observe, before: Array) -> Array:
    """The memory of a step: the log-probabilities of what the processor gave out, or nothing."""
    return backend.cast(backend.log_softmax(logits), "float32") if observe == "own" else before


def observed(memory: Array, context: Context, observe: Observe) -> Observation | None:
    """The chosen tokens, at most one per row; None in the first step.

    Args:
        memory: of the step before.
        context: with the tokens.
        observe: whose probability counts.
    """
    backend, xp, tokens = context.backend, context.backend.xp, context.tokens
    if tokens is None or tokens.shape[1] == 0:
        return None
    token = xp.max(tokens, axis=1)
    if observe == "chosen":
        assert context.chosen_logprob is not None
        logprob = xp.sum(context.chosen_logprob, axis=1)
    else:
        inside = (token >= 0) & (token < memory.shape[1])
        logprob = backend.gather(memory, xp.where(inside, token, 0)[:, None])[:, 0]
    # A token with log-probability -inf was not chosen from this distribution, so the sampler learns nothing from it.
    present = (token >= 0) & (logprob > NEG_INF)
    return Observation(backend.masked_fill(logprob, logprob == NEG_INF, 0.0), present)
