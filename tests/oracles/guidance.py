"""Guidance without caches: both branches are read anew from their tokens, and the formula is applied in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logitloom import Context, Effect
from logitloom.context import padded


def log_softmax(x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def guided(conditional: Any, unconditional: Any, scale: float) -> np.ndarray:
    c, u = log_softmax(conditional), log_softmax(unconditional)
    return u + scale * (c - u)


def uncached(model: Any, rows: Sequence[Sequence[int]]) -> np.ndarray:
    """``[rows, vocab]``: the logits after each row, from nothing but its tokens."""
    logits, _ = model.forward(padded([list(row) for row in rows]), model.empty_cache(len(rows)))
    return np.asarray(model.backend.to_numpy(logits), dtype=np.float64)


def guided_uncached(
    model: Any, rows: Sequence[Sequence[int]], others: Sequence[Sequence[int]], scale: float, other_model: Any = None
) -> np.ndarray:
    """The guided scores after ``rows``, whose unconditional twins are ``others``."""
    return guided(uncached(model, rows), uncached(other_model or model, others), scale)


@dataclass
class Spy:
    """A processor that changes nothing and writes down what passes it: text so far (prompt, generated) and scores."""

    stage = "penalty"
    effect = Effect("forbids", keeps=("order", "last"))
    needs = frozenset({"history", "prompt"})

    seen: list[tuple[tuple[int, ...], tuple[int, ...], np.ndarray]] = field(default_factory=list)

    def process(self, logits: Any, context: Context) -> Any:
        backend = context.backend
        texts = backend.to_numpy(context.sequence).tolist()
        lengths = backend.to_numpy(context.length).tolist()
        prompts = backend.to_numpy(context.prompt_length).tolist()
        scores = np.array(backend.to_numpy(logits), dtype=np.float64)
        for text, length, prompt, line in zip(texts, lengths, prompts, scores, strict=True):
            self.seen.append((tuple(text[:prompt]), tuple(text[prompt:length]), line))
        return logits

    def check(self, model: Any, negatives: dict[tuple[int, ...], Sequence[int]], scale: float, atol: float) -> None:
        """Every score that passed equals the formula on both branches, computed from tokens alone."""
        rows = [[*prompt, *new] for prompt, new, _ in self.seen]
        others = [[*negatives[prompt], *new] for prompt, new, _ in self.seen]
        expected = guided_uncached(model, rows, others, scale)
        np.testing.assert_allclose(np.stack([line for _, _, line in self.seen]), expected, atol=atol, rtol=0)


def greedy_guided(model: Any, prompt: Sequence[int], negative: Sequence[int], scale: float, steps: int) -> list[int]:
    """The tokens of greedy decoding under guidance."""
    new: list[int] = []
    for _ in range(steps):
        scores = guided_uncached(model, [[*prompt, *new]], [[*negative, *new]], scale)
        new.append(int(scores[0].argmax()))
    return new


def best_sequences(
    model: Any, prompt: Sequence[int], negative: Sequence[int], scale: float, steps: int, beams: int
) -> list[tuple[tuple[int, ...], float]]:
    """Beam search without end of sequence, from tokens alone: the beams with their summed scores, best first."""
    found: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(steps):
        rows = [[*prompt, *new] for new, _ in found]
        scores = guided_uncached(model, rows, [[*negative, *new] for new, _ in found], scale)
        longer = [
            ((*new, token), total + float(line[token]))
            for (new, total), line in zip(found, scores, strict=True)
            for token in range(len(line))
        ]
        found = sorted(longer, key=lambda pair: -pair[1])[:beams]
    return found
