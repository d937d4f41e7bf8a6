"""All built-ins in one chain: each row is processed as if it were decoded alone, whatever happens to the rows.

Each row carries its own story (prompt, seed, tokens); the reference decodes that story alone, in a batch of one. The
conformance kit says the same of each processor by itself, for any schedule of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Chain, Context, processors
from logitloom.rows import tree as state
from tests.plugins.processors.catalogue import SPECS, VOCAB

CAPACITY = 32


@dataclass(frozen=True)
class Story:
    """What one row has gone through.

    Attributes:
        prompt: its prompt.
        seed: its seed.
        tokens: what it accepted, one list per step.
    """

    prompt: tuple[int, ...]
    seed: int
    tokens: tuple[tuple[int, ...], ...] = ()


def logits_of(story: Story, step: int) -> np.ndarray:
    """The logits that a model would give for a story: a function of the story alone. ``[vocab]`` float32."""
    entropy = [story.seed, step, *story.prompt, 99, *(t + 1 for block in story.tokens for t in (*block, 98))]
    logits = np.random.default_rng(entropy).normal(scale=2.5, size=VOCAB).astype(np.float32)
    return np.round(logits * 2) / 2 if story.seed % 2 else logits  # every other row has ties


def alone(backend: Backend, chain: Chain, story: Story) -> np.ndarray:
    """The processed logits of the last step of a story, decoded in a batch of one."""
    context = Context.start(
        backend.asarray(np.zeros((1, VOCAB), dtype=np.float32)),
        prompt=[story.prompt],
        seed=[story.seed],
        max_length=CAPACITY,
    )
    at = chain.init_state(context)
    first = Story(story.prompt, story.seed)
    processed, at = chain.process(backend.asarray(logits_of(first, 0)[None]), at, context)
    for step, block in enumerate(story.tokens, 1):
        now = Story(story.prompt, story.seed, story.tokens[:step])
        processed, at = chain.process(backend.asarray(logits_of(now, step)[None]), at, context.accept([list(block)]))
    return backend.to_numpy(processed)[0]


def begin(backend: Backend, chain: Chain, stories: list[Story]) -> tuple[Context, Any]:
    context = Context.start(
        backend.asarray(np.zeros((len(stories), VOCAB), dtype=np.float32)),
        prompt=[story.prompt for story in stories],
        seed=[story.seed for story in stories],
        max_length=CAPACITY,
    )
    at = chain.init_state(context)
    logits = backend.asarray(np.stack([logits_of(story, 0) for story in stories]))
    return context, chain.process(logits, at, context)[1]


def test_all_built_ins_in_one_chain_follow_their_rows(backend: Backend) -> None:
    if backend.name == "jax":
        pytest.skip("compiling every operation of every built-in takes JAX most of a minute")
    rng = np.random.default_rng(0)
    chain = processors.load(*SPECS.values(), debug=True)
    stories = [Story(tuple(rng.integers(0, 8, 5).tolist()), seed) for seed in range(4)]
    context, at = begin(backend, chain, stories)
    for step, index in enumerate([[3, 2, 1, 0], [0, 0, 1, 2], [3, 1, 0, 2]], 1):
        at, stories = state.take(at, index), [stories[i] for i in index]
        blocks = [tuple(rng.integers(0, 24, 2).tolist()) for _ in stories]
        stories = [Story(s.prompt, s.seed, (*s.tokens, b)) for s, b in zip(stories, blocks, strict=True)]
        logits = backend.asarray(np.stack([logits_of(story, step) for story in stories]))
        processed, at = chain.process(logits, at, context.accept([list(block) for block in blocks]))
        for story, row in zip(stories, backend.to_numpy(processed), strict=True):
            np.testing.assert_allclose(row, alone(backend, chain, story), rtol=1e-5, atol=1e-5)
