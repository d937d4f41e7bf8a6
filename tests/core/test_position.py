"""Lengths and histories, kept by the chain, against a naive book-keeper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Processor, processors
from logitloom.chain import positions
from logitloom.errors import InvalidContext
from logitloom.rows import tree as state
from tests.cases import examples

ROWS = st.integers(1, 4)
TOKENS = st.lists(st.integers(0, 9), max_size=3)


class Recording(Processor):
    """Keeps what it was shown; declares both needs."""

    needs = frozenset({"length", "history"})

    def __init__(self):
        self.seen = []

    def process(self, logits, context):
        self.seen.append((context.sequence, context.length, context.prompt_length, context.step))
        return logits


def buffer(rows, capacity):
    out = np.full((len(rows), capacity), -1, dtype=np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row[:capacity])] = row[:capacity]
    return out


@examples(60)
@given(st.data())
def test_histories_are_those_of_a_naive_book_keeper(data):
    prompts = data.draw(st.lists(TOKENS, min_size=1, max_size=4))
    capacity = data.draw(st.integers(max(len(p) for p in prompts) or 1, 8))
    logits = np.zeros((len(prompts), 10), dtype=np.float32)
    context = Context.start(logits, prompt=prompts, max_length=capacity)
    recording = Recording()
    chain = processors.load(recording, debug=True)
    lived = chain.init_state(context)
    books = [list(p) for p in prompts]
    starts = [len(p) for p in prompts]
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            index = data.draw(st.lists(st.integers(0, len(books) - 1), min_size=1, max_size=4))
            lived = state.take(lived, index)
            books, starts = [list(books[i]) for i in index], [starts[i] for i in index]
        tokens = [data.draw(TOKENS) for _ in books]
        holes = data.draw(st.booleans())
        given_tokens = (
            [[t for pair in zip([-1] * len(row), row, strict=True) for t in pair] for row in tokens]
            if holes
            else tokens
        )
        donated = data.draw(st.booleans())
        accepted = np.zeros((len(books), 10), np.float32), lived, context.accept(given_tokens, donate_state=donated)
        for book, row in zip(books, tokens, strict=True):
            book.extend(row)
        if max(map(len, books)) > capacity:
            with pytest.raises(InvalidContext, match=f"tokens, but the histories of this generation hold {capacity}"):
                chain.process(*accepted)
            return
        _, lived = chain.process(*accepted)
        sequence, length, prompt_length, step = recording.seen[-1]
        np.testing.assert_array_equal(sequence, buffer(books, capacity))
        np.testing.assert_array_equal(length, [len(b) for b in books])
        np.testing.assert_array_equal(prompt_length, starts)
        np.testing.assert_array_equal(step, [len(b) - s for b, s in zip(books, starts, strict=True)])
        assert {a.dtype for a in (sequence, length, prompt_length, step)} == {np.dtype(np.int32)}


def test_the_first_call_shows_the_prompt():
    recording = Recording()
    logits = np.zeros((2, 4), dtype=np.float32)
    context = Context.start(logits, prompt=[[1, 2], [3]], max_length=4)
    chain = processors.load(recording)
    chain.process(logits, chain.init_state(context), context)
    sequence, length, _, step = recording.seen[0]
    np.testing.assert_array_equal(sequence, [[1, 2, -1, -1], [3, -1, -1, -1]])
    np.testing.assert_array_equal(length, [2, 1])
    np.testing.assert_array_equal(step, [0, 0])


def test_tokens_at_once_and_one_by_one_give_the_same_position():
    logits = np.zeros((1, 10), dtype=np.float32)
    context = Context.start(logits, prompt=[[7]], max_length=8)
    needs = frozenset({"length", "history"})
    one_by_one = at_once = positions.start(context, needs)
    for token in (1, 2, 3):
        one_by_one = positions.advance(one_by_one, context.accept([token]))
    at_once = positions.advance(at_once, context.accept([[1, 2, 3]]))
    for a, b in zip(one_by_one, at_once, strict=True):
        np.testing.assert_array_equal(a, b)


def test_earlier_positions_stay_as_they_were():
    logits = np.zeros((2, 10), dtype=np.float32)
    context = Context.start(logits, max_length=3)
    first = positions.start(context, {"history"})
    positions.advance(first, context.accept([1, 2]))
    positions.advance(first, context.accept([[1, 2], [3]]))
    assert (first.sequence == -1).all()


def test_a_history_that_is_full_is_told_with_the_row_and_the_remedy():
    """What the processor would see from there on would be another text."""
    chain = processors.load(("no_repeat_ngram", {"n": 2}))
    logits = np.zeros((2, 10), dtype=np.float32)
    short, long = (Context.start(logits, prompt=[[1], [2, 3]], max_length=length) for length in (4, 5))
    _, lived = chain.process(logits, chain.init_state(short), short.accept([[4], [4, 5]]))
    with pytest.raises(InvalidContext, match=r"Row 1 has 5 tokens.*hold 4, the max_length of its start.*chain\.replay"):
        chain.process(logits, lived, short.accept([6, 6]))
    with pytest.raises(InvalidContext, match="Row 1 has 5 tokens"):
        chain.process(logits, chain.load_state(chain.save_state(lived), long), long.accept([6, 6]))
    found, _ = chain.process(logits, chain.replay([[4], [4, 5]], long), long.accept([6, 4]))
    assert np.flatnonzero(np.isneginf(found[1])).tolist() == [5]


def test_nothing_is_kept_that_nobody_needs():
    logits = np.zeros((1, 4), dtype=np.float32)
    context = Context.start(logits)
    assert processors.load("temperature").init_state(context).position == ()

    class Lengths(Processor):
        needs = frozenset({"length"})

        def process(self, logits):
            return logits

    assert processors.load(Lengths()).init_state(context).position.sequence == ()


def test_all_processors_share_one_history():
    recordings = Recording(), Recording()
    logits = np.zeros((1, 4), dtype=np.float32)
    context = Context.start(logits, max_length=4)
    chain = processors.load(*recordings)
    chain.process(logits, chain.init_state(context), context.accept([3]))
    assert recordings[0].seen[0][0] is recordings[1].seen[0][0]
