"""Guidance leaves out its log-softmaxes where nobody can notice: no distribution and no ranking of beams changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Context, Effect, Processor, load_backend, processors
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, candidates
from logitloom_contrib.llama import LlamaModel, random_model
from tests.oracles.guidance import guided, log_softmax
from tests.plugins.processors.catalogue import SPECS, VOCAB
from tests.plugins.processors.driving import random_logits

INF = float("inf")


# -- what processors declare ------------------------------------------------------------------------------


def distributions(backend: Backend, spec: Any, shift: np.ndarray) -> list[np.ndarray]:
    chain = processors.load(spec, debug=True)
    found, context, state = [], None, None
    for step, tokens in enumerate([None, [[3], [1], [4]], [[1, 2], [], [6, 2]]]):
        logits = backend.asarray(random_logits(step, 3, VOCAB, "plain") + shift[:, None])
        if context is None:
            context = Context.start(logits, prompt=[[1, 2, 3, 1, 2], [], [4, 4]], max_length=32)
            state = chain.init_state(context)
        processed, state = chain.process(logits, state, context.accept(tokens))
        found.append(np.exp(log_softmax(backend.to_numpy(processed))))
    return found


@pytest.mark.parametrize("label", SPECS)
def test_who_declares_it_does_not_notice_a_shift_of_rows(label: str) -> None:
    backend = load_backend("numpy")
    before = distributions(backend, SPECS[label], np.zeros(3, np.float32))
    after = distributions(backend, SPECS[label], np.array([-7.0, 0.5, 11.0], np.float32))
    same = all(np.allclose(a, b, atol=1e-5) for a, b in zip(before, after, strict=True))
    assert same == processors.load(SPECS[label]).links[0].effect.ignores_shifts


def test_constraints_declare_it_and_strangers_must() -> None:
    declared = {
        name: processors.load(spec).links[0].effect.ignores_shifts
        for name, spec in {
            "regex": ("regex", {"pattern": "a"}),
            "stop": ("stop", {"strings": ["a"]}),
            "repetition_penalty": ("repetition_penalty", {"penalty": 2.0}),
            "function": lambda logits: logits,
        }.items()
    }
    assert declared == {"regex": True, "stop": True, "repetition_penalty": False, "function": False}


# -- the arithmetic ---------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"scale": 1.7},
    "below one": {"scale": 0.3},
    "zero": {"scale": 0.0},
    "one": {"scale": 1.0},
    "conditional": {"scale": 0.8, "center": "conditional"},
    "mix": {"scale": 2.0, "mix": 0.3},
    "top_k": {"scale": 2.0, "top_k": 4},
    "schedule": {"schedule": [(0, 1.0), (4, 3.0)]},
    "all": {"schedule": [(0, 0.5), (4, 3.0)], "mix": 0.2, "top_k": 5},
}


class Says:
    """A model that says the same at every place."""

    max_length = 64

    def __init__(self, backend: Backend, lines: np.ndarray) -> None:
        self.backend, self.lines, self.vocab_size = backend, lines, lines.shape[-1]
        self.empty_cache = random_model(backend.name, vocab=lines.shape[-1]).empty_cache

    def forward(self, tokens: Any, cache: Any, **_: Any) -> Any:
        return self.backend.asarray(self.lines), cache


def scores(spec: Any, c: np.ndarray, u: np.ndarray, shift_free: bool, donate: bool = False) -> np.ndarray:
    backend = load_backend("torch" if donate else "numpy")
    chain = processors.load(spec, debug=False)
    logits = backend.asarray(np.concatenate([c, u]) if chain.branches == 2 else c)
    context = Context.start(
        logits, prompt=[[1, 2]] * len(c), branches=chain.branches, model=Says(backend, u), max_length=9,
        shift_free=shift_free, donate=donate,
    ).accept([[2]] * len(c))  # fmt: skip
    state = chain.init_state(context.with_fields(tokens=None))
    with np.errstate(invalid="ignore"):
        return np.array(backend.to_numpy(chain.process(logits, state, context)[0]))


def same_but_for_a_number_per_row(found: np.ndarray, expected: np.ndarray) -> None:
    for row, wanted in zip(found, expected, strict=True):
        if np.isnan(wanted).any() or not (wanted > -INF).any():
            # No distribution: a sampler that chooses from it must notice.
            chosen = log_softmax(row)[int(np.argmax(row))]
            assert not chosen > -INF
            continue
        np.testing.assert_array_equal(row == -INF, wanted == -INF)
        kept = wanted > -INF
        difference = row[kept].astype(np.float64) - wanted[kept]
        np.testing.assert_allclose(difference, difference[0], atol=2e-4)


def contrastive_of(u: np.ndarray, **options: Any) -> Any:
    return ("contrastive", {"model": Says(load_backend("numpy"), u), **options})


@given(data=st.data(), rows=st.integers(1, 3), label=st.sampled_from([*OPTIONS, "context_aware", "beta", "difference"]))
@pytest.mark.parametrize("special", [[], [-INF], [-INF, INF, float("nan")]], ids=["numbers", "holes", "anything"])
@pytest.mark.long
def test_scores_differ_by_a_number_per_row_whatever_the_logits(
    special: list[float], data: st.DataObject, rows: int, label: str
) -> None:
    entry = st.floats(-20, 20, width=32)
    entries = st.one_of(entry, entry, st.sampled_from(special)) if special else entry
    table = st.lists(entries, min_size=rows * 6, max_size=rows * 6)
    c, u = (np.asarray(data.draw(table), np.float32).reshape(rows, 6) for _ in range(2))
    if label in OPTIONS:
        spec: Any = ("cfg", {"form": "one_pass", **OPTIONS[label]})
    elif label == "context_aware":
        spec = ("context_aware", {"context_tokens": 1, "form": "one_pass", "alpha": 0.5})
    else:
        spec = contrastive_of(u, weighting=label, alpha=0.05)
    # Such a value after the prompt may spoil its whole row or, as without guidance, only itself.
    c = np.where(np.isnan(c) | (c == INF), np.float32(1.0), c)
    expected = scores(spec, c, u, shift_free=False)
    same_but_for_a_number_per_row(scores(spec, c, u, shift_free=True), expected)


@pytest.mark.torch
@pytest.mark.parametrize("label", OPTIONS)
@pytest.mark.parametrize("holes", ["none", "conditional", "unconditional", "both"])
def test_donated_torch_logits_give_the_same(label: str, holes: str) -> None:
    pytest.importorskip("torch", reason="needs torch")
    dice = np.random.default_rng(0)
    c, u = dice.normal(size=(2, 5, 40)).astype(np.float32) * 4
    for name, logits in (("conditional", c), ("unconditional", u)):
        if holes in (name, "both"):
            logits[2, 3] = logits[4, 7] = -INF
    spec = ("cfg", {"form": "one_pass", **OPTIONS[label]})
    same_but_for_a_number_per_row(scores(spec, c, u, True, donate=True), scores(spec, c, u, False))


def test_no_exponential_is_taken_where_all_logits_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = load_backend("numpy")
    taken: list[Any] = []
    real = type(backend).log_softmax
    monkeypatch.setattr(type(backend), "log_softmax", lambda self, x: taken.append(x) or real(self, x))
    c, u = np.random.default_rng(0).normal(size=(2, 3, 9)).astype(np.float32)
    spec = ("cfg", {"scale": 2.0, "form": "one_pass"})
    found = scores(spec, c, u, shift_free=True)
    assert not taken
    np.testing.assert_allclose(found, u + 2.0 * (c - u), atol=1e-5)
    np.testing.assert_allclose(scores(spec, c, u, shift_free=False), guided(c, u, 2.0), atol=1e-5)
    assert taken
    taken.clear()
    u[1, 4] = -INF
    np.testing.assert_allclose(scores(spec, c, u, shift_free=True)[1, 4], log_softmax(c)[1, 4], atol=1e-5)
    assert taken


# -- who says so ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watch(Processor):
    """Notes what the context says."""

    effect = Effect.of(())

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", set())

    def process(self, logits: Any, state: Any, context: Context) -> Any:
        self.__dict__["seen"].add(context.shift_free)
        return logits, state


class Unknown(Greedy):
    """A sampler that says nothing of itself."""

    shift_invariant = False


@pytest.mark.parametrize(
    ("strategy", "more", "expected"),
    [
        (Greedy(), (), True),
        (Multinomial(2), (("temperature", {"temperature": 0.5}), ("top_p", {"p": 0.9})), True),
        (Greedy(), (("repetition_penalty", {"penalty": 1.3}),), False),
        (Greedy(), (lambda logits: logits,), False),
        (Unknown(), (), False),
        (BeamSearch(2), (), False),
    ],
)
@pytest.mark.parametrize("drafting", [False, True])
def test_loops_say_when_only_distributions_count(strategy: Any, more: Any, expected: bool, drafting: bool) -> None:
    watch = Watch()
    drafts = candidates.load("prompt_lookup") if drafting and not isinstance(strategy, BeamSearch) else None
    model = random_model("numpy", vocab=20)
    Generator(model, processors.load(watch, *more), strategy, max_tokens=4, eos=(), candidates=drafts)([[1, 2, 1]])
    assert watch.__dict__["seen"] == {expected}


def test_nobody_says_so_by_default() -> None:
    assert not Context.start(np.zeros((1, 3), np.float32)).shift_free


# -- decoding ---------------------------------------------------------------------------------------------


def model_on(backend: Backend) -> LlamaModel:
    return random_model(backend.name, 3, vocab=20, layers=1, dim=16, hidden=24, max_length=64)


FOLLOWERS: dict[str, tuple[Any, ...]] = {
    "alone": (),
    "warped": (("temperature", {"temperature": 0.7}), ("min_p", {"p": 0.02})),
    "penalties": (("repetition_penalty", {"penalty": 1.5}), ("frequency_penalty", {"penalty": 0.4})),
}


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("form", ["one_pass", "two_pass"])
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(3), BeamSearch(4, samples=4)], ids=["g", "m", "b"])
@pytest.mark.long
def test_decoding_is_that_with_log_probabilities(
    host_backend: Backend, strategy: Any, form: str, follower: str
) -> None:
    prompts, results = [[1, 2, 3, 4], [5], [6, 7, 8]], []
    for normalize in (None, True):
        chain = processors.load(
            ("cfg", {"scale": 2.0, "form": form, "normalize": normalize, "mix": 0.1}), *FOLLOWERS[follower]
        )
        results.append(Generator(model_on(host_backend), chain, strategy, max_tokens=8, eos=())(prompts, seed=4))
    chosen, always = results
    assert [g.tokens for g in chosen] == [g.tokens for g in always]
    # Beams are scored by the very same numbers.
    atol = 0.0 if isinstance(strategy, BeamSearch) or follower == "penalties" else 1e-4
    np.testing.assert_allclose([g.logprob for g in chosen], [g.logprob for g in always], atol=atol, rtol=0)


def test_constants_do_matter_to_beams_and_to_a_repetition_penalty() -> None:
    model, prompts = model_on(load_backend("numpy")), [[1, 2, 3, 4], [5], [6, 7, 8]]
    for strategy, more in ((BeamSearch(4), ()), (Greedy(), (("repetition_penalty", {"penalty": 1.5}),))):
        found = [
            Generator(
                model, processors.load(("cfg", {"scale": 2.0, "normalize": normalize}), *more), strategy,
                max_tokens=8, eos=(),
            )(prompts)
            for normalize in (True, False)
        ]  # fmt: skip
        assert any(abs(a.score - b.score) > 1e-2 for a, b in zip(*found, strict=True))


@pytest.fixture(params=["numpy", "torch"])
def host_backend(request: pytest.FixtureRequest) -> Backend:
    """The backends on which the choice is made."""
    if request.param != "numpy":
        pytest.importorskip(request.param, reason=f"needs {request.param}")
    return load_backend(request.param)
