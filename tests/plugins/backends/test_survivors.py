"""The highest logits of a row, found through the maxima of blocks, are those of a sort."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom_plugins.backends._highest_logits import kth_largest, survivors


def drawn(dice: np.random.Generator) -> np.ndarray:
    """Rows of any width, with ties and what is forbidden."""
    x = dice.normal(size=(int(dice.integers(1, 5)), int(dice.integers(1, 3000)))).round(int(dice.integers(0, 5)))
    if dice.random() < 0.3:
        x[dice.random(x.shape) < dice.random()] = -np.inf
    return x.astype(dice.choice([np.float16, np.float32, np.float64]))


@pytest.mark.parametrize("seed", range(6))
def test_the_kth_largest_is_that_of_a_sort(seed: int) -> None:
    dice = np.random.default_rng(seed)
    for _ in range(30):
        x = drawn(dice)
        k = int(dice.integers(1, min(x.shape[1], int(dice.choice([60, 3000]))) + 1))
        np.testing.assert_array_equal(kth_largest(x, k), np.sort(x, -1)[:, x.shape[1] - k][:, None])


def test_rows_with_few_possible_tokens() -> None:
    """Fewer than k, as many, more; on wide vocabularies, where rows are taken one by one, and on narrow ones."""
    dice = np.random.default_rng(0)
    for vocab in (600, 40_000):
        x = np.full((4, vocab), -np.inf, dtype=np.float32)
        for row, count in enumerate((0, 63, 64, 300)):
            x[row, dice.choice(vocab, count, replace=False)] = dice.normal(size=count).round(1)
        np.testing.assert_array_equal(kth_largest(x, 64), np.sort(x, -1)[:, vocab - 64][:, None])
        x[0, 5] = np.nan
        np.testing.assert_array_equal(kth_largest(x, 64), np.sort(x, -1)[:, vocab - 64][:, None])


@pytest.mark.parametrize("seed", range(6))
def test_survivors_hold_all_that_may_be_among_the_highest(seed: int) -> None:
    dice = np.random.default_rng(seed)
    gained = 0
    for _ in range(30):
        x = drawn(dice)
        for highest in (1, int(dice.integers(1, 60)), None):
            found = survivors(x, highest)
            if found is None:
                continue
            gained += 1
            least = np.sort(x, -1)[:, -min(highest or x.shape[1], x.shape[1])][:, None]
            for line, ids, bound in zip(x, found, least, strict=True):
                kept = ids[ids >= 0].tolist()
                assert kept == sorted(set(kept))
                assert set(np.flatnonzero((line >= bound) & (line > -np.inf))) <= set(kept)
    assert gained > 20


def test_what_a_division_makes_equal_survives_with_the_highest() -> None:
    zero, warm = np.float32(0), np.float32(1.7)
    high = next(a for a in np.arange(2, 3, 0.01, np.float32) if a / warm == np.nextafter(a, zero) / warm)
    x = np.zeros((1, 4096), dtype=np.float32)
    x[0, :50], x[0, 50] = high, np.nextafter(high, zero)
    divided = x / warm
    assert divided[0, 50] == divided[0, 0]  # so top_k keeps both after a temperature
    found = survivors(x, 50)
    assert found is not None
    assert 50 in found


def test_a_row_of_what_is_not_a_number_is_selected_as_before() -> None:
    x = np.random.default_rng(0).normal(size=(2, 2048)).astype(np.float32)
    x[1, 5] = np.nan
    np.testing.assert_array_equal(kth_largest(x, 3), np.partition(x, 2045, axis=-1)[:, 2045:2046])
