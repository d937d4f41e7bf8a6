"""A toy model with a tokenizer of single bytes, for commands that generate."""

from __future__ import annotations

from tests.core.automata.vocabularies import mixed
from tests.oracles.toy_model import ToyModel

WORDS = mixed()


class Tokenizer:
    def encode(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()]


class Toy(ToyModel):
    vocabulary = WORDS
    tokenizer = Tokenizer()
