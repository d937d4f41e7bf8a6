"""How the conformance kit tests the adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.testing import Call, EngineConformance

__all__ = ["TestTinyEngine"]


class TestTinyEngine(EngineConformance):
    """Requests join, leave and change places; nothing is drafted and nothing forked."""

    engine = "tiny_engine"
    moves = ("leave", "join")

    def open(self, chain: Chain) -> Call:
        """The engine's hook, for requests that are told by their ids; a prompt is what a row began with."""
        from logitloom_tiny_engine import to_tiny_engine
        from logitloom_tiny_engine.engine import Engine, Request

        engine = Engine(lambda ids: np.zeros(1, dtype=np.float32))
        to_tiny_engine(chain, engine)
        begun: list[list[int]] = []

        def call(rows: Sequence[Sequence[int]], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            requests = []
            for row in map(list, rows):
                prompt = next((p for p in begun if row[: len(p)] == p), None)
                if prompt is None:
                    begun.append(prompt := row)
                requests.append(Request(prompt, 99, row[len(prompt) :]))
            return engine.hook(requests, logits)

        return call
