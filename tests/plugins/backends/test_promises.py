"""What an environment promises it has, and nothing else."""

from __future__ import annotations

import importlib.util

import pytest

from logitloom import load_backend


def test_every_promised_backend_loads(promised_backends: frozenset[str] | None) -> None:
    for name in sorted(promised_backends or {"numpy"}):
        assert load_backend(name).name == name


@pytest.mark.parametrize("name", ["torch", "mlx", "jax", "cupy"])
def test_no_unpromised_library_is_installed(name: str, promised_backends: frozenset[str] | None) -> None:
    if promised_backends is None:
        pytest.skip("the environment does not state its backends (LOGITLOOM_EXPECT_BACKENDS)")
    assert name in promised_backends or importlib.util.find_spec(name) is None
