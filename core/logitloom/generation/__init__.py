"""Decoding over any model adapter, written once for every backend: greedy, multinomial and beam search."""

from __future__ import annotations

from logitloom.generation.beam_search import BeamSearch, Hypothesis, beam_search
from logitloom.generation.generator import Generated, Generator, Piece, Progress
from logitloom.generation.greedy import Greedy
from logitloom.generation.loop import Emission, Sampler, decode
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.generation.multinomial import Multinomial

__all__ = [
    "BeamSearch",
    "Cache",
    "Emission",
    "Generated",
    "Generator",
    "Greedy",
    "Hypothesis",
    "ModelAdapter",
    "Multinomial",
    "Piece",
    "Progress",
    "Sampler",
    "beam_search",
    "decode",
]
