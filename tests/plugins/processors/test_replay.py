"""A state rebuilt from tokens is the state that lived through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom import Backend, Context, load_backend, processors, state
from tests.plugins.processors.catalogue import SPECS, VOCAB
from tests.plugins.processors.driving import random_logits

PROMPTS = [[1, 2, 3, 1, 2], [], [4, 4]]
TOKENS = [[3, 1, 2, 3], [5, 5, 1, 5], [4, 1, 4, 1]]


def arrays(backend: Backend, tree: Any) -> list[np.ndarray]:
    return [backend.to_numpy(leaf) for leaf in leaves(tree)]


def leaves(tree: Any) -> Iterator[Any]:
    found: list[Any] = []
    state.map_leaves(found.append, tree)
    return iter(found)


def begin(backend: Backend, label: str) -> tuple[Any, Context, Any]:
    chain = processors.load(SPECS[label], debug=True)
    logits = backend.asarray(random_logits(0, 3, VOCAB))
    return chain, Context.start(logits, prompt=PROMPTS, max_length=64, seed=5), logits


@pytest.mark.parametrize("label", SPECS)
def test_replayed_and_several_at_once_equal_one_by_one(backend: Backend, label: str) -> None:
    chain, context, logits = begin(backend, label)
    lived = chain.process(logits, chain.init_state(context), context)[1]
    for step in zip(*TOKENS, strict=True):
        expected, lived = chain.process(logits, lived, context.accept([[t] for t in step]))
    replayed = chain.replay(TOKENS, context)
    actual, at_once = chain.process(logits, chain.init_state(context), context.accept(TOKENS))
    np.testing.assert_array_equal(backend.to_numpy(actual), backend.to_numpy(expected))
    for mine, others in zip(arrays(backend, lived), arrays(backend, replayed), strict=True):
        np.testing.assert_array_equal(mine, others)
    for mine, others in zip(arrays(backend, lived), arrays(backend, at_once), strict=True):
        np.testing.assert_array_equal(mine, others)


@settings(max_examples=40)
@given(label=st.sampled_from(sorted(SPECS)), data=st.data())
def test_gaps_and_chunks_do_not_matter(label: str, data: st.DataObject) -> None:
    backend = load_backend("numpy")
    chain, context, logits = begin(backend, label)
    rows = [data.draw(st.lists(st.integers(0, 6), max_size=8)) for _ in range(3)]
    whole, _ = chain.process(logits, chain.init_state(context), context.accept(rows))
    # The same tokens, in calls of any width, with gaps anywhere.
    rest = [list(row) for row in rows]
    pieces = chain.init_state(context)
    while any(rest):
        width = data.draw(st.integers(1, 4))
        block = [
            [rest[row].pop(0) if rest[row] and data.draw(st.booleans()) else -1 for _ in range(width)]
            for row in range(3)
        ]
        _, pieces = chain.process(logits, pieces, context.accept(block))
    last, _ = chain.process(logits, pieces, context.accept([[], [], []]))
    np.testing.assert_array_equal(last, whole)


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
