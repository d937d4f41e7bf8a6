"""Model runner V1: which request sits at which place of the batch, from what the engine tells about changes.

A place may be taken by another request, or moved onto, without the request that sat there being reported as removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitloom_contrib.requests.request import Request

__all__ = ["follow"]


def follow(places: dict[int, Request], update: Any, begin: Callable[[Any, Any, Any], Request | None]) -> None:
    """Bring ``places`` up to date.

    Args:
        places: place in the batch -> request, for those that have a chain; modified.
        update: vLLM's ``BatchUpdate``: ``removed``, ``added`` and ``moved``, which count in this order.
        begin: makes a request of ``(params, prompt ids or None, live list of output ids)``, None if it has no chain.
    """
    for place in update.removed:
        places.pop(place, None)
    for place, params, prompt, output in update.added:
        _put(places, place, begin(params, prompt, output))
    for source, target, direction in update.moved:
        moved, replaced = places.pop(source, None), places.pop(target, None)
        _put(places, target, moved)
        if direction.name == "SWAP":
            _put(places, source, replaced)


def _put(places: dict[int, Request], place: int, request: Request | None) -> None:
    if request is None:
        places.pop(place, None)
    else:
        places[place] = request
