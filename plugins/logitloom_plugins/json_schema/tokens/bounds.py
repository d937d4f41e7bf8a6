"""An upper bound on the tokens that are needed after any token that may come next, without a look at the tokens.

A token limit asks for the bound before each mask. A bound that is read off the schema comes first. Only near the limit
a smaller one is looked for, which takes longer.
"""

from __future__ import annotations

from collections.abc import Callable

from logitloom import Vocabulary
from logitloom.constraints import UNKNOWN
from logitloom_plugins.json_schema.folds.completion.part_texts import PartTexts
from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position
from logitloom_plugins.json_schema.tokens.loose_bounds import LooseBounds
from logitloom_plugins.json_schema.tokens.near_bounds import NearBounds
from logitloom_plugins.json_schema.tokens.position_bounds import Allowance

__all__ = ["TokenBounds"]


class TokenBounds:
    """The bounds of the positions of one machine.

    Args:
        machine: the pushdown automaton of the schema.
        parts: short texts of the parts of the schema.
        farthest_end: a function of a text: the most tokens that any end of the text takes.
        vocabulary: the tokens.
    """

    def __init__(
        self, machine: Machine, parts: PartTexts, farthest_end: Callable[[bytes], int], vocabulary: Vocabulary
    ) -> None:
        self._allowance = Allowance(parts.stop_at)
        self._near = NearBounds(machine, vocabulary, self._allowance, farthest_end, parts)
        self._loose = LooseBounds(machine, vocabulary, self._allowance, farthest_end, parts, self._near)

    def soon_after_any(self, position: Position, enough: int = 0) -> int:
        """A bound, or :data:`UNKNOWN` if many parts of it are not known. Each time more of them are found.

        A mask depends neither on the result nor on the time: without a bound a search finds the same tokens.

        Args:
            position: the position.
            enough: a bound of so many tokens need not be any nearer.
        """

        def find() -> int:
            loose = self._loose.after_any(position) if enough else UNKNOWN
            return loose if loose <= enough else min(loose, self._near.after_any(position))

        return self._allowance.soon(find)

    def after_any(self, position: Position) -> int:
        """An upper bound on the tokens that are needed after any token that may come at a position."""
        return min(self._near.after_any(position), self._loose.after_any(position))

    def near(self, position: Position) -> int:
        """:meth:`after_any` from the tokens of short texts alone, which says about how many tokens are needed."""
        return self._near.after_any(position)

    def exceeds(self, position: Position, most: int) -> bool:
        """Whether :meth:`after_any` is more than some tokens. Often a few of its parts tell."""
        return self._loose.after_any(position) > most and self._near.exceeds(position, most)
