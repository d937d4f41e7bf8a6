"""Model runner V1: which request is in which row of the batch, from the engine's reports of changes.

A row may be given to another request, or moved onto, without a report that the request in it was removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitloom_contrib.requests.request import Request

__all__ = ["follow"]


def follow(requests: dict[int, Request], update: Any, begin: Callable[[Any, Any, Any], Request | None]) -> None:
    """Bring ``requests`` up to date.

    Args:
        requests: row of the batch -> request, for those that have a chain; modified.
        update: vLLM's ``BatchUpdate``: ``removed``, ``added`` and ``moved``, applied in this order.
        begin: makes a request of ``(params, prompt ids or None, live list of output ids)``, None if the request has no
            chain.
    """
    for row in update.removed:
        requests.pop(row, None)
    for row, params, prompt, output in update.added:
        _put(requests, row, begin(params, prompt, output))
    for source, target, direction in update.moved:
        moved, replaced = requests.pop(source, None), requests.pop(target, None)
        _put(requests, target, moved)
        if direction.name == "SWAP":
            _put(requests, source, replaced)


def _put(requests: dict[int, Request], row: int, request: Request | None) -> None:
    if request is None:
        requests.pop(row, None)
    else:
        requests[row] = request
