"""Tests of compiled kernels begin with the kernels that a process takes after some work."""

from __future__ import annotations

import pytest

from logitloom.masks.kernels import load_kernels


@pytest.fixture(autouse=True, scope="package")
def _loaded() -> None:
    load_kernels()
