"""Decoding over any model adapter, written once for every backend: greedy, multinomial and beam search."""

from __future__ import annotations

from logitloom.generation.beam_search import BeamSearch, Carried, Hypothesis, beam_search
from logitloom.generation.candidates import CandidateGenerator, DraftRequest, Drafts
from logitloom.generation.continuous import ContinuousGenerator, continuous
from logitloom.generation.generator import Generated, Generator, Piece, Progress
from logitloom.generation.greedy import Greedy
from logitloom.generation.loop import Emission, Sampler, decode
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.generation.multinomial import Multinomial
from logitloom.generation.sequence_state import SequenceState
from logitloom.generation.speculation import Round, Statistics, speculate

__all__ = [
    "BeamSearch",
    "Cache",
    "CandidateGenerator",
    "Carried",
    "ContinuousGenerator",
    "DraftRequest",
    "Drafts",
    "Emission",
    "Generated",
    "Generator",
    "Greedy",
    "Hypothesis",
    "ModelAdapter",
    "Multinomial",
    "Piece",
    "Progress",
    "Round",
    "Sampler",
    "SequenceState",
    "Statistics",
    "beam_search",
    "continuous",
    "decode",
    "speculate",
]
