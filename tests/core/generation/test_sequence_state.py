"""Slices and sums of sequences: text, tokens, weights and what the key-value cache keeps of them."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Vocabulary, load_backend
from logitloom.context import padded
from logitloom.errors import BatchMismatchError, GenerationError, SampleMismatchError, SequenceIndexError
from logitloom.generation import Generator, Multinomial, SequenceState, continuous
from logitloom.generation.prefix_cache import PrefixCachedModel
from tests.core.generation.words import BOS, HALVES, VOCABULARY, Counting, Encoder, fresh_logits, generator, tiny_model
from tests.oracles.toy_model import ToyModel

CHOICES = ("choice", {"choices": ["one cat sat on the sheep", "two sheep sat at the cat"]})
PROMPTS = ["write one cat. ", "the other sheep ", "sing "]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="module")
def states(model: Any) -> dict[tuple[int, int], SequenceState]:
    """After a choice: by number of prompts and samples."""
    found = {}
    for batch in (1, 3):
        for samples in (1, 3):
            choose = continuous(generator(model, CHOICES, strategy=Multinomial(samples=samples), max_tokens=30))
            found[batch, samples] = choose(PROMPTS[:batch], seed=1)
    return found


def made(rows: Any, shape: tuple[int, int] | None = None, model: Any = None, **options: Any) -> SequenceState:
    """A state of given rows, all but the last token of which the model has read."""
    rows = [tuple(row) for row in rows]
    options.setdefault("tokenizer", Encoder())
    options.setdefault("vocabulary", VOCABULARY)
    if model is not None:
        longest = max(map(len, rows))
        tokens = np.asarray([[*row[:-1], *[-1] * (longest - len(row))] for row in rows], dtype=np.int32)
        options["cache"] = model.forward(tokens, model.empty_cache(len(rows)))[1]
    weights = -np.arange(1.0, len(rows) + 1).reshape(shape or (len(rows), 1))
    return SequenceState(rows, weights, model=model, **options)


def lengths(state: SequenceState) -> list[int]:
    return [len(row) for row in state.rows]


def assert_cached(state: SequenceState) -> None:
    """The cache holds all tokens of each row but the last, and gives the logits that the tokens alone give."""
    assert state.kv_cache is not None
    assert state.kv_cache.lengths.tolist() == [n - 1 for n in lengths(state)]
    last = np.asarray([row[-1:] for row in state.rows], dtype=np.int32)
    logits, _ = state.model.forward(last, state.kv_cache)
    assert np.allclose(state.model.backend.to_numpy(logits), fresh_logits(state.model, state.rows), atol=1e-4)


def part(state: SequenceState, key: Any) -> SequenceState:
    """A slice, whatever it does to the cache."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = state[key]
    assert isinstance(found, SequenceState)
    return found


# -- text: slices of characters are slices of strings ------------------------------------------------------------

CHARS = [slice(0, 30), slice(0, 5), slice(5, 20)]
EXACT = [slice(None), slice(0, 12), slice(None, -3)]


@pytest.mark.parametrize("chars", [*CHARS, 3])
def test_one_sequence_is_sliced_by_its_characters(states: Any, chars: Any) -> None:
    state = states[1, 1]
    (text,) = state
    for key in (chars, (0, 0, chars), (slice(None), slice(0, 1), chars)):
        found = state[key] if chars == 3 else part(state, key)
        assert list(found) == [text[chars]]


@pytest.mark.parametrize("sample", [0, slice(0, 2), slice(1, None), -1, slice(None, None, -1)])
@pytest.mark.parametrize("chars", [*CHARS, 3])
def test_samples_of_one_prompt_are_chosen_by_the_first_axis(states: Any, chars: Any, sample: Any) -> None:
    state = states[1, 3]
    picked = np.asarray(list(state))[sample].reshape(-1)
    found = state[sample, chars] if chars == 3 else part(state, (sample, chars))
    assert list(found) == [text[chars] for text in picked]
    if isinstance(found, SequenceState):
        assert np.array_equal(found.weights, state.weights[:, sample].reshape(1, -1))


@pytest.mark.parametrize("batch", [0, slice(0, 2), slice(1, None), -1, slice(0, 3, 2)])
@pytest.mark.parametrize("chars", [*CHARS, 3])
def test_prompts_of_one_sample_are_chosen_by_the_first_axis(states: Any, chars: Any, batch: Any) -> None:
    state = states[3, 1]
    picked = np.asarray(list(state))[batch].reshape(-1)
    found = state[batch, chars] if chars == 3 else part(state, (batch, chars))
    assert list(found) == [text[chars] for text in picked]
    if isinstance(found, SequenceState):
        assert np.array_equal(found.weights, state.weights[batch].reshape(-1, 1))


@pytest.mark.parametrize("batch", [1, slice(0, 2), slice(1, 3)])
@pytest.mark.parametrize("sample", [2, slice(0, 2), slice(1, 3)])
@pytest.mark.parametrize("chars", [*CHARS, 3])
def test_prompts_and_samples_are_chosen_by_two_axes(states: Any, chars: Any, sample: Any, batch: Any) -> None:
    state = states[3, 3]
    rows = np.arange(3)[batch] if isinstance(batch, slice) else np.asarray([batch])
    columns = np.arange(3)[sample] if isinstance(sample, slice) else np.asarray([sample])
    picked = [state.texts[3 * b + s] for b in rows for s in columns]
    found = state[batch, sample, chars] if chars == 3 else part(state, (batch, sample, chars))
    assert list(found) == [text[chars] for text in picked]
    if isinstance(found, SequenceState):
        assert found.weights.shape == (len(rows), len(columns))
        assert np.array_equal(found.weights, state.weights[np.ix_(rows, columns)])


@pytest.mark.parametrize("chars", [slice(None, -4), slice(-6, None), slice(None, None, 2), slice(None, None, -1),
                                   slice(4, 4), slice(0, 999)])  # fmt: skip
def test_negative_stepped_empty_and_long_slices_are_those_of_strings(states: Any, chars: slice) -> None:
    for state in states.values():
        key = (chars,) if state.weights.size == 1 else (slice(None), chars) if 1 in state.weights.shape else (
            slice(None), slice(None), chars)  # fmt: skip
        assert list(part(state, key)) == [text[chars] for text in state]


def test_characters_of_several_bytes_are_one_character() -> None:
    state = made([Encoder().encode("on\u00fce\u00e9.on")])
    for i in range(9):
        assert list(part(state, slice(0, i))) == ["on\u00fce\u00e9.on"[:i]]
    assert state[2] == ["\u00fc"]
    # The cut comes between characters: two tokens share the third one.
    assert part(state, slice(0, 2)).rows[0] == state.rows[0][:1]


def test_half_a_character_at_the_end_is_kept_as_it_is() -> None:
    half = VOCABULARY.token_bytes.index(HALVES[0])
    state = made([(*Encoder().encode("on the"), half)])
    assert list(state) == ["on the\ufffd"]
    assert part(state, slice(None, None)).rows == state.rows
    assert part(state, slice(0, 7)).rows == state.rows
    assert part(state, slice(0, 6)).rows[0] == state.rows[0][:-1]


@given(st.lists(st.sampled_from([0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xFF]), min_size=1, max_size=8))
def test_bytes_that_are_no_character_are_kept_as_they_are(row: list[int]) -> None:
    words = Vocabulary([bytes([byte]) for byte in range(256)])
    state = SequenceState([tuple(row)], np.zeros((1, 1)), vocabulary=words)  # no tokenizer: nothing is encoded
    text = bytes(row).decode("utf-8", "replace")
    for cut in range(1, len(text) + 1):
        kept = part(state, slice(0, cut))
        assert kept.rows[0] == tuple(row)[: len(kept.rows[0])]
        assert list(kept) == [text[:cut]]


# -- the number of axes and their ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "key", "message"),
    [
        ((1, 1), (0, slice(0, 2)), r"\[chars\], or a Tuple of size 3"),
        ((1, 3), slice(0, 2), r"should be a Tuple of size 2 \[sample, chars\], but it has 1 axes"),
        ((1, 3), (0, 0, slice(0, 2)), r"should be a Tuple of size 2 \[sample, chars\], but it has 3 axes"),
        ((3, 1), slice(0, 2), r"should be a Tuple of size 2 \[batch, chars\]"),
        ((3, 1), (0, 0, slice(0, 2)), r"should be a Tuple of size 2 \[batch, chars\]"),
        ((3, 3), slice(0, 2), r"should be a Tuple of size 3 \[batch, sample, chars\]"),
        ((3, 3), (0, slice(0, 2)), r"should be a Tuple of size 3 \[batch, sample, chars\]"),
        ((3, 3), (0, 3, slice(0, 2)), r"Index 3 is outside the 3 samples"),
        ((3, 3), (-4, 0, slice(0, 2)), r"Index -4 is outside the 3 prompts"),
        ((3, 3), (slice(3, 5), 0, slice(0, 2)), r"selects none of the 3 prompts"),
        ((3, 3), (0, 0, 999), r"Character 999 was asked of row 0"),
        ((3, 3), (0, "a", 1), r"its samples were given as 'a'"),
        ((1, 1), slice(None, None, 0), r"characters .* slice\(None, None, 0\) \(slice step cannot be zero\)\. Give "),
        ((3, 3), (0, slice(0.5, 1), 1), r"samples of a SequenceState were given as slice\(0.5, 1, None\)"),
    ],
)
def test_wrong_axes_are_index_errors(states: Any, shape: Any, key: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message) as caught:
        states[shape][key]
    assert isinstance(caught.value, SequenceIndexError)


# -- the cache over slices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chars", EXACT + CHARS[:2])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_the_beginning_of_one_sequence_keeps_its_cache(states: Any, shape: Any, chars: slice) -> None:
    state = states[shape]
    for b in range(shape[0]):
        for s in range(shape[1]):
            key = (chars,) if shape == (1, 1) else (b, s, chars) if shape == (3, 3) else (b + s, chars)
            found = state[key[0] if len(key) == 1 else key]
            assert isinstance(found, SequenceState)
            assert found.kv_cache is not None
            assert found.kv_cache.row_count() == 1
            assert_cached(found)


@pytest.mark.parametrize("chars", EXACT + CHARS[:2])
@pytest.mark.parametrize("key", [(slice(0, 2), slice(1, 3)), (slice(None), 0), (2, slice(None, None, -1))])
def test_the_beginnings_of_several_sequences_keep_their_caches(states: Any, key: Any, chars: slice) -> None:
    found = states[3, 3][(*key, chars)]
    assert isinstance(found, SequenceState)
    assert_cached(found)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_a_slice_that_keeps_no_beginning_loses_the_cache_and_warns(states: Any, shape: Any) -> None:
    axes = {(1, 1): (), (1, 3): (slice(None),), (3, 1): (slice(None),), (3, 3): (slice(None), slice(None))}[shape]
    warning = "^The current slicing does not preserve KV Cache, KV Cache will be recomputed in the next generation.$"
    for chars in (slice(6, 20), slice(None, None, -1), slice(0, 0)):
        with pytest.warns(UserWarning, match=warning):
            found = states[shape][(*axes, chars) if axes else chars]
        assert isinstance(found, SequenceState)
        assert found.kv_cache is None


def test_a_state_without_cache_loses_none_and_does_not_warn() -> None:
    assert list(made([Encoder().encode("the cat")])[3:]) == [" cat"]


def test_a_cut_at_a_token_keeps_the_tokens_before_it(model: Any) -> None:
    state = made([Encoder().encode("one cat sat on")], model=model)
    found = state[:11]
    assert found.rows[0] == state.rows[0][:3]
    assert found.held_cache.lengths.tolist() == [2]


@pytest.mark.parametrize(("chars", "tokens"), [(4, 2), (5, 3), (6, 4), (7, 2)])
def test_a_cut_through_a_token_encodes_what_is_left_of_it(model: Any, chars: int, tokens: int) -> None:
    """Of "one" and " cat" the second one is cut to one, two or three characters, each a token; or not at all."""
    state = made([Encoder().encode("one cat sat")], model=model)
    found = state[:chars]
    assert list(found) == ["one cat sat"[:chars]]
    assert found.rows[0][0] == state.rows[0][0]
    assert len(found.rows[0]) == tokens
    assert found.held_cache.lengths.tolist() == [1]
    assert_cached(found)


def test_a_result_of_one_token_has_nothing_to_cache_and_warns(model: Any) -> None:
    state = made([Encoder().encode("one two")], model=model)
    with pytest.warns(UserWarning, match="does not preserve KV Cache"):
        found = state[:3]
    assert found.kv_cache is None
    assert len(found.rows[0]) == 1


def test_the_tokenisation_of_what_stays_is_not_changed(model: Any) -> None:
    """Letters one by one, where the tokenizer would take whole words."""
    letters = [Encoder().encode(c)[0] for c in "one two sheep"]
    state = made([letters], model=model)
    assert state[:9].rows[0] == tuple(letters[:9])
    assert (state[:9] + "ing").rows[0] == (*letters[:9], *Encoder().encode("ing"))


def test_special_tokens_inside_stay_where_they_are(model: Any) -> None:
    row = (BOS, *Encoder().encode("one"), BOS, *Encoder().encode(" two"))
    state = made([row], tokenizer=Encoder(bos=True), model=model)
    assert state[:5].rows[0] == (BOS, row[1], BOS, *Encoder().encode(" t"))
    # What follows the special token at the beginning goes, the token itself stays.
    assert state[4:].rows[0] == (BOS, *Encoder().encode("two"))
    assert_cached(state[4:])


def test_slicing_moves_cached_rows_at_most_once(model: Any) -> None:
    counting = Counting(model)
    state = made([Encoder().encode(text) for text in PROMPTS], model=counting)
    counting.passes.clear()
    moves = []
    cache = state.held_cache
    take = type(cache).take_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cache), "take_rows", lambda self, index: moves.append(1) or take(self, index))
        found = state[::2, :4]
        assert len(moves) == 1
        found.fork(5)
        assert len(moves) == 2
    assert counting.passes == []


def test_forks_are_independent_copies_side_by_side(model: Any) -> None:
    state = made([Encoder().encode(text) for text in PROMPTS[:2]], model=model)
    forked = state.fork(3)
    assert forked.weights.shape == (2, 3)
    assert forked.rows == tuple(row for row in state.rows for _ in range(3))
    assert np.array_equal(forked.weights, np.repeat(state.weights, 3, axis=1))
    assert_cached(forked)
    longer = continuous(generator(model, strategy=Multinomial(samples=3), eos=()))(forked, max_tokens=6)
    assert_cached(longer)
    with pytest.raises(GenerationError, match="'samples' must be a whole number of at least 1"):
        state.fork(0)


# -- sums --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_adding_states_joins_texts_and_sums_weights(states: Any, shape: Any) -> None:
    a = states[shape]
    b = (
        part(a, (slice(None),) * 2 + (slice(3, 9),))
        if shape in ((1, 1), (3, 3))
        else part(a, (slice(None), slice(3, 9)))
    )
    total = a + b
    assert list(total) == [x + y for x, y in zip(a, b, strict=True)]
    assert np.array_equal(total.weights, a.weights + b.weights)
    assert_cached(total)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_adding_text_resets_weights_and_keeps_the_cache(states: Any, shape: Any) -> None:
    state = states[shape]
    texts = [f" {'abc'[i % 3]} cat" for i in range(state.weights.size)]
    total = state + (texts[0] if shape == (1, 1) else texts)
    assert list(total) == [x + y for x, y in zip(state, texts, strict=True)]
    assert total.weights.shape == shape
    assert not total.weights.any()
    assert not total.scored.any()
    assert_cached(total)


def test_new_tokens_are_computed_in_one_pass_when_they_are_needed(model: Any) -> None:
    counting = Counting(model)
    state = made([Encoder().encode(text) for text in PROMPTS], model=counting)
    counting.passes.clear()
    texts = ["abc", "a", "ab"]
    total = state + texts + state
    assert counting.passes == []
    longer = continuous(generator(counting, eos=(), max_tokens=1))(total)
    added = [len(row) - len(old) + 1 for row, old in zip(total.rows, state.rows, strict=True)]
    assert counting.passes == [added]
    assert_cached(longer)


@pytest.mark.parametrize(
    ("shape", "texts"), [((1, 1), ["a", "b"]), ((3, 1), "a"), ((3, 1), ["a"]), ((3, 3), ["a", "b", "c"])]
)
def test_one_text_must_be_given_for_each_sequence(states: Any, shape: Any, texts: Any) -> None:
    message = "^A sequence and a string were added and their batch sizes were different."
    with pytest.raises(BatchMismatchError, match=message):
        states[shape] + texts


def test_states_of_other_numbers_of_prompts_cannot_be_added(states: Any) -> None:
    for left, right in [((1, 1), (3, 1)), ((3, 3), (1, 3)), ((1, 3), (3, 1))]:
        with pytest.raises(BatchMismatchError, match="^Sequences were added and their batch sizes were different."):
            states[left] + states[right]


def test_states_of_other_numbers_of_samples_cannot_be_added(states: Any) -> None:
    for left, right in [((1, 1), (1, 3)), ((3, 3), (3, 1))]:
        message = f"`num_samples == {left[1]}`, the right one `num_samples == {right[1]}`"
        with pytest.raises(SampleMismatchError, match=message):
            states[left] + states[right]


def test_other_things_cannot_be_added(states: Any) -> None:
    for other in (5, None, [1, 2], {"a": 1}):
        with pytest.raises(TypeError, match="unsupported operand"):
            states[1, 1] + other


def test_states_of_other_vocabularies_cannot_be_added() -> None:
    a, b = made([[1, 2]]), made([[1, 2]], vocabulary=Vocabulary([b"a", b"b", b"c"]))
    with pytest.raises(GenerationError, match="different vocabularies"):
        a + b


def test_text_needs_a_tokenizer_and_a_vocabulary() -> None:
    with pytest.raises(GenerationError, match=r"'a' must be turned into tokens.*Give Generator\(tokenizer"):
        made([[1, 2]], tokenizer=None) + "a"
    with pytest.raises(GenerationError, match="text of these sequences is not known"):
        list(made([[1, 2]], vocabulary=None))
    assert str(made([[1, 2]], vocabulary=None)) == "SequenceState(batch=1, samples=1, tokens=[2], cached=[0])"


# -- what one sees -----------------------------------------------------------------------------------------------


def test_ids_are_filled_at_the_left_and_the_mask_says_where() -> None:
    eos = VOCABULARY.eos[0]
    state = made([[1, eos, 2], [eos], [3, 4]])
    assert state.token_ids.tolist() == [[1, eos, 2], [eos, eos, eos], [eos, 3, 4]]
    assert state.attention_mask.tolist() == [[1, 1, 1], [0, 0, 1], [0, 1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        state.token_ids[0, 0] = 5


def test_states_are_shown_by_their_texts() -> None:
    one, two = Encoder().encode("one"), Encoder().encode("two")
    assert str(made([one])) == "SequenceState{'one'}"
    assert str(made([one, two])) == "SequenceState{['one', 'two']}"
    assert str(made([one, two], (1, 2))) == "SequenceState{['one', 'two']}"
    assert str(made([one, two, two, one], (2, 2))) == ("SequenceState{[Samples('one', 'two'), Samples('two', 'one')]}")


def test_weights_must_fit_the_rows() -> None:
    with pytest.raises(GenerationError, match=r"weights of shape \[2, 1\] for 1 rows"):
        SequenceState([[1]], np.zeros((2, 1)))


# -- the property -------------------------------------------------------------------------------------------------

texts = st.text(alphabet="onetwshap .\u00e9\u00fc", max_size=12)
char_slices = st.slices(14)
row_slices = st.slices(4)


@st.composite
def expressions(draw: st.DrawFn, state: SequenceState) -> SequenceState:
    """A state after some slices, sums, forks and looks at the cache, none of which leaves a row empty."""
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(["chars", "rows", "text", "state", "fork", "look"]))
        before = state
        if what == "chars":
            state = _over_rows(state, slice(None), draw(char_slices))
        elif what == "rows":
            chosen = draw(row_slices)
            if list(range(state.batch))[chosen]:
                state = _over_rows(state, chosen, slice(None))
        elif what == "text":
            state = state + [draw(texts) for _ in state.rows]
        elif what == "state":
            state = state + _over_rows(state, slice(None), draw(char_slices))
        elif what == "fork" and len(state.rows) < 8:
            state = state.fork(2)
        elif what == "look":
            assert state.kv_cache is None or state.kv_cache.lengths.tolist() == [n - 1 for n in lengths(state)]
        if not all(state.rows) or max(lengths(state)) > 60:
            state = before
    return state


def _over_rows(state: SequenceState, batch: slice, chars: slice) -> SequenceState:
    if len(state.rows) == 1 or (state.batch > 1 and state.samples > 1):
        return part(state, (batch, slice(None), chars))
    return part(state, (slice(None) if state.batch == 1 else batch, chars))


def assert_goes_on_like_new(state: SequenceState) -> None:
    """From what is held, in one pass, come the logits that the tokens alone give."""
    rows = list(dict.fromkeys(state.rows))
    held = state.held_cache
    reader = PrefixCachedModel(state.model, state.rows, held)
    longest = max(map(len, rows))
    tokens = np.asarray([[*row, *[-1] * (longest - len(row))] for row in rows], dtype=np.int32)
    logits, _ = reader.forward(tokens, reader.empty_cache(len(rows)))
    fresh = fresh_logits(state.model, rows)
    assert np.allclose(state.model.backend.to_numpy(logits), fresh, atol=1e-4)
    if state.kv_cache is not None:
        assert_cached(state)


FIRST = [Encoder().encode(text) for text in ("one cat sat on the sheep", "two", "th\u00fce \u00e9. sheep ing")]
TINY = tiny_model()
TOY = ToyModel(load_backend("numpy"), vocab=VOCABULARY.size)


@given(st.data())
def test_any_slices_and_sums_keep_a_cache_that_gives_the_logits_of_a_fresh_pass(data: st.DataObject) -> None:
    state = data.draw(expressions(made(FIRST, model=TINY)))
    assert list(state) == [VOCABULARY.decode(row) for row in state.rows]
    assert_goes_on_like_new(state)


@given(st.data())
def test_any_slices_and_sums_keep_the_tokens_that_a_toy_cache_remembers(data: st.DataObject) -> None:
    state = data.draw(expressions(made(FIRST, model=TOY)))
    if state.held_cache is not None:
        assert all(row[: len(held)] == held for row, held in zip(state.rows, state.held_cache.rows, strict=True))
    assert_goes_on_like_new(state)


@given(st.data())
def test_texts_of_expressions_are_those_of_strings(data: st.DataObject) -> None:
    state, chars, more = made(FIRST, model=TINY), data.draw(char_slices), data.draw(texts)
    other = data.draw(char_slices)
    joined = part(state, (slice(None), chars)) + [more] * 3
    assert list(joined) == [text[chars] + more for text in state]
    assert list(part(joined, (slice(None), other))) == [(text[chars] + more)[other] for text in state]


def test_slices_and_sums_keep_the_cache_on_every_backend(backend: Any) -> None:
    model = tiny_model(backend)
    state = made(FIRST, model=model)
    changed = state[::-1, :-2] + ["one cat", "two", "."] + state
    reader = PrefixCachedModel(model, changed.rows, changed.held_cache)
    tokens = padded(changed.rows)
    logits, _ = reader.forward(tokens, reader.empty_cache(3))
    fresh, _ = model.forward(tokens, model.empty_cache(3))
    assert changed.held_cache.lengths.any()
    assert np.allclose(backend.to_numpy(logits), backend.to_numpy(fresh), atol=1e-4)


@pytest.mark.parametrize("library", ["numpy", "torch", "mlx", "jax"])
def test_states_are_copied_and_pickled_and_go_on(library: str) -> None:
    from logitloom_contrib.llama import random_model

    model = random_model(installed(library))
    words = Vocabulary([bytes([32 + i]) for i in range(64)])
    write = continuous(Generator(model, vocabulary=words))
    made = write([40, 41], max_tokens=3)
    assert copy.deepcopy(made) is copy.copy(made) is made
    pickled = pickle.loads(pickle.dumps(made))
    assert (pickled.rows, pickled.model, pickled.held_cache) == (made.rows, None, None)
    assert np.array_equal(pickled.weights, made.weights)
    assert np.array_equal(pickled.scored, made.scored)
    assert write(pickled, max_tokens=3).rows == write(made, max_tokens=3).rows
    assert copy.deepcopy(model.backend) is pickle.loads(pickle.dumps(model.backend)) is model.backend
    other = continuous(Generator(model, vocabulary=Vocabulary([bytes([33 + i]) for i in range(64)])))
    with pytest.raises(GenerationError, match="its ids would mean something else"):
        other(pickled, max_tokens=1)


def installed(library: str) -> str:
    if library != "numpy":
        pytest.importorskip("mlx.core" if library == "mlx" else library, reason=f"needs {library}")
    return library
