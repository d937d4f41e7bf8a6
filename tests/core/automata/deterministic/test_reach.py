"""Distances in transition tables, against a search from each state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom.automata.deterministic import reach
from logitloom.automata.deterministic.reach import distinct_steps, ends_reachable, reachable, steps_to


def searched(table: NDArray[np.int32], goal: NDArray[np.bool_], state: int) -> int:
    level, seen, distance = {state}, {state}, 0
    while level and not any(goal[each] for each in level):
        level = {int(after) for each in level for after in table[each] if after >= 0} - seen
        seen |= level
        distance += 1
    return distance if level else -1


@pytest.mark.parametrize("sweeps", [0, 1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_distances_are_those_of_a_search(seed: int, sweeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_SWEEPS", sweeps)
    dice = np.random.default_rng(seed)
    states = int(dice.integers(1, 40))
    # Few edges to near states, so that there are long ways, and none; entries below 0 are dead.
    table = dice.integers(-6, 3, (states, 2)).astype(np.int32)
    table = np.where(table < 0, table, np.minimum(table + np.arange(states)[:, None], states - 1)).astype(np.int32)
    goal = dice.random(states) < 0.1
    expected = [searched(table, goal, state) for state in range(states)]
    assert steps_to(table, goal).tolist() == expected
    assert ends_reachable(table, goal).tolist() == [distance >= 0 for distance in expected]
    target = np.zeros((states, states), dtype=bool)
    np.fill_diagonal(target, True)
    assert reachable(table, 0).tolist() == [searched(table, target[state], 0) >= 0 for state in range(states)]


def test_a_chain_has_a_distance_for_each_state() -> None:
    table = np.arange(1, 3001, dtype=np.int32)[:, None]
    table[-1] = -1
    goal = np.zeros(3000, dtype=bool)
    goal[-1] = True
    assert steps_to(table, goal).tolist() == [*range(2999, -1, -1)]


@pytest.mark.parametrize("seed", range(4))
def test_each_pair_of_a_state_and_a_next_state_is_listed_once(seed: int) -> None:
    table = np.random.default_rng(seed).integers(-2, 9, (9, 7)).astype(np.int32)
    pairs = {(state, target) for state, row in enumerate(table.tolist()) for target in row if target >= 0}
    source, target = distinct_steps(table)
    assert [*zip(source.tolist(), target.tolist(), strict=True)] == sorted(pairs)
