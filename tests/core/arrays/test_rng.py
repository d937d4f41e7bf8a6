"""Random numbers: the same bits everywhere, uniform, and a matter of the row alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import load_backend
from logitloom.arrays import rng
from logitloom.arrays.backend import Backend

MASK = 0xFFFFFFFF


def mix(x: int) -> int:
    """The hash in exact integers."""
    x &= MASK
    x = ((x ^ x >> 16) * 0x7FEB352D) & MASK
    x = ((x ^ x >> 15) * 0x846CA68B) & MASK
    return x ^ x >> 16


def uniform(seed: int, counter: int, stream: int = 0) -> float:
    x = mix(seed + mix(stream + 1))
    x = mix(x ^ mix(counter * 0x9E3779B9 + 1))
    return (x >> 9) / 2**23


def draw(backend: Backend, seeds: list[int], counters: list[int], stream: int = 0) -> list[float]:
    numbers = rng.uniform(
        backend.xp,
        backend.asarray(np.asarray(seeds, dtype=np.int32)),
        backend.asarray(np.asarray(counters, dtype=np.int32)),
        stream,
    )
    assert numbers.dtype == backend.xp.float32
    return [float(u) for u in backend.to_numpy(numbers)]


INT32 = st.integers(-(2**31), 2**31 - 1)


@given(seeds=st.lists(INT32, min_size=4, max_size=4), counters=st.lists(INT32, min_size=4, max_size=4))
def test_every_backend_draws_the_same_bits(backend: Backend, seeds: list[int], counters: list[int]) -> None:
    for stream in (0, 1, 2**40 + 7, -3):
        assert draw(backend, seeds, counters, stream) == [
            uniform(s, c, stream) for s, c in zip(seeds, counters, strict=True)
        ]


def test_a_row_draws_what_it_draws_alone(backend: Backend) -> None:
    seeds = [int(s) for s in rng.row_seeds(7, 5)]
    together = draw(backend, seeds, [3, 1, 4, 1, 5])
    alone = [draw(backend, [s], [c])[0] for s, c in zip(seeds, [3, 1, 4, 1, 5], strict=True)]
    assert together == alone
    assert draw(backend, seeds[::-1], [5, 1, 4, 1, 3]) == together[::-1]


def chi_square(numbers: np.ndarray, cells: int) -> float:
    counts = np.bincount((numbers * cells).astype(int), minlength=cells)
    expected = len(numbers) / cells
    return float((((counts - expected) ** 2) / expected).sum())


@pytest.mark.parametrize("vary", ["seed", "counter", "stream"])
def test_draws_are_uniform(vary: str) -> None:
    backend = load_backend("numpy")
    n, cells = 50_000, 100
    if vary == "seed":
        numbers = rng.uniform(backend.xp, rng.row_seeds(1, n), np.full(n, 9, dtype=np.int32))
    elif vary == "counter":
        numbers = rng.uniform(backend.xp, np.full(n, 9, dtype=np.int32), np.arange(n, dtype=np.int32))
    else:
        one = np.ones(1, dtype=np.int32)
        numbers = np.concatenate([rng.uniform(backend.xp, one, one, s) for s in range(n // 10)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # The statistic has mean 99 and standard deviation 14; five deviations are a chance of about 1e-5.
    assert 99 - 5 * 14 < chi_square(numbers, cells) < 99 + 5 * 14


def test_neighbouring_rows_steps_and_streams_are_uncorrelated() -> None:
    backend = load_backend("numpy")
    n = 20_000
    steps = np.arange(n, dtype=np.int32)
    seeds = np.full(n, 5, dtype=np.int32)
    numbers = rng.uniform(backend.xp, seeds, steps)
    for other in (
        rng.uniform(backend.xp, seeds, steps + 1),
        rng.uniform(backend.xp, seeds + 1, steps),
        rng.uniform(backend.xp, seeds, steps, stream=1),
        rng.uniform(backend.xp, steps, seeds),
    ):
        assert abs(np.corrcoef(numbers, other)[0, 1]) < 5 / np.sqrt(n)


def test_folding_gives_distinct_seeds() -> None:
    seeds = {rng.fold(seed, data) for seed in range(100) for data in range(100)}
    assert len(seeds) > 9_990  # 10,000 of 2**32 collide 0.01 times on average
    assert all(-(2**31) <= s < 2**31 for s in seeds)
    assert rng.fold(2**40) != rng.fold(2**41)
    assert len({int(s) for s in rng.row_seeds(3, 1000)}) == 1000
