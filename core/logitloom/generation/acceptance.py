"""Acceptance of drafted tokens: by equality with the target's own choice, or by exact speculative sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from logitloom.arrays import rng
from logitloom.arrays.backend import Array, Backend
from logitloom.generation.loop import Sampler
from logitloom.generation.multinomial import STREAM, draw

__all__ = ["Verdict", "accept_equal", "accept_sampled"]

#: By how much the probabilities of a draft may miss the sum of 1: half types round many small numbers.
_ROUNDING: Final = 0.01
#: Random stream of the draws that accept or reject drafted tokens; it differs from the stream that chooses tokens.
ACCEPT_STREAM = 0x2ACCE7


class Verdict(NamedTuple):
    """The result of verifying one drafted token per row.

    Attributes:
        tokens: per row the token at this position: the drafted token, or its replacement.
        logprobs: per row its log-probability under the target's processed distribution.
        accepted: per row whether it is the drafted token.
        undrawn: the rows whose drafted token cannot have been drawn from the draft's distribution.
    """

    tokens: list[int]
    logprobs: list[float]
    accepted: list[bool]
    undrawn: Sequence[int] = ()


def accept_equal(
    backend: Backend, sampler: Sampler, logits: Array, seeds: Array, lengths: Array, drafted: Sequence[int]
) -> Verdict:
    """Choose a token as plain decoding does, and accept a drafted token that is equal to it.

    The output is equal to that of plain decoding, token by token, for every sampler whose choice depends on its
    arguments alone. For sampling and deterministic drafts this is speculative sampling with a draft distribution that
    has all mass on one token: token ``x`` is accepted with its probability ``p(x)``, and the replacement of a rejected
    token has the distribution ``p`` without ``x``.

    Args:
        backend: the backend of the arrays.
        sampler: chooses tokens.
        logits: ``[rows, vocab]``, the processed logits of the target.
        seeds: ``[rows] int32``.
        lengths: ``[rows] int32``, number of tokens before this position.
        drafted: per row the drafted token, -1 for none.
    """
    chosen, logprobs = sampler.choose(backend, logits, seeds, lengths)
    tokens = backend.to_numpy(chosen).tolist()
    return Verdict(tokens, backend.to_numpy(logprobs).tolist(), [t == d for t, d in zip(tokens, drafted, strict=True)])


def accept_sampled(
    backend: Backend, logits: Array, draft: Array, seeds: Array, lengths: Array, drafted: Sequence[int]
) -> Verdict:
    """Exact speculative sampling of one position: the result has the target's distribution for any drafts.

    A token ``x`` drawn from ``q`` is accepted with probability ``min(1, p(x) / q(x))``; otherwise a token is drawn from
    ``max(p - q, 0)``, normalised. Rows without a drafted token draw from ``p``; the result is that of plain sampling.
    A row of ``draft`` that is no distribution, or that gives the drafted token no probability, is told as ``undrawn``.

    Args:
        backend: the backend of the arrays.
        logits: ``[rows, vocab]``, the processed logits of the target.
        draft: ``[rows, vocab]``, the distribution from which each drafted token was drawn.
        seeds: ``[rows] int32``.
        lengths: ``[rows] int32``, number of tokens before this position.
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
    # MLX before 0.32.4 adds half types up in their own type. Not a number fails every comparison.
    total = xp.sum(backend.cast(draft, "float32"), axis=-1)
    sound = (xp.min(draft, axis=-1) >= 0) & (xp.abs(total - 1) <= _ROUNDING) & (q_drafted > 0)

    rest = xp.maximum(p - draft, xp.zeros_like(p))
    # The sum can be 0 only if p and q are equal up to rounding. Then the replacement is drawn from p.
    use_rest = proposed & (xp.sum(rest, axis=-1) > 0)
    replacement = draw(backend, xp.where(use_rest[:, None], rest, p), rng.uniform(backend.xp, seeds, lengths, STREAM))
    tokens = xp.where(accepted, tokens, backend.cast(replacement, "int32"))
    with np.errstate(divide="ignore"):  # a row without a legal token has probability 0 for all
        logprobs = xp.log(backend.gather(p, tokens[:, None])[:, 0])
    # Both answers of a row are one number, because every transfer to the host waits for the device.
    verdicts = backend.to_numpy(backend.cast(accepted, "int32") + 2 * backend.cast(proposed & ~sound, "int32")).tolist()
    undrawn = [row for row, verdict in enumerate(verdicts) if verdict >= 2]
    accepts = [verdict == 1 for verdict in verdicts]
    return Verdict(backend.to_numpy(tokens).tolist(), backend.to_numpy(logprobs).tolist(), accepts, undrawn)
