"""How many tokens to draft: a number per row that follows its acceptance, and a confidence below which to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

__all__ = ["Policy", "Schedule", "adapted_threshold", "next_count"]

#: How the number of drafted tokens changes from round to round; see :func:`next_count`.
Schedule = Literal["constant", "heuristic", "heuristic_transient"]

#: A threshold is adapted when so many verified tokens are known, and from so many of the latest.
_FEWEST, _MOST = 6, 256


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
    equally good thresholds the highest is taken.

    Args:
        confidences: per verified token, the probability its drafter gave it, in [0, 1].
        matched: per verified token, whether it was accepted.
        threshold: in force; returned unless there are more than five tokens, accepted and rejected ones.

    Example:
        >>> adapted_threshold([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], [True, True, True, False, False, False], 0.4)
        0.7
    """
    right = np.asarray(matched, dtype=bool)
    if len(right) < _FEWEST or right.all() or not right.any():
        return threshold
    scores = np.asarray(confidences, dtype=np.float64)
    tried = np.unique(scores)[::-1]
    positive = scores[None, :] >= tried[:, None]
    false_positives = (positive & ~right).sum(axis=1) / (~right).sum()
    false_negatives = (~positive & right).sum(axis=1) / right.sum()
    return float(tried[np.argmin(false_positives + 3 * false_negatives)])


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
