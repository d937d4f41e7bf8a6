"""A state rebuilt from tokens is the state that lived through them, also where it is rebuilt in another way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from logitloom import Backend, Context, processors
from logitloom.rows import tree as state
from tests.plugins.processors.catalogue import VOCAB
from tests.plugins.processors.driving import random_logits

PROMPTS = [[1, 2, 3, 1, 2], [], [4, 4]]


def arrays(backend: Backend, tree: Any) -> list[np.ndarray]:
    return [backend.to_numpy(leaf) for leaf in leaves(tree)]


def leaves(tree: Any) -> Iterator[Any]:
    found: list[Any] = []
    state.map_leaves(found.append, tree)
    return iter(found)


def test_long_replays_of_dry_take_the_other_path_to_the_same_state(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 2, (3, 30)).tolist()
    chain = processors.load(("dry", {"breakers": [], "breaker_ids": [0], "max_match": 4}))
    logits = backend.asarray(random_logits(0, 3, VOCAB))
    context = Context.start(logits, prompt=PROMPTS, max_length=64)
    lived = chain.init_state(context)
    for step in zip(*tokens, strict=True):
        _, lived = chain.process(logits, lived, context.accept([[t] for t in step]))
    replayed = chain.replay(tokens, context)
    for mine, others in zip(arrays(backend, lived), arrays(backend, replayed), strict=True):
        np.testing.assert_array_equal(mine, others)
