"""Where whitespace may stand in a JSON text."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["POLICIES", "Whitespace"]

POLICIES: Final = ("flexible", "compact", "one_space")


class Whitespace(NamedTuple):
    """A policy for the gaps between the tokens of JSON.

    Args:
        policy: ``compact``: none at all; ``one_space``: one space after each comma and colon, as ``json.dumps``
            writes; ``flexible``: up to ``most`` characters (space, tab, newline, return) in every gap.
        most: longest gap under ``flexible``.

    Example:
        >>> Whitespace("one_space").gap("comma")
        (1, 1, ' ')
    """

    policy: str = "flexible"
    most: int = 40

    def gap(self, place: str) -> tuple[int, int, str]:
        """Least and most characters, and which, for a gap: after ``comma``, ``colon`` or an ``open`` bracket, before
        a comma, colon or bracket that ``close`` s something, or ``none`` around the whole text.
        """
        if place == "none" or self.policy == "compact":
            return 0, 0, ""
        if self.policy == "one_space":
            return (1, 1, " ") if place in ("comma", "colon") else (0, 0, "")
        return 0, self.most, " \n\t\r"
