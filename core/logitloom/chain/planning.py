"""Planning a chain, once: which neighbouring processors run on views, on survivors, or in one compiled loop."""

from __future__ import annotations

from logitloom.chain.numpy_views import OnViews
from logitloom.chain.plan import Plan, Segment, WholeRows
from logitloom.chain.row_loop import RowLoop, first_of_loop
from logitloom.chain.survivors import OnSurvivors, split

__all__ = ["planned"]


def planned(whole: WholeRows, *, loops: bool = True) -> Segment:
    """The plan of processors that may be shown views and survivors.

    Args:
        whole: the processors on whole rows.
        loops: whether compiled loops may take their place.
    """
    links, count = whole.links, whole.count
    divided = split(links)
    if divided is None:
        return _on_views(whole, whole)
    start, highest = divided
    first = first_of_loop(links, start) if loops else None
    end: Segment = OnSurvivors(whole.part(start, count), highest)
    if first is None:
        return _on_views(whole, _joined(whole.part(0, start), end))
    otherwise = _joined(whole.part(first, start), end)
    if first:
        loop = RowLoop.of(links[first:], start - first, highest, otherwise)
        return _on_views(whole, _joined(whole.part(0, first), loop))
    # A loop over all rows needs no views.
    return RowLoop.of(links, start, highest, _on_views(whole, otherwise))


def _joined(first: WholeRows, last: Segment) -> Segment:
    return Plan((first, last)) if first.count else last


def _on_views(whole: WholeRows, segment: Segment) -> Segment:
    """The processors on views if all know no library. One that changes logits takes less time than the views."""
    all_known = all(link.effect.operation is not None for link in whole.links)
    several = whole.count > (0 if all(link.effect.forbids_only for link in whole.links) else 1)
    return OnViews(segment) if all_known and several else segment
