"""Classifier-free guidance: its formula, its options, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Context, load_backend, processors
from logitloom.errors import InvalidContext, InvalidSignature, NeedsNotMet, OptionError, StageOrderError
from logitloom.generation import BeamSearch, Generator, Greedy
from logitloom_contrib.llama import random_model
from tests.oracles.guidance import guided, log_softmax
from tests.oracles.toy_model import ToyModel

INF = float("inf")


class Fixed:
    """A model that always says the same."""

    max_length = 100

    def __init__(self, backend: Backend, line: Any, dtype: str = "float32") -> None:
        self.backend, self.line, self.dtype = backend, np.asarray(line, dtype=np.float32), dtype
        self.vocab_size = self.line.shape[-1]
        self.toy = ToyModel(backend, vocab=self.vocab_size)
        self.empty_cache = self.toy.empty_cache

    def forward(self, tokens: Any, cache: Any, **_: Any) -> Any:
        _, cache = self.toy.forward(tokens, cache)
        return self.backend.asarray(np.broadcast_to(self.line, (len(tokens), self.vocab_size)), self.dtype), cache


def guide(
    backend: Backend, c: Any, u: Any, form: str = "two_pass", dtype: str = "float32", **options: Any
) -> np.ndarray:
    """The guided scores of one row of conditional and unconditional logits."""
    c, u = np.asarray([c], dtype=np.float32), np.asarray([u], dtype=np.float32)
    chain = processors.load(("cfg", {"form": form, **options}), debug=True)
    both = np.concatenate([c, u]) if chain.branches == 2 else c
    logits = backend.asarray(both, dtype)
    before = backend.to_numpy(logits).copy()
    context = Context.start(
        logits, prompt=[[1]], branches=chain.branches, model=Fixed(backend, u[0], dtype), max_length=9
    )
    scores, _ = chain.process(logits, chain.init_state(context), context)
    assert scores.dtype == logits.dtype
    assert np.array_equal(backend.to_numpy(logits), before), "the input was overwritten"
    return backend.to_numpy(scores)[0]


both_forms = pytest.mark.parametrize("form", ["two_pass", "one_pass"])

U, C = [1.0, 0.0, 1.5], [1.0, 1.0, 1.0]


@both_forms
def test_the_formula_to_seven_places(backend: Backend, form: str) -> None:
    u, c = log_softmax(U), log_softmax(C)
    np.testing.assert_allclose(guide(backend, C, U, form, scale=1.5), u + 1.5 * (c - u), atol=5e-7)


def test_given_or_implied_prompts_give_the_formula(backend: Backend) -> None:
    u, c = log_softmax(U), log_softmax(C)
    given: list[Any] = [None, [2], {"input_ids": [[2]]}, {"input_ids": [[2]], "attention_mask": [[1]]}]
    for prompt in given:
        np.testing.assert_allclose(
            guide(backend, C, U, scale=1.5, negative_prompt=prompt), u + 1.5 * (c - u), atol=5e-7
        )


@both_forms
def test_the_center_may_be_the_conditional_distribution(backend: Backend, form: str) -> None:
    u, c = log_softmax(U), log_softmax(C)
    found = guide(backend, C, U, form, scale=1.5, center="conditional")
    np.testing.assert_allclose(found, c + 1.5 * (c - u), atol=5e-7)


@both_forms
@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_top_k_selects_by_guided_and_keeps_conditional_scores(backend: Backend, form: str, k: int) -> None:
    c, u = [0.5, 1.0, 0.9], [0.5, 2.0, -1.0]
    scores = guided(c, u, 2.0)
    kept = np.argsort(-scores)[:k]
    expected = np.full(3, -INF)
    expected[kept] = log_softmax(c)[kept]
    np.testing.assert_allclose(guide(backend, c, u, form, scale=2.0, top_k=k), expected, atol=1e-6)
    assert scores.argmax() != np.argmax(c)


@both_forms
@pytest.mark.parametrize("neutral", [{"scale": 1.0}, {"schedule": [(0, 1.0), (4, 2.0)]}])
def test_top_k_selects_where_nothing_is_guided_too(backend: Backend, form: str, neutral: dict[str, Any]) -> None:
    c = [0.5, 1.0, 0.9, -INF]
    expected = np.where([False, True, True, False], log_softmax(c), -INF)
    found = guide(backend, c, [1.0, 0.0, 0.0, 0.0], form, top_k=2, **neutral)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@both_forms
def test_the_mixture_interpolates_in_log_space(backend: Backend, form: str) -> None:
    scores = guided(C, U, 3.0)
    expected = 0.7 * log_softmax(scores) + 0.3 * log_softmax(C)
    np.testing.assert_allclose(guide(backend, C, U, form, scale=3.0, mix=0.3), expected, atol=1e-6)
    np.testing.assert_allclose(guide(backend, C, U, form, scale=3.0, mix=1.0), log_softmax(C), atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("normalize", [False, True])
def test_gradients_and_inference_mode_are_no_obstacle(normalize: bool) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    line = np.asarray([C, U], dtype=np.float32)
    with torch.inference_mode():
        made_inside = torch.tensor(line)
    chain = processors.load(("cfg", {"form": "one_pass", "normalize": normalize}))
    for logits in (torch.tensor(line, requires_grad=True), made_inside):
        context = Context.start(logits, prompt=[[1]], branches=2, donate=True)
        scores, _ = chain.process(logits, chain.init_state(context), context)
        assert not scores.requires_grad
        np.testing.assert_allclose(log_softmax(scores), log_softmax(guided(C, U, 1.5))[None], atol=1e-6)


@both_forms
def test_logits_combined_as_they_are_give_the_same_distribution(backend: Backend, form: str) -> None:
    c, u = np.asarray([0.5, 1.0, 0.9]), np.asarray([0.5, 2.0, -1.0])
    options: list[dict[str, Any]] = [
        {"scale": 2.0},
        {"scale": 1.0},
        {"scale": 2.0, "mix": 0.3},
        {"scale": 2.0, "top_k": 2},
    ]
    for more in options:
        raw, normal = (guide(backend, c, u, form, normalize=flag, **more) for flag in (False, True))
        np.testing.assert_allclose(log_softmax(raw), log_softmax(normal), atol=1e-5)
    np.testing.assert_allclose(guide(backend, c, u, form, scale=2.0, normalize=False), u + 2.0 * (c - u), atol=1e-6)
    with_holes = guide(backend, [0.5, -INF, -INF, 1.0], [-INF, -INF, 1.0, 0.0], form, scale=2.0, normalize=False)
    np.testing.assert_allclose(with_holes, [0.5, -INF, -INF, 2.0], atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("scale", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_blocks_of_rows_and_donation_change_nothing(
    backend: Backend, rows: int, scale: float, holes: bool, normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitloom_plugins.processors import _contrast

    dice = np.random.default_rng(rows)
    logits = dice.normal(size=(2 * rows, 50)).astype(np.float32) * 3
    if holes:
        logits[dice.random(logits.shape) < 0.1] = -INF
    chain = processors.load(("cfg", {"form": "one_pass", "scale": scale, "normalize": normalize}), debug=True)
    found = []
    for block, donate in ((1 << 18, False), (100, False), (100, True), (1, False), (1 << 18, True)):
        monkeypatch.setattr(_contrast, "_BLOCK", block)
        given = backend.asarray(logits)
        context = Context.start(given, prompt=[[1]] * rows, branches=2, donate=donate)
        scores, _ = chain.process(given, chain.init_state(context), context)
        found.append(np.array(backend.to_numpy(scores)))
        assert donate or np.array_equal(backend.to_numpy(given), logits)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)


@both_forms
@given(
    c=st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4),
    u=st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4),
    scale=st.floats(0, 5),
)
def test_any_logits_and_scale(form: str, c: list[float], u: list[float], scale: float) -> None:
    found = guide(load_backend("numpy"), c, u, form, scale=scale)
    np.testing.assert_allclose(found, guided(c, u, scale), atol=1e-4)


@both_forms
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("more", [{}, {"mix": 0.25}, {"schedule": [(0, 1.0), (4, 2.0)]}], ids=["plain", "mix", "sched"])
def test_masked_tokens_never_make_anything_but_numbers(
    backend: Backend, form: str, scale: float, more: dict[str, Any]
) -> None:
    c = [1.0, -INF, -INF, 0.5, 2.0]
    u = [0.5, -INF, 1.0, -INF, 1.0]
    found = guide(backend, c, u, form, scale=scale, **more)
    assert not np.isnan(found).any()
    # Closed in both, and closed by the prompt alone: closed. Closed by the other branch alone: conditional.
    np.testing.assert_array_equal(found == -INF, [False, True, True, False, False])
    if not more:
        assert found[3] == pytest.approx(log_softmax(c)[3], abs=1e-6)
        lc, lu = log_softmax(c), log_softmax(u)
        for i in (0, 4):
            assert found[i] == pytest.approx(lu[i] + scale * (lc[i] - lu[i]), abs=1e-5)


@both_forms
def test_a_row_that_is_closed_throughout_stays_so(backend: Backend, form: str) -> None:
    assert (guide(backend, [-INF] * 3, U, form) == -INF).all()
    np.testing.assert_allclose(guide(backend, C, [-INF] * 3, form), log_softmax(C), atol=1e-6)
    assert (guide(backend, [-INF] * 3, [-INF] * 3, form) == -INF).all()


@both_forms
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_rounded_once_at_the_end(backend: Backend, form: str, dtype: str) -> None:
    if not hasattr(backend.xp, dtype):
        pytest.skip(f"{backend.name} has no {dtype}")
    dice = np.random.default_rng(0)
    c, u = dice.normal(size=(2, 500)).astype(np.float32) * 4
    c, u = (backend.to_numpy(backend.asarray(x, dtype)).astype(np.float32) for x in (c, u))
    found = guide(backend, c, u, form, dtype, scale=1.5)
    exact = guided(c, u, 1.5)
    once = backend.to_numpy(backend.asarray(exact.astype(np.float32), dtype))
    # The only difference left is a tie of the rounding itself.
    assert (found == once).mean() > 0.99
    np.testing.assert_allclose(found, exact, rtol=2**-8 if dtype == "bfloat16" else 2**-11)


@pytest.mark.torch
def test_a_bfloat16_branch_beside_float32_logits_is_combined_in_float32() -> None:
    pytest.importorskip("torch", reason="needs torch")
    backend = load_backend("torch")
    dice = np.random.default_rng(0)
    c, u = dice.normal(size=(2, 500)).astype(np.float32) * 4
    model = Fixed(backend, u, "bfloat16")
    logits = backend.asarray(c[None])
    chain = processors.load(("cfg", {"scale": 1.5}))
    context = Context.start(logits, prompt=[[1]], model=model)
    scores, _ = chain.process(logits, chain.init_state(context), context)
    rounded = backend.to_numpy(backend.asarray(u, "bfloat16"))
    np.testing.assert_allclose(backend.to_numpy(scores)[0], guided(c, rounded, 1.5), atol=1e-3, rtol=0)


@pytest.mark.jax
def test_the_one_pass_form_compiles_into_a_loop() -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    backend = load_backend("jax")
    chain = processors.load(("cfg", {"form": "one_pass", "schedule": [(0, 1.0), (4, 3.0)], "mix": 0.2}), debug=False)
    assert chain.compilable
    assert not processors.load("cfg").compilable
    logits = backend.asarray(np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32))
    context = Context.start(logits, prompt=[[1], [2, 3]], branches=2, compiled=True).accept([[4], [5]])
    at = chain.init_state(context.with_fields(tokens=None))
    compiled, _ = jax.jit(lambda x, at: chain.process(x, at, context))(logits, at)
    np.testing.assert_allclose(compiled, chain.process(logits, at, context)[0], atol=1e-5)


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cfg", "contrastive", "context_aware"])
@pytest.mark.parametrize("before", ["top_k", "temperature", "repetition_penalty"])
def test_guidance_must_be_first(name: str, before: str) -> None:
    with pytest.raises(
        StageOrderError, match=f"Guidance must come first, but '{name}' stands after '{before}'"
    ) as told:
        processors.load(before, name)
    assert f"The right order is '{name}', '{before}'." in str(told.value)
    assert processors.load(name, before).labels == (name, before)


def test_two_passes_need_a_model_and_a_prompt_to_take_the_last_token_of() -> None:
    logits = np.zeros((1, 4), dtype=np.float32)
    with pytest.raises(NeedsNotMet, match="'cfg' needs model .*; 'cfg' needs prompt"):
        processors.load("cfg").init_state(Context.start(logits))
    chain = processors.load(("cfg", {"negative_prompt": [1], "form": "one_pass"}))
    assert chain.needs == frozenset()


def test_a_model_of_another_vocabulary_is_refused() -> None:
    logits = np.zeros((1, 4), dtype=np.float32)
    model = ToyModel(load_backend("numpy"), vocab=5)
    with pytest.raises(InvalidContext, match="its model has 5 tokens, but the logits have 4 columns"):
        processors.load("cfg").init_state(Context.start(logits, prompt=[[1]], model=model))


def test_rows_that_are_not_two_per_sequence_are_refused() -> None:
    chain = processors.load(("cfg", {"form": "one_pass"}))
    context = Context.start(np.zeros((4, 3), dtype=np.float32), prompt=[[1], [2]], branches=2)
    state = chain.init_state(context)
    with pytest.raises(InvalidContext, match="3 rows of logits cannot be split into 2 branches"):
        chain.process(np.zeros((3, 3), dtype=np.float32), state, context)
    with pytest.raises(InvalidContext, match="accepted for 2 rows, but there are logits for 1 sequences"):
        chain.process(np.zeros((2, 3), dtype=np.float32), state, context.accept([1, 2]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -0.5}, "must be >= 0"),
        ({"top_k": 0}, "must be >= 1"),
        ({"mix": 1.5}, "<= 1"),
        ({"schedule": []}, "give at least one pair"),
        ({"schedule": [(3, 1.0), (3, 2.0)]}, "in increasing order"),
        ({"negative_prompt": []}, "prompt 0 has no tokens"),
        ({"negative_prompt": [[1], []]}, "prompt 1 has no tokens"),
        ({"negative_prompt": ""}, "prompt 0 has no tokens"),
        ({"negative_prompt": [-5]}, "ids are never negative"),
        ({"negative_prompt": {"ids": [1]}}, "it needs 'input_ids'"),
        ({"negative_prompt": {"input_ids": [[1, 2]], "attention_mask": [[1]]}}, "as the tokenizer returned them"),
        ({"negative_prompt": {"input_ids": [[1, 2]], "attention_mask": [[0, 0]]}}, "prompt 0 has no tokens"),
        ({"form": "one_pass", "model": object()}, "takes no option 'model'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        processors.load(("cfg", options))


def test_prompts_that_do_not_fit_the_rows_are_refused() -> None:
    model = ToyModel(load_backend("numpy"), vocab=4)
    logits = np.zeros((4, 4), dtype=np.float32)
    three = processors.load(("cfg", {"negative_prompt": [[1], [2], [3]]}))
    with pytest.raises(InvalidContext, match="has 3 entries, but the generation has 4 rows"):
        three.init_state(Context.start(logits, prompt=[[1]] * 4, model=model))
    two = processors.load(("cfg", {"negative_prompt": [[1], [2]]}))
    assert two.init_state(Context.start(logits, prompt=[[1], [1], [2], [2]], model=model))
    with pytest.raises(InvalidContext, match="Give one for all, or one per prompt"):
        two.init_state(Context.start(logits, prompt=[[1], [2], [3], [3]], model=model))
    for silent in (model, random_model("numpy", vocab=4)):
        with pytest.raises(InvalidContext, match="is text, but the model has no tokenizer"):
            processors.load(("cfg", {"negative_prompt": "no"})).init_state(
                Context.start(logits, prompt=[[1]] * 4, model=silent)
            )
    with pytest.raises(InvalidContext, match="the prompt of row 1 has no tokens"):
        processors.load("cfg").init_state(Context.start(logits, prompt=[[1], [], [2], [3]], model=model))


@both_forms
@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2)])
def test_a_prompt_that_fills_the_context_of_the_model_is_refused(form: str, strategy: Any) -> None:
    model = ToyModel(load_backend("numpy"), vocab=4)
    for length in (model.max_length, model.max_length + 5):
        chain = processors.load(("cfg", {"negative_prompt": [[1], [2] * length], "form": form}))
        said = f"Option 'negative_prompt' of 'cfg' has a prompt of {length} tokens, but the model takes "
        with pytest.raises(OptionError, match=said):
            Generator(model, chain, strategy, max_tokens=3, eos=())([[1], [2]])


def test_text_is_encoded_by_the_tokenizer_of_the_model() -> None:
    class Speaking(ToyModel):
        class tokenizer:
            @staticmethod
            def encode(text: str) -> list[int]:
                return [ord(letter) - 97 for letter in text]

    model = Speaking(load_backend("numpy"), vocab=9)
    logits = np.zeros((2, 9), dtype=np.float32)
    context = Context.start(logits, prompt=[[1], [2]], model=model)
    chain = processors.load(("cfg", {"negative_prompt": ["abc", [7]], "form": "one_pass"}))
    assert chain.branch_prompts(context) == [[[0, 1, 2], [7]]]
    assert "model" in chain.needs


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ([4, 5], [[4, 5], [4, 5]]),
        ([[4, 5], [6]], [[4, 5], [6]]),
        ([[-1, 4, 5], [6, -1, -1]], [[4, 5], [6]]),
        ({"input_ids": [4, 0], "attention_mask": [1, 0]}, [[4], [4]]),
        ({"input_ids": [[0, 4], [5, 6]], "attention_mask": [[0, 1], [1, 1]]}, [[4], [5, 6]]),
        ({"input_ids": np.array([[4, 0], [5, 6]]), "attention_mask": np.array([[1, 0], [1, 1]])}, [[4], [5, 6]]),
    ],
)
def test_prompts_in_every_form(given: Any, rows: list[list[int]]) -> None:
    chain = processors.load(("cfg", {"negative_prompt": given, "form": "one_pass"}))
    context = Context.start(np.zeros((4, 9), dtype=np.float32), prompt=[[1], [2]], branches=2)
    assert chain.branch_prompts(context) == [rows]


# -- the hook ---------------------------------------------------------------------------------------------


def test_a_chain_without_branches_has_no_further_prompts() -> None:
    context = Context.start(np.zeros((1, 3), dtype=np.float32), prompt=[[1]])
    assert processors.load("temperature").branch_prompts(context) == []


def test_branches_without_their_prompts_cannot_be_fed() -> None:
    class Mean:
        stage = "guidance"
        branches = 2

        def process(self, logits: Any) -> Any:
            return logits[: len(logits) // 2]

    context = Context.start(np.zeros((2, 3), dtype=np.float32), prompt=[[1]], branches=2)
    with pytest.raises(InvalidSignature, match="has no method 'branch_prompts'"):
        processors.load(Mean()).branch_prompts(context)

    class Wrong(Mean):
        def branch_prompts(self, context: Context) -> Any:
            return [[[1], [2]]]

    with pytest.raises(InvalidSignature, match=r"branches of \[2\] rows, but declares 2 branches"):
        processors.load(Wrong()).branch_prompts(context)


def test_three_branches_are_fed_as_two_are() -> None:
    from logitloom import load_backend

    class Three:
        stage = "guidance"
        branches = 3

        def branch_prompts(self, context: Context) -> Any:
            return [[[1]] * context.batch, [[2, 3]] * context.batch]

        def process(self, logits: Any) -> Any:
            rows = len(logits) // 3
            return logits[:rows] - 0.5 * logits[rows : 2 * rows] - 0.25 * logits[2 * rows :]

    model = ToyModel(load_backend("numpy"))
    expected = []
    for prompt in ([4, 5], [6]):
        new: list[int] = []
        for _ in range(5):
            parts = [model.row_logits([*p, *new]) for p in (prompt, [1], [2, 3])]
            new.append(int((parts[0] - 0.5 * parts[1] - 0.25 * parts[2]).argmax()))
        expected.append(tuple(new))
    found = Generator(model, processors.load(Three()), max_tokens=5, eos=())([[4, 5], [6]])
    assert [g.tokens for g in found] == expected
    with_beams = Generator(model, processors.load(Three()), BeamSearch(2), max_tokens=5, eos=())([[4, 5]])
    assert len(with_beams[0].tokens) == 5
