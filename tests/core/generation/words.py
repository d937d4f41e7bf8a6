"""A small vocabulary with a tokenizer and tiny models, for tests of sequences as text."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from logitloom import Vocabulary
from logitloom.generation import Generator
from logitloom_contrib.llama import LlamaModel, random_model

PIECES = [
    *string.ascii_lowercase, " ", ".", *"ABC", " the", "th", "he", "ing", " cat", "one", "two", " sat", "at", " on",
    "sheep", "\u00e9", "on",
]  # fmt: skip
#: The two bytes of a character that has no token of its own, BOS and EOS.
HALVES = ["\u00fc".encode()[:1], "\u00fc".encode()[1:]]
BOS = len(PIECES) + len(HALVES)
EOS = BOS + 1
VOCABULARY = Vocabulary([*(piece.encode() for piece in PIECES), *HALVES, b"", b""], eos=[EOS], special=[BOS])
SIZE = VOCABULARY.size


class Encoder:
    """Takes the longest token that fits, again and again; like real tokenizers it may begin with a special one."""

    def __init__(self, bos: bool = False) -> None:
        self.bos = bos
        self.ids = {data: i for i, data in enumerate(VOCABULARY.token_bytes) if data}

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), [BOS] if self.bos else []
        while data:
            piece = next(data[:n] for n in range(6, 0, -1) if data[:n] in self.ids)
            ids.append(self.ids[piece])
            data = data[len(piece) :]
        return ids


class Counting:
    """A model that counts the tokens of each forward pass, and the moves of cached rows."""

    def __init__(self, model: Any) -> None:
        self.model, self.passes = model, []
        self.backend, self.vocab_size, self.max_length = model.backend, model.vocab_size, model.max_length

    def empty_cache(self, rows: int) -> Any:
        return self.model.empty_cache(rows)

    def forward(self, tokens: np.ndarray, cache: Any, *, all_positions: bool = False) -> Any:
        self.passes.append((tokens >= 0).sum(axis=1).tolist())
        return self.model.forward(tokens, cache, all_positions=all_positions)


def tiny_model(backend: Any = "numpy", **options: Any) -> LlamaModel:
    # With a head of its own the model does not mostly repeat its last token.
    return random_model(backend, vocab=SIZE, tied=False, **options)


def generator(model: Any, *specs: Any, bos: bool = False, **options: Any) -> Generator:
    """A generator over the small vocabulary, with a chain of built-in processors."""
    from logitloom import processors

    options.setdefault("max_tokens", 8)
    chain = processors.load(*specs, tokenizer=VOCABULARY)
    return Generator(model, chain, tokenizer=Encoder(bos), vocabulary=VOCABULARY, **options)


def fresh_logits(model: Any, rows: Any) -> np.ndarray:
    """Next-token logits of rows, each computed alone from its tokens."""
    found = []
    for row in rows:
        logits, _ = model.forward(np.asarray([row], dtype=np.int32), model.empty_cache(1))
        found.append(model.backend.to_numpy(logits)[0])
    return np.stack(found)
