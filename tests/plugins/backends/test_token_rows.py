"""Masks from lists of ids in host memory; the conformance kit tests them on every backend."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logitloom import load_backend
from logitloom.masks.mask_row import MaskRow

VOCAB = 67


def by_hand(logits: np.ndarray, rows: list[tuple[bool, list[int]]]) -> np.ndarray:
    out = logits.copy()
    for line, (allowed, ids) in zip(out, rows, strict=True):
        for token in range(len(line)):
            if (token in ids) != allowed:
                line[token] = -np.inf
    return out


def some_rows(count: int) -> list[tuple[bool, list[int]]]:
    random = np.random.default_rng(count)
    sizes = [0, 1, 3, 20, VOCAB]
    return [
        (bool(n % 2), sorted(random.choice(VOCAB, size=sizes[n % len(sizes)], replace=False).tolist()))
        for n in range(count)
    ]


def some_logits(rows: int) -> np.ndarray:
    logits = np.random.default_rng(0).normal(size=(rows, VOCAB)).astype(np.float32)
    logits[:, 3] = -np.inf
    logits[:, 4] = np.inf
    logits[:, 5] = -0.0
    return logits


def bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, VOCAB - 1))), min_size=1, max_size=4))
def test_long_lists_as_words_equal_lists(rows: list[tuple[bool, set[int]]]) -> None:
    backend = load_backend("numpy")
    listed = [(allowed, sorted(ids)) for allowed, ids in rows]
    logits = some_logits(len(rows))
    prepared = [MaskRow(allowed, ids, VOCAB) for allowed, ids in listed]
    assert np.array_equal(bits_of(backend.apply_token_rows(logits, prepared)), bits_of(by_hand(logits, listed)))


def test_not_a_number_stays_where_it_is_allowed_and_goes_where_it_is_not() -> None:
    backend = load_backend("numpy")
    logits = np.full((2, VOCAB), np.nan, dtype=np.float32)
    logits[1] = -logits[1]
    rows = [MaskRow(True, range(30), VOCAB), MaskRow(False, range(30), VOCAB)]
    assert all(row.dense for row in rows)
    out = backend.apply_token_rows(logits, rows)
    assert np.isnan(out[0, :30]).all()
    assert (out[0, 30:] == -np.inf).all()
    assert (out[1, :30] == -np.inf).all()
    assert np.isnan(out[1, 30:]).all()


def test_views_of_larger_arrays_are_masked_in_place() -> None:
    backend = load_backend("numpy")
    large = np.zeros((4, VOCAB + 9), dtype=np.float32)
    rows = some_rows(2)
    out = backend.apply_token_rows(large[::2, :VOCAB], [MaskRow(a, i, VOCAB) for a, i in rows], donate=True)
    assert np.shares_memory(out, large)
    assert np.array_equal(large[::2, :VOCAB], by_hand(np.zeros((2, VOCAB), dtype=np.float32), rows))
    assert not large[1::2].any()
    assert not large[:, VOCAB:].any()
