from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, processors
from logitloom.arrays.backend import Backend
from logitloom.errors import GenerationError, InvalidLogits, NoLegalToken
from logitloom.generation import BeamSearch, ContrastiveSearch, Generator, Greedy, candidates, continuous
from logitloom_contrib.llama import LlamaModel, random_model
from tests.core.generation.test_loop import Cycle, EndAfter
from tests.oracles.toy_model import ToyModel

VOCAB = 32
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
WORDS = Vocabulary([bytes([65 + i]) for i in range(VOCAB)])


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    return random_model("numpy", seed=3, vocab=VOCAB, tied=False)


def recomputed(
    model: LlamaModel, prompt: list[int], steps: int, k: int, alpha: float, *, banned: tuple[int, ...] = ()
) -> tuple[list[int], float]:
    """The oracle: every candidate's whole sequence is read anew, alone, without a cache."""
    row, total = list(prompt), 0.0
    for _ in range(steps):
        logits, _, _ = model.forward_hidden(np.array([row], dtype=np.int32), model.empty_cache(1))
        line = np.asarray(logits[0], dtype=np.float64)
        line[list(banned)] = -np.inf
        p = np.exp(line - line.max())
        p /= p.sum()
        scores = {}
        for token in np.argsort(-p, kind="stable")[:k]:
            if not p[token]:
                continue
            _, hidden, _ = model.forward_hidden(np.array([[*row, token]], dtype=np.int32), model.empty_cache(1))
            h = np.asarray(hidden[0], dtype=np.float64)
            h /= np.linalg.norm(h, axis=-1, keepdims=True)
            scores[int(token)] = (1 - alpha) * p[token] - alpha * max(h[:-1] @ h[-1])
        best = max(scores, key=lambda token: scores[token])
        total += float(np.log(p[best]))
        row.append(best)
    return row[len(prompt) :], total


def generator(model: Any, **changes: Any) -> Generator:
    return replace(Generator(model, strategy=ContrastiveSearch(), max_tokens=12, eos=()), **changes)


@pytest.mark.parametrize(("k", "alpha"), [(4, 0.6), (8, 0.8), (2, 1.0)])
def test_each_token_has_the_best_score_of_its_candidates(model: LlamaModel, k: int, alpha: float) -> None:
    found = generator(model, strategy=ContrastiveSearch(k, alpha))(PROMPTS)
    greedy = generator(model, strategy=Greedy())(PROMPTS)
    assert [g.tokens for g in found] != [g.tokens for g in greedy]
    for got, prompt in zip(found, PROMPTS, strict=True):
        tokens, logprob = recomputed(model, prompt, 12, k, alpha)
        assert list(got.tokens) == tokens
        assert got.logprob == pytest.approx(logprob, abs=1e-3)


def test_every_backend_takes_the_same_tokens(backend: Backend) -> None:
    sizes: dict[str, Any] = {"seed": 3, "vocab": VOCAB, "layers": 1, "tied": False}
    (found,) = generator(random_model(backend, **sizes), max_tokens=3)([PROMPTS[0]])
    assert list(found.tokens) == recomputed(random_model("numpy", **sizes), PROMPTS[0], 3, 4, 0.6)[0]


@pytest.mark.parametrize("settings", [ContrastiveSearch(1, 0.6), ContrastiveSearch(5, 0.0)])
def test_one_candidate_or_no_penalty_is_greedy_decoding(model: LlamaModel, settings: ContrastiveSearch) -> None:
    greedy = generator(model, strategy=Greedy())(PROMPTS)
    found = generator(model, strategy=settings)(PROMPTS)
    assert [g.tokens for g in found] == [g.tokens for g in greedy]
    assert [g.logprob for g in found] == pytest.approx([g.logprob for g in greedy], abs=1e-3)


def test_the_chain_works_before_the_search(model: LlamaModel) -> None:
    banned = tuple(range(0, VOCAB, 2))
    chain = processors.load(("suppress_tokens", {"tokens": banned}))
    for got, prompt in zip(generator(model, chain=chain)(PROMPTS), PROMPTS, strict=True):
        assert list(got.tokens) == recomputed(model, prompt, 12, 4, 0.6, banned=banned)[0]


def test_a_forbidden_candidate_is_never_taken_whatever_its_score(model: LlamaModel) -> None:
    """With the penalty alone, a forbidden candidate could score best."""
    chain = processors.load(Cycle(forced=2, period=2))
    found = generator(model, chain=chain, strategy=ContrastiveSearch(VOCAB, 1.0))(PROMPTS)
    assert all(set(g.tokens[1::2]) == {2} for g in found)
    assert any(set(g.tokens[::2]) != {2} for g in found)


def test_a_regular_expression_holds_to_its_end(model: LlamaModel) -> None:
    vocabulary = Vocabulary([*(bytes([65 + i]) for i in range(VOCAB - 1)), b""], eos=[VOCAB - 1])
    chain = processors.load(("regex", {"pattern": "[A-F]{3}(GH){2}"}))
    for got in generator(model, chain=chain, eos=None, max_tokens=20, vocabulary=vocabulary)(PROMPTS):
        assert got.finish == "eos"
        assert got.text is not None
        assert len(got.text) == 7
        assert got.text.endswith("GHGH")


def test_rows_end_on_their_own_and_leave_the_others_as_they_were(model: LlamaModel) -> None:
    long = [g.tokens for g in generator(model)(PROMPTS)]
    eos = long[0][3]
    found = generator(model, eos=(eos,))(PROMPTS)
    for got, tokens in zip(found, long, strict=True):
        end = tokens.index(eos) if eos in tokens else None
        assert got.tokens == tokens[:end]
        assert got.finish == ("length" if end is None else "eos")
    assert len({len(g.tokens) for g in found}) > 1


def test_a_processor_ends_texts(model: LlamaModel) -> None:
    found = generator(model, chain=processors.load(EndAfter(tokens=3)), vocabulary=WORDS)(PROMPTS)
    assert [(g.finish, len(g.tokens)) for g in found] == [("stop", 3)] * 3


def test_samples_stand_side_by_side_and_streams_join_to_the_text(model: LlamaModel) -> None:
    two = generator(model, strategy=ContrastiveSearch(samples=2), vocabulary=WORDS)
    found = two(PROMPTS)
    assert [(g.prompt, g.sample) for g in found] == [(p, s) for p in range(3) for s in range(2)]
    assert [g.tokens for g in found[::2]] == [g.tokens for g in found[1::2]]
    texts = dict.fromkeys(((g.prompt, g.sample) for g in found), "")
    for piece in two.stream(PROMPTS):
        texts[piece.prompt, piece.sample] += piece.text
    assert list(texts.values()) == [g.text for g in found]


def test_records_tell_the_log_probabilities(model: LlamaModel) -> None:
    chain = processors.load(("top_k", {"k": 3}))
    for got in generator(model, chain=chain, record=True)(PROMPTS):
        assert [each.token for each in got.sampled] == list(got.tokens)
        assert [each.kept for each in got.sampled] == [3] * len(got.tokens)
        assert sum(each.logprob for each in got.sampled) == pytest.approx(got.logprob)


def test_both_branches_of_guidance_follow_the_chosen_candidate(model: LlamaModel) -> None:
    prompts = {"negative_prompt": [9, 9], "scale": 1.5}
    two, one = (
        generator(model, chain=processors.load(("cfg", {**prompts, "form": form}), model=model), max_tokens=6)(PROMPTS)
        for form in ("two_pass", "one_pass")
    )
    assert [g.tokens for g in one] == [g.tokens for g in two]
    assert [g.tokens for g in one] != [g.tokens for g in generator(model, max_tokens=6)(PROMPTS)]


def test_the_last_place_of_the_model_is_used() -> None:
    small = random_model("numpy", vocab=VOCAB, max_length=8)
    assert [len(g.tokens) for g in generator(small, max_tokens=50)(PROMPTS)] == [5, 7, 3]


def test_no_prompts_give_nothing(model: LlamaModel) -> None:
    assert generator(model)([]) == []


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "needs at least 1 candidate per token, but k is 0"),
        ({"penalty_alpha": 1.5}, "penalty_alpha weighs .* from 0 to 1, but is 1.5"),
        ({"penalty_alpha": float("nan")}, "but is nan"),
        ({"samples": 0}, "at least 1 sequence per prompt, but samples is 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        ContrastiveSearch(**options)


def test_a_model_without_hidden_states_is_refused() -> None:
    toy = ToyModel(load_backend("numpy"))
    with pytest.raises(GenerationError, match=r"ToyModel has no method forward_hidden\(tokens, cache\)\. Use another"):
        generator(toy)([[1]])


def test_drafts_and_continued_states_are_refused(model: LlamaModel) -> None:
    with pytest.raises(GenerationError, match="Contrastive search cannot use drafts"):
        generator(model, candidates=candidates.load("prompt_lookup"))
    with pytest.raises(GenerationError, match="cannot be continued from a state"):
        continuous(generator(model, vocabulary=WORDS))
    assert continuous(generator(model, vocabulary=WORDS, strategy=BeamSearch(2)))


def test_a_row_without_a_legal_token_is_named(model: LlamaModel) -> None:
    chain = processors.load(("suppress_tokens", {"tokens": tuple(range(VOCAB))}))
    with pytest.raises(NoLegalToken, match="left row 0 without any legal token at position 3"):
        generator(model, chain=chain)(PROMPTS)


def test_logits_that_are_no_distribution_are_named() -> None:
    broken = random_model("numpy", vocab=VOCAB)
    broken._norm[...] = np.nan
    with pytest.raises(InvalidLogits, match="logits of row 0 are no distribution at step 0"):
        generator(broken)(PROMPTS)
