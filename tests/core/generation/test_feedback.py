"""Processors whose state depends on past logits: every step is seen, and what was chosen is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Processor, load_backend, processors
from logitloom.engines import bind
from logitloom.errors import NeedsNotMet
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, beam_search, candidates, decode, speculate
from tests.core.generation.test_loop import EOS, PROMPTS, VOCABULARY, Cycle
from tests.oracles.toy_model import ToyModel


@dataclass(frozen=True)
class Drift(Processor):
    """Adds what depends on all logits it has seen."""

    sees_every_step = True

    def init_state(self, context: Context) -> Any:
        return tuple(context.backend.asarray(np.zeros(context.batch, dtype=np.float32)) for _ in range(2))

    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        seen, last = state
        if context.tokens is not None:
            # Without a token the same step is asked for again.
            seen = context.backend.xp.where((context.tokens >= 0).any(axis=1), seen * 0.5 + last, seen)
        place = context.backend.cast(context.backend.arange(logits.shape[-1]), "float32")
        return logits + 3.0 * context.backend.xp.sin(seen[:, None] * (1.0 + place[None, :])), (seen, logits[:, 3])


@dataclass(frozen=True)
class Listening(Processor):
    """Keeps what it is told of the probabilities of the tokens."""

    needs = frozenset({"chosen_logprob"})

    def init_state(self, context: Context) -> Any:
        told = np.zeros((context.batch, 1), np.float32)
        return context.backend.asarray(told)

    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        TOLD.append(None if context.tokens is None else (context.tokens.tolist(), context.chosen_logprob.tolist()))
        return logits, state


TOLD: list[Any] = []


@pytest.fixture
def model() -> ToyModel:
    return ToyModel(load_backend("numpy"))


def texts(model: ToyModel, chain: Any, drafts: str | None = None, **options: Any) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in PROMPTS]
    given = {"max_tokens": 12, "seed": 5, "eos": [EOS], "vocabulary": VOCABULARY, **options}
    if drafts is None:
        emissions = decode(model, PROMPTS, chain, Multinomial(), **given)
    else:
        emissions = speculate(model, PROMPTS, chain, Multinomial(), candidates.load(drafts), **given)
    for emission in emissions:
        found[emission.row] += emission.tokens
    return found


def test_forced_tokens_do_not_skip_the_model_where_a_processor_must_see_every_step(model: ToyModel) -> None:
    chain = processors.load(Drift(), Cycle(forced=2))
    assert texts(model, chain) == texts(model, chain, skip_forced=False)
    undeclared = type("Undeclared", (Drift,), {"sees_every_step": False})
    chain = processors.load(undeclared(), Cycle(forced=2))
    assert texts(model, chain) != texts(model, chain, skip_forced=False)


def test_drafts_do_not_change_what_a_processor_with_feedback_gives(model: ToyModel) -> None:
    chain = processors.load(Drift(), Cycle(forced=2))
    assert texts(model, chain, "prompt_lookup") == texts(model, chain)
    assert texts(model, chain, "ngram_cache") == texts(model, chain)


@pytest.mark.parametrize("drafts", [None, "prompt_lookup"])
def test_the_loop_tells_how_likely_each_token_was(model: ToyModel, drafts: str | None) -> None:
    TOLD.clear()
    chain = processors.load(("temperature", {"temperature": 0.7}), Listening(), ("top_k", {"k": 5}))
    found = {}
    options = {"max_tokens": 6, "seed": 5, "eos": []}
    if drafts is None:
        emissions = list(decode(model, PROMPTS[:1], chain, Multinomial(), **options))
    else:
        generator = candidates.load(drafts)
        emissions = list(speculate(model, PROMPTS[:1], chain, Multinomial(), generator, **options))
    written = [token for emission in emissions for token in emission.tokens]
    for told in TOLD[1:]:
        ((tokens,), (logprobs,)) = told
        found.update({(len(found), t): p for t, p in zip(tokens, logprobs, strict=True) if t >= 0})
    assert TOLD[0] is None
    assert [token for _, token in found] == written[:-1]
    # The oracle: the whole chain on the logits of an uncached model.
    plain = processors.load(("temperature", {"temperature": 0.7}), ("top_k", {"k": 5}))
    for place, ((_, token), logprob) in enumerate(found.items()):
        ids = [*PROMPTS[0], *written[:place]]
        logits, _ = model.forward(np.asarray([ids], dtype=np.int32), model.empty_cache(1))
        context = Context.start(logits)
        processed, _ = plain.process(logits, plain.init_state(context), context)
        line = np.asarray(processed[0], dtype=np.float64)
        wanted = line[token] - np.log(np.exp(line).sum())
        assert logprob == pytest.approx(wanted, abs=1e-5)


def test_beam_search_tells_what_a_token_adds_to_the_score(model: ToyModel) -> None:
    TOLD.clear()
    chain = processors.load(Listening())
    ((best,),) = beam_search(model, PROMPTS[:1], chain, BeamSearch(beams=1), max_tokens=5, eos=[])
    told = [logprobs[0][0] for _, logprobs in TOLD[1:]]
    ids = [*PROMPTS[0], *best.tokens[:-1]]
    logits, _ = model.forward(np.asarray([ids], dtype=np.int32), model.empty_cache(1))
    line = np.asarray(logits[0], dtype=np.float64)
    last = line[best.tokens[-1]] - np.log(np.exp(line).sum())
    assert sum(told) + last == pytest.approx(best.logprob, abs=1e-4)


def test_forced_tokens_are_told_with_probability_one() -> None:
    context = Context.start(np.zeros((2, 4), np.float32)).accept([[1, 2], []], chosen_logprob=[[-0.5, 0.0], []])
    assert context.chosen_logprob is not None
    assert context.chosen_logprob.tolist() == [[-0.5, 0.0], [0.0, 0.0]]
    assert context.accept([[1], [2]]).chosen_logprob is None


# -- refusals -------------------------------------------------------------------------------------------------


def test_states_are_not_rebuilt_from_tokens() -> None:
    chain = processors.load(("top_k", {"k": 3}), Drift())
    context = Context.start(np.zeros((1, 8), np.float32))
    chain.replay([[]], context)
    with pytest.raises(
        NeedsNotMet, match="The state of 'Drift' cannot be rebuilt from tokens: it depends on the logits"
    ):
        chain.replay([[1]], context)


def test_several_tokens_at_once_are_refused() -> None:
    chain = processors.load(Drift())
    logits = np.zeros((2, 8), np.float32)
    context = Context.start(logits)
    state = chain.init_state(context)
    chain.process(logits, state, context.accept([[1, -1], [-1, 2]]))
    with pytest.raises(
        NeedsNotMet, match=r"Row 1 accepted 2 tokens since the last step, but 'Drift' must see every step"
    ):
        chain.process(logits, state, context.accept([[1], [2, 3]]))


def test_a_context_that_does_not_tell_probabilities_is_refused() -> None:
    chain = processors.load(Listening())
    logits = np.zeros((1, 8), np.float32)
    context = Context.start(logits)
    text = r"not how likely they were, which 'Listening' needs\. Give context\.accept"
    with pytest.raises(NeedsNotMet, match=text):
        chain.process(logits, chain.init_state(context), context.accept([[1]]))


def test_engines_say_when_the_chain_is_bound_what_they_cannot_do() -> None:
    with pytest.raises(
        NeedsNotMet, match="Toy may rebuild a row from its tokens.* 'Drift' must see the logits of every"
    ):
        bind(processors.load(Drift()), "Toy", {"length"})
    bind(processors.load(Drift()), "Toy", {"length", "every_step"})
    with pytest.raises(NeedsNotMet, match="Toy cannot run this chain: 'Listening' needs chosen_logprob"):
        bind(processors.load(Listening()), "Toy", {"length", "every_step"})


def test_combinators_refuse_it_inside() -> None:
    with pytest.raises(
        NeedsNotMet, match="runs processors in a part of the text only, but 'Drift' must see every step"
    ):
        processors.load(("until", {"trigger": ".", "inner": Drift()}))


def test_greedy_generators_take_it(model: ToyModel) -> None:
    generator = Generator(model, processors.load(Drift()), strategy=Greedy(), max_tokens=4, eos=[])
    assert [len(found.tokens) for found in generator(PROMPTS)] == [4, 4, 4]
