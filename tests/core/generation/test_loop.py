from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from logitloom import MASK, Context, Processor, Vocabulary, load_backend, option, processors
from logitloom.errors import GenerationError, InvalidLogits, NoLegalToken, VocabularyError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, Progress
from logitloom.host.hookspecs import TextEnd
from tests.oracles.toy_model import ToyModel

EOS = 16
VOCABULARY = Vocabulary([bytes([97 + i]) for i in range(EOS)] + [b""], eos=[EOS])
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]


class CycleState(NamedTuple):
    place: Any  # [rows] int32


@dataclass(frozen=True)
class Cycle(Processor):
    """A constraint written for these tests: every ``period`` tokens, the token ``forced`` must come."""

    stage = "constraint"
    effect = MASK

    forced: int = option(help="The token.")
    period: int = option(3, help="How often.", ge=2)

    def init_state(self, context: Context) -> CycleState:
        return CycleState(context.backend.asarray(np.zeros(context.batch, dtype=np.int32)))

    def _place(self, state: CycleState, context: Context) -> Any:
        if context.tokens is None:
            return state.place
        return state.place + context.backend.xp.sum(
            context.backend.cast(context.tokens >= 0, "int32"), axis=1, dtype=context.backend.xp.int32
        )

    def process(self, logits: Any, state: CycleState, context: Context) -> tuple[Any, CycleState]:
        place = self._place(state, context)
        here = (place % self.period == self.period - 1)[:, None]
        other = (context.backend.arange(logits.shape[-1]) != self.forced)[None, :]
        return context.backend.masked_fill(logits, here & other, float("-inf")), CycleState(place)

    def forced_tokens(self, state: CycleState, context: Context) -> list[list[int]]:
        place = context.backend.to_numpy(self._place(state, context))
        return [[self.forced] if p % self.period == self.period - 1 else [] for p in place]


@dataclass(frozen=True)
class EndAfter(Processor):
    """Ends a text after some tokens, of which the last is not part of it."""

    stage = "constraint"

    tokens: int = option(help="How many.")

    def init_state(self, context: Context) -> Any:
        return (context.backend.asarray(np.zeros(context.batch, dtype=np.int32)),)

    def process(self, logits: Any, state: Any, context: Context) -> Any:
        if context.tokens is None:
            return logits, state
        return logits, (state[0] + context.backend.cast((context.tokens >= 0).sum(axis=1), "int32"),)

    def text_end(self, state: Any, context: Context) -> list[TextEnd]:
        new = 0 if context.tokens is None else (context.backend.to_numpy(context.tokens) >= 0).sum(axis=1)
        count = context.backend.to_numpy(state[0]) + new
        return [TextEnd(bool(c >= self.tokens), 1 if c >= self.tokens else 0) for c in count]


@pytest.fixture
def model() -> ToyModel:
    return ToyModel(load_backend("numpy"))


def alone(model: ToyModel, prompt: list[int], steps: int) -> list[int]:
    """Greedy decoding without cache, chain or batch."""
    row = list(prompt)
    for _ in range(steps):
        token = int(np.argmax(model.row_logits(row)))
        if token == EOS:
            break
        row.append(token)
    return row[len(prompt) :]


def test_greedy_in_a_ragged_batch_equals_each_prompt_alone(model: ToyModel) -> None:
    found = Generator(model, max_tokens=12, vocabulary=VOCABULARY)(PROMPTS)
    assert [list(g.tokens) for g in found] == [alone(model, prompt, 12) for prompt in PROMPTS]


def test_log_probabilities_are_those_of_the_chosen_tokens(model: ToyModel) -> None:
    (found,) = Generator(model, max_tokens=6)([PROMPTS[0]])
    row, total = list(PROMPTS[0]), 0.0
    for token in found.tokens:
        logits = model.row_logits(row).astype(np.float64)
        total += logits[token] - np.log(np.exp(logits).sum())
        row.append(token)
    assert found.logprob == pytest.approx(total, abs=1e-4)


def test_sampled_rows_do_not_depend_on_the_batch(model: ToyModel) -> None:
    """With one integer seed the rows differ; row 0 of any batch draws the same."""
    generator = Generator(model, strategy=Multinomial(samples=2), max_tokens=15, vocabulary=VOCABULARY)
    together = generator(PROMPTS, seed=5)
    assert [g.tokens for g in generator(PROMPTS[:1], seed=5)] == [g.tokens for g in together[:2]]
    assert together[0].tokens != together[1].tokens
    assert [g.tokens for g in generator(PROMPTS, seed=5)] == [g.tokens for g in together]
    assert [g.tokens for g in generator(PROMPTS, seed=6)] != [g.tokens for g in together]


def test_samples_follow_the_distribution(model: ToyModel) -> None:
    """Chi-square of 4,000 first tokens against the softmax; the 0.999 quantile for 16 degrees is 39.3."""
    found = Generator(model, strategy=Multinomial(samples=4000), max_tokens=1)([PROMPTS[0]], seed=1)
    counts = np.bincount([g.tokens[0] for g in found], minlength=17)
    logits = model.row_logits(PROMPTS[0])
    expected = np.exp(logits) / np.exp(logits).sum() * 4000
    assert ((counts - expected) ** 2 / expected).sum() < 39.3


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(samples=3)])
def test_skipping_forced_tokens_changes_nothing_but_the_number_of_forward_passes(
    model: ToyModel, strategy: Any
) -> None:
    chain = processors.load(Cycle(forced=2))
    skip = Generator(model, chain, strategy, max_tokens=13, vocabulary=VOCABULARY)
    results = skip(PROMPTS, seed=3)
    calls, model.calls = model.calls, 0
    plain = Generator(model, chain, strategy, max_tokens=13, vocabulary=VOCABULARY, skip_forced=False)(PROMPTS, seed=3)
    assert [g.tokens for g in results] == [g.tokens for g in plain]
    assert [g.logprob for g in results] == pytest.approx([g.logprob for g in plain], abs=1e-4)
    assert sum(g.forced for g in results) > 0
    assert sum(g.forced for g in plain) == 0
    assert calls < model.calls


def test_a_processor_that_objects_stops_forcing(model: ToyModel) -> None:
    chain = processors.load(Cycle(forced=2), lambda logits: np.where(np.arange(17) == 2, -np.inf, logits))
    with pytest.raises(
        NoLegalToken, match=r"'<lambda>' contradict each other: .* row 0 without any legal token at position 5"
    ):
        Generator(model, chain, max_tokens=13, vocabulary=VOCABULARY)(PROMPTS)


@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2)])
def test_a_truncation_that_leaves_no_token_of_a_constraint_is_named(model: ToyModel, strategy: Any) -> None:
    words = Vocabulary([b"", *(bytes([97 + i]) for i in range(16))], eos=[0])
    likeliest = int(Generator(model, max_tokens=1, vocabulary=words)([[1, 2]])[0].tokens[0])
    rare = {"pattern": f"[^{words.decode([likeliest])}]"}
    chain = processors.load(("top_k", {"k": 1}), ("temperature", {}), ("regex", rare), tokenizer=words)
    with pytest.raises(
        NoLegalToken, match=r"'top_k' kept no token that 'regex' allows, .* position 2.*Put 'top_k' behind 'regex'\."
    ):
        Generator(model, chain, strategy, max_tokens=3, vocabulary=words)([[1, 2]])


@pytest.mark.parametrize("strategy", [Greedy(), BeamSearch(2)])
@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
def test_guidance_that_leaves_no_token_of_a_constraint_is_named(model: ToyModel, strategy: Any, form: str) -> None:
    words = Vocabulary([b"", *(bytes([97 + i]) for i in range(16))], eos=[0])
    guidance = ("cfg", {"scale": 1.5, "top_k": 1, "form": form})
    free = Generator(model, processors.load(guidance), max_tokens=1, vocabulary=words)([[1, 2], [2, 3]])
    rare = {"pattern": f"[^{''.join(words.decode(one.tokens) for one in free)}]"}
    chain = processors.load(guidance, ("regex", rare), tokenizer=words)
    with pytest.raises(
        NoLegalToken, match=r"'cfg' kept no token that 'regex' allows.*Set the options of 'cfg' to keep more\."
    ):
        Generator(model, chain, strategy, max_tokens=3, vocabulary=words)([[1, 2], [2, 3]])


@pytest.mark.parametrize("form", ["two_pass", "one_pass"])
def test_constraints_that_contradict_each_other_are_named_beside_guidance(model: ToyModel, form: str) -> None:
    chain = processors.load(("cfg", {"form": form}), Cycle(forced=2), ("suppress_tokens", {"tokens": [2]}))
    with pytest.raises(NoLegalToken, match=r"'Cycle' and 'suppress_tokens' contradict each other: .* at position 5"):
        Generator(model, chain, max_tokens=13, vocabulary=VOCABULARY)(PROMPTS)


def test_a_row_without_legal_token_is_an_error_that_names_row_position_and_processor(model: ToyModel) -> None:
    chain = processors.load("temperature", Cycle(forced=99))
    with pytest.raises(NoLegalToken, match=r"'Cycle' left row 0 .* at position 5 after 'a'|'Cycle' left row 0"):
        Generator(model, chain, max_tokens=13, vocabulary=VOCABULARY, skip_forced=False)(PROMPTS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(), BeamSearch(beams=2)])
def test_logits_that_are_no_distribution_are_refused(strategy: Any, whole: bool, value: float) -> None:
    rows = 6 if isinstance(strategy, BeamSearch) else 3

    class Spoilt(ToyModel):
        def forward(self, *args: Any, **more: Any) -> Any:
            logits, *rest = super().forward(*args, **more)
            if self.calls == 3:
                logits[rows // 3, slice(None) if whole else 5] = value
            return (logits, *rest)

    generator = Generator(
        Spoilt(load_backend("numpy")), processors.load(), strategy, max_tokens=13, vocabulary=VOCABULARY, eos=()
    )
    where = "prompt 1, beam 0" if rows == 6 else "row 1"
    said = rf"logits of {where} are no distribution at step 2 \(position 3\) after '..': \d+ of 17"
    with pytest.raises(InvalidLogits, match=said), np.errstate(invalid="ignore"):
        generator(PROMPTS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(), BeamSearch(beams=2)])
def test_a_processor_that_returns_no_distribution_is_named(model: ToyModel, strategy: Any, value: float) -> None:
    class Spoiling:
        needs = frozenset({"length"})

        def process(self, logits: Any, state: Any, context: Context) -> Any:
            wrong = (np.arange(17) == 5) & (np.asarray(context.step) == 2)[:, None]
            return np.where(wrong, np.float32(value), logits), state

    chain = processors.load("temperature", Spoiling(), debug=False)
    generator = Generator(model, chain, strategy, max_tokens=13, vocabulary=VOCABULARY, eos=())
    said = r"no distribution at step 2 .* Processor 'Spoiling' returned them"
    with pytest.raises(InvalidLogits, match=said), np.errstate(invalid="ignore"):
        generator(PROMPTS)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strategy", [Greedy(), Multinomial()])
def test_a_row_without_legal_token_causes_no_warning_of_numpy(model: ToyModel, strategy: Any) -> None:
    chain = processors.load("temperature", Cycle(forced=99))
    with pytest.raises(NoLegalToken, match="'Cycle' left row 0"):
        Generator(model, chain, strategy, max_tokens=13, vocabulary=VOCABULARY, skip_forced=False)(PROMPTS)


def test_not_a_number_that_a_constraint_forbids_is_nobodys_business(model: ToyModel) -> None:
    chain = processors.load(lambda logits: np.where(np.arange(17) == 2, -np.inf, logits))
    expected = Generator(model, chain, max_tokens=5, vocabulary=VOCABULARY, eos=())(PROMPTS)

    class Spoilt(ToyModel):
        def forward(self, *args: Any, **more: Any) -> Any:
            logits, *rest = super().forward(*args, **more)
            logits[..., 2] = np.nan
            return (logits, *rest)

    found = Generator(Spoilt(load_backend("numpy")), chain, max_tokens=5, vocabulary=VOCABULARY, eos=())(PROMPTS)
    assert [g.tokens for g in found] == [g.tokens for g in expected]


def test_a_processor_ends_texts_and_says_what_to_cut(model: ToyModel) -> None:
    generator = Generator(model, processors.load(EndAfter(tokens=3)), max_tokens=13, vocabulary=VOCABULARY)
    found = generator(PROMPTS[:1])[0]
    assert found.finish == "stop"
    assert len(found.tokens) == 3
    assert found.text == VOCABULARY.decode(found.tokens)[:2]


def test_the_last_token_may_be_the_one_that_reaches_the_limit(model: ToyModel) -> None:
    for limit in (1, 2, 5):
        assert all(len(g.tokens) <= limit for g in Generator(model, max_tokens=limit)(PROMPTS))
        assert Generator(model, max_tokens=limit, eos=())([PROMPTS[1]])[0].finish == "length"


def test_streams_join_to_what_a_call_returns(model: ToyModel) -> None:
    generator = Generator(model, strategy=Multinomial(samples=2), max_tokens=12, vocabulary=VOCABULARY)
    whole = {(g.prompt, g.sample): g.text for g in generator(PROMPTS, seed=2)}
    joined: dict[tuple[int, int], str] = dict.fromkeys(whole, "")
    for piece in generator.stream(PROMPTS, seed=2):
        joined[piece.prompt, piece.sample] += piece.text
    assert joined == whole


def test_progress_is_told_after_every_step(model: ToyModel) -> None:
    told: list[Progress] = []
    found = Generator(model, max_tokens=7, vocabulary=VOCABULARY)(PROMPTS, on_progress=told.append)
    assert told[-1].tokens == sum(len(g.tokens) for g in found)
    assert told[-1].finished == told[-1].sequences == 3


def test_bad_requests_are_refused_before_the_first_step(model: ToyModel) -> None:
    with pytest.raises(GenerationError, match="prompt of row 1 has no tokens"):
        Generator(model)([[1], []])
    with pytest.raises(GenerationError, match="must be a whole number of at least 1"):
        Generator(model, max_tokens=0)([[1]])
    with pytest.raises(GenerationError, match="the model takes 256 at most"):
        Generator(model)([[1] * 300])
    with pytest.raises(GenerationError, match="need Generator\\(tokenizer"):
        Generator(model)("text")


@pytest.mark.parametrize("name", ["skip_forced", "record", "heal"])
def test_a_text_is_no_truth_value(model: ToyModel, name: str) -> None:
    with pytest.raises(GenerationError, match=f"The argument '{name}' must be True or False, but is 'no'"):
        Generator(model, processors.load(), **{name: "no"})
    assert not getattr(Generator(model, processors.load(), **{name: np.False_}), name)


def test_nothing_in_gives_nothing_out(model: ToyModel) -> None:
    assert Generator(model)([]) == []


CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("prompts", [CHAT, [CHAT, CHAT], CHAT[0]])
def test_chat_messages_as_a_prompt_are_refused_with_the_chat_template_as_the_remedy(
    model: ToyModel, prompts: Any
) -> None:
    with pytest.raises(GenerationError, match="what a tokenizer returns give the 'input_ids'"):
        Generator(model)({"input_ids": [[1]], "attention_mask": [[1]]})
    with pytest.raises(GenerationError, match=r"'role'.*tokenizer\.apply_chat_template\(messages, "):
        Generator(model)(prompts)


def test_an_id_that_the_model_does_not_have_is_named(model: ToyModel) -> None:
    with pytest.raises(GenerationError, match="prompt of row 1 has the id 99, but the model has 17 tokens. Encode the"):
        Generator(model)([[1], [2, 99]])


@pytest.mark.parametrize("returned", [None, np.zeros(3, np.int64), (np.zeros(1, np.int64), np.zeros(3)), (0, 0.0)])
def test_a_sampler_that_chooses_no_token_for_each_row_is_told_what_to_return(model: ToyModel, returned: Any) -> None:
    class Own:
        samples = 1

        def choose(self, backend: Any, logits: Any, seeds: Any, lengths: Any) -> Any:
            return returned

    with pytest.raises(GenerationError, match=r"Own\.choose must return ids and log-probabilities, an array of 3 each"):
        Generator(model, strategy=Own(), max_tokens=3)([[1], [2], [3]])


class Named:
    """A tokenizer of the given vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        return [self.vocabulary.token_bytes.index(letter.encode()) for letter in text]


def test_a_chain_of_another_tokenizer_is_refused() -> None:
    model = ToyModel(load_backend("numpy"), EOS + 1)
    shifted = Named(Vocabulary([b"", *VOCABULARY.token_bytes[:EOS]], eos=[0]))
    chain = processors.load(("regex", {"pattern": "[a-c]{3}"}), tokenizer=VOCABULARY)
    for given in ({}, {"vocabulary": VOCABULARY}):
        with pytest.raises(VocabularyError, match=r"token 1 is b'b' in the vocabulary 'vocabulary'.* but b'a' in the"):
            Generator(model, chain, max_tokens=4, tokenizer=shifted, **given)("ab")


def test_tokenizers_may_differ_in_special_ids_and_in_size() -> None:
    model = ToyModel(load_backend("numpy"), EOS + 3)
    chain = processors.load(("regex", {"pattern": "[a-c]{3}"}), tokenizer=VOCABULARY)
    expected = Generator(model, chain, max_tokens=4)([[0, 1]])[0].text
    wider = Vocabulary([*VOCABULARY.token_bytes, b"<tool>", b""], eos=[EOS + 2], special=[EOS])
    for own in (VOCABULARY, VOCABULARY.with_eos([]), wider):
        assert Generator(model, chain, max_tokens=4, tokenizer=Named(own))("ab")[0].text == expected
