"""A row of logits as a distribution, and its change by one processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF

__all__ = ["Change", "ChosenToken", "Distribution", "Row", "changed", "chosen", "described", "probabilities"]

Row = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a row of logits says about the next token.

    Attributes:
        legal: how many ids are above -inf.
        entropy: Shannon's, in bits; 0 for a row without any legal id.
        top: the most probable ids with their probabilities, the most probable first.
    """

    legal: int
    entropy: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one processor did to one row at one step.

    Attributes:
        after: the distribution after the processor.
        removed: how many ids it took out (from above -inf to -inf).
        mass: the probability that the removed ids had before.
        shift: total variation distance between the distributions before and after, 0 to 1.
        seconds: time that it took for all rows of the batch together.
        state: number of the constraint's state, if the processor is a constraint (-1 dead, -2 finished).
    """

    after: Distribution
    removed: int
    mass: float
    shift: float
    seconds: float
    state: int | None = None


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """How likely the token was that a row accepted at a step.

    Attributes:
        token: its id.
        logprob: its log-probability after the chain (natural logarithm); -inf for a token that the chain had forbidden.
        logprob_before: its log-probability before the chain.
        rank: its rank among the tokens after the chain, 1 for the most likely; tied tokens share the best rank.
        rank_before: its rank before the chain.
    """

    token: int
    logprob: float
    logprob_before: float
    rank: int
    rank_before: int


def chosen(token: int, p: Row, q: Row) -> ChosenToken:
    """The choice of a token, from the probabilities before the chain and after it, ``[vocab]`` each."""
    with np.errstate(divide="ignore"):
        logs = [float(np.log(row[token])) for row in (q, p)]
    return ChosenToken(token, logs[0], logs[1], *(int((row > row[token]).sum()) + 1 for row in (q, p)))


def probabilities(logits: Row) -> Row:
    """``softmax`` of ``[vocab]`` logits in float64; zeros for a row of -inf; NaN counts as -inf."""
    row = np.where(np.isnan(logits), NEG_INF, logits.astype(np.float64))
    top = row.max(initial=NEG_INF)
    if top == np.inf:
        infinite: Row = row == np.inf
        return np.asarray(infinite / infinite.sum())
    if top == NEG_INF:
        return np.zeros_like(row)
    e = np.exp(row - top)
    return np.asarray(e / e.sum())


def described(logits: Row, p: Row, count: int) -> Distribution:
    """The distribution of ``[vocab]`` logits with the probabilities ``p``, with at most ``count`` of its top ids."""
    positive = p[p > 0]
    legal = int((logits > NEG_INF).sum())
    count = min(count, len(p))
    best = np.argpartition(-p, count - 1)[:count] if count else np.zeros(0, dtype=np.intp)
    best = best[np.lexsort((best, -p[best]))]
    top = tuple((int(i), float(p[i])) for i in best if p[i] > 0)
    return Distribution(legal, float(-(positive * np.log2(positive)).sum()) + 0.0, top)


def changed(before: Row, after: Row, p: Row, q: Row, count: int, seconds: float, state: int | None) -> Change:
    """The change of one row, from its logits before and after a processor and their probabilities."""
    removed = (before > NEG_INF) & ~(after > NEG_INF)
    return Change(
        after=described(after, q, count),
        removed=int(removed.sum()),
        mass=float(p[removed].sum()),
        shift=float(np.abs(p - q).sum() / 2),
        seconds=seconds,
        state=state,
    )
