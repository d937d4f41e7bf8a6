"""Caches: whatever was done to them and to their relatives, each holds its own tokens and no others."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom.arrays.backend import Backend
from logitloom.errors import ModelError
from logitloom_contrib.llama import KVCache, LlamaModel, random_model

VOCAB = 17
Rows = tuple[tuple[int, ...], ...]


@lru_cache
def fresh_model() -> LlamaModel:
    return random_model("numpy", vocab=VOCAB)


@lru_cache(maxsize=10_000)
def fresh_logits(row: tuple[int, ...]) -> np.ndarray:
    """Logits after a row, from a pass without any history."""
    model = fresh_model()
    return model.forward(np.array([row], dtype=np.int32), model.empty_cache(1))[0][0]


def extend(model: LlamaModel, cache: KVCache, rows: Rows, new: Rows) -> tuple[KVCache, Rows]:
    """Append, and compare the logits of every row with a fresh pass over all its tokens."""
    width = max(map(len, new))
    tokens = np.array([(*line, *[-1] * (width - len(line))) for line in new], dtype=np.int32).reshape(len(new), width)
    logits, cache = model.forward(tokens, cache)
    found = model.backend.to_numpy(logits)
    rows = tuple(old + line for old, line in zip(rows, new, strict=True))
    assert cache.lengths.tolist() == [len(row) for row in rows]
    for i, line in enumerate(new):
        if line:
            np.testing.assert_allclose(found[i], fresh_logits(rows[i]), atol=2e-4)
    return cache, rows


def live_through(model: LlamaModel, steps: list[tuple[str, int]]) -> None:
    """Apply steps to a growing pool of caches; in the end each one of the pool must still be what it was."""
    pool: list[tuple[KVCache, Rows]] = [(model.empty_cache(2), ((), ()))]
    for kind, seed in steps:
        rng = np.random.default_rng(seed)
        place = int(rng.integers(len(pool)))
        cache, rows = pool[place]
        count = len(rows)
        if kind == "forward" and count:
            new = tuple(tuple(rng.integers(0, VOCAB, rng.integers(0, 4)).tolist()) for _ in rows)
            made = extend(model, cache, rows, new) if any(new) else (cache, rows)
        elif kind == "take" and count:
            index = rng.integers(0, count, rng.integers(1, 4))
            made = cache.take_rows(index), tuple(rows[i] for i in index)
        elif kind == "crop":
            lengths = [int(rng.integers(0, len(row) + 1)) for row in rows]
            made = cache.crop(lengths), tuple(row[:n] for row, n in zip(rows, lengths, strict=True))
        elif kind == "concat":
            other, other_rows = pool[int(rng.integers(len(pool)))]
            if count + len(other_rows) > 4:
                continue
            made = cache.concat_rows([other]), rows + other_rows
        elif kind == "forget" and len(pool) > 1:
            del pool[place]
            continue
        else:
            continue
        pool.append(made)
    for cache, rows in pool:
        assert cache.row_count() == len(rows)
        if rows:
            extend(model, cache, rows, tuple((1,) for _ in rows))


steps = st.lists(
    st.tuples(st.sampled_from(["forward", "forward", "take", "crop", "concat", "forget"]), st.integers(0, 10**6)),
    min_size=4,
    max_size=16,
)


@settings(max_examples=150)
@given(steps)
def test_caches_written_in_place_never_disturb_their_relatives(steps):
    live_through(fresh_model(), steps)


@settings(max_examples=60)
@given(steps)
def test_caches_replaced_at_every_step_never_disturb_their_relatives(steps):
    live_through(replacing_model(), steps)


@lru_cache
def replacing_model() -> LlamaModel:
    return random_model("numpy", vocab=VOCAB, in_place=False)


@settings(max_examples=4)
@given(steps=steps)
@pytest.mark.long
def test_caches_never_disturb_their_relatives_on_any_backend(backend: Backend, steps):
    live_through(backend_model(backend), steps)


@lru_cache
def backend_model(backend: Backend) -> LlamaModel:
    return random_model(backend, vocab=VOCAB)


def test_buffers_grow_and_keep_every_version(backend: Backend):
    model, rng = backend_model(backend), np.random.default_rng(7)
    cache, rows = extend(model, model.empty_cache(2), ((), ()), ((1, 2, 3), tuple(rng.integers(0, VOCAB, 60).tolist())))
    small, small_rows = cache, rows
    for _ in range(3):
        new = tuple(tuple(rng.integers(0, VOCAB, 3).tolist()) for _ in rows)
        cache, rows = extend(model, cache, rows, new)
    assert small.capacity == 64
    assert cache.capacity == 128
    joined, joined_rows = small.concat_rows([cache]), small_rows + rows
    extend(model, joined, joined_rows, ((1,), (2,), (3,), (4,)))
    extend(model, small, small_rows, ((5,), (6,)))


def shares_memory(one: KVCache, other: KVCache) -> bool:
    return one._buffers is other._buffers


def test_appending_to_the_newest_version_copies_nothing():
    model = fresh_model()
    old, rows = extend(model, model.empty_cache(1), ((),), ((1, 2, 3),))
    new, _ = extend(model, old, rows, ((4,),))
    assert shares_memory(old, new)


def test_appending_to_an_older_version_copies_first():
    model = fresh_model()
    old, rows = extend(model, model.empty_cache(1), ((),), ((1, 2, 3),))
    new, new_rows = extend(model, old, rows, ((4,),))
    fork, fork_rows = extend(model, old, rows, ((5,),))
    assert not shares_memory(new, fork)
    extend(model, new, new_rows, ((6,),))
    extend(model, fork, fork_rows, ((6,),))


def test_going_back_behind_a_dropped_draft_copies_nothing():
    model = fresh_model()
    cache, rows = extend(model, model.empty_cache(1), ((),), ((1, 2, 3),))
    cache, rows = extend(model, cache, rows, ((4, 5, 6),))
    cropped = cache.crop([4])
    del cache
    again, _ = extend(model, cropped, (rows[0][:4],), ((7, 8),))
    assert shares_memory(cropped, again)


def test_going_back_behind_a_draft_that_is_still_held_copies_first():
    model = fresh_model()
    cache, rows = extend(model, model.empty_cache(1), ((),), ((1, 2, 3, 4),))
    cropped = cache.crop([2])
    again, _ = extend(model, cropped, (rows[0][:2],), ((7, 8),))
    assert not shares_memory(cache, again)
    extend(model, cache, rows, ((9,),))


def test_rows_taken_in_their_order_are_the_cache_itself():
    model = fresh_model()
    cache, _ = extend(model, model.empty_cache(2), ((), ()), ((1,), (2, 3)))
    assert cache.take_rows([0, 1]) is cache
    assert cache.take_rows([0]).lengths.tolist() == [1]


def test_lengths_cannot_be_changed_from_outside():
    cache = fresh_model().empty_cache(2)
    with pytest.raises(ValueError, match="read-only"):
        cache.lengths[0] = 5


def test_arguments_that_make_no_sense_are_refused():
    model = fresh_model()
    cache, _ = extend(model, model.empty_cache(2), ((), ()), ((1,), (2, 3)))
    with pytest.raises(ModelError, match=r"Row 2 was asked of a key-value cache with 2 rows"):
        cache.take_rows([0, 2])
    with pytest.raises(ModelError, match=r"Row 1 .* holds 2 tokens and cannot be cropped to 3"):
        cache.crop([1, 3])
    with pytest.raises(ModelError, match="cannot be cropped to -1"):
        cache.crop([-1, 0])
    with pytest.raises(ModelError, match=r"shape \[1\] for 2 rows"):
        cache.crop([1])
    with pytest.raises(ModelError, match="one model made all of them"):
        cache.concat_rows([random_model().empty_cache(1)])
