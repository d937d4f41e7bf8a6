"""The real SmolLM2 in transformers: every mode of ``generate``, all rows; guidance against an uncached oracle."""

from __future__ import annotations

import re
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.generation import BeamSearch, Generator
from tests.contrib.engines.conftest import tensor

torch = pytest.importorskip("torch", reason="transformers needs PyTorch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

from logitloom_contrib.engines.transformers import TransformersModel, to_transformers  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras, pytest.mark.weights]

PROMPTS = ("My phone number is ", "I like the ", "Write to me: ", "In 1999, ")
PATTERNS = (
    r"\d{3}-\d{4}",
    r"(red|green|blue|yellow) (cat|dog|bird) [0-9]{2}",
    r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)",
)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "num_return_sequences": 4, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 4, "num_return_sequences": 4},
}
PAD = 2


class Real:
    """The model with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
        self.model, self.tokenizer, self.vocabulary = model, tokenizer, vocabulary

    def generate(self, processor: Any, prompts: tuple[str, ...], tokens: int = 24, **options: Any) -> list[str]:
        rows = [self.tokenizer.encode(prompt) for prompt in prompts]
        width = max(map(len, rows))
        ids = tensor([[PAD] * (width - len(row)) + row for row in rows])
        mask = tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        torch.manual_seed(1)
        out = self.model.generate(
            input_ids=ids, attention_mask=mask, logits_processor=processor, max_new_tokens=tokens, **options
        )
        return [self.vocabulary.decode(row[width:]) for row in out.tolist()]


@pytest.fixture(scope="module")
def real(real_transformers: Any, real_tokenizer: Any, real_vocabulary: Vocabulary) -> Real:
    return Real(real_transformers, real_tokenizer, real_vocabulary)


#: Each pattern in each mode; by default each in one of them.
MATRIX = [
    pytest.param(pattern, mode, marks=() if PATTERNS.index(pattern) == n else pytest.mark.exhaustive)
    for pattern in PATTERNS
    for n, mode in enumerate(MODES)
]


@pytest.mark.parametrize(("pattern", "mode"), MATRIX)
@pytest.mark.long
def test_all_rows_match(real: Real, pattern: str, mode: str) -> None:
    chain = processors.load(("regex", {"pattern": pattern}), tokenizer=real.vocabulary)
    found = real.generate(to_transformers(chain, real.model), PROMPTS, **MODES[mode])
    assert len(found) == (4 if mode == "greedy" else 16)
    assert [text for text in found if not re.fullmatch(pattern, text)] == []


@pytest.mark.parametrize(
    "pattern", [*(pytest.param(p, marks=pytest.mark.exhaustive) for p in PATTERNS[:2]), PATTERNS[2]]
)
def test_drafts_change_nothing(real: Real, pattern: str) -> None:
    chain = processors.load(("regex", {"pattern": pattern}), tokenizer=real.vocabulary)
    processor = to_transformers(chain, real.model)
    prompt = PROMPTS[PATTERNS.index(pattern)]
    greedy = real.generate(processor, (prompt,), do_sample=False)
    assert re.fullmatch(pattern, greedy[0])
    assert real.generate(processor, (prompt,), do_sample=False, prompt_lookup_num_tokens=3) == greedy
    assert real.generate(processor, (prompt,), do_sample=False, assistant_model=real.model) == greedy
    ours = Generator(TransformersModel(real.model), chain, max_tokens=24)([real.tokenizer.encode(prompt)])
    assert [each.text for each in ours] == greedy


def test_a_stop_string_inside_an_accepted_draft_stops(real: Real) -> None:
    chain = processors.load(("stop", {"strings": ["4 5"]}), tokenizer=real.vocabulary)
    processor = to_transformers(chain, real.model)
    prompt = ("1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2",)
    greedy = real.generate(processor, prompt, do_sample=False)[0]
    assert greedy.endswith("4 5")
    for drafts in ({"prompt_lookup_num_tokens": 6}, {"assistant_model": real.model}):
        assert real.generate(processor, prompt, do_sample=False, **drafts) == [greedy]


def test_beams_end_at_a_stop_string_as_stop_strings_of_transformers_do(real: Real) -> None:
    """Text and score of the adapter, of our own loop, and of the option ``stop_strings``, whose strings stay."""
    strings = [" the", "\n"]
    chain = processors.load(("stop", {"strings": strings, "include": True}), tokenizer=real.vocabulary)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=real.tokenizer.tokenizer)
    ids = tensor([real.tokenizer.encode("The cat sat on")])
    options = {
        "attention_mask": torch.ones_like(ids), "num_beams": 4, "do_sample": False, "max_new_tokens": 12,
        "return_dict_in_generate": True, "output_scores": True, "pad_token_id": PAD,
    }  # fmt: skip
    expected = real.model.generate(ids, stop_strings=strings, tokenizer=theirs, **options)
    found = real.model.generate(ids, logits_processor=to_transformers(chain, real.model), **options)
    assert found.sequences.tolist() == expected.sequences.tolist()
    torch.testing.assert_close(found.sequences_scores, expected.sequences_scores)
    [ours] = Generator(TransformersModel(real.model), chain, BeamSearch(4), max_tokens=12)(ids.tolist())
    assert [*ours.tokens] == expected.sequences[0, ids.shape[1] :].tolist()
    assert ours.text is not None
    assert ours.text.endswith(tuple(strings))


class UncachedGuidance(transformers.LogitsProcessor):  # type: ignore[misc,name-defined]
    """The oracle: the unconditional branch of every row from its first token, at every step."""

    def __init__(self, model: Any, width: int, start: list[int], scale: float) -> None:
        self.model, self.width, self.start, self.scale = model, width, start, scale

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        rows = [self.start + row[self.width :] for row in input_ids.tolist()]
        with torch.no_grad():
            other = self.model(input_ids=tensor(rows)).logits[:, -1].log_softmax(-1)
        return other + self.scale * (scores.log_softmax(-1) - other)


def guided(negative: str | None, options: dict[str, Any], name: str, by_default: bool = True) -> Any:
    return pytest.param(negative, options, id=name, marks=() if by_default else pytest.mark.exhaustive)


@pytest.mark.parametrize(("negative", "options"), [
    guided(None, {"do_sample": False}, "greedy", False),
    guided(None, MODES["beams"], "beams"),
    guided("It is winter and", MODES["beams"], "negative, beams", False),
    guided("It is winter and", MODES["sampling"], "negative, sequences", False),
    guided(None, {"do_sample": False, "prompt_lookup_num_tokens": 3}, "lookup", False),
    guided("It is winter and", {"do_sample": False, "prompt_lookup_num_tokens": 3}, "negative, lookup"),
])  # fmt: skip
@pytest.mark.long
def test_guidance_equals_the_uncached_oracle(real: Real, negative: str | None, options: dict[str, Any]) -> None:
    row = real.tokenizer.encode("In spring, in spring, in")
    start = [row[-1]] if negative is None else real.tokenizer.encode(negative)
    cfg = {"scale": 1.6} if negative is None else {"scale": 1.6, "negative_prompt": tuple(start)}
    processor = to_transformers(processors.load(("cfg", cfg), tokenizer=real.vocabulary), real.model)
    oracle = transformers.LogitsProcessorList([UncachedGuidance(real.model, len(row), start, 1.6)])
    plain = {name: value for name, value in options.items() if name != "prompt_lookup_num_tokens"}
    prompt = ("In spring, in spring, in",)
    assert real.generate(processor, prompt, tokens=5, **options) == real.generate(oracle, prompt, tokens=5, **plain)
