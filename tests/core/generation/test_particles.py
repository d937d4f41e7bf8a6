"""Particles against exact enumeration, plain sampling, and recomputation without caches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from logitloom import Chain, Context, Processor, Vocabulary, load_backend, processors
from logitloom.arrays.backend import Backend
from logitloom.errors import ChainIncomplete, GenerationError, InvalidLogits, NoLegalToken
from logitloom.generation import (
    BeamSearch,
    Generated,
    Generator,
    Multinomial,
    Particles,
    SoftBan,
    candidates,
    continuous,
    decode_weighted,
    posterior,
)
from logitloom.trace import TracedChain
from logitloom_contrib.llama import random_model
from tests.cases import each_once
from tests.oracles.toy_model import ToyModel

END = 4
WORDS = Vocabulary([b"a", b"b", b"c", b"d", b""], eos=[END])
LIMIT = 4
CHOICES = ("ab", "c", "cda", "dd")
CHOICE = ("choice", {"choices": list(CHOICES)})


class Table(ToyModel):
    """A model whose next token depends on the last one: a row of probabilities per token."""

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        super().__init__(load_backend("numpy"), vocab=len(rows))
        with np.errstate(divide="ignore"):
            self.rows = np.log(np.asarray(rows, dtype=np.float32))

    def row_logits(self, row: Sequence[int]) -> Any:
        return self.rows[row[-1]]


#: Begins with "a" nine times of ten, and hardly ever goes on with "b"; begins with "c" seldom, and goes on with "d".
HIDDEN = Table(
    [
        [0.3, 0.01, 0.3, 0.3, 0.09],
        [0.3, 0.3, 0.1, 0.1, 0.2],
        [0.05, 0.05, 0.05, 0.8, 0.05],
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.9, 0.02, 0.06, 0.01, 0.01],
    ]
)


def toy(backend: str = "numpy", seed: int = 1) -> ToyModel:
    return ToyModel(load_backend(backend), vocab=WORDS.size, seed=seed)


def chain_of(*specs: Any, vocabulary: Vocabulary = WORDS) -> Chain:
    return processors.load(*specs, tokenizer=vocabulary)


def exact(model: ToyModel, prompt: list[int], shaping: Chain, choices: Sequence[str] = CHOICES) -> dict[str, float]:
    """The oracle: text -> its probability under the model and the processors that are no constraints.

    All sequences of tokens within the limit are enumerated, and those whose text is a choice are kept. Each step is
    computed from the tokens alone.
    """
    found: dict[str, float] = {}
    for length in range(LIMIT):
        for line in itertools.product(range(END), repeat=length):
            text = WORDS.decode(list(line))
            if text in choices:
                found[text] = found.get(text, 0.0) + np.exp(logprob(model, prompt, shaping, [*line, END]))
    return found


def logprob(model: Any, prompt: list[int], chain: Chain, tokens: Sequence[int], limit: int = LIMIT) -> float:
    """The sum of the log-probabilities after a chain, each from a pass over the whole row without a cache."""
    total = 0.0
    for at, token in enumerate(tokens):
        row = np.asarray([[*prompt, *tokens[:at]]], dtype=np.int32)
        logits, _ = model.forward(row, model.empty_cache(1))
        context = Context.start(
            logits, prompt=[prompt], max_length=len(prompt) + limit, vocabulary=chain.vocabulary, max_new_tokens=limit
        )
        state = chain.replay([list(tokens[:at])], context)
        processed, _ = chain.process(logits, state, context)
        line = model.backend.to_numpy(processed)[0].astype(np.float64)
        total += float(line[token] - np.logaddexp.reduce(line))
    return total


def mean_weights(found: list[list[Any]]) -> dict[str, tuple[float, float]]:
    """Text -> the mean over prompts of the sum of its weights, and the standard error of the mean."""
    texts = {WORDS.decode(list(each.tokens)) for particles in found for each in particles}
    means = {}
    for text in texts:
        sums = [
            sum(np.exp(each.log_weight) for each in particles if WORDS.decode(list(each.tokens)) == text)
            for particles in found
        ]
        means[text] = float(np.mean(sums)), float(np.std(sums) / np.sqrt(len(sums)))
    return means


#: Processors, and those of them that shape the target.
SHAPES: dict[str, tuple[list[Any], list[Any]]] = {
    "plain": ([CHOICE], []),
    "warped": ([("temperature", {"temperature": 1.7}), CHOICE], [("temperature", {"temperature": 1.7})]),
    "penalised": (
        [CHOICE, ("presence_penalty", {"penalty": 0.8}), ("temperature", {"temperature": 1.5})],
        [("presence_penalty", {"penalty": 0.8}), ("temperature", {"temperature": 1.5})],
    ),
}


@pytest.mark.parametrize("model", [HIDDEN, toy()], ids=["hidden", "toy"])
@pytest.mark.parametrize(("shape", "below"), each_once(SHAPES, [0.0, 0.6, 1.0]))
def test_weights_are_unbiased_estimates_of_the_probabilities_of_texts(
    model: ToyModel, shape: str, below: float
) -> None:
    """Each prompt is an independent experiment with four particles."""
    specs, shaping = SHAPES[shape]
    wanted = exact(model, [END], chain_of(*shaping))
    found = decode_weighted(
        model, [[END]] * 500, chain_of(*specs), Particles(4, resample_below=below), max_tokens=LIMIT, seed=3
    )
    means = mean_weights(found)
    likely = {text: p for text, p in wanted.items() if p > 0.01 * sum(wanted.values())}
    assert likely.keys() <= means.keys() <= {text for text, p in wanted.items() if p > 0}
    for text, p in likely.items():
        mean, error = means[text]
        assert abs(mean - p) <= 4 * error, text
        assert error < 0.5 * p
    evidence = [sum(np.exp(each.log_weight) for each in particles) for particles in found]
    assert abs(np.mean(evidence) - sum(wanted.values())) <= 4 * np.std(evidence) / np.sqrt(len(evidence))


def test_a_truncation_behind_a_constraint_is_part_of_the_target() -> None:
    """It keeps the likely tokens of all, not of the legal ones, so some texts are impossible."""
    truncation = ("top_k", {"k": 3})
    wanted = exact(toy(), [1], chain_of(truncation))
    assert {text for text, p in wanted.items() if p > 0} < set(CHOICES)
    generator = Generator(toy(), chain_of(CHOICE, truncation), Particles(1000), max_tokens=LIMIT)
    (found,) = posterior(generator([1], seed=1))
    evidence = sum(wanted.values())
    assert found.log_evidence == pytest.approx(np.log(evidence), abs=0.15)
    possible = {text: p / evidence for text, p in wanted.items() if p > 0}
    assert found.probabilities == pytest.approx(possible, abs=0.05)


def test_the_posterior_is_that_of_enumeration_where_masks_alone_are_wrong() -> None:
    chain, choices = chain_of(("choice", {"choices": ["ab", "cd"]})), ("ab", "cd")
    wanted = exact(HIDDEN, [END], chain_of(), choices)
    evidence = sum(wanted.values())
    (found,) = posterior(Generator(HIDDEN, chain, Particles(400), max_tokens=LIMIT)([END]))
    masked = Counter(each.text for each in Generator(HIDDEN, chain, Multinomial(400), max_tokens=LIMIT)([END]))
    assert masked["ab"] / 400 > 0.9
    assert list(found.probabilities) == ["cd", "ab"]
    assert found.probabilities == pytest.approx({text: p / evidence for text, p in wanted.items()}, abs=0.05)
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    assert found.log_evidence == pytest.approx(np.log(evidence), abs=0.2)
    assert 1.0 <= found.effective_samples <= 400


@pytest.mark.parametrize("specs", [[CHOICE], [("temperature", {"temperature": 1.5}), ("top_p", {"p": 0.9})], []])
def test_one_particle_writes_what_plain_sampling_writes(specs: list[Any]) -> None:
    prompts = [[0, 1], [2], [3, 3, 1]]
    generator = Generator(toy(), chain_of(*specs), Multinomial(), max_tokens=6, vocabulary=WORDS)
    sampled = generator(prompts, seed=5)
    found = replace(generator, strategy=Particles(1, resample_below=1.0))(prompts, seed=5)
    assert [each.tokens for each in found] == [each.tokens for each in sampled]
    assert [each.finish for each in found] == [each.finish for each in sampled]
    assert [each.logprob for each in found] == pytest.approx([each.logprob for each in sampled], abs=1e-4)


def test_without_constraints_the_weights_stay_equal_and_nothing_is_drawn_anew() -> None:
    generator = Generator(toy(), chain_of(("temperature", {"temperature": 2.0})), Multinomial(5), max_tokens=6)
    found = replace(generator, strategy=Particles(5, resample_below=1.0))([[0, 1], [2]], seed=5)
    assert [each.tokens for each in found] == [each.tokens for each in generator([[0, 1], [2]], seed=5)]
    assert {each.log_weight for each in found} == {-np.log(5)}
    assert [each.log_evidence for each in posterior(found)] == pytest.approx([0.0, 0.0])


@pytest.fixture(scope="module")
def regex() -> Chain:
    return chain_of(("frequency_penalty", {"penalty": 0.7}), ("regex", {"pattern": "(a[bcd]|[bd]c+){2,4}"}))


@pytest.mark.parametrize("backend", ["numpy", "torch"], indirect=True)
@pytest.mark.parametrize("below", [0.0, 1.0])
def test_rows_that_moved_are_those_of_a_recomputation_without_caches(
    backend: Backend, regex: Chain, below: float
) -> None:
    model, prompt, count = random_model(backend, seed=3, vocab=WORDS.size, layers=1, tied=False), [1, 2, 0], 6
    found = Generator(model, regex, Particles(count, resample_below=below), max_tokens=7)([[2], prompt], seed=2)
    texts = [each for each in found if each.prompt == 1]
    assert (len({each.log_weight for each in texts}) == 1) == (below == 1.0)
    shaping = regex.part(regex.links[:1])
    for each in texts[:3]:
        line = [*each.tokens, END] if each.finish == "eos" else list(each.tokens)
        among_legal = logprob(model, prompt, regex, line, limit=7)
        assert each.logprob == pytest.approx(among_legal, abs=1e-3)
        if not below:
            alone = logprob(model, prompt, shaping, line, limit=7)
            assert each.log_weight == pytest.approx(alone - among_legal - np.log(count), abs=1e-3)


def test_both_forms_of_guidance_give_the_same_particles() -> None:
    """In one form the second branch is rows of the model, in the other its cache is state."""
    model = toy()
    found = []
    for form in ("one_pass", "two_pass"):
        guided = processors.load(
            ("cfg", {"scale": 1.5, "negative_prompt": [3], "form": form}), ("temperature", {"temperature": 3.0}),
            ("regex", {"pattern": "(a[bcd]|[bd]c+){2,4}"}), tokenizer=WORDS, model=model,
        )  # fmt: skip
        found.append(Generator(model, guided, Particles(6, resample_below=1.0), max_tokens=7)([[2], [1, 2, 0]], seed=2))
    assert [each.tokens for each in found[0]] == [each.tokens for each in found[1]]
    assert len({each.tokens for each in found[0]}) > 2
    weights = [[each.log_weight for each in each_form] for each_form in found]
    assert weights[0] == pytest.approx(weights[1], abs=1e-3)


def test_a_prompt_gets_the_same_particles_beside_any_others(regex: Chain) -> None:
    generator = Generator(toy(), regex, Particles(5, resample_below=0.9), max_tokens=9)

    def of(prompt: int, prompts: list[list[int]]) -> list[Generated]:
        return [each for each in generator(prompts, seed=7) if each.prompt == prompt]

    assert of(0, [[1, 2]]) == of(0, [[1, 2], [3], [0, 0, 1]])
    assert of(1, [[1], [0, 2, 3]]) == of(1, [[3, 3, 3, 1], [0, 2, 3], [2]])
    assert of(0, [[1, 2]]) != generator([[1, 2]], seed=8)


def test_stop_strings_end_particles_and_are_cut() -> None:
    chain = chain_of(("stop", {"strings": ["cd"]}), ("bad_words", {"phrases": ["aa", "b"]}))
    found = Generator(toy(), chain, Particles(12), max_tokens=8)([0], seed=1)
    assert {each.finish for each in found} >= {"stop"}
    for each in found:
        assert each.text is not None
        assert "cd" not in each.text
        assert "b" not in each.text
        assert (WORDS.decode(list(each.tokens)) == each.text + "cd") == (each.finish == "stop")


def test_the_posterior_of_a_healed_prompt_counts_the_text_that_is_written_again() -> None:
    """The target's texts begin with the text that healing takes away, in whatever tokens."""
    words = Vocabulary([b"a", b"b", b"c", b"ab", b"bc", b""], eos=[5])
    model = ToyModel(load_backend("numpy"), vocab=6, seed=20)
    chain = chain_of(("choice", {"choices": ["b", "c"]}), vocabulary=words)
    wanted = {"b": 0.0, "c": 0.0}
    for line in ([0, 1, 5], [3, 5], [0, 2, 5]):  # after the first token of the prompt
        wanted[words.decode(line)[1:]] += np.exp(logprob(model, [2], chain_of(vocabulary=words), line))
    found = Generator(model, chain, Particles(500), max_tokens=LIMIT, heal=True)([2, 0], seed=3)
    assert {each.healed for each in found} == {1}
    (told,) = posterior(found)
    evidence = sum(wanted.values())
    assert told.probabilities == pytest.approx({text: p / evidence for text, p in wanted.items()}, abs=0.07)
    assert told.log_evidence == pytest.approx(np.log(evidence), abs=0.2)


def test_particles_of_weight_0_are_left_out_and_all_of_them_are_an_error() -> None:
    generator = Generator(toy(), chain_of(CHOICE, ("top_k", {"k": 3})), Particles(64), max_tokens=LIMIT)
    found = replace(generator, strategy=Particles(64, resample_below=0.0))([1], seed=1)
    assert 0 < len(found) < 64
    assert {each.text for each in found} < set(CHOICES)
    closed = replace(generator, model=HIDDEN, chain=chain_of(CHOICE, ("top_k", {"k": 1})))
    with pytest.raises(
        NoLegalToken,
        match=r"All 64 particles of prompt 0 have the weight 0 at position 2, particle 0 after 'a': 'choice' allowed "
        r"none of the tokens that 'top_k' left. Leave out 'top_k', or take more particles.",
    ):
        closed([END])


@pytest.mark.parametrize(("specs", "below"), [([], 1.0), ([("top_k", {"k": 2})], 0.0)], ids=["drawn anew", "dead"])
def test_particles_that_have_ended_may_be_all_that_are_left(specs: list[Any], below: float) -> None:
    """After "ab" a "d" must follow, which is all but impossible; "c" has ended by then."""
    after_b = [0.5, 0, 0.5, 1e-30, 0]
    model = Table([[0, 0.9, 0.1, 0, 0], after_b, [0.1, 0, 0, 0, 0.9], [0, 0, 0, 0, 1], [0.5, 0, 0.5, 0, 0]])
    chain = chain_of(("choice", {"choices": ["abd", "c"]}), *specs)
    found = Generator(model, chain, Particles(20, resample_below=below), max_tokens=8)([[END], [END, END]], seed=1)
    assert model.calls == 3
    assert {each.text for each in found} == {"c"}
    assert (len(found) == 40) == (below == 1.0)
    assert [told.log_evidence for told in posterior(found)] == pytest.approx([np.log(0.45)] * 2, abs=0.6)


@dataclass(frozen=True)
class Listening(Processor):
    """Notes per accepted token the token before it and what was told of its probability."""

    needs = frozenset({"chosen_logprob"})

    def init_state(self, context: Context) -> Any:
        return np.full((context.batch, 1), END, dtype=np.int32)

    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        if context.tokens is None:
            return logits, state
        TOLD.extend(zip(state[:, 0], context.tokens[:, 0], context.chosen_logprob[:, 0], strict=True))
        return logits, context.tokens


TOLD: list[tuple[int, int, float]] = []


def test_processors_are_told_the_probabilities_of_the_target() -> None:
    """Not those among the legal tokens, so that the target does not depend on the constraints."""
    TOLD.clear()
    Generator(HIDDEN, chain_of(CHOICE, Listening()), Particles(20, resample_below=1.0), max_tokens=LIMIT)([END])
    assert len(TOLD) > 20
    assert [told for *_, told in TOLD] == pytest.approx([HIDDEN.rows[at, token] for at, token, _ in TOLD], abs=1e-4)


@dataclass(frozen=True)
class Undeclared(Processor):
    """A constraint that promises nothing."""

    stage = "constraint"

    def process(self, logits: Any) -> Any:
        return logits


class Broken(ToyModel):
    def row_logits(self, row: Sequence[int]) -> Any:
        return super().row_logits(row) * np.float32(np.nan if len(row) > 2 else 1)


def test_logits_that_are_no_numbers_are_named() -> None:
    broken = Broken(load_backend("numpy"), vocab=WORDS.size)
    with pytest.raises(InvalidLogits, match=r"prompt 0, particle 0 are no distribution at step 2 \(position 3\)"):
        Generator(broken, chain_of(CHOICE), Particles(2), max_tokens=LIMIT)([2])


def test_what_particles_cannot_do_is_refused() -> None:
    generator = Generator(toy(), chain_of(CHOICE), Particles(2), max_tokens=LIMIT)
    with pytest.raises(GenerationError, match="cannot stream"):
        next(generator.stream([2]))
    with pytest.raises(GenerationError, match="Particles cannot be continued"):
        continuous(generator)
    for name, value in {
        "candidates": candidates.load("prompt_lookup"), "record": True, "on_emission": print,
    }.items():  # fmt: skip
        with pytest.raises(GenerationError, match=f"as '{name}' needs. Leave it out"):
            replace(generator, **{name: value})
    with pytest.raises(GenerationError, match="nor particles can follow"):
        replace(generator, avoid=SoftBan(("a",)))
    asking = ("checked", {"check": lambda text, ends: True, "sample": True})
    with pytest.raises(GenerationError, match="'checked' forbids tokens by their logits and may leave none"):
        Generator(toy(), chain_of(CHOICE, asking), Particles(2), max_tokens=LIMIT)([2])
    with pytest.raises(GenerationError, match=r"'Undeclared' declares an effect that may do more.*logitloom\.MASK"):
        replace(generator, chain=chain_of(Undeclared()))([2])
    with pytest.raises(ChainIncomplete, match=r"The chain misses options \(tool_call: tools\)"):
        replace(generator, chain=chain_of("tool_call"))([2])
    with pytest.raises(GenerationError, match="cannot be recorded by a TracedChain"):
        replace(generator, chain=TracedChain(chain_of(CHOICE)))([2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "'samples' must be a whole number of at least 1"),
        ({"resample_below": 1.5}, "from 0 to 1, but is 1.5"),
        ({"resample_below": float("nan")}, "must be a finite number"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        Particles(**options)


def test_a_posterior_needs_weights_and_texts() -> None:
    plain = Generator(toy(), chain_of(CHOICE), BeamSearch(2), max_tokens=LIMIT)
    with pytest.raises(GenerationError, match=r"Sequence 0 of prompt 0 has no weight. Decode with"):
        posterior(plain([2]))
    with pytest.raises(GenerationError, match="has no text, because no vocabulary is known"):
        posterior(Generator(toy(), strategy=Particles(2), max_tokens=2)([2]))
    with pytest.raises(GenerationError, match="'found' must be a list or tuple"):
        posterior(plain([2])[0])  # type: ignore[arg-type]


def test_weights_that_no_float_holds_are_0_whatever_numpy_is_told() -> None:
    (found,) = Generator(HIDDEN, chain_of(CHOICE), Particles(1), max_tokens=LIMIT)([2])
    light, sharp = replace(found, sample=1, text="light", log_weight=-4000.0), Table(np.exp(HIDDEN.rows).tolist())
    sharp.rows = HIDDEN.rows * 99
    chain = chain_of(("choice", {"choices": ["ab", "cd"]}))
    generators = [Generator(sharp, chain, Particles(9, resample_below=below), max_tokens=LIMIT) for below in (0.0, 0.9)]
    with np.errstate(all="raise"):
        assert posterior([found, light])[0].probabilities == {found.text: 1.0, "light": 0.0}
        for generator in generators:
            posterior(generator([END]))


def test_notebooks_show_the_texts_and_the_weights() -> None:
    found = Generator(toy(), chain_of(CHOICE), Particles(4), max_tokens=LIMIT)([2])
    assert f"<td>{found[0].log_weight:.2f}</td>" in found[0]._repr_html_()
    (told,) = posterior(found)
    assert all(f"<td>{text}</td><td>{p:.3f}</td>" in told._repr_html_() for text, p in told.probabilities.items())


def test_every_row_of_the_model_is_a_particle_that_goes_on() -> None:
    """Particles that have ended, and those of weight 0, take no pass of the model."""
    rows: list[int] = []

    class Counting(Table):
        def forward(self, tokens: Any, cache: Any, *, all_positions: bool = False) -> Any:
            rows.append(len(tokens))
            return super().forward(tokens, cache, all_positions=all_positions)

    model = Counting(np.exp(HIDDEN.rows).tolist())
    found = Generator(model, chain_of(CHOICE), Particles(30, resample_below=0.0), max_tokens=LIMIT)([END], seed=1)
    lengths = [len(each.tokens) + (each.finish == "eos") for each in found]
    assert rows == [1, *(sum(length > step for length in lengths) for step in range(1, max(lengths)))]
