"""Draws invert a cumulative sum, however a library rounds it."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import Backend
from logitloom.generation import draw

#: How far sums in float32 may be from sums in double precision.
ROUNDING = 2e-6


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_token_of_weight_0_is_never_drawn(backend: Backend, share: float) -> None:
    dice = np.random.default_rng(0)
    weights = np.exp(dice.normal(size=1000) * 2).astype(np.float32)
    weights[dice.random(1000) < share] = 0
    weights /= weights.sum()
    # Numbers whose target lies at a sum of the library, and beside it: where rounding decides.
    sums = backend.to_numpy(backend.xp.cumulative_sum(backend.asarray(weights[None]), axis=-1))[0]
    borders = (sums / sums[-1])[:-1]
    u = np.concatenate([borders, np.nextafter(borders, 0, dtype=np.float32), [0, 1 - 2**-23]]).astype(np.float32)
    u = u[(u >= 0) & (u < 1)]
    tiled = backend.asarray(np.tile(weights, (len(u), 1)))
    drawn = backend.to_numpy(draw(backend, tiled, backend.asarray(u)))
    assert (weights[drawn] > 0).all()
    exact = np.concatenate([[0.0], weights.astype(np.float64).cumsum() / weights.sum(dtype=np.float64)])
    assert (exact[drawn] <= u + ROUNDING).all()
    assert (u <= exact[drawn + 1] + ROUNDING).all()


def test_a_row_without_weights_draws_token_0(backend: Backend) -> None:
    weights = backend.asarray(np.array([[0, 0, 0], [0, 1, 0]], np.float32))
    assert backend.to_numpy(draw(backend, weights, backend.asarray(np.zeros(2, np.float32)))).tolist() == [0, 1]
