"""Entropy of the distributions, with forbidden tokens counting for nothing."""

from __future__ import annotations

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF

__all__ = ["entropy"]


def entropy(backend: Backend, log_probability: Array, probability: Array) -> Array:
    """``-sum(p log p)`` per row, ``[rows, 1]``, in nats; ``0 log 0 = 0``."""
    surprise = backend.masked_fill(log_probability, log_probability == NEG_INF, 0.0)
    return -backend.xp.sum(probability * surprise, axis=-1, keepdims=True)
