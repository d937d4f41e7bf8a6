"""With drafts or without: the same text. Every generator under every kind of chain.

Each combination meets a few prompts, in turn, so that all combinations together meet all fifty; with the environment
variable ``LOGITLOOM_EXHAUSTIVE=1``, which ``tox -e exhaustive`` sets, each meets all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from logitloom import load_backend
from logitloom.errors import LogitloomError
from logitloom.generation import Generated, Generator, Multinomial, Statistics
from tests.cases import EXHAUSTIVE, some
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

ALL = range(50)
#: By library and batch size, how many prompts a combination meets.
FEW = {library: {1: 2, 4: 8} for library in ("numpy", "torch", "mlx")}
DETERMINISTIC = ("assistant_retokenized", "grammar", "ngram_cache", "prompt_lookup")


def generator_on(library: str, chain: str, **more: Any) -> Generator:
    try:
        backend = load_backend(library)
    except LogitloomError as error:
        pytest.skip(f"the backend {library!r} is not available here: {error}")
    return Generator(target_on(backend), chain_of(chain), max_tokens=18, **more)


def in_groups(generator: Generator, numbers: Sequence[int], size: int, seed: int = 0) -> list[Generated]:
    asked = [prompts(len(ALL))[n] for n in numbers]
    return [g for i in range(0, len(asked), size) for g in generator(asked[i : i + size], seed=seed)]


@cache
def plainly(library: str, chain: str) -> list[Generated]:
    return in_groups(generator_on(library, chain), ALL, 25)


def share(name: str, chain: str, library: str, batch: int) -> list[int]:
    """The numbers of the prompts that one combination meets."""
    if EXHAUSTIVE:
        return list(ALL)
    generator, place, count = list(GENERATORS).index(name), list(CHAINS).index(chain), FEW[library][batch]
    first = generator + place if batch > 1 else generator * len(CHAINS) + place
    return [(first * count + n) % len(ALL) for n in range(count)]


def check_same(found: list[Generated], expected: list[Generated]) -> None:
    assert [(g.tokens, g.text, g.finish) for g in found] == [(g.tokens, g.text, g.finish) for g in expected]
    assert [g.logprob for g in found] == pytest.approx([g.logprob for g in expected], abs=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("library", FEW)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", GENERATORS)
def test_greedy_gives_the_same(name: str, chain: str, library: str, batch: int) -> None:
    generator, numbers = generator_on(library, chain), share(name, chain, library, batch)
    drafting = replace(generator, candidates=GENERATORS[name](generator.model.backend))
    check_same(in_groups(drafting, numbers, batch), [plainly(library, chain)[n] for n in numbers])


def test_every_generator_and_every_chain_meets_every_prompt() -> None:
    for library in FEW:
        for name in GENERATORS:
            assert {n for chain in CHAINS for n in share(name, chain, library, 4)} == set(ALL)
        for chain in CHAINS:
            assert {n for name in GENERATORS for n in share(name, chain, library, 4)} == set(ALL)
        assert {n for name in GENERATORS for chain in CHAINS for n in share(name, chain, library, 1)} == set(ALL)


#: The numbers of the prompts after which is sampled.
SAMPLED = range(some(12))


@cache
def sampled(chain: str) -> tuple[Generator, list[Generated]]:
    generator = generator_on("numpy", chain, strategy=Multinomial(2))
    return generator, in_groups(generator, SAMPLED, 4, seed=7)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_drafts_that_are_not_random_leave_sampling_as_it_is_with_the_same_seed(name: str, chain: str) -> None:
    generator, expected = sampled(chain)
    drafting = replace(generator, candidates=GENERATORS[name](load_backend("numpy")))
    check_same(in_groups(drafting, SAMPLED, 4, seed=7), expected)


@pytest.mark.parametrize("skip_forced", [True, False])
@pytest.mark.parametrize("name", GENERATORS)
def test_streams_show_the_same_text(name: str, skip_forced: bool) -> None:
    generator = generator_on("numpy", "stop", skip_forced=skip_forced)
    drafting = replace(generator, candidates=GENERATORS[name](load_backend("numpy")))
    for prompt in prompts(some(8)):
        assert "".join(p.text for p in drafting.stream([prompt])) == generator([prompt])[0].text


@pytest.mark.parametrize(("name", "chain"), [(n, "regex" if n == "grammar" else "none") for n in GENERATORS])
def test_every_generator_saves_passes_of_the_target(name: str, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this small world few drafts of a grammar are accepted; on a host they would not pay.
    monkeypatch.setattr("logitloom.generation.schedules._HOST_PASS_COST", 0.0)
    statistics, backend = Statistics(), load_backend("numpy")
    generator = generator_on("numpy", chain, eos=() if chain == "none" else None)
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
    # One row at a time: a pass is saved when all rows of a batch gain more than one token.
    in_groups(drafting, range(some(40)), 1)
    with_drafts = drafting.model.calls
    generator.model.calls = 0
    in_groups(generator, range(some(40)), 1)
    assert statistics.accepted > 0
    assert with_drafts < generator.model.calls
