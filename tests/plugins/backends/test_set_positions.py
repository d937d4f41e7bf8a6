"""The entries of a table that are set, found eight at a time, are those that NumPy finds."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom_plugins.backends._set_positions import set_positions


@pytest.mark.parametrize("share", [0.0, 1e-4, 1e-3, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("size", [0, 1, 8, 4096, 4100])
@pytest.mark.parametrize("kind", [np.bool_, np.float32, np.int32])
def test_places_are_those_of_numpy(share: float, size: int, kind: type) -> None:
    table = (np.random.default_rng(size).random(size) < share).astype(kind)
    np.testing.assert_array_equal(set_positions(table), np.flatnonzero(table))
    np.testing.assert_array_equal(set_positions(table[::2]), np.flatnonzero(table[::2]))
    np.testing.assert_array_equal(set_positions(table[1:]), np.flatnonzero(table[1:]))
