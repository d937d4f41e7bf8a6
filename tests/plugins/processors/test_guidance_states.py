"""The unconditional branch is state: forked, dropped, rolled back and replayed it stays that of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Chain, Context, load_backend, processors
from logitloom.generation import BeamSearch, Generator
from logitloom.rows import tree as state
from logitloom_contrib.llama import random_model
from tests.cases import examples
from tests.oracles.guidance import greedy_guided, guided_uncached, uncached
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.test_guidance_decoding import VOCAB, model_on, reference

PROMPTS = [[1, 2, 3, 4], [5], [6, 7, 8]]
NEGATIVES = [[3, 3], [4, 5, 6, 7], [9]]
SCALE = 1.7


def begin(model: Any, **options: Any) -> tuple[Chain, Context, Any]:
    chain = processors.load(("cfg", {"scale": SCALE, "negative_prompt": NEGATIVES, **options}), debug=True)
    logits = model.backend.asarray(np.zeros((3, model.vocab_size), dtype=np.float32))
    context = Context.start(logits, prompt=PROMPTS, max_length=60, model=model)
    return chain, context, chain.init_state(context)


class Row:
    """What a row is, by its tokens alone."""

    def __init__(self, number: int, new: tuple[int, ...] = ()) -> None:
        self.number, self.new = number, new

    def scores(self, model: Any) -> np.ndarray:
        mine, other = [*PROMPTS[self.number], *self.new], [*NEGATIVES[self.number], *self.new]
        return guided_uncached(model, [mine], [other], SCALE)[0]

    def conditional(self, model: Any) -> np.ndarray:
        return uncached(model, [[*PROMPTS[self.number], *self.new]])[0].astype(np.float32)


def process(
    model: Any, chain: Chain, context: Context, at: Any, rows: list[Row], tokens: list[list[int]]
) -> tuple[np.ndarray, Any, list[Row]]:
    """One step of the chain with the conditional logits that a model would give."""
    after = [Row(row.number, (*row.new, *new)) for row, new in zip(rows, tokens, strict=True)]
    backend = model.backend
    logits = backend.asarray(np.stack([row.conditional(model) for row in after]))
    scores, at = chain.process(logits, at, context.accept(tokens))
    return backend.to_numpy(scores), at, after


def agree(model: Any, scores: np.ndarray, rows: list[Row]) -> None:
    np.testing.assert_allclose(scores, np.stack([row.scores(model) for row in rows]), atol=1e-4, rtol=0)


@examples(40)
@given(data=st.data(), toy=st.booleans())
def test_rows_moved_in_any_way_keep_their_branch(data: st.DataObject, toy: bool) -> None:
    model: Any = ToyModel(load_backend("numpy"), vocab=VOCAB) if toy else reference()
    chain, context, at = begin(model)
    rows = [Row(0), Row(1), Row(2)]
    history = [(at, rows)]
    for _ in range(data.draw(st.integers(1, 5))):
        move = data.draw(st.sampled_from(["none", "take", "back", "join"]))
        if move == "take":
            index = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=4))
            at, rows = state.take(at, index), [rows[i] for i in index]
            history = [(at, rows)]
        elif move == "back":
            which = [data.draw(st.integers(0, len(history) - 1)) for _ in rows]
            at = state.select([old for old, _ in history], which)
            rows = [history[w][1][i] for i, w in enumerate(which)]
        elif move == "join" and len(rows) < 5:
            at, rows = state.concat([at, history[0][0]]), [*rows, *history[0][1]]
            history = [(at, rows)]
        tokens = [data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=3)) for _ in rows]
        scores, at, rows = process(model, chain, context, at, rows, tokens)
        agree(model, scores, rows)
        history.append((at, rows))


def test_a_state_can_be_continued_in_two_ways(backend: Backend) -> None:
    model = model_on(backend.name)
    chain, context, at = begin(model)
    rows = [Row(0), Row(1), Row(2)]
    _, at, rows = process(model, chain, context, at, rows, [[], [], []])
    for tokens in ([[1], [2], [3]], [[7], [], [8]]):
        scores, _, after = process(model, chain, context, at, rows, tokens)
        agree(reference(), scores, after)


def test_going_back_equals_replaying(backend: Backend) -> None:
    model = model_on(backend.name)
    chain, context, at = begin(model)
    rows, versions, texts = [Row(0), Row(1), Row(2)], [], []
    for tokens in ([[], [], []], [[1], [2], [3]], [[4], [5], [6]]):
        _, at, rows = process(model, chain, context, at, rows, tokens)
        versions.append(at)
        texts.append(rows)
    which = [0, 2, 1]
    back = state.select(versions, which)
    rows = [texts[w][i] for i, w in enumerate(which)]
    scores, _, after = process(model, chain, context, back, rows, [[7], [8], [9]])
    agree(reference(), scores, after)
    replayed = chain.replay([list(row.new) for row in rows], context)
    again, _, _ = process(model, chain, context, replayed, rows, [[7], [8], [9]])
    np.testing.assert_allclose(scores, again, atol=1e-5)


@pytest.mark.parametrize("quality", [0.0, 1.0])
def test_drafts_give_what_greedy_guidance_gives_however_many_are_rejected(quality: float) -> None:
    speculate(load_backend("numpy"), quality)


def test_drafts_that_are_partly_rejected_give_what_greedy_guidance_gives(backend: Backend) -> None:
    speculate(backend, 0.5)


def speculate(backend: Backend, quality: float) -> None:
    """Draft some tokens, process each, keep the longest prefix that guidance itself would have chosen."""
    model = model_on(backend.name)
    wanted = [greedy_guided(reference(), p, n, SCALE, 8) for p, n in zip(PROMPTS, NEGATIVES, strict=True)]
    chain, context, at = begin(model)
    rows = [Row(0), Row(1), Row(2)]
    dice = np.random.default_rng(3)
    accepted: list[list[int]] = [[], [], []]
    pending: list[list[int]] = [[], [], []]
    while min(len(line) for line in accepted) < 6:
        scores, first, rows = process(model, chain, context, at, rows, pending)
        versions, texts, choices = [first], [rows], [scores.argmax(-1)]
        draft = [
            [w if dice.random() < quality else int(dice.integers(VOCAB)) for w in line[len(done) : len(done) + 2]]
            for line, done in zip(wanted, accepted, strict=True)
        ]
        for j in range(2):
            tokens = [line[j : j + 1] for line in draft]
            scores, at, rows = process(model, chain, context, at=versions[-1], rows=texts[-1], tokens=tokens)
            versions.append(at)
            texts.append(rows)
            choices.append(scores.argmax(-1))
        which = []
        for i, line in enumerate(draft):
            right = next((j for j, token in enumerate(line) if token != choices[j][i]), len(line))
            which.append(right)
            pending[i] = [int(choices[right][i])]
            accepted[i] += [*line[:right], *pending[i]]
        at = state.select(versions, which)
        rows = [texts[w][i] for i, w in enumerate(which)]
    for line, expected in zip(accepted, wanted, strict=True):
        assert line[:6] == expected[:6]


def test_several_accepted_tokens_are_one_pass_of_the_model() -> None:
    model = ToyModel(load_backend("numpy"), vocab=VOCAB)
    chain, context, at = begin(model)
    blank = np.zeros((3, VOCAB), dtype=np.float32)
    for step in ([[], [], []], [[1], [2], [3]], [[1, 2, 3], [4], [5, 6]]):
        before = model.calls
        _, at = chain.process(blank, at, context.accept(step))
        assert model.calls == before + 1


@pytest.mark.parametrize(
    "options", [{"scale": 1.0}, {"scale": 0.0, "center": "conditional"}, {"schedule": [(0, 1.0), (5, 1.0)]}]
)
def test_no_guidance_never_calls_a_model_and_needs_none(options: dict[str, Any]) -> None:
    chain = processors.load(("cfg", options))
    assert not chain.needs & {"model", "prompt"}
    assert processors.load(("cfg", {**options, "form": "one_pass"})).branches == 1
    logits = np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32)
    context = Context.start(logits)
    scores, at = chain.process(logits, chain.init_state(context), context)
    assert state.row_count(at.processors) is None
    np.testing.assert_allclose(np.exp(scores).sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(scores - logits, (scores - logits)[:, :1] + np.zeros((1, 9)), atol=1e-5)


def test_a_schedule_guides_where_it_says_and_calls_the_model_only_there() -> None:
    model = ToyModel(load_backend("numpy"), vocab=VOCAB)
    schedule = [(1, 1.0), (2, 2.0), (4, 3.0), (5, 1.0)]
    chain, context, at = begin(model, schedule=schedule)
    rows = [Row(0), Row(1), Row(2)]
    tokens: list[list[int]] = [[], [], []]
    called = []
    for step, scale in enumerate([1.0, 1.0, 2.0, 2.5, 3.0, 1.0, 1.0]):
        before = model.calls
        rows = [Row(row.number, (*row.new, *new)) for row, new in zip(rows, tokens, strict=True)]
        logits = np.stack([row.conditional(model) for row in rows])
        before = model.calls
        scores, at = chain.process(logits, at, context.accept(tokens))
        called.append(model.calls - before)
        mine = [[*PROMPTS[row.number], *row.new] for row in rows]
        other = [[*NEGATIVES[row.number], *row.new] for row in rows]
        np.testing.assert_allclose(scores, guided_uncached(model, mine, other, scale), atol=1e-4)
        tokens = [[step], [step + 1], [step + 2]]
    assert called == [0, 0, 1, 1, 1, 0, 0]


def test_rows_at_different_steps_have_different_scales_in_both_forms(backend: Backend) -> None:
    model = model_on(backend.name)
    rows = [Row(0, (1,)), Row(1), Row(2, (4, 5, 6))]
    mine = [[*PROMPTS[row.number], *row.new] for row in rows]
    other = [[*NEGATIVES[row.number], *row.new] for row in rows]
    c, u = (uncached(reference(), texts).astype(np.float32) for texts in (mine, other))
    expected = np.stack(
        [guided_uncached(reference(), [m], [o], s)[0] for m, o, s in zip(mine, other, (2.0, 1.0, 0.5), strict=True)]
    )
    for form, logits in (("two_pass", c), ("one_pass", np.concatenate([c, u]))):
        chain, context, at = begin(model, form=form, schedule=[(0, 1.0), (1, 2.0), (3, 0.5)])
        scores, _ = chain.process(backend.asarray(logits), at, context.accept([list(row.new) for row in rows]))
        np.testing.assert_allclose(backend.to_numpy(scores), expected, atol=1e-4)


def test_rows_that_share_a_prompt_are_read_once_at_the_start() -> None:
    class Counting(ToyModel):
        rows = 0

        def forward(self, tokens: Any, cache: Any, **more: Any) -> Any:
            self.rows += len(tokens)
            return super().forward(tokens, cache, **more)

    model = Counting(load_backend("numpy"), vocab=VOCAB)
    chain = processors.load(("cfg", {"scale": 2.0}))
    logits = np.zeros((6, VOCAB), dtype=np.float32)
    context = Context.start(logits, prompt=[[1, 2]] * 3 + [[3]] * 3, model=model)
    chain.process(logits, chain.init_state(context), context)
    assert model.rows == 2


@pytest.mark.extras
def test_left_padded_negative_prompts_on_a_model_with_absolute_positions() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    transformers = pytest.importorskip("transformers", reason="the model is built with transformers")
    from tests.oracles.gpt2 import GPT2Adapter

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=48, n_embd=16, n_layer=2, n_head=2)
    gpt2 = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        gpt2.transformer.wpe.weight.mul_(30)  # positions must matter
    model = GPT2Adapter(gpt2)
    prompts = [[1, 2, 3, 4], [5, 6], [7]]
    ids = [[0, 0, 0, 8, 9], [0, 10, 11, 12, 13], [1, 2, 3, 4, 5]]
    mask = [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    ragged = [[t for t, real in zip(row, marks, strict=True) if real] for row, marks in zip(ids, mask, strict=True)]

    def scores_of(row: list[int]) -> np.ndarray:
        with torch.no_grad():
            line = gpt2(torch.tensor([row])).logits[0, -1].double()
        return np.asarray(torch.log_softmax(line, -1))

    expected = []
    for prompt, negative in zip(prompts, ragged, strict=True):
        new: list[int] = []
        for _ in range(6):
            c, u = scores_of([*prompt, *new]), scores_of([*negative, *new])
            new.append(int((u + 2.0 * (c - u)).argmax()))
        expected.append(tuple(new))
    shifted = scores_of([0, 0, 0, *ragged[0]]) - scores_of(ragged[0])
    assert np.abs(shifted).max() > 0.1, "positions do not matter in this model"

    right = [[*row, *[0] * (5 - len(row))] for row in ragged]
    right_mask = [[1] * len(row) + [0] * (5 - len(row)) for row in ragged]
    for form in ("two_pass", "one_pass"):
        for padded_ids, marks in ((ids, mask), (right, right_mask)):
            table = {"input_ids": torch.tensor(padded_ids), "attention_mask": torch.tensor(marks)}
            chain = processors.load(("cfg", {"scale": 2.0, "form": form, "negative_prompt": table}))
            found = Generator(model, chain, max_tokens=6, eos=())(prompts)
            assert [g.tokens for g in found] == expected
            beams = Generator(model, chain, BeamSearch(1), max_tokens=6, eos=())(prompts)
            assert [g.tokens for g in beams] == expected


def test_the_model_may_be_given_to_the_chain(backend: Backend) -> None:
    model = random_model(backend, vocab=VOCAB, layers=1, dim=16, hidden=24, max_length=64)
    chain = processors.load(("cfg", {"scale": SCALE, "negative_prompt": NEGATIVES}), model=model)
    logits = backend.asarray(np.zeros((3, VOCAB), dtype=np.float32))
    context = Context.start(logits, prompt=PROMPTS)
    scores, _ = chain.process(logits, chain.init_state(context), context)
    u = uncached(model, NEGATIVES)
    u -= np.log(np.exp(u).sum(-1, keepdims=True))
    expected = u + SCALE * (-np.log(VOCAB) - u)
    np.testing.assert_allclose(backend.to_numpy(scores), expected, atol=1e-4)
