"""How the conformance kit tests the backend: here, in the tests of this distribution, and by ``logitloom check``."""

from __future__ import annotations

from logitloom.testing import BackendConformance

__all__ = ["TestTinygrad"]


class TestTinygrad(BackendConformance):
    """Every function and operation, against the standard version and against NumPy."""

    backends = ("tinygrad",)
