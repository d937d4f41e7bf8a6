"""Draft lengths per row, adapted to the acceptance of its drafts, and the confidence below which drafting stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

__all__ = ["BackOff", "Policy", "Schedule", "adapted_threshold", "next_count"]

#: How the number of drafted tokens changes from round to round; see :func:`next_count`.
Schedule = Literal["constant", "heuristic", "heuristic_transient"]

#: The least number of verified tokens for adapting a threshold, and the largest number (of the latest) that is used.
_FEWEST, _MOST = 6, 256
#: The largest draft after 1, 2 and 3 (or more) rounds in which no token was accepted; the longest wait in rounds.
_TRIALS, _LONGEST_WAIT = (3, 2, 1), 15


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

    A token is predicted to be accepted if its confidence is at least ``t``. A false positive costs one draft step; a
    false negative ends the draft too early and costs part of a pass of the target, so it has the larger weight. Among
    equally good thresholds the highest is returned. If no token was accepted, that is a value above all confidences,
    with which drafts end after their first token.

    Args:
        confidences: per verified token, its probability under the drafter, in [0, 1].
        matched: per verified token, whether it was accepted.
        threshold: the current threshold. It is returned unless there are at least six tokens, of which some were
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
    """Reduces the drafts of a row while none of its drafted tokens is accepted.

    After such a round the row drafts at most three tokens, then two, then one. After the fourth such round in
    succession it drafts no tokens for 1 round, after the next ones for 3, 7 and then 15 rounds. The first accepted
    token resets the limit. A drafter with half of its tokens accepted is rarely rejected four times in succession.

    Attributes:
        failures: number of successive rounds in which the first drafted token was rejected.
        wait: number of next rounds without a draft.

    Example:
        >>> once = BackOff().verified(drafted=5, accepted=0)
        >>> once.limit(10), once.verified(drafted=3, accepted=1).limit(10)
        (3, 10)
        >>> BackOff(failures=3).verified(drafted=1, accepted=0)
        BackOff(failures=4, wait=1)
    """

    failures: int = 0
    wait: int = 0

    def limit(self, most: int) -> int:
        """The number of tokens that may be drafted in the next round, at most ``most``."""
        if not self.failures:
            return most
        return 0 if self.wait else min(most, _TRIALS[min(self.failures, len(_TRIALS)) - 1])

    def verified(self, drafted: int, accepted: int) -> BackOff:
        """The state after a round."""
        if accepted:
            return BackOff()
        if not drafted:
            return self._replace(wait=max(self.wait - 1, 0))
        failures = self.failures + 1
        return BackOff(failures, min(2 ** max(failures - len(_TRIALS), 0) - 1, _LONGEST_WAIT))


class Policy(NamedTuple):
    """The drafting policy of one row: an immutable value, kept in :class:`logitloom.state.Rows`.

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
