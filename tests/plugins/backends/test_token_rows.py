"""Masks from lists of ids and from classes of tokens: equal on every backend to writing -inf one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, load_backend
from logitloom.mask_row import MaskRow

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


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rows_of_ids(backend: Backend, dtype: str, prepared: bool, donate: bool) -> None:
    if backend.name == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has no bfloat16")
    rows = some_rows(9)
    logits = backend.asarray(some_logits(9), dtype=dtype)
    before = backend.to_numpy(logits).astype(np.float32, copy=True)
    given_rows = [
        MaskRow(allowed, ids, VOCAB) if prepared else (allowed, np.array(ids, dtype=np.int32)) for allowed, ids in rows
    ]
    out = backend.apply_token_rows(logits, given_rows, donate)
    assert out.dtype == logits.dtype
    assert np.array_equal(bits_of(backend.to_numpy(out).astype(np.float32)), bits_of(by_hand(before, rows)))
    if not donate:
        assert np.array_equal(backend.to_numpy(logits).astype(np.float32), before)


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


@pytest.mark.parametrize("donate", [False, True])
def test_classes_of_tokens(backend: Backend, donate: bool) -> None:
    random = np.random.default_rng(5)
    token_class = random.integers(0, 6, size=VOCAB).astype(np.int32)
    allowed = random.random((5, 6)) < 0.5
    logits = some_logits(5)
    given_logits = backend.asarray(logits)
    out = backend.apply_class_mask(given_logits, backend.asarray(allowed), backend.asarray(token_class), donate)
    rows = [(True, np.flatnonzero(line[token_class]).tolist()) for line in allowed]
    assert np.array_equal(bits_of(backend.to_numpy(out)), bits_of(by_hand(logits, rows)))
    if not donate:
        assert np.array_equal(bits_of(backend.to_numpy(given_logits)), bits_of(logits))
