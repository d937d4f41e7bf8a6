"""Sampling with random drafts: exactly the target's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.arrays import rng
from logitloom.chain import Chain
from logitloom.generation import Generator, Multinomial, Statistics, candidates
from logitloom.generation.acceptance import accept_sampled
from logitloom.generation.multinomial import draw
from logitloom_plugins.candidates._model_drafts import DRAFT_STREAM
from tests.oracles.table_model import TableModel

stats = pytest.importorskip("scipy.stats", reason="the chi-square distribution comes from SciPy")

pytestmark = [pytest.mark.extras, pytest.mark.exhaustive]

VOCAB, LENGTH, DRAWS = 5, 3, 20_000
WORDS = Vocabulary([b"a", b"b", b"c", b"d", b""], eos=[4])
OTHER = Vocabulary([b"d", b"x", b"b", b"a"])
PROMPT = [0, 1, 2]
CHAINS = {
    "none": (),
    "regex": (("regex", {"pattern": "[abc][ad][a-d].*", "finish_within": 0}),),
}


def toy(seed: int, vocab: int = VOCAB) -> TableModel:
    return TableModel(load_backend("numpy"), vocab, seed, 0.5)


def generators() -> dict[str, Any]:
    return {
        "assistant": candidates.load("assistant", {"model": toy(1), "confidence_threshold": 0.25}),
        "universal": candidates.load("universal", {"model": toy(2, 4), "vocabulary": OTHER, "num_tokens": 2}),
        "adapting": candidates.load(
            "assistant", {"model": toy(3), "adapt_threshold": True, "schedule": "heuristic_transient", "num_tokens": 1}
        ),
    }


def exactly(chain: Chain) -> np.ndarray:
    """The probability of every sequence, from the logits of each prefix alone: ``[VOCAB] * LENGTH``."""
    model, backend = toy(0), load_backend("numpy")
    found = np.zeros((VOCAB,) * LENGTH)
    for tokens in np.ndindex(found.shape):
        p = 1.0
        for n in range(LENGTH):
            context = Context(backend, 1, VOCAB, vocabulary=WORDS, prompt=(tuple(PROMPT),), max_length=16)
            state = chain.init_state(context)
            logits = model.row_logits([*PROMPT, *tokens[:n]])[None]
            if n:
                context = context.accept([list(tokens[:n])])
            try:
                row = chain.process(logits, state, context)[0][0]
            except ValueError:  # an illegal prefix
                p = 0.0
                break
            weights = np.exp(row.astype(np.float64) - row.max())
            p *= weights[tokens[n]] / weights.sum()
        found[tokens] = p
    return found


@pytest.mark.parametrize("name", ["assistant", "universal", "adapting"])
@pytest.mark.parametrize("rules", ["none", "regex"])
def test_twenty_thousand_draws_have_the_targets_distribution(name: str, rules: str) -> None:
    """Five seeds, chosen beforehand: 0 to 4.

    What is right gives p-values that are spread evenly (``test_p_values_are_spread_evenly``), so of thirty seeds (six
    cases of five) one is below 0.01 with a probability of 26 %, and none should be weeded out for that. The five
    p-values of a case are judged together, by Fisher's method, and so are their 100,000 draws, which a small bias that
    no single seed shows would move. A single seed must not be beyond belief either.
    """
    chain = processors.load(*CHAINS[rules], tokenizer=WORDS, debug=False)
    expected = exactly(chain).ravel()
    assert expected.sum() == pytest.approx(1)
    pooled, p_values = np.zeros(expected.size), []
    for seed in range(5):
        statistics = Statistics()
        found = Generator(
            toy(0), chain, Multinomial(DRAWS), max_tokens=LENGTH, eos=(), candidates=generators()[name],
            on_round=statistics.add,
        )([PROMPT], seed=seed)  # fmt: skip
        assert DRAWS / 10 < statistics.accepted < statistics.drafted
        index = np.ravel_multi_index(np.asarray([g.tokens for g in found]).T, (VOCAB,) * LENGTH)
        counts = np.bincount(index, minlength=expected.size)
        assert not counts[expected == 0].any()
        p_values.append(chi_square(counts, expected))
        pooled += counts
    assert min(p_values) > 0.01 / 30
    assert stats.combine_pvalues(p_values, method="fisher").pvalue > 0.01
    assert chi_square(pooled, expected) > 0.01


def test_p_values_are_spread_evenly() -> None:
    """One place, many seeds: if acceptance or the random numbers were biased, small p-values would be frequent."""
    backend, rows = load_backend("numpy"), 2_000
    p = np.array([0.05, 0.3, 0.2, 0.35, 0.1])
    q = np.tile(np.array([0.3, 0.1, 0.25, 0.05, 0.3], np.float32), (rows, 1))
    logits, lengths = np.tile(np.log(p).astype(np.float32), (rows, 1)), np.full(rows, 3, np.int32)
    p_values = []
    for seed in range(200):
        seeds = rng.row_seeds(seed, rows)
        drafted = draw(backend, q, rng.uniform(backend.xp, seeds, lengths, DRAFT_STREAM))
        verdict = accept_sampled(backend, logits, q, seeds, lengths, drafted.tolist())
        p_values.append(chi_square(np.bincount(verdict.tokens, minlength=5), p))
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """The p-value; cells that are rarely hit are taken together, as the test asks for."""
    often = expected * counts.sum() >= 5
    seen = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    return float(stats.chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue)


def accept(p: list[list[float]], q: list[list[float]], drafted: list[int], seed: int = 0) -> Any:
    backend, rows = load_backend("numpy"), len(p)
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(p, dtype=np.float32))
    seeds = np.arange(rows, dtype=np.int32) + seed
    return accept_sampled(backend, logits, np.asarray(q, np.float32), seeds, np.zeros(rows, np.int32), drafted)


def test_a_token_that_the_target_never_writes_is_always_rejected() -> None:
    verdict = accept([[0.0, 0.5, 0.5]] * 500, [[1.0, 0.0, 0.0]] * 500, [0] * 500)
    assert not any(verdict.accepted)
    assert set(verdict.tokens) == {1, 2}


def test_drafts_from_the_targets_own_distribution_are_always_accepted() -> None:
    verdict = accept([[0.2, 0.3, 0.5]] * 500, [[0.2, 0.3, 0.5]] * 500, [n % 3 for n in range(500)])
    assert all(verdict.accepted)
    assert verdict.logprobs[:3] == pytest.approx(np.log([0.2, 0.3, 0.5]).tolist(), abs=1e-5)


def test_a_token_is_accepted_as_often_as_its_probabilities_say() -> None:
    rows = 20_000
    verdict = accept([[0.1, 0.6, 0.3]] * rows, [[0.4, 0.4, 0.2]] * rows, [0] * rows)
    assert np.mean(verdict.accepted) == pytest.approx(0.25, abs=0.01)
    # What replaces a rejected token follows max(p - q, 0): 0, 0.2, 0.1.
    replaced = [t for t, a in zip(verdict.tokens, verdict.accepted, strict=True) if not a]
    assert np.bincount(replaced, minlength=3) / len(replaced) == pytest.approx([0, 2 / 3, 1 / 3], abs=0.015)


def test_a_row_without_a_legal_token_has_none_of_the_log_probability_and_warns_of_nothing() -> None:
    with np.errstate(all="raise"):
        verdict = accept_sampled(
            load_backend("numpy"), np.array([[-np.inf, -np.inf], [0, -np.inf]], np.float32),
            np.full((2, 2), 0.5, np.float32), np.zeros(2, np.int32), np.zeros(2, np.int32), [1, 1],
        )  # fmt: skip
    assert verdict.accepted == [False, False]
    assert not verdict.logprobs[0] > -np.inf
    assert verdict.logprobs[1] == 0


def test_a_row_without_a_draft_draws_what_plain_sampling_draws() -> None:
    backend, rows = load_backend("numpy"), 200
    p = np.random.default_rng(0).random((rows, 7)).astype(np.float32)
    seeds, lengths = np.arange(rows, dtype=np.int32), np.full(rows, 4, np.int32)
    verdict = accept_sampled(backend, np.log(p), np.zeros_like(p), seeds, lengths, [-1] * rows)
    assert verdict.tokens == Multinomial().choose(backend, np.log(p), seeds, lengths)[0].tolist()
