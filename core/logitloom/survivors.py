"""Processors that need of each row only what a truncation leaves of it: a few logits instead of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logitloom.backend import NEG_INF, Array, Backend
from logitloom.link import Link

__all__ = ["Survivors", "may_see_survivors", "split", "survivors_of"]


class Survivors(NamedTuple):
    """What is left of each row.

    Attributes:
        ids: ``[rows, n]``, ascending, -1 behind a row that has fewer.
        logits: ``[rows, n]``, -inf behind a row that has fewer.
    """

    ids: Array
    logits: Array


def split(links: Sequence[Link], ids_as_well: bool = False) -> tuple[int, int | None]:
    """How many links see the whole vocabulary, and which survivors the others see.

    Args:
        links: of a chain.
        ids_as_well: whether links that go by ids can be shown the survivors, too.

    Returns:
        A number of links, and how many of the highest logits of a row are its survivors, with those that tie; None: all
        that are not -inf.
    """
    end = _first_behind(links, ids_as_well)
    for index in range(end, len(links)):
        highest = links[index].effect.at_most
        if highest is None:
            continue
        start = index
        while start and _takes_survivors(links[start - 1]) and links[start - 1].effect.ignores_less_likely:
            start -= 1
        if start <= end or ids_as_well:
            return start, highest
        break
    start = len(links)
    while start and _takes_survivors(links[start - 1]):
        start -= 1
    masks = [index for index in range(start, len(links)) if links[index].effect.forbids_only]
    return (masks[0] + 1 if masks else len(links)), None


def may_see_survivors(links: Sequence[Link]) -> int:
    """How many links there are up to the last one that cannot be shown survivors, with ids for those that go by ids."""
    return _first_behind(links, True)


def _first_behind(links: Sequence[Link], ids_as_well: bool) -> int:
    end = len(links)
    while end and _keeps_the_rest(links[end - 1]) and (ids_as_well or links[end - 1].effect.ignores_ids):
        end -= 1
    return end


def _keeps_the_rest(link: Link) -> bool:
    """Whether what is -inf stays so, and the state does not depend on it."""
    return link.effect.keeps_forbidden and not link.sees_every_step


def _takes_survivors(link: Link) -> bool:
    return link.effect.ignores_ids and _keeps_the_rest(link)


def survivors_of(backend: Backend, logits: Array, highest: int | None) -> Survivors | None:
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
