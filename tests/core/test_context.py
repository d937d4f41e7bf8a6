"""The context: validated once, immutable, tokens in any form a loop has them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from logitloom import Context, Vocabulary, errors, processors


def logits(batch=2, vocab=5):
    return np.zeros((batch, vocab), dtype=np.float32)


def test_the_logits_tell_backend_batch_and_width():
    context = Context.start(logits(3, 7))
    assert (context.backend.name, context.batch, context.vocab_size) == ("numpy", 3, 7)
    assert (Context.start(logits(1, 7)[0]).batch, Context.start(logits(1, 7)[0]).vocab_size) == (1, 7)
    assert Context.start(logits(6), branches=2).batch == 3


def test_prompts_become_tuples_of_integers():
    context = Context.start(logits(), prompt=[np.array([1, 2]), []])
    assert context.prompt == ((1, 2), ())
    assert all(type(t) is int for t in context.prompt[0])


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"prompt": [[1]]}, "2 rows but 1 prompts; give one prompt per row"),
        ({"seed": [1, 2, 3]}, "2 rows but 3 seeds; give one integer, or one per row"),
        ({"prompt": [[1], [2, 3, 4]], "max_length": 2}, "prompt of row 1 has 3 tokens, but max_length is 2"),
        (
            {"vocabulary": Vocabulary([b"a"] * 6, name="big")},
            "5 columns, but the vocabulary 'big' has a token with id 5",
        ),
        ({"prompt": [[1], [-1]]}, "row 1 .*-1.*negative"),
        ({"max_length": True}, "'max_length' must be a whole number of at least 0, but is True"),
        ({"max_new_tokens": [3, True]}, r"'max_new_tokens\[1\]' must be a whole number of at least 0, .*but is True"),
        ({"max_new_tokens": -1}, "'max_new_tokens' must be a whole number of at least 0, at most .*, but is -1"),
        ({"max_new_tokens": [3, 2**31]}, r"'max_new_tokens\[1\]' must be a whole number of .* at most 2147483647, but"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(more, text):
    with pytest.raises(errors.InvalidContext, match=text):
        Context.start(logits(), **more)


@pytest.mark.parametrize("shape", [(), (2, 3, 4)])
def test_logits_of_another_rank_are_refused(shape):
    with pytest.raises(errors.InvalidContext, match=r"give \[batch, vocab\]"):
        Context.start(np.zeros(shape))


def test_rows_that_are_no_multiple_of_the_branches_are_refused():
    with pytest.raises(errors.InvalidContext, match="3 rows of logits.*2 branches"):
        Context.start(logits(3), branches=2)


def test_a_vocabulary_may_end_in_unused_ids_beyond_the_logits():
    vocabulary = Vocabulary([b"a", b"b", b"c", b"d", b"e", b"", b""])
    assert Context.start(logits(), vocabulary=vocabulary).vocabulary is vocabulary


def test_a_context_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Context.start(logits()).batch = 5


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([3, 4], [[3], [4]]),
        ([[3], [4]], [[3], [4]]),
        ([[5], [], [7, 8]], [[5, -1], [-1, -1], [7, 8]]),
        ([[], []], [[], []]),
        ((1, [2, 3]), [[1, -1], [2, 3]]),
        ([np.int64(1), np.array([2, 3])], [[1, -1], [2, 3]]),
        (np.array([3, 4]), [[3], [4]]),
        (np.array([[3, 4], [-1, 5]], dtype=np.int64), [[3, 4], [-1, 5]]),
    ],
)
def test_accepted_tokens_become_an_int32_array_filled_with_minus_one(tokens, expected):
    accepted = Context.start(logits(len(expected), 9)).accept(tokens).tokens
    assert accepted.dtype == np.int32
    assert accepted.ndim == 2
    np.testing.assert_array_equal(accepted, np.array(expected, dtype=np.int32).reshape(len(expected), -1))


def test_accepting_changes_nothing_else():
    context = Context.start(logits(), seed=5)
    after = context.accept([1, 2], donate=True)
    assert (after.seed, after.donate, context.donate, context.tokens) == (5, True, False, None)
    assert after.accept(None).tokens is None


@pytest.mark.torch
def test_native_tokens_become_int32_too():
    torch = pytest.importorskip("torch")
    context = Context.start(torch.zeros(2, 5))
    accepted = context.accept(torch.tensor([3, 4])).tokens
    assert isinstance(accepted, torch.Tensor)
    assert (tuple(accepted.shape), accepted.dtype) == ((2, 1), torch.int32)


@pytest.mark.parametrize("given", ["x", 5, ["a", "b"], [0.5], [[0.5, 1.0], [1.0]], [None, -1.0], np.ones(3)])
def test_log_probabilities_that_do_not_fit_the_tokens_are_refused(given):
    context = Context.start(logits())
    with pytest.raises(errors.InvalidContext, match="numbers in the form of the tokens, one for each, but came as"):
        context.accept([1, 2], chosen_logprob=given)
    for fits in ([-0.5, -1.0], [[-0.5], [-1.0]], np.array([-0.5, -1.0])):
        assert context.accept([1, 2], chosen_logprob=fits).chosen_logprob.tolist() == [[-0.5], [-1.0]]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("chosen_logprobs", "Did you mean 'chosen_logprob'"),
        ("prompts", "Did you mean 'prompt'"),
        ("xyz", "Its fields are "),
    ],
)
def test_fields_that_a_context_does_not_have_are_refused(name, hint):
    context = Context.start(logits())
    for call, make in (("accept", lambda **more: context.accept([1, 2], **more)),
                       ("Context.start", lambda **more: Context.start(logits(), **more))):  # fmt: skip
        with pytest.raises(errors.InvalidContext, match=rf"{call}\(\) takes no argument '{name}'.*{hint}"):
            make(**{name: None})


def test_lengths_are_for_processors_that_declare_the_need():
    with pytest.raises(errors.InvalidContext, match=r"declares needs = \{'length'\}"):
        _ = Context.start(logits()).step


def test_one_seed_gives_every_row_its_own():
    seeds = Context.start(logits(3), seed=7).row_seeds()
    assert seeds.dtype == np.int32
    assert len(set(seeds.tolist())) == 3
    np.testing.assert_array_equal(seeds, Context.start(logits(3), seed=np.int64(7)).row_seeds())
    np.testing.assert_array_equal(seeds[:2], Context.start(logits(2), seed=7).row_seeds())


def test_seeds_per_row_stay_with_their_rows():
    a, b = Context.start(logits(), seed=[5, 6]).row_seeds()
    c, d = Context.start(logits(), seed=[6, 5]).row_seeds()
    assert (a, b) == (d, c)
    assert a != b


@pytest.mark.extras
def test_a_tokenizer_stands_for_its_vocabulary():
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a")
    tokenizer = tokenizers.Tokenizer(model)
    context = Context.start(np.zeros((1, 2), dtype=np.float32), vocabulary=tokenizer)
    assert context.vocabulary == processors.load(tokenizer=tokenizer).vocabulary


def test_what_no_reader_knows_is_no_vocabulary():
    with pytest.raises(errors.VocabularyError, match="No tokenizer reader knows builtins.int"):
        Context.start(np.zeros((1, 2), dtype=np.float32), vocabulary=3)
