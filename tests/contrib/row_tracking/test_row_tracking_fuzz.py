"""Thousands of steps of an engine that adds, removes, moves, swaps and replaces rows, against one row at a time."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.chain import Chain
from logitloom_contrib.row_tracking import right_aligned
from tests.contrib.row_tracking.counted_tracker import CountedTracker

WIDTH, SLOTS = 9, 8
#: Steps per seed and kind; ``LOGITLOOM_FUZZ_STEPS=10000`` for the long run.
STEPS = int(os.environ.get("LOGITLOOM_FUZZ_STEPS", "120"))

CHAINS: dict[str, tuple[Any, ...]] = {
    # Each token asks for another one; the outcome depends on every token, and on the prompt where it counts.
    "history": (("repetition_penalty", {"penalty": 1.3}), ("no_repeat_ngram", {"n": 3})),
    "counts": (("frequency_penalty", {"penalty": 0.4}), ("presence_penalty", {"penalty": 0.3, "window": 5})),
    "length": (("min_tokens", {"n": 6, "eos": (0,)}), ("force_tokens", {"tokens": {2: 3}})),
}


@dataclass
class Request:
    prompt: list[int]
    tokens: list[int]


class Oracle:
    """One row of a request, lived through token by token, with a check from time to time that replaying is the same."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain

    def line(self, request: Request) -> np.ndarray:
        blank = base_logits()[None]
        context = Context.start(blank, prompt=[request.prompt], max_length=256)
        state = self.chain.replay([request.tokens], context)
        return np.asarray(self.chain.process(blank, state, context)[0][0])


def base_logits() -> np.ndarray:
    return np.linspace(-1.0, 1.0, WIDTH, dtype=np.float32)


def new_request(rng: random.Random) -> Request:
    return Request([rng.randrange(WIDTH) for _ in range(rng.randint(1, 4))], [])


def disturb(rng: random.Random, slots: list[Request], waiting: list[Request]) -> None:
    """What a scheduler does between two steps."""
    event = rng.choice(["add", "remove", "move", "swap", "replace", "preempt", "resume", "reject", "twin", "none"])
    if event == "add" and len(slots) < SLOTS:
        slots.append(new_request(rng))
    elif event == "remove" and len(slots) > 1:
        slots.pop(rng.randrange(len(slots)))
    elif event == "move" and len(slots) > 1:
        last = slots.pop()
        slots[rng.randrange(len(slots))] = last  # into a slot whose request ends
    elif event == "swap" and len(slots) > 1:
        one, two = rng.sample(range(len(slots)), 2)
        slots[one], slots[two] = slots[two], slots[one]
    elif event == "replace":
        slots[rng.randrange(len(slots))] = new_request(rng)
    elif event == "preempt" and len(slots) > 1:
        waiting.append(slots.pop(rng.randrange(len(slots))))
    elif event == "resume" and waiting and len(slots) < SLOTS:
        slots.insert(rng.randint(0, len(slots)), waiting.pop(0))
    elif event == "reject":
        request = rng.choice(slots)
        del request.tokens[max(len(request.tokens) - rng.randint(1, 3), 0) :]
    elif event == "twin" and len(slots) < SLOTS:
        request = rng.choice(slots)
        slots.append(Request(list(request.prompt), list(request.tokens)))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.long
def test_rows_that_an_engine_shuffles_are_what_they_are_alone(name: str, seed: int) -> None:
    rng = random.Random(seed)
    chain = processors.load(*CHAINS[name], debug=False)
    tracker, oracle = CountedTracker(chain, max_length=256, states=16), Oracle(chain)
    slots, waiting = [new_request(rng)], []
    for _ in range(STEPS):
        disturb(rng, slots, waiting)
        slots[:] = [new_request(rng) if len(request.tokens) > 40 else request for request in slots]
        ids, starts = right_aligned([request.prompt + request.tokens for request in slots])
        logits = np.tile(base_logits(), (len(slots), 1))
        out = tracker.process(logits, ids, starts, prompt_lengths=[len(request.prompt) for request in slots])
        checked = slots if len(slots) < 3 else rng.sample(slots, 3)
        for request in checked:
            place = next(i for i, other in enumerate(slots) if other is request)
            np.testing.assert_array_equal(out[place], oracle.line(request))
        for line, request in zip(out, slots, strict=True):
            legal = np.flatnonzero(np.isfinite(line))
            gained = rng.choice([0, 1, 1, 1, 1])
            request.tokens += [int(rng.choice(legal.tolist())) for _ in range(gained if len(legal) else 0)]
    assert tracker.replayed > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_beams_that_an_engine_shuffles_are_what_they_are_alone(seed: int) -> None:
    """An engine that tells nothing but ids: beams change places, drafts are taken back, generations follow."""
    rng = random.Random(seed)
    chain = processors.load(*CHAINS["history"], debug=False)
    tracker, oracle = CountedTracker(chain, max_length=256, states=8), Oracle(chain)
    step = 0
    while step < STEPS:
        prompt = [rng.randrange(WIDTH) for _ in range(rng.randint(1, 5))]
        beams = [Request(prompt, []) for _ in range(rng.randint(1, 4))]
        kept: list[list[Request]] = []
        for _ in range(rng.randint(1, 25)):
            step += 1
            ids, starts = right_aligned([beam.prompt + beam.tokens for beam in beams])
            out = tracker.process(np.tile(base_logits(), (len(beams), 1)), ids, starts)
            place = rng.randrange(len(beams))
            np.testing.assert_array_equal(out[place], oracle.line(beams[place]))
            kept.append(beams)
            if len(kept) > 2 and rng.random() < 0.15:
                beams = kept[-rng.randint(1, 2) - 1]
            grown = []
            for _ in beams:
                parent = rng.randrange(len(beams))
                legal = np.flatnonzero(np.isfinite(out[parent])) if beams is kept[-1] else np.asarray([3])
                token = int(rng.choice(legal.tolist())) if len(legal) else 3
                grown.append(Request(prompt, [*beams[parent].tokens, token]))
            beams = grown
