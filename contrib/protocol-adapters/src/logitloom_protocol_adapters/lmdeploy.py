"""LMDeploy (PyTorch engine): a chain as a member of ``GenerationConfig(logits_processors=[...])``.

The engine calls a processor once per request and step, with the request's ids, padded on the left to the longest of the
batch, and its logits. Several requests may share a configuration, and so the object. Checked against the protocol;
it has never run inside LMDeploy.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from logitloom import Chain
from logitloom.engines import bind
from logitloom.errors import InvalidContext
from logitloom_protocol_adapters.text_rows import TextRows

__all__ = ["LmdeployProcessor", "to_lmdeploy"]

GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "LMDeploy"


def to_lmdeploy(chain: Chain, tokenizer: object = None, *, padding: int = 0, seed: int = 0) -> LmdeployProcessor:
    """A chain for ``GenerationConfig(logits_processors=[...])`` of LMDeploy's PyTorch engine.

    Args:
        chain: the processors.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        padding: the id that fills rows on the left: the model's padding token, 0 if it has none.
        seed: of processors that draw random numbers; requests with equal ids draw equal numbers.

    Raises:
        NeedsNotMet: the chain needs what the engine does not give.
        ChainIncomplete: options are missing.
    """
    return LmdeployProcessor(bind(chain, ENGINE, GIVES, tokenizer=tokenizer), padding, seed)


class LmdeployProcessor:
    """A chain for any number of requests; made by :func:`to_lmdeploy`.

    A call with the ids of an earlier call and one more, or with the same, goes on with that text. Any other begins one,
    and its ids are the prompt.
    """

    def __init__(self, chain: Chain, padding: int, seed: int) -> None:
        self.chain, self._padding, self._rows = chain, padding, TextRows(chain, seed)

    def __call__(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Process logits ``[vocab]`` after ids ``[width]``, left-padded; not in place."""
        if input_ids.ndim != 1 or logits.ndim != 1:
            raise InvalidContext(
                f"{ENGINE} passes ids [width] and logits [vocab] of one request, but they have the shapes "
                f"{list(input_ids.shape)} and {list(logits.shape)}."
            )
        ids = input_ids.cpu().numpy()
        own = np.flatnonzero(ids != self._padding)
        row = ids[own[0] :] if len(own) else ids[:0]
        out: torch.Tensor = self._rows.process(row, logits)
        return out
