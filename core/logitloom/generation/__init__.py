"""Decoding over any model adapter and backend: greedy, multinomial, beam search, contrastive search, particles.

The protocols of model adapters are :class:`ModelAdapter` and :class:`Cache`. The protocol of candidate generators is
:class:`CandidateGenerator`, with :class:`DraftRequest` and :class:`Drafts`.
"""

from __future__ import annotations

from logitloom.generation.beam_search import BeamSearch, Carried, Hypothesis, beam_search
from logitloom.generation.candidates import (
    CandidateGenerator,
    Configured,
    DraftRequest,
    Drafts,
    carry,
    legal_prefix,
    until_end,
)
from logitloom.generation.continuous import ContinuousGenerator, continuous
from logitloom.generation.contrastive_search import ContrastiveSearch, contrastive_search
from logitloom.generation.finished_value import read_value
from logitloom.generation.generator import Generated, Generator, Piece, Progress
from logitloom.generation.greedy import Greedy
from logitloom.generation.healing import Healed, heal
from logitloom.generation.loop import Emission, Sampler, decode
from logitloom.generation.model import Cache, HiddenStateModel, LoadedModel, ModelAdapter, ModelLoader
from logitloom.generation.multinomial import Multinomial, draw
from logitloom.generation.partial_values import Partial, ValueReader
from logitloom.generation.particles import Particle, Particles, decode_weighted
from logitloom.generation.posterior import Posterior, posterior
from logitloom.generation.sampled import Sampled
from logitloom.generation.schedules import Policy, Schedule
from logitloom.generation.sequence_state import SequenceState
from logitloom.generation.soft_ban import SoftBan, decode_avoiding
from logitloom.generation.speculation import Round, Statistics, speculate

__all__ = [
    "BeamSearch",
    "Cache",
    "CandidateGenerator",
    "Carried",
    "Configured",
    "ContinuousGenerator",
    "ContrastiveSearch",
    "DraftRequest",
    "Drafts",
    "Emission",
    "Generated",
    "Generator",
    "Greedy",
    "Healed",
    "HiddenStateModel",
    "Hypothesis",
    "LoadedModel",
    "ModelAdapter",
    "ModelLoader",
    "Multinomial",
    "Partial",
    "Particle",
    "Particles",
    "Piece",
    "Policy",
    "Posterior",
    "Progress",
    "Round",
    "Sampled",
    "Sampler",
    "Schedule",
    "SequenceState",
    "SoftBan",
    "Statistics",
    "ValueReader",
    "beam_search",
    "carry",
    "continuous",
    "contrastive_search",
    "decode",
    "decode_avoiding",
    "decode_weighted",
    "draw",
    "heal",
    "legal_prefix",
    "posterior",
    "read_value",
    "speculate",
    "until_end",
]
