"""What an environment promises it has, and nothing else."""

from __future__ import annotations

import importlib.util

import pytest

from logitloom import load_backend

#: What every environment checks, whichever cases it has beside.
pytestmark = pytest.mark.promised


def test_every_promised_backend_loads(promised_backends: frozenset[str] | None) -> None:
    for name in sorted(promised_backends or {"numpy"}):
        assert load_backend(name).name == name


def test_no_unpromised_library_is_installed(promised_backends: frozenset[str] | None) -> None:
    if promised_backends is None:
        pytest.skip("the environment does not state its backends (LOGITLOOM_EXPECT_BACKENDS)")
    libraries = ("torch", "mlx", "jax", "cupy")
    installed = {name for name in libraries if importlib.util.find_spec(name) is not None}
    assert installed <= promised_backends
