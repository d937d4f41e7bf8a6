"""What only JAX has: tracers, and arrays bound to devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.arrays.backend import HostTable, backend_of, library_of

jax = pytest.importorskip("jax", reason="needs JAX")

pytestmark = pytest.mark.jax


def test_a_tracer_belongs_to_jax() -> None:
    native = load_backend("jax")
    seen: list[Any] = []

    def step(x: Any) -> Any:
        seen.extend([library_of(x), backend_of(x)])
        return native.scale(x, 2.0)

    np.testing.assert_array_equal(jax.jit(step)(native.asarray(np.ones(3, dtype=np.float32))), [2, 2, 2])
    assert seen == ["jax", native]


def test_a_table_uploaded_while_tracing_outlives_the_trace() -> None:
    native = load_backend("jax")
    table = HostTable(np.arange(3, dtype=np.float32))
    doubled = jax.jit(lambda x: x + table.on(native))(native.asarray(np.zeros(3, dtype=np.float32)))
    np.testing.assert_array_equal(doubled, table.host)
    np.testing.assert_array_equal(native.to_numpy(table.on(native)), table.host)


def test_operations_run_inside_a_while_loop() -> None:
    native = load_backend("jax")
    start = np.zeros((2, 5), dtype=np.float32)

    def body(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        i, x = carry
        return i + 1, native.add_at(x, (i + native.arange(2))[:, None], 1.0)

    _, result = jax.lax.while_loop(lambda c: c[0] < 3, body, (0, native.asarray(start)))
    np.testing.assert_array_equal(result, [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])


def test_products_of_matrices_do_not_follow_the_precision_of_models() -> None:
    native, factors = load_backend("jax"), np.array([[1.2345678, -0.7654321]], dtype=np.float32)
    with jax.default_matmul_precision("TF32_TF32_F32"):  # which the CPU refuses
        found = native.xp.matmul(native.asarray(factors), native.asarray(factors.T))
    np.testing.assert_allclose(np.asarray(found), factors @ factors.T, rtol=1e-6)


def test_the_default_device_is_the_default_backend() -> None:
    native = load_backend("jax")
    assert native.at(jax.local_devices()[0]) is native
    assert backend_of(jax.device_put(np.zeros(3, dtype=np.float32), jax.local_devices()[0])) is native


def test_masks_need_no_ranks_that_jax_extends_by_itself() -> None:
    native = load_backend("jax")
    bits = native.asarray(np.array([[5], [2]], dtype=np.int32))
    with jax.numpy_rank_promotion("raise"):
        masked = native.apply_token_mask(native.asarray(np.zeros((2, 3), dtype=np.float32)), bits)
    np.testing.assert_array_equal(np.isfinite(masked), [[True, False, True], [False, True, False]])
