"""Uploads, downloads, devices and namespaces of the array backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import Backend, library_of


@pytest.mark.extras
def test_host_bfloat16_arrays_are_uploaded_as_they_are(backend: Backend) -> None:
    if not hasattr(backend.xp, "bfloat16"):
        pytest.skip(f"{backend.name} has no bfloat16")
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has bfloat16 through ml_dtypes only")
    host = np.asarray([1.0, -2.5], dtype=ml_dtypes.bfloat16)
    assert backend.asarray(host).dtype == backend.xp.bfloat16


def test_a_step_is_complete_after_synchronize(backend: Backend, to_backend: Callable[..., Any]) -> None:
    doubled = backend.scale(to_backend(np.ones((2, 5), dtype=np.float32)), 2.0)
    backend.synchronize(doubled)
    np.testing.assert_array_equal(backend.to_numpy(doubled), np.full((2, 5), 2.0))


def test_the_namespace_has_what_processors_use(backend: Backend) -> None:
    xp, up = backend.xp, backend.asarray
    x = up(np.asarray([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]], dtype=np.float32))
    ids = up(np.asarray([[2, 0], [1, 1]], dtype=np.int32))
    plain = np.asarray(backend.to_numpy(x))

    def same(got: Any, expected: Any) -> None:
        assert library_of(got) == backend.name
        np.testing.assert_allclose(np.asarray(backend.to_numpy(got)), expected, rtol=1e-6)

    same(xp.where(x > 1, x, 0.0), np.where(plain > 1, plain, 0))
    same(xp.sort(x, axis=-1, descending=True), -np.sort(-plain, axis=-1))
    same(xp.argsort(x, axis=-1, stable=True), np.argsort(plain, axis=-1, stable=True))
    same(xp.argsort(x, axis=-1, descending=True, stable=True), [[0, 2, 1], [0, 1, 2]])
    same(xp.cumulative_sum(x, axis=1), np.cumsum(plain, axis=1))
    same(xp.take(x, ids[:, 0], axis=1), plain[:, [2, 1]])
    same(xp.take_along_axis(x, ids, axis=-1), [[2, 3], [1, 1]])
    same(xp.searchsorted(up(np.asarray([1.0, 2.0, 3.0], dtype=np.float32)), x[0]), [2, 0, 1])
    same(xp.bitwise_and(ids, 1), [[0, 0], [1, 1]])
    same(xp.bitwise_or(ids, ids), [[2, 0], [1, 1]])
    same(xp.bitwise_xor(ids, 3), [[1, 3], [2, 2]])
    same(xp.bitwise_right_shift(ids, ids), [[0, 0], [0, 0]])
    same(xp.bitwise_left_shift(ids, ids), [[8, 0], [2, 2]])
    same(xp.astype(x, xp.int32), plain.astype(int))
    same(xp.expand_dims(x, axis=1), plain[:, None])
    same(xp.concat([x, x], axis=1), np.concatenate([plain, plain], axis=1))
    same(xp.stack([x, x], axis=0), np.stack([plain, plain]))
    for name in ("sum", "max", "min", "mean", "prod", "argmax", "argmin"):
        same(getattr(xp, name)(x, axis=-1, keepdims=True), getattr(np, name)(plain, axis=-1, keepdims=True))
    same(xp.any(x > 2, axis=-1), [True, False])
    same(xp.all(x > 0, axis=-1), [True, False])
    same(xp.logical_and(x > 0, x < 2), (plain > 0) & (plain < 2))
    same(xp.logical_not(x > 1), plain <= 1)
    for name in ("exp", "sqrt", "abs", "tanh", "floor", "isnan", "isfinite", "square", "negative"):
        same(getattr(xp, name)(x), getattr(np, name)(plain))
    same(xp.log(x + 1), np.log(plain + 1))
    same(xp.maximum(x, x[:, :1]), np.maximum(plain, plain[:, :1]))
    same(xp.minimum(x, x[:, :1]), np.minimum(plain, plain[:, :1]))
    same(xp.clip(x, 1.0, 2.0), np.clip(plain, 1, 2))
    same(xp.flip(x, axis=-1), plain[:, ::-1])
    same(xp.roll(x, 1, axis=-1), np.roll(plain, 1, axis=-1))
    same(xp.reshape(x, (3, 2)), plain.reshape(3, 2))
    same(xp.broadcast_to(x[:1], (2, 3)), np.broadcast_to(plain[:1], (2, 3)))
    same(xp.permute_dims(x, (1, 0)), plain.T)
    same(xp.repeat(x, 2, axis=0), np.repeat(plain, 2, axis=0))
    same(xp.tile(x, (2, 1)), np.tile(plain, (2, 1)))
    same(xp.matmul(x, xp.permute_dims(x, (1, 0))), plain @ plain.T)
    same(xp.tril(xp.ones((3, 3))), np.tri(3))
    same(xp.count_nonzero(x, axis=-1), [3, 2])
    same(xp.zeros((2, 3), dtype=xp.int32), np.zeros((2, 3)))
    same(xp.full((2,), 4, dtype=xp.int32), [4, 4])
    same(xp.full_like(x, 4.0), np.full((2, 3), 4.0))
    same(xp.zeros_like(x), np.zeros((2, 3)))
    same(xp.arange(1, 4, dtype=xp.int32), [1, 2, 3])
    same(xp.asarray([1.0, 2.0], dtype=xp.float32), [1, 2])
    assert xp.isdtype(x.dtype, "real floating")
    assert not xp.isdtype(ids.dtype, "real floating")
    assert (x > 1).dtype == xp.bool
    assert xp.finfo(x.dtype).max > 1e38


def test_strided_numpy_logits_are_processed_in_place_of_their_rows() -> None:
    backend = load_backend("numpy")
    records = np.zeros((2, 40), dtype=np.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")]))
    records["logit"] = np.random.default_rng(0).normal(size=(2, 40))
    x = records["logit"]
    assert x.strides == (480, 12)
    plain = x.copy()
    tokens = np.asarray([[1, 1, -1], [-1, 0, 39]], dtype=np.int32)
    bits = np.asarray([[0x0F0F0F0F, 1], [-1, -1]], dtype=np.int32)
    for donate in (False, True):
        for name, arguments in {
            "masked_fill": (plain > 0, -1.0),
            "scale": (2.0,),
            "divide": (2.0,),
            "add": (plain,),
            "add_at": (tokens, 1.0),
            "set_at": (tokens, 9.0),
            "write_at": (tokens[:, 1:], tokens[:, 1:].astype(np.float32)),
            "apply_token_mask": (bits,),
        }.items():
            expected = getattr(backend, name)(plain, *arguments)
            x[:] = plain
            result = getattr(backend, name)(x, *arguments, donate=donate)
            np.testing.assert_array_equal(result, expected)
            assert donate or np.array_equal(x, plain)
            assert not donate or np.shares_memory(result, records)
    x[:] = plain
    for name, arguments in {"kth_largest": (3,), "top_k": (3,), "softmax": (), "log_softmax": ()}.items():
        np.testing.assert_allclose(getattr(backend, name)(x, *arguments), getattr(backend, name)(plain, *arguments))
        np.testing.assert_array_equal(x, plain)
    assert not records["id"].any()
    assert not records["p"].any()
