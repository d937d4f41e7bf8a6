"""A GPT-2 of transformers as a model adapter that computes every row anew from its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from logitloom import load_backend
from logitloom.context import padded
from tests.oracles.toy_model import ToyCache


class GPT2Adapter:
    """Implements the ModelAdapter protocol. Rows stand left-aligned, so positions are places."""

    def __init__(self, model: Any) -> None:
        self.backend = load_backend("torch")
        self.model, self.vocab_size = model, model.config.vocab_size
        self.max_length = model.config.n_positions

    def empty_cache(self, rows: int) -> ToyCache:
        return ToyCache(((),) * rows)

    def forward(self, tokens: np.ndarray, cache: ToyCache, *, all_positions: bool = False) -> tuple[Any, ToyCache]:
        rows = tuple((*old, *(int(t) for t in new if t >= 0)) for old, new in zip(cache.rows, tokens, strict=True))
        ids = np.maximum(padded([list(row) for row in rows]), 0)
        with torch.no_grad():
            logits = self.model(torch.from_numpy(ids).long()).logits
        assert not all_positions
        last = torch.tensor([len(row) - 1 for row in rows])
        return logits[torch.arange(len(rows)), last], ToyCache(rows)
