"""A backend whose arrays are computed on request is asked for the states after every step, and others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom_plugins.backends.numpy import NumpyBackend


class Watched(NumpyBackend):
    """NumPy that notes what it is asked to compute."""

    def __init__(self, device: Any = None) -> None:
        super().__init__(device)
        self.asked: list[tuple[int, ...]] = []

    def synchronize(self, *arrays: Any) -> None:
        """Notes the shapes."""
        self.asked += [array.shape for array in arrays]


@pytest.mark.parametrize("lazy", [True, False])
def test_states_are_asked_for_after_each_step_where_that_is_declared(lazy: bool) -> None:
    backend = type("Lazy", (Watched,), {"lazy": lazy})()
    chain = processors.load(("frequency_penalty", {"penalty": 1.0}), ("no_repeat_ngram", {"n": 2}), debug=False)
    context = Context(backend, batch=2, vocab_size=8, prompt=((1,), (2,)), max_length=9)
    logits = np.zeros((2, 8), dtype=np.float32)
    _, state = chain.process(logits, chain.init_state(context), context)
    first = list(backend.asked)
    chain.process(logits, state, context.accept([[1], [2]]))
    assert backend.asked == first * 2
    # Logits, the counts of the penalty, and the lengths and the history that the chain keeps.
    assert ({(2, 8), (2, 9), (2,)} <= set(first)) == lazy


def test_nothing_is_asked_for_inside_compiled_loops() -> None:
    backend = type("Lazy", (Watched,), {"lazy": True})()
    chain = processors.load(("frequency_penalty", {"penalty": 1.0}), debug=False)
    context = Context(backend, batch=1, vocab_size=8, compiled=True)
    chain.process(np.zeros((1, 8), dtype=np.float32), chain.init_state(context), context)
    assert backend.asked == []
