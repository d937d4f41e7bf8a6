"""NVIDIA Dynamo: a chain as a ``BaseLogitsProcessor``, which its workers adapt to the engine that they run.

A processor is called with the ids of one request so far and its logits ``[vocab]``, and changes them in place. Checked
against the protocol; it has never run inside Dynamo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from logitloom import Chain
from logitloom.engines import bind
from logitloom.errors import InvalidContext
from logitloom_protocol_adapters.text_rows import TextRows

__all__ = ["DynamoProcessor", "to_dynamo"]

#: Whether the ids begin with the prompt is the worker's affair, so a chain can rely on neither prompt nor length.
GIVES: Final[frozenset[str]] = frozenset()
ENGINE: Final = "Dynamo"


def to_dynamo(chain: Chain, tokenizer: object = None, *, seed: int = 0) -> DynamoProcessor:
    """A chain as a ``BaseLogitsProcessor`` of Dynamo: one object per request.

    Args:
        chain: the processors.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        seed: of processors that draw random numbers.

    Raises:
        NeedsNotMet: the chain needs what the engine does not give.
        ChainIncomplete: options are missing.
    """
    return DynamoProcessor(bind(chain, ENGINE, GIVES, tokenizer=tokenizer), seed)


class DynamoProcessor:
    """A chain for one request; made by :func:`to_dynamo`. The ids of the first call are not the chain's."""

    def __init__(self, chain: Chain, seed: int) -> None:
        self.chain, self._rows = chain, TextRows(chain, seed)
        self._eos = chain.vocabulary.eos if chain.vocabulary is not None else ()

    def __call__(self, input_ids: Sequence[int], logits: torch.Tensor) -> None:
        """Process logits ``[vocab]`` after ids in place."""
        if logits.ndim != 1:
            raise InvalidContext(
                f"{ENGINE} passes logits [vocab] of one request, but they have the shape {list(logits.shape)}."
            )
        try:
            logits.copy_(self._rows.process(np.asarray(list(input_ids), dtype=np.int64), logits))
        except Exception:
            # Workers may swallow it and sample; then the text ends here, and does not go on without the chain.
            if self._eos:
                logits.fill_(-torch.inf)
                logits[list(self._eos)] = 0.0
            raise
