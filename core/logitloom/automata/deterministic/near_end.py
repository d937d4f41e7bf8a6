"""How many tokens a lazy automaton needs from a state to the end, as far as the positions of the state tell."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.automata.deterministic.position_runs import PositionRuns
from logitloom.automata.deterministic.subsets import SubsetAutomaton
from logitloom.automata.patterns.position_completions import PositionCompletions
from logitloom.automata.patterns.position_distances import PositionDistances
from logitloom.contract import Layers, NearEnd, Run, State

__all__ = ["PositionsNearEnd"]

#: The states whose next positions are remembered, as many as a walk near a limit comes to.
_MOST_KEPT: Final = 512


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
        self._known: tuple[int, int, NDArray[np.bool_]] | None = None
        self._next_of: dict[bytes, Collection[int]] = {}

    def _runs_within(self, most: int) -> tuple[int, NDArray[np.bool_]]:
        """Bytes, and ``[lengths, positions]``: whether a text of as many bytes fits after each beginning of a run.

        The shortest text of a state decides, so there are as few bytes as the runs of the most characters need.
        """
        known = self._known
        if known is None or known[0] != most:
            runs, sizes = self._runs(), self._subsets.costs(self._distances.sizes_within(most))
            size = runs.largest_of_widest(sizes)
            known = self._known = most, size, runs.farthest(sizes) <= size
        return known[1:]

    def bound(self, state: State) -> int | None:
        """See :class:`NearEnd`."""
        found = self._farthest(state if type(state) is bytes else cast(tuple[bytes, int], state)[0])
        return None if found is None else found + self._distances.rest

    def bound_between(self, state: State) -> int | None:
        """See :class:`NearEnd`."""
        return self._farthest(state) if type(state) is bytes else None

    def _farthest(self, state: bytes) -> int | None:
        farthest = self._distances.farthest
        return max([farthest[each] for each in self._next(state)], default=None)

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
        return self._runs().of(positions, self._runs_within(most)[1])

    def layers(self, most: int) -> tuple[Layers, Layers, Layers | None]:
        """See :class:`NearEnd`."""
        distances = self._distances
        farther = distances.farther(most, self._runs_within(most)[0])
        return distances.nearer(most), farther, distances.nearer_within(most)

    def away(self, state: State, layers: Layers) -> int:
        """See :class:`NearEnd`."""
        origin = state if type(state) is bytes else cast(tuple[bytes, int], state)[0]
        return min([layers.away[each] for each in self._next(origin)])

    def is_within(self, state: State) -> bool:
        """See :class:`NearEnd`."""
        return type(state) is not bytes

    def _next(self, state: bytes) -> Collection[int]:
        # A walk asks several times about each of its states.
        known = self._next_of.get(state)
        if known is None:
            if len(self._next_of) >= _MOST_KEPT:
                self._next_of = {}
            known = self._next_of[state] = self._subsets.read_next(self._subsets.unpacked(state))
        return known
