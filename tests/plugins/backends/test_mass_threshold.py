"""The border of a mass in host memory is that of a sort in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom import load_backend
from logitloom_plugins.backends._nucleus import mass_threshold


def by_sorting(keys: np.ndarray, mass: np.ndarray, p: float) -> float:
    order = np.argsort(-keys, kind="stable")
    upto = mass[order].astype(np.float64).cumsum()
    place = int(upto.searchsorted(p))
    return float(keys[order[place]]) if place < len(keys) else -np.inf


@pytest.mark.parametrize("scale", [0.001, 1.0, 40.0])
def test_it_is_that_of_a_sort(scale: float) -> None:
    rng = np.random.default_rng(3)
    keys = -np.abs(rng.normal(scale=scale, size=(6, 5000)).astype(np.float32))
    keys[1] = np.round(keys[1] / scale) * scale  # ties
    keys[2, rng.random(5000) < 0.5] = -np.inf
    keys[3] = -np.inf
    keys[4] += 1e6
    mass = rng.dirichlet(np.ones(5000), size=6).astype(np.float32)
    mass[np.isneginf(keys)] = 0
    for p in (1e-6, 0.3, 0.9, 0.999):
        found = mass_threshold(keys, mass, p)
        wanted = [by_sorting(line, weights, p) for line, weights in zip(keys, mass, strict=True)]
        for line, weights, border, expected in zip(keys, mass, found[:, 0], wanted, strict=True):
            if border != expected:  # sums in another order, at the very border
                above = weights[line >= max(border, expected)].astype(np.float64).sum()
                assert above == pytest.approx(p, abs=1e-6)


def test_a_row_with_less_mass_and_one_that_is_no_number_keep_everything() -> None:
    keys = np.linspace(-3, 0, 4000, dtype=np.float32)[None].repeat(2, axis=0)
    keys[1, 7] = np.nan
    mass = np.full((2, 4000), 0.5 / 4000, dtype=np.float32)
    assert np.isneginf(mass_threshold(keys, mass, 0.9)).all()


def test_backends_agree(backend) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(5)
    keys = -np.abs(rng.normal(size=(2, 3000)).astype(np.float32))
    mass = rng.dirichlet(np.ones(3000), size=2).astype(np.float32)
    wanted = load_backend("numpy").mass_threshold(keys, mass, 0.8)
    found = backend.to_numpy(backend.mass_threshold(backend.asarray(keys), backend.asarray(mass), 0.8))
    np.testing.assert_allclose(found, wanted, atol=2e-3)  # sums in single precision end a token sooner or later
