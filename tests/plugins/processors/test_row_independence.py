"""Whatever happens to the rows of a batch, each row is processed as if it were decoded alone.

The schedule is any sequence of permutations, duplications, drops and joins of rows. Each row carries its own
story (prompt, seed, tokens); the reference decodes that story alone, in a batch of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from logitloom import Backend, Chain, Context, processors, state
from tests.plugins.processors.catalogue import SPECS, VOCAB

#: Order in which a chain makes sense; the property holds for any.
LABELS = sorted(SPECS)
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


token = st.integers(0, 7)
prompts = st.lists(token, max_size=6).map(tuple)
#: Up to three tokens a step, as a speculating engine accepts them; -1 is none.
accepted = st.lists(st.integers(-1, 7), max_size=3).map(tuple)


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


def test_every_row_is_processed_as_if_it_were_alone(backend: Backend) -> None:
    # JAX compiles each operation for each number of rows, so it gets by on fewer examples.
    @settings(max_examples=4 if backend.name == "jax" else 30)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_schedule(backend, data)

    check()


def check_schedule(backend: Backend, data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=4), label="chain")
    chain = processors.load(*(SPECS[label] for label in labels), debug=True)

    def fresh(count: int) -> list[Story]:
        return [Story(data.draw(prompts), data.draw(st.integers(0, 2**40))) for _ in range(count)]

    stories = fresh(data.draw(st.integers(1, 3)))
    context, at = begin(backend, chain, stories)
    for step in range(1, data.draw(st.integers(2, 5), label="steps")):
        move = data.draw(st.sampled_from(["stay", "permute", "duplicate", "drop", "join"]), label="move")
        if move == "join":
            # Rows may only meet rows of their own age here, as logits_of numbers the steps.
            guests = fresh(data.draw(st.integers(1, 2)))
            _, theirs = begin(backend, chain, guests)
            for age in range(1, step):
                blocks = [data.draw(accepted) for _ in guests]
                guests = [Story(g.prompt, g.seed, (*g.tokens, b)) for g, b in zip(guests, blocks, strict=True)]
                logits = backend.asarray(np.stack([logits_of(guest, age) for guest in guests]))
                _, theirs = chain.process(logits, theirs, context.accept([list(b) for b in blocks]))
            at, stories = state.concat([at, theirs]), stories + guests
        elif move != "stay":
            rows = range(len(stories))
            index = {
                "permute": st.permutations(rows),
                "duplicate": st.lists(st.sampled_from(rows), min_size=len(rows), max_size=len(rows) + 2),
                "drop": st.lists(st.sampled_from(rows), min_size=1, max_size=len(rows), unique=True),
            }[move]
            chosen = data.draw(index, label="rows")
            at, stories = state.take(at, list(chosen)), [stories[i] for i in chosen]
        blocks = [data.draw(accepted) for _ in stories]
        stories = [Story(s.prompt, s.seed, (*s.tokens, b)) for s, b in zip(stories, blocks, strict=True)]
        logits = backend.asarray(np.stack([logits_of(story, step) for story in stories]))
        processed, at = chain.process(logits, at, context.accept([list(block) for block in blocks]))
        together = backend.to_numpy(processed)
        for story, row in zip(stories, together, strict=True):
            np.testing.assert_allclose(row, alone(backend, chain, story), rtol=1e-5, atol=1e-5)


def test_all_built_ins_in_one_chain_follow_their_rows(backend: Backend) -> None:
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
