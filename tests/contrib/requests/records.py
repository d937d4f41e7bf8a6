"""What a server recorded of the sampled tokens, beside what the project's own loop recorded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logitloom.generation import Sampled

__all__ = ["assert_records_agree"]


def assert_records_agree(told: Sequence[Sampled | None], ours: Sequence[Sampled | None], tolerance: float) -> None:
    """The same tokens and kept sets, and log-probabilities and entropies within a tolerance, as far as both go."""
    for each, own in zip(told, ours, strict=False):
        assert each is not None
        assert own is not None
        assert (each.token, each.kept) == (own.token, own.kept)
        for name in ("logprob", "logprob_before", "entropy"):
            assert getattr(each, name) == pytest.approx(getattr(own, name), abs=tolerance), name
