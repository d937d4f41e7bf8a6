"""Runs logitloom's chains in the tiny engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain
from logitloom.engines import bind
from logitloom_contrib.row_tracking import RowTracker, right_aligned
from logitloom_tiny_engine.engine import Engine, Request

__all__ = ["to_tiny_engine"]

GIVES: Final = frozenset({"prompt", "length", "history", "vocabulary"})


def to_tiny_engine(chain: Chain, engine: Engine, *, tokenizer: Any = None) -> None:
    """Let an engine process the logits of all its requests with a chain.

    Args:
        chain: from ``logitloom.processors.load``.
        engine: whose hook is set.
        tokenizer: for chains that need a vocabulary and have none.

    Raises:
        ChainIncomplete: options of the chain are missing.
        NeedsNotMet: a processor needs what the engine does not give.
    """
    chain = bind(chain, "The tiny engine", GIVES, tokenizer=tokenizer)
    tracker = RowTracker(chain, eos=() if chain.vocabulary is None else chain.vocabulary.eos)

    def hook(requests: Sequence[Request], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        ids, starts = right_aligned([request.prompt + request.output for request in requests])
        lengths = [len(request.prompt) for request in requests]
        return np.asarray(tracker.process(logits, ids, starts, prompt_lengths=lengths))

    engine.hook = hook
