"""How the conformance kit tests the sampler."""

from __future__ import annotations

from logitloom.testing import ProcessorConformance

__all__ = ["TestSurpriseControl"]


class TestSurpriseControl(ProcessorConformance):
    """With a target that is reached at once, and with one that the limit moves towards."""

    processor = "surprise_control"
    cases = {"low": {"target": 1.0, "rate": 0.9}, "following": {"target": 1.5, "rate": 0.5}}
