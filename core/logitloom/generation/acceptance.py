"""Which drafted tokens are accepted: equality with the target's own choice, or exact speculative sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logitloom import rng
from logitloom.backend import Array, Backend
from logitloom.generation.loop import Sampler
from logitloom.generation.multinomial import STREAM, draw

__all__ = ["Verdict", "accept_equal", "accept_sampled"]

#: Sets the draws that decide about drafted tokens apart from those that choose tokens.
ACCEPT_STREAM = 0x2ACCE7


class Verdict(NamedTuple):
    """The result of verifying one drafted token per row.

    Attributes:
        tokens: the token that stands at this place now: the drafted one, or another.
        logprobs: its log-probability under the target's processed distribution.
        accepted: whether it is the drafted one.
    """

    tokens: list[int]
    logprobs: list[float]
    accepted: list[bool]


def accept_equal(
    backend: Backend, sampler: Sampler, logits: Array, seeds: Array, lengths: Array, drafted: Sequence[int]
) -> Verdict:
    """Choose as plain decoding does, and accept a drafted token that is the same.

    The output is that of plain decoding, token by token, for every sampler whose choice depends on its arguments
    alone. For sampling and drafts that are not random this is speculative sampling with a draft distribution that is
    all on one token: it accepts with the token's probability ``p(x)``, and what replaces a rejected token has the
    distribution ``p`` without ``x``.

    Args:
        backend: whose arrays these are.
        sampler: chooses tokens.
        logits: ``[rows, vocab]``, the target's, processed.
        seeds: ``[rows] int32``.
        lengths: ``[rows] int32``, tokens before this place.
        drafted: per row the drafted token, -1 for none.
    """
    chosen, logprobs = sampler.choose(backend, logits, seeds, lengths)
    tokens = backend.to_numpy(chosen).tolist()
    return Verdict(tokens, backend.to_numpy(logprobs).tolist(), [t == d for t, d in zip(tokens, drafted, strict=True)])


def accept_sampled(
    backend: Backend, logits: Array, draft: Array, seeds: Array, lengths: Array, drafted: Sequence[int]
) -> Verdict:
    """Exact speculative sampling of one position: the result has the target's distribution for any drafts.

    A token ``x`` drawn from ``q`` is accepted with probability ``min(1, p(x) / q(x))``; else a token is drawn from
    ``max(p - q, 0)``, normalised. Rows without a drafted token draw from ``p`` and draw what plain sampling draws.

    Args:
        backend: whose arrays these are.
        logits: ``[rows, vocab]``, the target's, processed.
        draft: ``[rows, vocab]``, the distribution each drafted token was drawn from.
        seeds: ``[rows] int32``.
        lengths: ``[rows] int32``, tokens before this place.
        drafted: per row the drafted token, -1 for none.

    References:
        Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding", 2023;
        C. Chen et al., "Accelerating large language model decoding with speculative sampling", 2023.
    """
    xp = backend.xp
    host = np.asarray(drafted, dtype=np.int32)
    proposed = backend.asarray(host >= 0)
    tokens = backend.asarray(np.maximum(host, 0))
    p = backend.softmax(logits)
    p_drafted = backend.gather(p, tokens[:, None])[:, 0]
    q_drafted = backend.gather(draft, tokens[:, None])[:, 0]
    u = rng.uniform(backend.xp, seeds, lengths, ACCEPT_STREAM)
    accepted = proposed & (p_drafted > 0) & (u * q_drafted < p_drafted)

    rest = xp.maximum(p - draft, xp.zeros_like(p))
    # Nothing can be left only where p and q are equal up to rounding, and then p itself is as good.
    use_rest = proposed & (xp.sum(rest, axis=-1) > 0)
    replacement = draw(backend, xp.where(use_rest[:, None], rest, p), rng.uniform(backend.xp, seeds, lengths, STREAM))
    tokens = xp.where(accepted, tokens, backend.cast(replacement, "int32"))
    logprobs = xp.log(backend.gather(p, tokens[:, None])[:, 0])
    return Verdict(
        backend.to_numpy(tokens).tolist(), backend.to_numpy(logprobs).tolist(), backend.to_numpy(accepted).tolist()
    )
