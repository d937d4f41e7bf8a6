"""Generation that goes on from its own results: weights, caches, chains and ends, over rounds of different kinds."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, load_backend
from logitloom.errors import (
    ContextLengthExceeded,
    GenerationError,
    PromptTypeError,
    SampleMismatchError,
)
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, SequenceState, continuous
from tests.core.generation.words import (
    BOS,
    EOS,
    HALVES,
    VOCABULARY,
    Counting,
    Encoder,
    fresh_logits,
    generator,
    tiny_model,
)
from tests.oracles.toy_model import ToyModel

CHOICES = ("choice", {"choices": ["one cat", "two sheep"]})
PROMPTS = ["the cat sat on ", "a ", "sheep sing on the "]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def assert_cached(state: SequenceState) -> None:
    """The cache holds all tokens of each row but the last, and gives the logits that the tokens alone give."""
    assert state.kv_cache is not None
    assert state.kv_cache.lengths.tolist() == [len(row) - 1 for row in state.rows]
    last = np.asarray([row[-1:] for row in state.rows], dtype=np.int32)
    logits, _ = state.model.forward(last, state.kv_cache)
    assert np.allclose(state.model.backend.to_numpy(logits), fresh_logits(state.model, state.rows), atol=1e-4)


def whole_log_probability(model: Any, row: Any, start: int) -> float:
    total = 0.0
    for i in range(start, len(row)):
        logits = fresh_logits(model, [row[:i]])[0].astype(np.float64)
        total += logits[row[i]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return total


# -- rounds --------------------------------------------------------------------------------------------------


def test_one_round_gives_what_the_generator_gives(model: Any) -> None:
    plain = generator(model, strategy=Multinomial(samples=3), eos=())
    state, found = continuous(plain)(PROMPTS, seed=4), plain(PROMPTS, seed=4)
    assert state.weights.shape == (3, 3)
    assert list(state) == [PROMPTS[g.prompt] + (g.text or "") for g in found]
    assert state.weights.reshape(-1) == pytest.approx([g.logprob for g in found], abs=1e-5)


@pytest.mark.parametrize("prompt", [PROMPTS, PROMPTS[1]])
def test_greedy_in_rounds_equals_greedy_in_one(model: Any, prompt: Any) -> None:
    write = continuous(generator(model, eos=()))
    state = write(prompt, max_tokens=3)
    for _ in range(3):
        state = write(state, max_tokens=3)
    at_once = write(prompt, max_tokens=12)
    assert state.rows == at_once.rows
    assert np.allclose(state.weights, at_once.weights, atol=1e-4)


def test_text_ids_and_lists_of_either_begin_a_sequence(model: Any) -> None:
    write = continuous(generator(model, eos=()))
    ids = Encoder().encode("the cat")
    wanted = write("the cat").rows
    assert write(ids).rows == write([ids]).rows == write(np.asarray(ids)).rows == write(["the cat"]).rows == wanted
    assert write(["the cat", "one"]).rows[0] == wanted[0]


def test_the_model_reads_a_prompt_once_and_a_token_of_each_round_once(model: Any) -> None:
    counting = Counting(model)
    write = continuous(generator(counting, eos=()))
    state = write(PROMPTS, max_tokens=4)
    for _ in range(3):
        state = write(state, max_tokens=4)
    assert [max(p) for p in counting.passes] == [max(len(Encoder().encode(p)) for p in PROMPTS), *[1] * 15]
    assert np.array_equal(state.kv_cache.lengths, [len(row) - 1 for row in state.rows])
    assert len(counting.passes) == 16


def test_samples_of_one_prompt_are_continued_each_by_itself(model: Any) -> None:
    write = continuous(generator(model, strategy=Multinomial(samples=3), eos=()))
    first = write("the ", max_tokens=4, seed=1)
    second = write(first, max_tokens=4, seed=2)
    assert len(set(first.rows)) > 1
    assert all(new[: len(old)] == old for old, new in zip(first.rows, second.rows, strict=True))
    assert (second.weights < first.weights).all()
    assert write(first, max_tokens=4, seed=2).rows == second.rows
    assert write(first, max_tokens=4, seed=3).rows != second.rows


def test_a_state_is_not_changed_by_going_on_from_it(model: Any) -> None:
    write = continuous(generator(model, strategy=Multinomial(samples=2), eos=()))
    state = write(PROMPTS, max_tokens=5)
    before = fresh_logits(model, state.rows)
    write(state, max_tokens=5, seed=1)
    write(state, max_tokens=5, seed=2)
    last = np.asarray([[row[-1]] for row in state.rows], dtype=np.int32)
    assert np.allclose(model.forward(last, state.kv_cache)[0], before, atol=1e-5)


def test_weights_are_the_log_probabilities_of_all_rounds(model: Any) -> None:
    write = continuous(generator(model, eos=()))
    state = write(write("the cat", max_tokens=3), max_tokens=4)
    start = len(Encoder().encode("the cat"))
    assert state.weights[0, 0] == pytest.approx(whole_log_probability(model, state.rows[0], start), abs=1e-3)
    assert state.scored.tolist() == [[7]]


# -- generators of different kinds -----------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("prompts", [PROMPTS[0], PROMPTS])
def test_continuing_with_the_same_generator_lowers_the_weights(model: Any, prompts: Any, samples: int) -> None:
    choose = continuous(generator(model, CHOICES, strategy=Multinomial(samples=samples)))
    first = choose(prompts)
    assert (choose(first).weights < first.weights).all()


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("prompts", [PROMPTS[0], PROMPTS])
def test_choice_then_text_lowers_the_weights(model: Any, prompts: Any, samples: int) -> None:
    choose = continuous(generator(model, CHOICES, strategy=Multinomial(samples=samples)))
    write = continuous(generator(model, strategy=Multinomial(samples=samples)))
    first = choose(prompts)
    assert (write(first).weights < first.weights).all()


def test_text_then_choice_then_regex_each_see_only_their_own_text(model: Any) -> None:
    write = continuous(generator(model, eos=(), max_tokens=5))
    state = write(PROMPTS)
    chosen = continuous(generator(model, CHOICES))(state)
    matched = continuous(generator(model, ("regex", {"pattern": r"\.[abc]{3}"})))(chosen)
    for text, longer, longest in zip(state, chosen, matched, strict=True):
        assert longer[len(text) :] in CHOICES[1]["choices"]
        assert longest.startswith(longer)
        assert len(longest[len(longer) :]) == 4
    assert EOS not in [token for row in matched.rows for token in row]


@pytest.mark.parametrize("skip_forced", [True, False])
def test_the_cache_holds_all_but_the_last_token_after_constraints_forced_some(model: Any, skip_forced: bool) -> None:
    choose = continuous(generator(model, CHOICES, skip_forced=skip_forced))
    state = choose(choose(PROMPTS))
    assert_cached(state)


def test_a_choice_with_one_option_costs_no_pass_at_all(model: Any) -> None:
    counting = Counting(model)
    state = continuous(generator(counting, eos=()))(PROMPTS, max_tokens=3)
    before = len(counting.passes)
    state = continuous(generator(counting, ("choice", {"choices": ["."]})))(state)
    assert len(counting.passes) == before
    assert all(text.endswith(".") for text in state)
    assert (np.asarray(state.held_cache.lengths) > 0).all()


def test_processors_see_the_whole_sequence_as_their_prompt(model: Any) -> None:
    """A penalty on everything that stands in the prompt too: after two rounds nothing is written twice."""
    write = continuous(generator(model, ("no_repeat_ngram", {"n": 1}), eos=(), max_tokens=4))
    state = write(write("o"))
    assert len(set(state.rows[0])) == len(state.rows[0]) == 9


def test_a_generator_without_tokenizer_leaves_that_of_the_state(model: Any) -> None:
    state = continuous(generator(model, eos=()))("the cat", max_tokens=2)
    longer = continuous(Generator(model, max_tokens=2))(state)
    assert longer.tokenizer is state.tokenizer
    assert longer.texts[0].startswith(state.texts[0])


def test_drafts_go_on_from_the_cache_too(model: Any) -> None:
    from logitloom.host import registry

    counting = Counting(model)
    drafting = registry.load_plugin("candidates", "prompt_lookup")()
    write = continuous(generator(counting, eos=(), candidates=drafting, max_tokens=6))
    state = write(PROMPTS)
    assert_cached(state)
    counting.passes.clear()
    longer = write(state)
    assert max(counting.passes[0]) < 6
    plain = continuous(generator(model, eos=(), max_tokens=6))
    assert longer.rows == plain(plain(PROMPTS)).rows
    assert_cached(longer)


def test_guidance_in_one_pass_keeps_the_cache_of_the_sequences_alone(model: Any) -> None:
    negative = tuple(Encoder().encode("two sheep"))
    chain = ("cfg", {"scale": 1.5, "form": "one_pass", "negative_prompt": negative})
    counting = Counting(model)
    write = continuous(generator(counting, chain, eos=(), max_tokens=4))
    state = write(PROMPTS)
    assert_cached(state)
    counting.passes.clear()
    assert_cached(write(state))
    # Of the guided branch one token of each row is new; the other branch is read from its beginning.
    assert counting.passes[0] == [1, 1, 1, len(negative)]


# -- ends ------------------------------------------------------------------------------------------------------


class Scripted(ToyModel):
    """Writes what a function of the row says, with certainty."""

    def __init__(self, backend: Any, following: Any) -> None:
        super().__init__(backend, vocab=VOCABULARY.size)
        self.following = following

    def row_logits(self, row: Any) -> np.ndarray:
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        logits[self.following(list(row))] = 50
        return logits


def scripted(*texts: str) -> Scripted:
    """A model that after each of the texts, wherever they end, writes on."""
    scripts = [Encoder().encode(text) for text in texts]

    def following(row: list[int]) -> int:
        for script in scripts:
            if script[: len(row)] == row:
                return script[len(row)] if len(script) > len(row) else EOS
        return EOS

    return Scripted(load_backend("numpy"), following)


def test_an_end_of_sequence_is_not_part_of_what_goes_on() -> None:
    model = scripted("one cat", "two sheep sat.", "twa")
    write = continuous(generator(model, max_tokens=20))
    state = write(["one", "twa", "two"])
    assert list(state) == ["one cat", "twa", "two sheep sat."]
    assert EOS not in [token for row in state.rows for token in row]
    # Rows that ended early, even at once, are remembered as well as the last one.
    assert state.held_cache.lengths.tolist() == [len(row) - 1 for row in state.rows]
    assert write(state).rows == state.rows


def test_ends_that_a_state_was_made_with_are_taken_off_but_those_inside_stay() -> None:
    model = scripted("one cat")
    row = (*Encoder().encode("one"), EOS, EOS)
    inside = (EOS, *Encoder().encode("two"), EOS, *Encoder().encode("one"))
    made = SequenceState([row, inside], np.zeros((2, 1)), vocabulary=VOCABULARY, tokenizer=Encoder(), model=model)
    state = continuous(generator(model))(made)
    assert state.rows == (tuple(Encoder().encode("one cat")), inside)
    assert state.attention_mask.sum(axis=1).tolist() == [len(row) for row in state.rows]


def test_stop_at_ends_rows_after_the_text_and_cuts_a_token_that_goes_on() -> None:
    model = scripted("a cat sat on the sheep", "one cat. two")
    stopped = continuous(generator(model, max_tokens=20))(["a", "one"], stop_at=["the s", "."])
    assert list(stopped) == ["a cat sat on the s", "one cat."]
    assert np.array_equal(stopped.kv_cache.lengths, [len(row) - 1 for row in stopped.rows])
    # A text that the prompt has already does not stop it.
    assert continuous(generator(model, max_tokens=2))("one cat.", stop_at=".").texts[0] == "one cat. two"


def test_a_stop_processor_of_the_chain_leaves_its_text_out_of_the_state() -> None:
    model = scripted("a cat sat on the sheep")
    write = continuous(generator(model, ("stop", {"strings": ["he s"]}), max_tokens=20))
    state = write("a")
    assert list(state) == ["a cat sat on t"]
    assert list(continuous(generator(model, ("stop", {"strings": ["he s"]}), max_tokens=20))("a", stop_at="sat")) == [
        "a cat sat"
    ]


def test_half_a_character_before_a_stop_string_stays_as_it_is() -> None:
    one, half = Encoder().encode("one"), VOCABULARY.token_bytes.index(HALVES[0])
    written = [*one, half, *Encoder().encode(" cat sat")]
    model = Scripted(load_backend("numpy"), lambda row: written[len(row)])
    write = continuous(generator(model, ("stop", {"strings": [" sat"]}), max_tokens=20))
    assert write("one").rows[0] == (*one, half, *Encoder().encode(" cat"))


def test_max_tokens_and_stop_at_hold_for_one_call(model: Any) -> None:
    write = continuous(generator(model, eos=(), max_tokens=6))
    assert len(write([1], max_tokens=2).rows[0]) == 3
    assert len(write([1]).rows[0]) == 7


# -- beam search -----------------------------------------------------------------------------------------------


def test_a_search_in_rounds_optimises_the_whole_sequence() -> None:
    """With as many beams as prefixes the search is exhaustive, so two rounds find what one finds."""
    model = ToyModel(load_backend("numpy"), vocab=4)
    search = continuous(Generator(model, strategy=BeamSearch(beams=64, samples=64), max_tokens=3, eos=()))
    best = continuous(Generator(model, strategy=BeamSearch(beams=64, samples=64), max_tokens=2, eos=()))
    rounds = best(search([1], max_tokens=3), max_tokens=2)
    at_once = continuous(Generator(model, strategy=BeamSearch(beams=1024, samples=64), max_tokens=5, eos=()))([1])
    assert rounds.rows[:5] == at_once.rows[:5]
    assert rounds.weights[0, :5] == pytest.approx(at_once.weights[0, :5], abs=1e-4)
    assert rounds.scored.tolist() == [[5] * 64]


def test_scores_of_a_search_count_carried_tokens() -> None:
    from logitloom.generation import Carried, beam_search

    model = ToyModel(load_backend("numpy"), vocab=VOCABULARY.size)
    chain, carried = generator(model).chain, Carried(np.asarray([[-3.0, -3.0]]), np.asarray([[2, 7]]))
    settings = BeamSearch(beams=6, samples=6)
    (found,) = beam_search(model, [[1, 2], [3]], chain, settings, max_tokens=5, carried=carried)
    assert {h.beginning for h in found} == {0, 1}
    for h in found:
        beginning, logprob = [(1, 2), (3,)][h.beginning], carried.logprobs[0, h.beginning]
        tokens = (*h.tokens, EOS) if h.finish == "eos" else h.tokens
        total = logprob + whole_log_probability(model, (*beginning, *tokens), len(beginning))
        assert h.logprob == pytest.approx(total, abs=1e-4)
        assert h.score == pytest.approx(total / (carried.lengths[0, h.beginning] + len(tokens)), abs=1e-4)


def test_a_search_gives_up_a_sequence_whose_others_are_better(model: Any) -> None:
    """Weights decide between sequences of a prompt: a heavy handicap lets both results come from the other one."""
    sampled = continuous(generator(model, strategy=Multinomial(samples=2), eos=()))(PROMPTS, seed=1)
    handicapped = SequenceState(
        sampled.rows, sampled.weights - np.asarray([[0.0, 100.0]]), scored=sampled.scored, vocabulary=VOCABULARY,
        tokenizer=Encoder(), model=model, cache=sampled.held_cache,
    )  # fmt: skip
    found = continuous(generator(model, strategy=BeamSearch(beams=3, samples=2), eos=()))(handicapped)
    for b in range(3):
        assert all(found.rows[2 * b + s][: len(sampled.rows[2 * b])] == sampled.rows[2 * b] for s in range(2))
    assert np.allclose(found.weights.max(axis=1), found.weights[:, 0])


def test_equal_sequences_of_a_prompt_do_not_fill_the_beams_twice(model: Any) -> None:
    one = continuous(generator(model, eos=()))("the ", max_tokens=2)
    search = continuous(generator(model, strategy=BeamSearch(beams=4, samples=3), eos=()))
    found = search(one.fork(3))
    assert len(set(found.rows)) == 3
    alone = BeamSearch(beams=4, samples=1)
    assert found.rows[0] == continuous(generator(model, strategy=alone, eos=()))(one).rows[0]


def test_the_cache_after_a_search_gives_the_logits_of_a_fresh_pass(model: Any) -> None:
    search = continuous(generator(model, strategy=BeamSearch(beams=4, samples=2), max_tokens=6))
    counting = Counting(model)
    state = search(search(PROMPTS))
    last = np.asarray([[row[-1]] for row in state.rows], dtype=np.int32)
    assert (state.held_cache.lengths >= min(len(Encoder().encode(p)) for p in PROMPTS) - 1).all()
    assert np.allclose(counting.forward(last, state.kv_cache)[0], fresh_logits(model, state.rows), atol=1e-5)


def test_a_search_that_finds_too_few_sequences_says_so(model: Any) -> None:
    search = continuous(generator(model, ("choice", {"choices": ["a", "b"]}), strategy=BeamSearch(beams=4, samples=3)))
    with pytest.raises(GenerationError, match="found 2 sequences for prompt 0, but a state with 3 samples"):
        search("the ")


def test_beams_must_be_enough_for_the_sequences() -> None:
    from logitloom.generation import Carried, beam_search

    model = tiny_model()
    chain = generator(model).chain
    with pytest.raises(GenerationError, match=r"1 beams got 2 beginnings .* shape \[1, 2\]"):
        beam_search(model, [[1], [2]], chain, BeamSearch(beams=1), max_tokens=1,
                    carried=Carried(np.zeros((1, 2)), np.zeros((1, 2), dtype=np.int64)))  # fmt: skip


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 5, 8])
def test_a_generator_with_other_samples_is_refused(model: Any, samples: int) -> None:
    state = continuous(generator(model, strategy=Multinomial(samples=3)))(PROMPTS, max_tokens=1)
    message = (
        f"Continuous generation can't proceed, Generator has a `num_samples == {samples}` and SequenceState has a "
        f"`num_samples == 3`"
    )
    with pytest.raises(SampleMismatchError, match=message) as caught:
        continuous(generator(model, strategy=Multinomial(samples=samples)))(state)
    assert str(caught.value).endswith("A new generator with `num_samples == 3` should be utilized to proceed.")


def test_a_full_context_is_an_error(model: Any) -> None:
    short = tiny_model(max_length=12)
    state = continuous(generator(short, eos=()))([1], max_tokens=20)
    assert len(state.rows[0]) == 12
    with pytest.raises(ContextLengthExceeded, match="Row 0 has 12 tokens, and the model takes 12 at most"):
        continuous(generator(short))(state)


@pytest.mark.parametrize("wrong", [5, None, [None], [], {"a": 1}, 1.5])
def test_anything_else_is_a_type_error(model: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match="continues a text, a list of texts"):
        continuous(generator(model))(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], r"but got an empty list\.$"),
        (np.array([0.5]), r"but got ndarray of float\.$"),
        ([{"role": "user", "content": "a"}], "Chat messages become a prompt with the tokenizer's chat template"),
        ({"input_ids": [[1]]}, "Of what a tokenizer returns give the 'input_ids'"),
    ],
)
def test_what_is_no_prompt_is_refused_with_the_remedy(model: Any, wrong: Any, said: str) -> None:
    with pytest.raises(PromptTypeError, match=said):
        continuous(generator(model))(wrong)


def test_ids_may_come_as_an_array(backend: Backend) -> None:
    write = continuous(generator(tiny_model()))
    assert write(backend.asarray(np.array([[1, 2], [3, 4]])), max_tokens=2).rows == write([[1, 2], [3, 4]], 2).rows


def test_a_list_of_states_is_a_type_error(model: Any) -> None:
    write = continuous(generator(model))
    with pytest.raises(PromptTypeError, match="list of SequenceState"):
        write([write("a")])


def test_a_state_of_another_vocabulary_is_refused(model: Any) -> None:
    state = continuous(generator(model))("a")
    other = Generator(model, vocabulary=VOCABULARY.with_eos([0]))
    with pytest.raises(GenerationError, match="ids would mean something else"):
        continuous(other)(state)


class Middling:
    """A sampler that is no dataclass, with two sequences per prompt."""

    samples = 2

    def choose(self, backend: Any, logits: Any, seeds: Any, lengths: Any) -> Any:
        return Greedy().choose(backend, logits, seeds, lengths)


def test_samplers_of_ones_own_work(model: Any) -> None:
    write = continuous(generator(model, strategy=Middling(), eos=()))
    state = write(write("the ", max_tokens=2), max_tokens=2)
    plain = continuous(generator(model, eos=()))("the ", max_tokens=4)
    assert state.rows == (plain.rows[0],) * 2


# -- backends and real text ------------------------------------------------------------------------------------


def test_rounds_agree_with_one_round_on_every_backend(backend: Any) -> None:
    model = tiny_model(backend)
    write = continuous(generator(model, eos=()))
    state = write(write(PROMPTS, max_tokens=3), max_tokens=3)
    assert state.rows == write(PROMPTS, max_tokens=6).rows
    last = np.asarray([[row[-1]] for row in state.rows], dtype=np.int32)
    logits, _ = model.forward(last, state.kv_cache)
    assert np.allclose(backend.to_numpy(logits), fresh_logits(model, state.rows), atol=1e-4)


# -- files -----------------------------------------------------------------------------------------------------


@pytest.mark.extras
def test_a_saved_state_goes_on_where_it_was(model: Any, tmp_path: Any) -> None:
    pytest.importorskip("safetensors", reason="state files need the package safetensors")
    plain = generator(model, strategy=Multinomial(samples=2), eos=())
    state = continuous(plain)(PROMPTS, max_tokens=4, seed=1)
    state.save(tmp_path / "state.safetensors")
    counting = Counting(model)
    counting.cache_from_host = model.cache_from_host  # type: ignore[attr-defined]
    read = SequenceState.load(tmp_path / "state.safetensors", generator(counting))
    assert read.rows == state.rows
    assert np.array_equal(read.weights, state.weights)
    assert np.array_equal(read.scored, state.scored)
    counting.passes.clear()
    longer = continuous(generator(counting, strategy=Multinomial(samples=2), eos=()))(read, max_tokens=4, seed=2)
    assert counting.passes == [[1] * len(set(state.rows)), *[[1] * 6] * 3]
    assert longer.rows == continuous(plain)(state, max_tokens=4, seed=2).rows


@pytest.mark.extras
def test_another_process_goes_on_from_a_saved_state(model: Any, tmp_path: Any) -> None:
    pytest.importorskip("safetensors", reason="state files need the package safetensors")
    state = continuous(generator(model, eos=()))("the cat ", max_tokens=4)
    path = tmp_path / "state.safetensors"
    state.save(path)
    code = (
        "from tests.core.generation.words import generator, tiny_model\n"
        "from logitloom.generation import SequenceState, continuous\n"
        "g = generator(tiny_model(), eos=())\n"
        f"print(continuous(g)(SequenceState.load({str(path)!r}, g), max_tokens=5).rows)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(continuous(generator(model, eos=()))(state, max_tokens=5).rows)


@pytest.mark.extras
def test_a_state_saved_on_one_backend_goes_on_on_another(backend: Any, model: Any, tmp_path: Any) -> None:
    pytest.importorskip("safetensors", reason="state files need the package safetensors")
    state = continuous(generator(model, eos=()))(PROMPTS, max_tokens=4)
    state.save(tmp_path / "state.safetensors")
    other = generator(tiny_model(backend), eos=())
    read = SequenceState.load(tmp_path / "state.safetensors", other)
    assert continuous(other)(read).rows == continuous(generator(model, eos=()))(state).rows
    read.save(tmp_path / "again.safetensors")
    assert SequenceState.load(tmp_path / "again.safetensors", generator(model)).rows == state.rows


@pytest.mark.extras
def test_a_state_of_another_model_or_vocabulary_or_no_state_at_all_is_refused(model: Any, tmp_path: Any) -> None:
    pytest.importorskip("safetensors", reason="state files need the package safetensors")
    from safetensors.numpy import save_file

    path = tmp_path / "state.safetensors"
    continuous(generator(model, eos=()))("the cat", max_tokens=2).save(path)
    with pytest.raises(GenerationError, match="made by another model"):
        SequenceState.load(path, generator(tiny_model(seed=1)))
    with pytest.raises(ValueError, match=r"does not fit this model, which needs 3 layers"):
        SequenceState.load(path, generator(tiny_model(layers=3)))
    with pytest.raises(GenerationError, match="saved with another vocabulary"):
        SequenceState.load(path, Generator(model, vocabulary=VOCABULARY.with_eos([0])))
    save_file({"a": np.zeros(1)}, str(path))
    with pytest.raises(GenerationError, match="no sequence state of version 2"):
        SequenceState.load(path, generator(model))
    path.write_bytes(b"no such thing")
    with pytest.raises(GenerationError, match="cannot be read as a safetensors file"):
        SequenceState.load(path, generator(model))


@pytest.mark.extras
def test_a_cache_that_cannot_be_written_is_left_out_with_a_warning(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("safetensors", reason="state files need the package safetensors")
    model = scripted("one cat sat")
    state = continuous(generator(model))("one", max_tokens=1)
    monkeypatch.delattr(type(state.held_cache), "to_host")
    with pytest.warns(UserWarning, match="a ToyCache, has no method to_host"):
        state.save(tmp_path / "state.safetensors")
    read = SequenceState.load(tmp_path / "state.safetensors", generator(model))
    assert read.kv_cache is None
    assert list(continuous(generator(model))(read)) == ["one cat sat"]


def test_without_safetensors_the_error_says_what_to_install(model: Any, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(GenerationError, match=r"pip install 'logitloom\[safetensors\]'"):
        continuous(generator(model))("a").save(tmp_path / "state.safetensors")


@pytest.mark.extras
@pytest.mark.weights
def test_a_real_model_writes_chooses_and_matches(smollm2: Any) -> None:
    from logitloom import processors

    words = {"tokenizer": smollm2.tokenizer, "vocabulary": smollm2.vocabulary}
    counting = Counting(smollm2)
    state = continuous(Generator(counting, max_tokens=5, **words))("The capital of France is")
    assert "Paris" in state.texts[0]
    for spec, pattern in [
        (("choice", {"choices": [" Yes", " No"]}), r" (Yes|No)"),
        (("regex", {"pattern": r", in 20\d\d\."}), r", in 20\d\d\."),
    ]:
        chain = processors.load(spec, tokenizer=smollm2.vocabulary)
        longer = continuous(Generator(counting, chain, max_tokens=12, **words))(state)
        assert re.fullmatch(pattern, longer.texts[0][len(state.texts[0]) :])
        assert longer.weights[0, 0] < state.weights[0, 0]
        state = longer
    assert [n for (n,) in counting.passes[1:5]] == [1] * 4
    cut = state[: len(state.texts[0]) - 4]
    assert isinstance(cut, SequenceState)
    last = np.asarray([cut.rows[0][-1:]], dtype=np.int32)
    assert np.allclose(smollm2.forward(last, cut.kv_cache)[0], fresh_logits(smollm2, cut.rows), atol=1e-2)


def test_a_beginning_of_sequence_is_there_once(model: Any) -> None:
    write = continuous(generator(model, bos=True, eos=(), max_tokens=2))
    state = write("one")
    other = write("two")
    joined = write(write(state + " cat") + other)
    assert joined.rows[0].count(BOS) == 1 or BOS in state.rows[0][1:]
    assert (state + other).rows[0] == state.rows[0] + other.rows[0][1:]
