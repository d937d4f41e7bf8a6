"""Guidance in every way of decoding: the scores of both branches computed without any cache at every step."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, processors
from logitloom.errors import ModelError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.generation import decode as emissions
from logitloom_contrib.llama import LlamaModel, default_weights, load, random_model
from tests.core.generation.test_loop import Cycle
from tests.oracles.guidance import Spy, best_sequences, greedy_guided, guided_uncached

VOCAB = 20
FORMS = ["two_pass", "one_pass"]
PROMPTS = [[1, 2, 3, 4], [5], [6, 7, 8, 9, 10, 2]]
NEGATIVES = [[3, 3], [4, 5, 6, 7], [9]]
LAST = {tuple(p): p[-1:] for p in PROMPTS}
PAIRED = {tuple(p): n for p, n in zip(PROMPTS, NEGATIVES, strict=True)}


@cache
def model_on(backend: str, seed: int = 0, dtype: str = "float32") -> LlamaModel:
    return random_model(backend, seed, vocab=VOCAB, layers=1, dim=16, hidden=24, max_length=64, dtype=dtype)


def reference(seed: int = 0) -> LlamaModel:
    """The same weights on NumPy, which the oracles read."""
    return model_on("numpy", seed)


def decode(
    runs: Any, strategy: Any, prompts: list[list[int]], *more: Any, steps: int = 6, seed: int = 0, **options: Any
) -> tuple[list[Any], Spy]:
    spy = Spy()
    chain = processors.load(("cfg", options), spy, *more)
    return Generator(runs, chain, strategy, max_tokens=steps, eos=())(prompts, seed=seed), spy


@pytest.mark.parametrize("form", FORMS)
def test_greedy_with_ragged_prompts_and_the_last_token_as_the_other_prompt(backend: Backend, form: str) -> None:
    found, spy = decode(model_on(backend.name), Greedy(), PROMPTS, scale=1.7, form=form)
    spy.check(reference(), LAST, 1.7, atol=1e-4)
    assert [list(g.tokens) for g in found] == [greedy_guided(reference(), p, p[-1:], 1.7, 6) for p in PROMPTS]


@pytest.mark.parametrize("form", FORMS)
def test_ragged_negative_prompts(backend: Backend, form: str) -> None:
    found, spy = decode(model_on(backend.name), Greedy(), PROMPTS, scale=2.5, form=form, negative_prompt=NEGATIVES)
    spy.check(reference(), PAIRED, 2.5, atol=1e-4)
    expected = [greedy_guided(reference(), p, n, 2.5, 6) for p, n in zip(PROMPTS, NEGATIVES, strict=True)]
    assert [list(g.tokens) for g in found] == expected


@pytest.mark.parametrize("form", FORMS)
def test_sampling_several_sequences_of_each_prompt(backend: Backend, form: str) -> None:
    sampler = Multinomial(samples=3)
    found, spy = decode(model_on(backend.name), sampler, PROMPTS, scale=0.6, form=form, negative_prompt=NEGATIVES)
    spy.check(reference(), PAIRED, 0.6, atol=1e-4)
    assert len({g.tokens for g in found}) > len(PROMPTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.long
def test_four_beams_over_twenty_seeds(backend: Backend, form: str) -> None:
    for seed in range(20):
        # Models of their own where making one costs little; libraries that compile get other prompts each time.
        weights = seed if backend.name in ("numpy", "torch") else 0
        dice = np.random.default_rng(seed)
        prompts = [dice.integers(0, VOCAB, n).tolist() for n in (4, 2)]
        negatives = [dice.integers(0, VOCAB, n).tolist() for n in (1, 3)]
        found, spy = decode(
            model_on(backend.name, weights), BeamSearch(4, samples=4), prompts, steps=5, scale=1.8, form=form,
            negative_prompt=negatives,
        )  # fmt: skip
        pairs = {tuple(p): n for p, n in zip(prompts, negatives, strict=True)}
        spy.check(reference(weights), pairs, 1.8, atol=1e-4)
        for number, (prompt, negative) in enumerate(zip(prompts, negatives, strict=True)):
            expected = best_sequences(reference(weights), prompt, negative, 1.8, 5, 4)
            mine = [g for g in found if g.prompt == number]
            assert [g.tokens for g in mine] == [tokens for tokens, _ in expected]
            np.testing.assert_allclose([g.logprob for g in mine], [total for _, total in expected], atol=1e-3)


def test_beams_with_the_last_token_as_the_other_prompt() -> None:
    found, spy = decode(reference(), BeamSearch(4), PROMPTS, scale=1.5)
    spy.check(reference(), LAST, 1.5, atol=1e-4)
    assert [g.tokens for g in found] == [best_sequences(reference(), p, p[-1:], 1.5, 6, 4)[0][0] for p in PROMPTS]


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(3, samples=2)], ids=["greedy", "mn", "beam"])
def test_both_forms_generate_the_same(strategy: Any) -> None:
    two, one = (
        decode(reference(), strategy, PROMPTS, steps=10, scale=1.6, form=form, negative_prompt=NEGATIVES)[0]
        for form in FORMS
    )
    assert [g.tokens for g in two] == [g.tokens for g in one]
    np.testing.assert_allclose([g.logprob for g in two], [g.logprob for g in one], atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_end_early_leave_the_others_right(form: str) -> None:
    spy = Spy()
    chain = processors.load(("cfg", {"scale": 2.0, "form": form, "negative_prompt": NEGATIVES}), spy)
    found = Generator(reference(), chain, Multinomial(3), max_tokens=12, eos=(3, 7, 11))(PROMPTS, seed=1)
    assert len({len(g.tokens) for g in found}) > 1, "no row ended early"
    spy.check(reference(), PAIRED, 2.0, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_tokens_that_a_constraint_forces_go_to_both_branches_from_the_start(form: str) -> None:
    class From(Cycle):
        """Forces from the very first token."""

        def init_state(self, context: Any) -> Any:
            return (
                super()
                .init_state(context)
                ._replace(place=context.backend.asarray(np.full(context.batch, self.period - 1, dtype=np.int32)))
            )

    skipped, spy = decode(reference(), Greedy(), PROMPTS, From(forced=5), steps=9, scale=1.9, form=form)
    assert all(g.tokens[0] == 5 and g.forced >= 2 for g in skipped)
    spy.check(reference(), LAST, 1.9, atol=1e-4)
    chain = processors.load(("cfg", {"scale": 1.9, "form": form}), From(forced=5))
    asked = Generator(reference(), chain, max_tokens=9, eos=(), skip_forced=False)(PROMPTS)
    assert [g.tokens for g in asked] == [g.tokens for g in skipped]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2)], ids=["greedy", "beam"])
def test_a_long_negative_prompt_ends_the_row_where_the_model_is_full(form: str, strategy: Any) -> None:
    if form == "two_pass":
        with pytest.raises(ModelError, match="takes at most 64"):
            decode(reference(), strategy, [[1, 2]], steps=20, form=form, negative_prompt=[1] * 60)
    else:
        (found,), _ = decode(reference(), strategy, [[1, 2]], steps=20, form=form, negative_prompt=[1] * 60)
        assert (len(found.tokens), found.finish) == (4, "length")


@pytest.mark.extras
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", [{}, {"mix": 0.3}, {"top_k": 3}, {"normalize": False}, {"schedule": [(0, 1), (3, 2)]}])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_overwriting_the_logits_changes_nothing(form: str, more: dict[str, Any], library: str) -> None:
    pytest.importorskip(library, reason=f"needs {library}")
    found = []
    for debug in (True, False):  # without it the loop lets processors overwrite logits
        spy = Spy()
        chain = processors.load(("cfg", {"scale": 1.8, "form": form, **more}), spy, debug=debug)
        Generator(model_on(library), chain, Multinomial(2), max_tokens=5, eos=(3, 7))(PROMPTS)
        found.append(spy.seen)
    for (prompt, new, scores), (other_prompt, other_new, others) in zip(*found, strict=True):
        assert (prompt, new) == (other_prompt, other_new)
        np.testing.assert_allclose(scores, others, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_chain_can_be_used_again_and_again(form: str) -> None:
    chain = processors.load(("cfg", {"scale": 1.5, "form": form}))
    generator = Generator(reference(), chain, max_tokens=6, eos=())
    first = generator(PROMPTS)
    generator([[11, 12]])
    assert [g.tokens for g in generator(PROMPTS)] == [g.tokens for g in first]


@pytest.mark.parametrize("form", FORMS)
def test_generations_of_one_chain_can_interleave(form: str) -> None:
    chain = processors.load(("cfg", {"scale": 1.5, "form": form}))
    options: dict[str, Any] = {"max_tokens": 6, "eos": ()}
    streams = [emissions(reference(), [prompt], chain, Greedy(), **options) for prompt in PROMPTS]
    tokens: list[list[int]] = [[] for _ in PROMPTS]
    for step in zip(*streams, strict=True):
        for line, emission in zip(tokens, step, strict=True):
            line += emission.tokens
    assert tokens == [greedy_guided(reference(), p, p[-1:], 1.5, 6) for p in PROMPTS]


@pytest.mark.torch
def test_another_model_may_sit_on_another_backend() -> None:
    pytest.importorskip("torch", reason="needs torch")
    other = model_on("torch", 5)
    found, spy = decode(reference(), Greedy(), PROMPTS, scale=1.4, model=other, negative_prompt=NEGATIVES)
    assert len(found) == len(PROMPTS)
    for prompt, new, scores in spy.seen:
        expected = guided_uncached(
            reference(), [[*prompt, *new]], [[*PAIRED[prompt], *new]], 1.4, other_model=model_on("numpy", 5)
        )
        np.testing.assert_allclose(scores, expected[0], atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
def test_a_bfloat16_model_is_guided_in_float32(form: str) -> None:
    pytest.importorskip("torch", reason="needs torch")
    model = model_on("torch", 0, "bfloat16")
    _, spy = decode(model, Greedy(), PROMPTS, scale=1.5, form=form, negative_prompt=NEGATIVES)
    # Both branches pass the model in the batches that it passed them in, so its own roundings are the same.
    first = spy.seen[: len(PROMPTS)]
    rows = [list(prompt) for prompt, _, _ in first]
    others = [list(PAIRED[prompt]) for prompt, _, _ in first]
    if form == "two_pass":
        expected = guided_uncached(model, rows, others, 1.5)
        np.testing.assert_allclose(np.stack([line for *_, line in first]), expected, atol=1e-3, rtol=0)
    for *_, line in spy.seen:
        assert len(set(line.astype(np.float32).tolist())) > VOCAB // 2, "scores were rounded to bfloat16"


@pytest.mark.torch
@pytest.mark.weights
def test_the_real_model_follows_its_guided_oracle() -> None:
    try:
        default_weights()
    except ModelError as error:
        pytest.skip(str(error))
    pytest.importorskip("torch", reason="NumPy takes too long here")
    model = load(backend="torch")
    prompt = list(model.tokenizer.encode("The dragon flew over Paris,"))
    negative = list(model.tokenizer.encode("France,"))
    expected = greedy_guided(model, prompt, negative, 1.5, 4)
    for form in FORMS:
        (found,), _ = decode(model, Greedy(), [prompt], steps=4, scale=1.5, form=form, negative_prompt="France,")
        assert list(found.tokens) == expected
