"""Draft lengths per row, adapted to the gain and cost of drafts, and the confidence below which drafting stops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from logitloom.arrays.backend import Backend

__all__ = ["BackOff", "Policy", "Schedule", "adapted_threshold", "next_count"]

#: How the number of drafted tokens changes from round to round; see :func:`next_count`.
Schedule = Literal["constant", "heuristic", "heuristic_transient"]

#: The least number of verified tokens for adapting a threshold, and the largest number (of the latest) that is used.
_FEWEST, _MOST = 6, 256
#: The cost of verifying a draft of any length, beside the pass for one token; the unit is such a pass. The first is for
#: a host, which is bound by arithmetic, the second for devices, which are bound by reading the weights.
_HOST_PASS_COST, _DEVICE_PASS_COST = 0.7, 0.1
#: The cost of each drafted token, in the same unit; the factor by which each later token lowers the weight of a token;
#: the highest acceptance rate that is assumed; the longest wait in rounds.
_TOKEN_COST, _DECAY, _HIGHEST_RATE, _LONGEST_WAIT = 0.03, 0.8, 0.99, 32


def next_count(schedule: Schedule, count: int, drafted: int, accepted: int) -> int:
    """The number of tokens to draft in the next round.

    The two heuristic schedules add two after a draft that was accepted completely, and subtract one (down to one)
    after a rejection. A round without a draft does not change the number.

    Args:
        schedule: ``constant``, ``heuristic`` or ``heuristic_transient``. With ``heuristic`` the next generation begins
            with the last number of this one, with ``heuristic_transient`` with the configured number.
        count: the current number.
        drafted: number of drafted tokens, at most ``count`` (fewer if the drafter's confidence fell below a threshold).
        accepted: number of drafted tokens that were accepted.

    Example:
        >>> next_count("heuristic", 5, 5, 5), next_count("heuristic", 5, 5, 2), next_count("constant", 5, 5, 2)
        (7, 4, 5)
    """
    if schedule == "constant" or not drafted:
        return count
    return count + 2 if accepted >= drafted else max(1, count - 1)


def adapted_threshold(confidences: Sequence[float], matched: Sequence[bool], threshold: float) -> float:
    """The confidence that best separates accepted from rejected tokens: ``argmin fpr(t) + 3 * fnr(t)``.

    A token is predicted to be accepted if its confidence is at least ``t``. A false positive costs one draft step. A
    false negative ends the draft too early and costs part of a pass of the target, so the false negative has the larger
    weight. Among equally good thresholds the highest is returned. If no token was accepted, the result is a value above
    all confidences, with which drafts end after their first token.

    Args:
        confidences: per verified token, its probability under the drafter, in [0, 1].
        matched: per verified token, whether it was accepted.
        threshold: the current threshold, which is returned unless there are at least six tokens, of which some were
            rejected.

    Example:
        >>> adapted_threshold([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], [True, True, True, False, False, False], 0.4)
        0.7
    """
    right = np.asarray(matched, dtype=bool)
    if len(right) < _FEWEST or right.all():
        return threshold
    scores = np.asarray(confidences, dtype=np.float64)
    if not right.any():
        return float(np.nextafter(scores.max(), 2.0))
    tried = np.unique(scores)[::-1]
    positive = scores[None, :] >= tried[:, None]
    false_positives = (positive & ~right).sum(axis=1) / (~right).sum()
    false_negatives = (~positive & right).sum(axis=1) / right.sum()
    return float(tried[np.argmin(false_positives + 3 * false_negatives)])


class BackOff(NamedTuple):
    """Limits the length of a row's drafts to the length with the largest expected gain.

    The acceptance rate of the row's drafted tokens is an exponentially weighted mean over its verified tokens. A draft
    of ``n`` tokens is expected to add ``rate + rate**2 + ... + rate**n`` tokens, and its verification is expected to
    cost ``pass_cost + 0.03 * n`` passes for one token. The limit is the ``n`` with the largest difference. If none is
    positive, the row drafts nothing for 2 rounds, then one token as a probe. Each probe that is rejected makes the next
    wait four times as long, up to 32 rounds.

    Attributes:
        pass_cost: the cost of verifying any draft, in passes of the model for one token; see :meth:`on`.
        hits: weighted number of accepted tokens.
        tried: weighted number of verified tokens.
        failures: number of rejected probes in succession.
        wait: number of next rounds without a draft.

    Example:
        >>> start = BackOff(pass_cost=0.7)
        >>> start.limit(10), start.verified(drafted=10, accepted=2).limit(10)
        (10, 7)
        >>> failed = start.verified(drafted=10, accepted=0)
        >>> failed.limit(10), failed.wait
        (0, 2)

    References:
        Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative decoding", 2023 (expected
        gain and cost of a draft).
    """

    pass_cost: float
    hits: float = 0.8
    tried: float = 1.0
    failures: int = 0
    wait: int = 0

    @staticmethod
    def on(backend: Backend) -> BackOff:
        """The state of a new row: on a host, a pass over several tokens costs much more than one over one token."""
        return BackOff(_HOST_PASS_COST if backend.on_host else _DEVICE_PASS_COST)

    def limit(self, most: int) -> int:
        """The number of tokens that may be drafted in the next round, at most ``most``."""
        return 0 if self.wait else min(max(self._best(), 1), most)

    def verified(self, drafted: int, accepted: int) -> BackOff:
        """The state after a round."""
        if not drafted:
            return self._replace(wait=max(self.wait - 1, 0))
        # Tokens after the first rejected one were not verified.
        outcomes = [True] * accepted + [False] * (accepted < drafted)
        hits, tried = self.hits, self.tried
        for outcome in outcomes:
            hits, tried = _DECAY * hits + outcome, _DECAY * tried + 1
        after = self._replace(hits=hits, tried=tried)
        if after._best():
            return after._replace(failures=0, wait=0)
        if accepted:
            return after._replace(wait=0)
        return after._replace(failures=self.failures + 1, wait=min(2 * 4**self.failures, _LONGEST_WAIT))

    def _best(self) -> int:
        """The number of drafted tokens with the largest expected gain; 0 if no draft gains more than it costs."""
        rate = min(self.hits / self.tried, _HIGHEST_RATE)
        # The number of the last drafted token whose own gain is above its own cost.
        count = int(math.log(_TOKEN_COST) / math.log(rate)) if rate > _TOKEN_COST else 0
        gain = rate * (1 - rate**count) / (1 - rate)
        return count if gain > self.pass_cost + _TOKEN_COST * count else 0


class Policy(NamedTuple):
    """The drafting policy of one row: an immutable value, kept in :class:`logitloom.rows.tree.Rows`.

    Attributes:
        num_tokens: the largest number of tokens of the next draft.
        threshold: a draft ends with the first token whose probability is below the threshold.
        confidences, matched: the confidences of the latest verified tokens, and whether each was accepted; empty unless
            the threshold is adapted.
    """

    num_tokens: int
    threshold: float
    confidences: tuple[float, ...] = ()
    matched: tuple[bool, ...] = ()

    def verified(
        self, schedule: Schedule, confidences: Sequence[float], accepted: int, *, adapt: bool = False
    ) -> Policy:
        """The policy after a draft was verified.

        Args:
            schedule: the schedule of ``num_tokens``.
            confidences: the probability of each drafted token.
            accepted: number of drafted tokens that were accepted.
            adapt: whether the threshold is adapted.
        """
        num_tokens = next_count(schedule, self.num_tokens, len(confidences), accepted)
        if not adapt:
            return self._replace(num_tokens=num_tokens)
        # Tokens after the first rejected one were not verified.
        known = min(accepted + 1, len(confidences))
        seen = (*self.confidences, *confidences[:known])[-_MOST:]
        right = (*self.matched, *(n < accepted for n in range(known)))[-_MOST:]
        return Policy(num_tokens, adapted_threshold(seen, right, self.threshold), seen, right)
