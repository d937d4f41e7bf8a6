from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import processors
from logitloom.errors import ModelError, NeedsNotMet
from logitloom.generation import BeamSearch, ContrastiveSearch, Generator, Greedy, Multinomial, candidates
from logitloom.rows import tree as state
from tests.contrib.engines.conftest import EOS, PATTERNS, VOCABULARY, encode, tensor

torch = pytest.importorskip("torch", reason="transformers needs PyTorch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

from logitloom_contrib.engines.transformers import TransformersModel, to_transformers  # noqa: E402

pytestmark = pytest.mark.extras

PROMPTS = [encode("hello there"), encode("z"), encode("a dog 12")]
KINDS = ("llama", "gpt2")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tiny_transformers: Any) -> TransformersModel:
    return TransformersModel(tiny_transformers(request.param))


def uncached(model: TransformersModel, row: list[int]) -> np.ndarray:
    """The oracle: all logits of one row, from one pass of the model itself."""
    with torch.no_grad():
        return model.model(input_ids=tensor([row])).logits[0].cpu().numpy()


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a.cpu() if hasattr(a, "cpu") else a), b, rtol=2e-4, atol=2e-4)


def test_ragged_rows_are_what_they_are_alone(model: TransformersModel) -> None:
    logits, cache = model.forward(padded(PROMPTS), model.empty_cache(3))
    for line, row in zip(logits, PROMPTS, strict=True):
        close(line, uncached(model, row)[-1])
    logits, cache = model.forward(padded([[5, 6, 7], [8], [9, 10]]), cache, all_positions=True)
    assert cache.lengths.tolist() == [len(PROMPTS[0]) + 3, 2, len(PROMPTS[2]) + 2]
    for line, row, new in zip(logits, PROMPTS, [[5, 6, 7], [8], [9, 10]], strict=True):
        close(line[: len(new)], uncached(model, row + new)[len(row) :])


def test_cropped_and_moved_rows_go_on_as_if_they_had_always_been_there(model: TransformersModel) -> None:
    rows = [[*row, 40, 41, 42] for row in PROMPTS]
    _, cache = model.forward(padded(rows), model.empty_cache(3))
    before, _ = model.forward(padded([[4], [4], [4]]), cache)
    shorter = cache.crop([len(row) - n for row, n in zip(rows, (3, 0, 2), strict=True)]).take_rows([2, 0, 0, 1])
    assert cache.lengths.tolist() == [len(row) for row in rows]
    kept = [rows[2][:-2], rows[0][:-3], rows[0][:-3], rows[1]]
    new = [[11, 12], [13], [14, 15], [16]]
    logits, joined = model.forward(padded(new), shorter)
    for line, row, more in zip(logits, kept, new, strict=True):
        close(line, uncached(model, row + more)[-1])
    _, other = model.forward(padded([[3, 4, 5]]), model.empty_cache(1))
    both = state.concat([joined, model.empty_cache(1), other])
    logits, _ = model.forward(padded([[7], [8], [9], [10], [7, 8], [9]]), both)
    for line, row in zip(
        logits, [kept[0] + new[0] + [7], kept[1] + new[1] + [8], kept[2] + new[2] + [9], kept[3] + new[3] + [10],
                 [7, 8], [3, 4, 5, 9]], strict=True
    ):  # fmt: skip
        close(line, uncached(model, row)[-1])
    again, _ = model.forward(padded([[4], [4], [4]]), cache)
    assert torch.equal(before, again)


def test_a_row_may_get_no_tokens(model: TransformersModel) -> None:
    _, cache = model.forward(padded(PROMPTS), model.empty_cache(3))
    logits, cache = model.forward(np.array([[5], [-1], [6]], dtype=np.int32), cache)
    assert cache.lengths.tolist() == [len(PROMPTS[0]) + 1, 1, len(PROMPTS[2]) + 1]
    logits, _ = model.forward(padded([[7], [8], [9]]), cache)
    close(logits[1], uncached(model, [*PROMPTS[1], 8])[-1])


def test_many_rejected_drafts_do_not_fill_the_cache(model: TransformersModel) -> None:
    _, cache = model.forward(padded(PROMPTS), model.empty_cache(3))
    lengths = cache.lengths.copy()
    for _ in range(30):
        _, longer = model.forward(padded([[5, 6, 7, 8]] * 3), cache)
        cache = longer.crop(lengths)
    logits, cache = model.forward(padded([[9]] * 3), cache)
    assert cache.used.shape[1] < 4 * lengths.max()
    for line, row in zip(logits, PROMPTS, strict=True):
        close(line, uncached(model, [*row, 9])[-1])


def test_what_the_model_cannot_take_is_refused(model: TransformersModel, tiny_transformers: Any) -> None:
    with pytest.raises(ModelError, match="Token 128 is out of range; the model has 128 tokens"):
        model.forward(np.array([[128]]), model.empty_cache(1))
    with pytest.raises(ModelError, match="Row 0 would have 257 tokens, but the model takes 256 at most"):
        model.forward(np.full((1, 257), 5), model.empty_cache(1))
    with pytest.raises(ModelError, match="cannot be cropped to 4"):
        model.empty_cache(1).crop([4])
    config = tiny_transformers().config
    windows = type(config)(**{**config.to_dict(), "layer_types": ["sliding_attention", "full_attention"]})
    other = tiny_transformers(seed=5)
    plain, other.config = other.config, windows
    try:
        with pytest.raises(ModelError, match="sliding_attention"):
            TransformersModel(other)
    finally:
        other.config = plain


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(samples=3), BeamSearch(beams=3), ContrastiveSearch()])
def test_our_own_loop_runs_transformers_models(model: TransformersModel, strategy: Any) -> None:
    chain = processors.load(("regex", {"pattern": PATTERNS[1]}), tokenizer=VOCABULARY)
    found = Generator(model, chain, strategy, max_tokens=24)(PROMPTS, seed=4)
    assert len(found) >= 3
    assert all(re.fullmatch(PATTERNS[1], each.text or "") for each in found)


def test_the_output_head_reads_the_hidden_states(model: TransformersModel) -> None:
    logits, hidden, cache = model.forward_hidden(padded(PROMPTS), model.empty_cache(3))
    assert cache.lengths.tolist() == [len(row) for row in PROMPTS]
    for last, states, row in zip(logits, hidden, PROMPTS, strict=True):
        close(model.model.get_output_embeddings()(states[: len(row)]).detach(), uncached(model, row))
        close(last, uncached(model, row)[-1])


def contrastive_alone(model: TransformersModel, prompt: list[int], steps: int, k: int, alpha: float) -> list[int]:
    """The oracle: contrastive search in float64 over passes of the model itself, each over a whole sequence."""
    row = list(prompt)
    for _ in range(steps):
        p = torch.softmax(tensor(uncached(model, row)[-1]).double(), -1)
        scores = {}
        for token in p.topk(k).indices.tolist():
            with torch.no_grad():
                out = model.model(input_ids=tensor([[*row, token]]), output_hidden_states=True)
            h = torch.nn.functional.normalize(out.hidden_states[-1][0].double(), dim=-1)
            scores[token] = float((1 - alpha) * p[token] - alpha * (h[:-1] @ h[-1]).max())
        row.append(max(scores, key=lambda token: scores[token]))
    return row[len(prompt) :]


def test_contrastive_search_takes_what_passes_over_whole_sequences_take(model: TransformersModel) -> None:
    parts: dict[str, Any] = {"max_tokens": 8, "eos": ()}
    found = Generator(model, strategy=ContrastiveSearch(4, 0.7), **parts)(PROMPTS)
    assert [list(g.tokens) for g in found] == [contrastive_alone(model, prompt, 8, 4, 0.7) for prompt in PROMPTS]
    assert [g.tokens for g in found] != [g.tokens for g in Generator(model, **parts)(PROMPTS)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_our_own_loop_and_generate_agree(model: TransformersModel) -> None:
    chain = processors.load(
        ("repetition_penalty", {"penalty": 1.4}), ("suppress_tokens", {"tokens": [EOS]}), tokenizer=VOCABULARY
    )
    ours = Generator(model, chain, max_tokens=16)(PROMPTS)
    processor = to_transformers(chain, model.model)
    for row, found in zip(PROMPTS, ours, strict=True):
        theirs = model.model.generate(tensor([row]), logits_processor=processor, do_sample=False, max_new_tokens=16)
        assert tuple(theirs[0, len(row) :].tolist()) == found.tokens


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"num_beams": 3, "num_return_sequences": 3, "do_sample": False},
        {"prompt_lookup_num_tokens": 3, "do_sample": False},
    ],
    ids=["greedy", "beams", "prompt lookup"],
)
@pytest.mark.parametrize("negative", [None, [7, 8, 9]])
@pytest.mark.long
def test_guidance_inside_generate_equals_the_uncached_oracle(
    model: TransformersModel, options: dict[str, Any], negative: list[int] | None
) -> None:
    cfg = {"scale": 1.8} if negative is None else {"scale": 1.8, "negative_prompt": tuple(negative)}
    processor = to_transformers(processors.load(("cfg", cfg), tokenizer=VOCABULARY), model.model)

    class Oracle(transformers.LogitsProcessor):  # type: ignore[misc,name-defined]
        def __init__(self, prompt: list[int]) -> None:
            self.prompt = prompt

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            start = [self.prompt[-1]] if negative is None else negative
            rows = [start + row[len(self.prompt) :] for row in input_ids.tolist()]
            other = torch.stack([tensor(uncached(model, row)[-1]) for row in rows]).log_softmax(-1)
            return other + 1.8 * (scores.log_softmax(-1) - other)

    for row in PROMPTS[:2]:
        given = tensor([row])
        more = {"max_new_tokens": 10, "pad_token_id": 1, **options}
        ours = model.model.generate(given, logits_processor=processor, **more)
        listed = transformers.LogitsProcessorList([Oracle(row)])
        theirs = model.model.generate(given, logits_processor=listed, **{**more, "prompt_lookup_num_tokens": None})
        assert ours.tolist() == theirs.tolist()


class Encoding:
    """The tokenizer of the tiny models."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        return list(encode(text))


def test_a_negative_prompt_may_be_a_text(model: TransformersModel) -> None:
    found = []
    for negative in ("a dog", tuple(encode("a dog"))):
        chain = processors.load(("cfg", {"scale": 1.8, "negative_prompt": negative}))
        processor = to_transformers(chain, model.model, Encoding())
        given = tensor([PROMPTS[0]])
        out = model.model.generate(given, logits_processor=processor, max_new_tokens=8, pad_token_id=1, do_sample=False)
        found.append(out.tolist())
    assert found[0] == found[1]


def guided_oracle(
    model: TransformersModel, prompts: list[list[int]], starts: list[list[int]], tokens: int, scale: float
) -> list[list[int]]:
    """Greedy guidance of each prompt alone, both branches from their first tokens at every step."""
    found = []
    for prompt, start in zip(prompts, starts, strict=True):
        taken: list[int] = []
        for _ in range(tokens):
            one, two = (tensor(uncached(model, row + taken)[-1]).log_softmax(-1) for row in (prompt, start))
            guided = two + scale * (one - two)
            guided[EOS] = float("-inf")
            taken.append(int(guided.argmax()))
        found.append(taken)
    return found


@pytest.mark.parametrize("negative", [None, [7, 8, 9]])
@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
@pytest.mark.long
def test_guidance_in_our_own_loop_equals_the_uncached_oracle(
    model: TransformersModel, form: str, negative: list[int] | None
) -> None:
    cfg = {"scale": 1.8, "form": form} | ({} if negative is None else {"negative_prompt": tuple(negative)})
    chain = processors.load(("cfg", cfg), ("suppress_tokens", {"tokens": [EOS]}), tokenizer=VOCABULARY)
    starts = [negative or [row[-1]] for row in PROMPTS]
    expected = guided_oracle(model, PROMPTS, starts, 10, 1.8)
    assert [list(each.tokens) for each in Generator(model, chain, max_tokens=10)(PROMPTS)] == expected
    drafting = Generator(model, chain, max_tokens=10, candidates=candidates.load("prompt_lookup"))
    if form == "two_pass":
        assert [list(each.tokens) for each in drafting(PROMPTS)] == expected
        inside = Generator(model, chain, BeamSearch(beams=4, samples=4), max_tokens=6)
        alone = [best.tokens for row in PROMPTS for best in inside([row])]
        assert [best.tokens for best in inside(PROMPTS)] == alone


# -- what tokens were chosen from ------------------------------------------------------------------------

RECORDED = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_generate_and_our_own_loop_record_the_same(model: TransformersModel) -> None:
    chain = processors.load(
        ("regex", {"pattern": "[a-z]{2,4}(cat|12)"}), ("temperature", {"temperature": 1.5}), ("top_k", {"k": 5}),
        tokenizer=VOCABULARY,
    )  # fmt: skip
    processor = to_transformers(chain, model.model)
    width = max(map(len, PROMPTS))
    ids = tensor([[1] * (width - len(row)) + row for row in PROMPTS])
    given = {"input_ids": ids, "attention_mask": (ids != 1).long(), "pad_token_id": 1}
    found = processor.sampled(processor.generate(**given, max_new_tokens=12, do_sample=False, **RECORDED))
    ours = Generator(model, chain, max_tokens=12, record=True, skip_forced=False)(PROMPTS)
    assert len({len(row) for row in found}) > 1
    for got, row in zip(found, ours, strict=True):
        assert [(each.token, each.kept) for each in got] == [(each.token, each.kept) for each in row.sampled]
        for name in ("logprob", "logprob_before", "entropy"):
            close([getattr(each, name) for each in got], [getattr(each, name) for each in row.sampled])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_generate_samples_is_recorded(model: TransformersModel) -> None:
    processor = to_transformers(processors.load(("top_k", {"k": 5})), model.model)
    torch.manual_seed(1)
    out = processor.generate(
        tensor([PROMPTS[0]]), max_new_tokens=8, min_new_tokens=8, do_sample=True, temperature=0.8, top_k=0,
        num_return_sequences=3, pad_token_id=1, **RECORDED,
    )  # fmt: skip
    theirs = model.model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    found = processor.sampled(out)
    close([[each.logprob for each in row] for row in found], theirs.cpu().numpy())
    for got, row in zip(found, out.sequences.tolist(), strict=True):
        before = tensor(uncached(model, row)).log_softmax(-1)[len(PROMPTS[0]) - 1 :]
        assert [each.token for each in got] == row[len(PROMPTS[0]) :]
        close([each.logprob_before for each in got], [float(before[i, each.token]) for i, each in enumerate(got)])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_is_not_known_of_the_tokens_is_not_told(model: TransformersModel) -> None:
    processor = to_transformers(processors.load(("top_k", {"k": 5})), model.model)
    ids, more = tensor([PROMPTS[0]]), {"max_new_tokens": 2, "pad_token_id": 1}
    for options in ({}, {**RECORDED, "output_logits": False}, {**RECORDED, "num_beams": 2}):
        with pytest.raises(NeedsNotMet, match=r"output_scores=True and output_logits=True, and without beams"):
            processor.sampled(processor.generate(ids, **more, **options))


def test_a_model_may_name_its_cache_as_earlier_releases_did(model: TransformersModel) -> None:
    """Up to transformers 5.23, and in code that models bring, the argument and the output are ``past_key_values``."""
    native = model.model

    class Earlier:
        config, device, get_output_embeddings = native.config, native.device, native.get_output_embeddings

        def forward(self, past_key_values: Any = None, logits_to_keep: Any = 0, **given: Any) -> SimpleNamespace:
            out = native(**{model._cache: past_key_values}, logits_to_keep=logits_to_keep, **given)
            return SimpleNamespace(logits=out.logits, past_key_values=getattr(out, model._cache))

        __call__ = forward

    first, cache = model.forward(padded(PROMPTS), model.empty_cache(3))
    second, _ = model.forward(padded([[5], [8], [9]]), cache)
    earlier = TransformersModel(Earlier())
    found, cache = earlier.forward(padded(PROMPTS), earlier.empty_cache(3))
    assert torch.equal(found, first)
    assert torch.equal(earlier.forward(padded([[5], [8], [9]]), cache)[0], second)
