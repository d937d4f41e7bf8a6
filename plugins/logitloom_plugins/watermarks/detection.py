"""The outcome of a search for a watermark, and tails of the distributions of its statistics."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from logitloom.arrays.rng import fold
from logitloom.errors import InvalidContext

__all__ = ["Detection", "binomial", "gamma", "text_ids"]


class Detection(NamedTuple):
    """What a detector found in a text.

    Attributes:
        statistic: standard deviations above what unmarked text has (z).
        p_value: probability that unmarked text has as much of the mark, or more. Uniform for unmarked texts: of
            statistics that are counts, ties are broken by a hash of the text.
        scored: how many tokens (or, of ``synthid``, coins of tokens) were looked at.
        mean: their mean: the share of green tokens, of tokens of the upper half (``dipmark``), or of heads; of
            ``gumbel`` and ``delta`` the mean score, 1 if unmarked.
    """

    statistic: float
    p_value: float
    scored: int
    mean: float


def text_ids(ids: Any, vocab_size: int = 2**31) -> list[int]:
    """The ids of one text, given as a list or as an array of any library.

    Args:
        ids: what a detector was given.
        vocab_size: all ids are below it.

    Raises:
        InvalidContext: ``ids`` are not the ids of one text.
    """
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    try:
        found = None if isinstance(listed, (str, bytes)) else [operator.index(token) for token in listed]
    except TypeError:
        found = None
    if found is None:
        first = next(iter(listed), None) if isinstance(listed, Iterable) else None
        several = isinstance(first, Iterable) and not isinstance(first, (str, bytes))
        remedy = "Give one text at a time, such as ids[0]." if several else "Encode a text with the model's tokenizer."
        raise InvalidContext(f"A mark is looked for in the token ids of one text, not in {ids!r:.80}. {remedy}")
    wrong = next((token for token in found if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise InvalidContext(
            f"The text has the id {wrong}, but ids are from 0 to {vocab_size - 1}. Leave padding out, and give the "
            f"ids and the vocab_size of the model that wrote the text."
        )
    return found


def binomial(successes: int, trials: int, chance: float, ids: Sequence[int]) -> Detection:
    """The detection by a number of successes, each of which has a chance in unmarked text.

    Example:
        >>> binomial(9, 10, 0.5, [1, 2, 3]).statistic.__round__(2)
        2.53
    """
    if not trials:
        return Detection(0.0, 1.0, 0, 0.0)
    spread = math.sqrt(trials * chance * (1.0 - chance))
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(successes, trials + 1)
    ]  # fmt: skip
    here, above = math.exp(logs[0]), math.fsum(math.exp(x) for x in logs[1:])
    return Detection(
        (successes - trials * chance) / spread, min(above + _coin(ids) * here, 1.0), trials, successes / trials
    )


def gamma(total: float, terms: int) -> Detection:
    """The detection by a sum of terms that are exponentially distributed, with mean 1, in unmarked text.

    Example:
        >>> round(gamma(3.0, 1).p_value, 4) == round(math.exp(-3.0), 4)
        True
    """
    if not terms:
        return Detection(0.0, 1.0, 0, 0.0)
    # The tail of a gamma distribution of whole shape is a head of a Poisson distribution.
    heads = (k * math.log(total) - total - math.lgamma(k + 1) if total > 0 else (0.0 if k == 0 else -math.inf)
             for k in range(terms))  # fmt: skip
    p_value = min(math.fsum(math.exp(x) for x in heads), 1.0)
    return Detection((total - terms) / math.sqrt(terms), p_value, terms, total / terms)


def _coin(ids: Sequence[int]) -> float:
    """A number between 0 and 1 that depends on the ids alone."""
    seed = 0
    for token in ids:
        seed = fold(seed, int(token) + 1)
    return (seed & 0xFFFFFFFF) / 2.0**32
