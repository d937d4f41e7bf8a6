"""A tracker of rows that counts the rows which it replays."""

from __future__ import annotations

from typing import Any

from logitloom_contrib.row_tracking.row_tracker import RowTracker


class CountedTracker(RowTracker):
    """A :class:`RowTracker` that counts.

    Attributes:
        replayed: how many rows have been replayed with a token.
    """

    replayed = 0

    def _replay(self, call: Any) -> Any:
        self.replayed += len(call.origin)
        return super()._replay(call)

    def _begun(self, *arguments: Any) -> Any:
        begun = super()._begun(*arguments)
        self.replayed += sum(fed > len(row.prompt) for row, fed in zip(begun.origin, begun.fed.tolist(), strict=True))
        return begun
