"""What loops record of each token equals what is computed anew from the whole text before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Chain, Context, load_backend, processors
from logitloom.errors import GenerationError
from logitloom.generation import BeamSearch, Generated, Generator, Greedy, Multinomial
from logitloom.generation.sampled import Sampled
from tests.core.generation.test_loop import EOS, PROMPTS, VOCABULARY, Cycle
from tests.core.generation.test_speculation import Scripted
from tests.oracles.toy_model import ToyModel

WARPS: Any = (("repetition_penalty", {"penalty": 1.4}), ("temperature", {"temperature": 1.7}), ("top_k", {"k": 5}))


def normal(row: np.ndarray) -> np.ndarray:
    """Log-probabilities of a row of logits, in float64."""
    row = row.astype(np.float64)
    return np.asarray(row - row.max() - np.log(np.exp(row - row.max()).sum()))


def anew(backend: Backend, chain: Chain, prompt: Sequence[int], before: Sequence[int]) -> tuple[Any, Any]:
    """The log-probabilities of a place before and after the chain, both from the text alone."""
    raw = ToyModel(backend).row_logits([*prompt, *before])
    logits = backend.asarray(np.array(raw[None]))
    context = Context.start(logits, prompt=[list(prompt)], vocabulary=VOCABULARY, max_length=64)
    state, given = chain.init_state(context), context
    if before:
        given = context.accept([list(before)])
    after, _ = chain.process(logits, state, given)
    return normal(raw), normal(backend.to_numpy(after)[0])


def check(backend: Backend, chain: Chain, found: list[Generated]) -> None:
    for prompt, each in zip(PROMPTS, found, strict=True):
        told = [s.token for s in each.sampled]
        assert told == [*each.tokens, *([EOS] if each.finish == "eos" else [])]
        assert sum(s.logprob for s in each.sampled) == pytest.approx(each.logprob, abs=1e-4)
        assert sum(s.logprob_before is None for s in each.sampled) == each.forced
        for place, one in enumerate(each.sampled):
            raw, after = anew(backend, chain, prompt, told[:place])
            left = after[np.isfinite(after)]
            assert (one.kept, one.logprob) == (len(left), pytest.approx(after[one.token], abs=1e-4))
            assert one.entropy == pytest.approx(-(np.exp(left) * left).sum(), abs=1e-4)
            if one.logprob_before is not None:
                assert one.logprob_before == pytest.approx(raw[one.token], abs=1e-4)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial()])
@pytest.mark.parametrize("skip", [True, False])
def test_records_are_those_of_a_recomputation(backend: Backend, strategy: Any, skip: bool) -> None:
    chain = processors.load(Cycle(forced=3, period=3), *WARPS, tokenizer=VOCABULARY)
    model = ToyModel(backend)
    found = Generator(model, chain, strategy, max_tokens=6, skip_forced=skip, record=True)(PROMPTS, seed=4)
    assert any(each.forced for each in found) == skip
    check(backend, chain, found)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial()])
def test_drafted_tokens_are_recorded_with_the_distribution_of_the_target(backend: Backend, strategy: Any) -> None:
    chain = processors.load(*WARPS, tokenizer=VOCABULARY)
    drafts = Scripted(lambda sequence: [n % 17 for n in sequence[-3:]])
    found = Generator(
        ToyModel(backend), chain, strategy, max_tokens=6, candidates=drafts, record=True, vocabulary=VOCABULARY
    )(PROMPTS, seed=4)
    check(backend, chain, found)


@pytest.mark.parametrize("form", ["one_pass", "two_pass"])
def test_guided_tokens_are_recorded_beside_the_first_branch(backend: Backend, form: str) -> None:
    model = ToyModel(backend)
    chain = processors.load(("cfg", {"form": form, "scale": 1.5}), tokenizer=VOCABULARY, model=model)
    for each, prompt in zip(Generator(model, chain, max_tokens=4, record=True)(PROMPTS), PROMPTS, strict=True):
        for place, one in enumerate(each.sampled):
            raw = normal(model.row_logits([*prompt, *each.tokens[:place]]))
            assert one.logprob_before == pytest.approx(raw[one.token], abs=1e-4)


def test_a_record_changes_nothing_else(backend: Backend) -> None:
    chain = processors.load(*WARPS, tokenizer=VOCABULARY)
    generator = [Generator(ToyModel(backend), chain, Multinomial(2), max_tokens=6, record=r) for r in (False, True)]
    plain, recorded = (g(PROMPTS, seed=1) for g in generator)
    assert [(g.tokens, g.logprob) for g in plain] == [(g.tokens, g.logprob) for g in recorded]
    assert all(g.sampled == () for g in plain)


def test_a_stream_tells_the_same_records() -> None:
    chain = processors.load(*WARPS, tokenizer=VOCABULARY)
    generator = Generator(ToyModel(load_backend("numpy")), chain, Multinomial(), max_tokens=6, record=True)
    streamed: dict[int, list[Sampled]] = {}
    for piece in generator.stream(PROMPTS, seed=2):
        streamed.setdefault(piece.prompt, []).extend(piece.sampled)
    assert [tuple(streamed[p]) for p in range(3)] == [g.sampled for g in generator(PROMPTS, seed=2)]


@pytest.mark.parametrize("drafting", [True, False])
def test_a_text_that_stops_where_it_must_end_has_no_record_of_the_end(drafting: bool) -> None:
    chain = processors.load(
        ("regex", {"pattern": "[ab]cd"}), ("stop", {"strings": ["d"], "include": True}), tokenizer=VOCABULARY
    )
    drafts = Scripted(lambda _: []) if drafting else None
    for skip in (True, False):
        found = Generator(ToyModel(load_backend("numpy")), chain, candidates=drafts, skip_forced=skip, record=True)(
            PROMPTS
        )
        assert [each.finish for each in found] == ["stop"] * len(PROMPTS)
        assert [tuple(one.token for one in each.sampled) for each in found] == [each.tokens for each in found]


def test_records_of_a_beam_search_are_refused() -> None:
    with pytest.raises(GenerationError, match=r"Beam search samples nothing that could be recorded\. Leave out the"):
        Generator(ToyModel(load_backend("numpy")), strategy=BeamSearch(2), record=True)
