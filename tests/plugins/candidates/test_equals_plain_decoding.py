"""With drafts or without: the same text. Every generator under every kind of chain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from logitloom import load_backend
from logitloom.errors import LogitloomError
from logitloom.generation import Generated, Generator, Multinomial, Statistics
from tests.plugins.candidates.catalogue import (
    CHAINS,
    EOS,
    GENERATORS,
    VOCABULARY,
    LongestMatch,
    assistant_on,
    chain_of,
    prompts,
    target_on,
)

DETERMINISTIC = ("assistant_retokenized", "grammar", "ngram_cache", "prompt_lookup")


def generator_on(library: str, chain: str, **more: Any) -> Generator:
    try:
        backend = load_backend(library)
    except LogitloomError as error:
        pytest.skip(f"the backend {library!r} is not available here: {error}")
    return Generator(target_on(backend), chain_of(chain), max_tokens=18, **more)


def in_groups(generator: Generator, count: int, size: int, seed: int = 0) -> list[Generated]:
    asked = prompts(count)
    return [g for i in range(0, count, size) for g in generator(asked[i : i + size], seed=seed)]


@cache
def plainly(library: str, chain: str, count: int) -> list[Generated]:
    return in_groups(generator_on(library, chain), count, 4)


def check_same(found: list[Generated], expected: list[Generated]) -> None:
    assert [(g.tokens, g.text, g.finish) for g in found] == [(g.tokens, g.text, g.finish) for g in expected]
    assert [g.logprob for g in found] == pytest.approx([g.logprob for g in expected], abs=1e-3)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", GENERATORS)
def test_greedy_gives_the_same_over_fifty_prompts(name: str, chain: str, batch: int) -> None:
    drafting = replace(generator_on("numpy", chain), candidates=GENERATORS[name](load_backend("numpy")))
    check_same(in_groups(drafting, 50, batch), plainly("numpy", chain, 50))


@pytest.mark.parametrize("library", ["torch", "mlx"])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", GENERATORS)
def test_greedy_gives_the_same_on_other_backends(name: str, chain: str, library: str) -> None:
    generator = generator_on(library, chain)
    drafting = replace(generator, candidates=GENERATORS[name](generator.model.backend))
    check_same(in_groups(drafting, 4, 4), plainly(library, chain, 4))


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_drafts_that_are_not_random_leave_sampling_as_it_is_with_the_same_seed(name: str, chain: str) -> None:
    generator = generator_on("numpy", chain, strategy=Multinomial(2))
    drafting = replace(generator, candidates=GENERATORS[name](load_backend("numpy")))
    check_same(in_groups(drafting, 12, 4, seed=7), in_groups(generator, 12, 4, seed=7))


@pytest.mark.parametrize("skip_forced", [True, False])
@pytest.mark.parametrize("name", GENERATORS)
def test_streams_show_the_same_text(name: str, skip_forced: bool) -> None:
    generator = generator_on("numpy", "stop", skip_forced=skip_forced)
    drafting = replace(generator, candidates=GENERATORS[name](load_backend("numpy")))
    for prompt in prompts(8):
        assert "".join(p.text for p in drafting.stream([prompt])) == generator([prompt])[0].text


@pytest.mark.parametrize(("name", "chain"), [(n, "regex" if n == "grammar" else "none") for n in GENERATORS])
def test_every_generator_saves_passes_of_the_target(name: str, chain: str) -> None:
    statistics, backend = Statistics(), load_backend("numpy")
    generator = generator_on("numpy", chain, eos=(10_000,) if chain == "none" else None)
    made = GENERATORS[name](backend)
    if chain == "none":
        generator.model.tables[:, :, EOS] -= 50
    if name == "assistant_retokenized":
        # In this world only a model of the target's own habits writes what the target writes.
        model = assistant_on(backend)
        model.tables[:, :, EOS] -= 50
        own = {"model": model, "tokenizer": LongestMatch(VOCABULARY), "vocabulary": VOCABULARY}
        made = replace(made, **own)
    drafting = replace(generator, candidates=made, on_round=statistics.add)
    in_groups(drafting, 20, 4)
    with_drafts = drafting.model.calls
    generator.model.calls = 0
    in_groups(generator, 20, 4)
    assert statistics.accepted > 0
    assert with_drafts < generator.model.calls
