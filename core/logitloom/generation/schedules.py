"""Draft lengths per row, adapted to the acceptance of its drafts, and the confidence below which drafting stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

__all__ = ["BackOff", "Policy", "Schedule", "adapted_threshold", "next_count"]

#: How the number of drafted tokens changes from round to round; see :func:`next_count`.
Schedule = Literal["constant", "heuristic", "heuristic_transient"]

#: A threshold is adapted when so many verified tokens are known, and from so many of the latest.
_FEWEST, _MOST = 6, 256
#: Most tokens of a draft after so many rounds of which nothing was accepted (after more: one); longest wait.
_TRIALS, _LONGEST_WAIT = (3, 2, 1), 15


def next_count(schedule: Schedule, count: int, drafted: int, accepted: int) -> int:
    """How many tokens to draft in the next round.

    The two heuristic schedules draft two more after a draft that was accepted to its end, and one fewer (but at least
    one) after a rejection. A round without a draft changes nothing.

    Args:
        schedule: ``constant``, ``heuristic`` or ``heuristic_transient``. The heuristic ones differ in what the next
            generation begins with: what the last one arrived at, or the configured number.
        count: the number in force.
        drafted: how many were drafted, at most ``count`` (fewer if the drafter grew unsure).
        accepted: how many of them were accepted.

    Example:
        >>> next_count("heuristic", 5, 5, 5), next_count("heuristic", 5, 5, 2), next_count("constant", 5, 5, 2)
        (7, 4, 5)
    """
    if schedule == "constant" or not drafted:
        return count
    return count + 2 if accepted >= drafted else max(1, count - 1)


def adapted_threshold(confidences: Sequence[float], matched: Sequence[bool], threshold: float) -> float:
    """The confidence that best tells accepted from rejected tokens: ``argmin fpr(t) + 3 * fnr(t)``.

    A token is predicted to be accepted if its confidence is at least ``t``. Drafting on in vain (a false positive)
    costs one draft step, stopping too early (a false negative) wastes a pass of the target, hence the weights. Of
    equally good thresholds the highest is taken. Where nothing was accepted that is one above all confidences, with
    which drafts end after their first token.

    Args:
        confidences: per verified token, the probability its drafter gave it, in [0, 1].
        matched: per verified token, whether it was accepted.
        threshold: in force; returned unless there are more than five tokens, rejected ones among them.

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

    After such a round it drafts at most three tokens, then two, then one. From the fourth in succession on it also
    drafts nothing for 1, 3, 7 and then 15 rounds. The first accepted token ends that. A drafter that is right about
    every other token is seldom rejected four times running.

    Attributes:
        failures: rounds in succession whose drafts were rejected from their first token on.
        wait: rounds that will draft nothing.

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
        """How many tokens of at most ``most`` may be drafted in the next round."""
        if not self.failures:
            return most
        return 0 if self.wait else min(most, _TRIALS[min(self.failures, len(_TRIALS)) - 1])

    def verified(self, drafted: int, accepted: int) -> BackOff:
        """The same after a round."""
        if accepted:
            return BackOff()
        if not drafted:
            return self._replace(wait=max(self.wait - 1, 0))
        failures = self.failures + 1
        return BackOff(failures, min(2 ** max(failures - len(_TRIALS), 0) - 1, _LONGEST_WAIT))


class Policy(NamedTuple):
    """How one row drafts: an immutable handle, kept in :class:`logitloom.state.Rows`.

    Attributes:
        num_tokens: most tokens of the next draft.
        threshold: a draft ends with the first token whose probability is below it.
        confidences, matched: of the latest verified tokens, as far as the threshold is adapted.
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
            schedule: of the count.
            confidences: the probability of each drafted token.
            accepted: how many of them were accepted.
            adapt: whether the threshold follows.
        """
        num_tokens = next_count(schedule, self.num_tokens, len(confidences), accepted)
        if not adapt:
            return self._replace(num_tokens=num_tokens)
        # Tokens behind the first rejected one were not verified.
        known = min(accepted + 1, len(confidences))
        seen = (*self.confidences, *confidences[:known])[-_MOST:]
        right = (*self.matched, *(n < accepted for n in range(known)))[-_MOST:]
        return Policy(num_tokens, adapted_threshold(seen, right, self.threshold), seen, right)
