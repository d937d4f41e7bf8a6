"""Processors that need only the survivors of a truncation in each row: a few logits instead of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain.links import Link
from logitloom.chain.plan import WholeRows
from logitloom.context import Context

__all__ = ["OnSurvivors", "Survivors", "split", "survivors_of"]


class Survivors(NamedTuple):
    """The survivors of each row.

    Attributes:
        ids: ``[rows, n]``, ascending, -1 behind a row that has fewer.
        logits: ``[rows, n]``, -inf behind a row that has fewer.
    """

    ids: Array
    logits: Array


def split(links: Sequence[Link]) -> tuple[int, int] | None:
    """The number of links that see the whole vocabulary, and how many of the highest logits, ties included, the rest
    see.

    None if none of the processors that can take survivors is a truncation to a number of tokens.
    """
    end = len(links)
    while end and _takes_survivors(links[end - 1]):
        end -= 1
    for index in range(end, len(links)):
        highest = links[index].effect.at_most
        if highest is None:
            continue
        start = index
        while start > end and links[start - 1].effect.ignores_less_likely:
            start -= 1
        return (start, highest) if start == end else None
    return None


def _takes_survivors(link: Link) -> bool:
    """Whether -inf stays -inf and makes no difference to other logits, and the state does not depend on the logits."""
    return link.effect.ignores_ids and not link.sees_every_step


def survivors_of(backend: Backend, logits: Array, highest: int) -> Survivors | None:
    """The survivors of rows; None where they are not looked for, or too many to gain anything.

    Args:
        backend: of the logits.
        logits: ``[rows, vocab]``.
        highest: of :func:`split`.
    """
    ids = backend.survivors(logits, highest)
    if ids is None or not ids.shape[1]:
        return None
    if ids.shape[0] == 1:
        return Survivors(ids, backend.gather(logits, ids))
    gaps = ids < 0
    left = backend.gather(logits, backend.xp.where(gaps, backend.xp.zeros_like(ids), ids))
    return Survivors(ids, backend.masked_fill(left, gaps, NEG_INF, True))


@dataclass(frozen=True)
class OnSurvivors:
    """The last processors of a chain, run on the highest logits of each row only.

    Attributes:
        whole: the same processors on whole rows.
        highest: of :func:`split`.
    """

    whole: WholeRows
    highest: int
    fresh = True

    @property
    def count(self) -> int:
        """How many processors."""
        return self.whole.count

    def run(self, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
        """See :meth:`logitloom.chain.plan.Segment.run`."""
        found = survivors_of(context.backend, logits, self.highest)
        if found is None:
            return self.whole.run(logits, states, context)
        narrow = context.with_fields(donate=True, pool=None, vocab_size=int(found.ids.shape[1]))
        left, after = self.whole.run(found.logits, states, narrow)
        return context.backend.spread(left, found.ids, logits, context.donate, context.pool), after
