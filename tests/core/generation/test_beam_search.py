from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, processors
from logitloom.automata import Catalogue
from logitloom.errors import GenerationError, NoLegalToken
from logitloom.generation import BeamSearch, Generator
from tests.core.generation.test_loop import EOS, PROMPTS, VOCABULARY, Cycle, EndAfter
from tests.oracles.toy_model import ToyModel


def log_probabilities(model: ToyModel, row: list[int]) -> np.ndarray:
    logits = model.row_logits(row).astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def test_enough_beams_find_the_best_sequence_there_is() -> None:
    """With as many beams as prefixes the search is exhaustive: compare with all sequences of three tokens."""
    model = ToyModel(load_backend("numpy"), vocab=5)
    best = max(
        (
            sum(log_probabilities(model, [1, *s[:i]])[s[i]] for i in range(3))
            for s in itertools.product(range(5), repeat=3)
        ),
    )
    (found,) = Generator(model, strategy=BeamSearch(beams=25), max_tokens=3, eos=())([[1]])
    assert found.logprob == pytest.approx(best, abs=1e-4)


def test_scores_are_the_log_probabilities_of_the_tokens() -> None:
    model = ToyModel(load_backend("numpy"))
    for found in Generator(model, strategy=BeamSearch(beams=4, samples=4), max_tokens=8, vocabulary=VOCABULARY)(
        PROMPTS
    ):
        tokens = [*found.tokens, EOS] if found.finish == "eos" else list(found.tokens)
        row, total = list(PROMPTS[found.prompt]), 0.0
        for token in tokens:
            total += log_probabilities(model, row)[token]
            row.append(token)
        assert found.logprob == pytest.approx(total, abs=1e-4)
        assert found.score == pytest.approx(total / len(tokens), abs=1e-4)


def test_prompts_in_a_batch_are_searched_as_if_alone() -> None:
    model = ToyModel(load_backend("numpy"))
    generator = Generator(model, strategy=BeamSearch(beams=3, samples=2), max_tokens=10, vocabulary=VOCABULARY)
    together = generator(PROMPTS)
    separately = [g for prompt in PROMPTS for g in generator([prompt])]
    assert [g.tokens for g in together] == [g.tokens for g in separately]


def test_beams_keep_their_own_state() -> None:
    model = ToyModel(load_backend("numpy"))
    generator = Generator(
        model,
        processors.load(Cycle(forced=2)),
        BeamSearch(beams=4, samples=4),
        max_tokens=12,
        vocabulary=VOCABULARY,
    )
    for found in generator(PROMPTS):
        assert all(token == 2 for token in found.tokens[2::3])


def test_a_processor_ends_hypotheses() -> None:
    model = ToyModel(load_backend("numpy"))
    found = Generator(
        model,
        processors.load(EndAfter(tokens=3)),
        BeamSearch(beams=3, samples=3),
        max_tokens=12,
        vocabulary=VOCABULARY,
    )(PROMPTS)
    assert {g.finish for g in found} <= {"stop", "eos"}
    assert all(len(g.tokens) <= 3 for g in found)
    assert any(g.finish == "stop" and g.text == VOCABULARY.decode(g.tokens)[:2] for g in found)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(GenerationError, match="1 to 2 sequences"):
        BeamSearch(beams=2, samples=3)
    with pytest.raises(GenerationError, match="beams must be at least 1"):
        BeamSearch(beams=0)
    with pytest.raises(GenerationError, match="'beams' must be a whole number, .*but is True"):
        BeamSearch(beams=True)
    for wrong in ("always", "True", None, 1):
        with pytest.raises(GenerationError, match="'early_stopping' must be True, False or 'never', but is "):
            BeamSearch(early_stopping=wrong)  # type: ignore[arg-type]
    model = ToyModel(load_backend("numpy"))
    with pytest.raises(GenerationError, match="cannot stream"):
        next(Generator(model, strategy=BeamSearch(), vocabulary=VOCABULARY).stream([[1]]))


@pytest.fixture(scope="module")
def tiny_llama() -> Any:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, eos_token_id=7, bos_token_id=1, pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


class Uncached(ToyModel):
    """A transformers model behind the toy's cache: every row computed anew from its tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__(load_backend("numpy"), vocab=model.config.vocab_size)
        self.model = model

    def row_logits(self, row: Any) -> np.ndarray:
        import torch

        with torch.inference_mode():
            return self.model(torch.tensor([list(row)])).logits[0, -1].float().numpy()


@pytest.mark.long
@pytest.mark.extras
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -1.0])
def test_agrees_with_transformers(tiny_llama: Any, early_stopping: Any, length_penalty: float) -> None:
    import torch

    for prompt in ([1, 5, 9], [1, 3], [1, 20, 21, 22]):
        expected = tiny_llama.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), num_beams=4,
            num_return_sequences=3, max_new_tokens=10, do_sample=False, early_stopping=early_stopping,
            length_penalty=length_penalty,
        )  # fmt: skip
        strategy = BeamSearch(beams=4, samples=3, early_stopping=early_stopping, length_penalty=length_penalty)
        found = Generator(Uncached(tiny_llama), strategy=strategy, max_tokens=10, eos=(7,))([prompt])
        ours = [[*g.tokens, 7] if g.finish == "eos" else list(g.tokens) for g in found]
        assert ours == [up_to_end(row[len(prompt) :].tolist()) for row in expected]


def up_to_end(row: list[int]) -> list[int]:
    return row[: row.index(7) + 1] if 7 in row else row


@pytest.mark.parametrize("step", [0, 2])
def test_a_search_without_legal_token_names_prompt_text_position_and_processor(step: int) -> None:
    """The second prompt may write one text only, and then neither end nor go on."""

    class Closing:
        stage = "constraint"

        def init_state(self, context: Any) -> Any:
            return np.repeat([0, 1], context.batch // 2).astype(np.int32), np.zeros(context.batch, np.int32)

        def process(self, logits: Any, state: Any, context: Any) -> Any:
            which, count = state
            if context.tokens is not None:
                count = count + (context.tokens >= 0).sum(axis=1).astype(np.int32)
            closed = (which == 1) & (count == step)
            return np.where(closed[:, None], -np.inf, logits).astype(logits.dtype), (which, count)

    model = ToyModel(load_backend("numpy"))
    chain = processors.load("temperature", Closing())
    generator = Generator(model, chain, strategy=BeamSearch(beams=3), max_tokens=6, vocabulary=VOCABULARY, eos=())
    prompts = [[1, 2, 3], [4, 5]]
    with pytest.raises(NoLegalToken) as error:
        generator(prompts)
    message = str(error.value)
    assert "Processor 'Closing' left every hypothesis of prompt 1 (the best is beam 0)" in message
    assert f"at position {2 + step}" in message
    assert "Chain: temperature, Closing" in message
    if step:
        (best, *_) = Generator(
            model, processors.load("temperature"), strategy=BeamSearch(beams=3), max_tokens=step, vocabulary=VOCABULARY,
            eos=(),
        )([prompts[1]])  # fmt: skip
        assert f"after {VOCABULARY.decode(list(best.tokens))!r}" in message
    else:
        assert "after" not in message


def catalogue_of(count: int, width: int) -> set[tuple[int, ...]]:
    """Lists of two to four ids below a width."""
    dice = np.random.default_rng(count)
    found: set[tuple[int, ...]] = set()
    while len(found) < count:
        found.add(tuple(dice.integers(0, width, size=dice.integers(2, 5)).tolist()))
    return found


def searched(items: set[tuple[int, ...]], width: int) -> list[Any]:
    words = Vocabulary([b"x"] * width + [b""], eos=[width])
    chain = processors.load(("choice", {"choices": Catalogue.of_ids(sorted(items))}), tokenizer=words)
    model = ToyModel(load_backend("numpy"), vocab=width + 1, seed=1)
    return Generator(model, chain, BeamSearch(beams=256, samples=256, early_stopping="never"), max_tokens=5)([[1, 2]])


def test_as_many_beams_as_items_find_every_item() -> None:
    """So the search is exhaustive: every item once, with the log-probability of its ids and the end."""
    items = catalogue_of(200, 16)
    found = searched(items, 16)
    assert sorted(g.tokens for g in found) == sorted(items)
    model = ToyModel(load_backend("numpy"), vocab=17, seed=1)
    for g in found:
        row = [1, 2, *g.tokens, 16]
        assert g.logprob == pytest.approx(sum(log_probabilities(model, row[:n])[row[n]] for n in range(2, len(row))))
    assert [g.score for g in found] == sorted((g.score for g in found), reverse=True)


def test_256_beams_over_thousands_of_items_write_items_only() -> None:
    items = catalogue_of(5000, 40)
    found = [g.tokens for g in searched(items, 40)]
    assert len(found) == len(set(found)) == 256
    assert set(found) <= items
