"""How many tokens a lazy automaton needs from a state to the end, as far as the positions of the state tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.position_runs import PositionRuns
from logitloom.automata.deterministic.subsets import SubsetAutomaton
from logitloom.automata.patterns.position_completions import PositionCompletions
from logitloom.automata.patterns.position_distances import PositionDistances
from logitloom.contract import Layers, NearEnd, Run, State

__all__ = ["PositionsNearEnd"]


class PositionsNearEnd(NearEnd):
    """What the positions of a state tell about the tokens to the end.

    Args:
        subsets: the automaton over classes of characters.
        runs: gives the runs of its positions.
        completions: the texts of its positions.
        distances: the tokens of these texts.
    """

    def __init__(
        self,
        subsets: SubsetAutomaton[Any],
        runs: Callable[[], PositionRuns],
        completions: PositionCompletions,
        distances: PositionDistances,
    ) -> None:
        self._subsets, self._runs = subsets, runs
        self._completions, self._distances = completions, distances

    @cached_property
    def _along(self) -> NDArray[np.int64]:
        """``[lengths, positions]``: the most tokens that are needed after the characters of a run."""
        return self._runs().farthest(self._subsets.costs(self._distances.needed))

    def bound(self, state: State) -> int | None:
        """See :class:`NearEnd`."""
        farthest = self._distances.farthest
        positions = self._next(state if type(state) is bytes else cast(tuple[bytes, int], state)[0])
        return max([farthest[each] for each in positions], default=None)

    def fits(self, state: State, most: int) -> bool | None:
        """See :class:`NearEnd`. Positions do not tell it of most states within a character."""
        distances = self._distances
        if type(state) is not bytes:
            bound = self.bound(state)
            return True if bound is not None and bound <= most else None
        first = self._completions.first(self._next(state))
        fits = bool(distances.needed[first] <= most)
        return None if not fits and distances.least[first] <= most else fits

    def runs(self, state: State, most: int) -> list[Run]:
        """See :class:`NearEnd`."""
        if type(state) is not bytes or not self.fits(state, most):
            return []
        positions = self._subsets.positions(self._subsets.unpacked(state))
        return self._runs().of(positions, self._along[:, positions] <= most)

    def layers(self, most: int) -> tuple[Layers, Layers]:
        """See :class:`NearEnd`."""
        return self._distances.nearer(most), self._distances.farther(most)

    def away(self, state: State, layers: Layers) -> int:
        """See :class:`NearEnd`."""
        return min([layers.away[each] for each in self._next(state)]) if type(state) is bytes else 0

    def _next(self, state: bytes) -> Any:
        return self._subsets.read_next(self._subsets.unpacked(state))
