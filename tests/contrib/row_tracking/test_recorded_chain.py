"""What a recorded chain tells of each token is what is computed anew from the text before it, however rows moved."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Chain, Context, processors
from logitloom.errors import NeedsNotMet, OptionError, StateMismatch
from logitloom.generation import Sampled
from logitloom.trace import RecordedChain, TracedChain
from logitloom_contrib.row_tracking import RowTracker, right_aligned
from tests.contrib.row_tracking.test_row_tracking import EOS, PAD, VOCAB, VOCABULARY, Mix
from tests.fuzz.interrupted import instructions

SPECS: Any = (
    Mix(),
    ("repetition_penalty", {"penalty": 1.4}),
    ("temperature", {"temperature": 0.6}),
    ("top_k", {"k": 4}),
)


def chain_of(*specs: Any) -> Chain:
    return processors.load(*(specs or SPECS), tokenizer=VOCABULARY)


def given(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """What a model says after some rows: any function of their ids."""
    seeds = [sum((place + 1) * token for place, token in enumerate(row)) for row in rows]
    return np.stack([np.random.default_rng(seed).normal(size=VOCAB) for seed in seeds]).astype(np.float32)


def normal(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64)
    return np.asarray(row - row.max() - np.log(np.exp(row - row.max()).sum()))


def anew(chain: Chain, prompt: list[int], tokens: list[int]) -> list[Sampled]:
    """The oracle: each token from a fresh row, replayed from nothing."""
    found = []
    for place, token in enumerate(tokens):
        raw = given([[*prompt, *tokens[:place]]])
        context = Context.start(raw, prompt=[prompt], max_length=64)
        after = normal(chain.process(raw, chain.replay([tokens[:place]], context), context)[0][0])
        left = after[np.isfinite(after)]
        entropy = float(-(np.exp(left) * left).sum())
        found.append(Sampled(token, float(after[token]), float(normal(raw[0])[token]), len(left), entropy))
    return found


def same(told: Sequence[Sampled | None], wanted: Sequence[Sampled]) -> None:
    assert [each and (each.token, each.kept) for each in told] == [(each.token, each.kept) for each in wanted]
    for name in ("logprob", "logprob_before", "entropy"):
        assert [getattr(a, name) for a in told] == pytest.approx([getattr(b, name) for b in wanted], abs=1e-5), name


def ask(tracker: RowTracker, rows: list[list[int]], **more: Any) -> np.ndarray:
    ids, starts = right_aligned(rows)
    return np.asarray(tracker.process(given(rows), ids, starts, **more))


def legal(line: np.ndarray, rng: np.random.Generator) -> int:
    return int(rng.choice([token for token in np.flatnonzero(np.isfinite(line)) if token not in (EOS, PAD)]))


def test_rows_that_move_and_drafts_that_are_rejected_take_their_records_along() -> None:
    rng = np.random.default_rng(3)
    chain = RecordedChain(chain_of())
    tracker, plain = RowTracker(chain, eos=[EOS]), RowTracker(chain_of(), eos=[EOS])
    rows = [[3, 1], [4, 4], [5]]
    prompts = [len(row) for row in rows]
    for step in range(12):
        out = ask(tracker, rows)
        assert (out == ask(plain, rows)).all()
        if step % 4 == 3:  # drafts behind the rows, of which nothing stays
            for _ in range(2):
                drafted = [[*row, legal(line, rng)] for row, line in zip(rows, out, strict=True)]
                assert (ask(tracker, drafted) == ask(plain, drafted)).all()
        if step < 11:
            parents = rng.integers(0, len(rows), size=3)
            rows = [[*rows[parent], legal(out[parent], rng)] for parent in parents]
            prompts = [prompts[parent] for parent in parents]
    for row, length in zip(rows, prompts, strict=True):
        prompt, tokens = row[:length], [*row[length:], EOS]
        same(chain.sampled(tokens, prompt=prompt), anew(chain_of(), prompt, tokens))


def test_a_row_that_waits_for_others_keeps_what_it_ended_with() -> None:
    rng = np.random.default_rng(3)
    chain = RecordedChain(chain_of())
    tracker = RowTracker(chain, eos=[EOS], padding=[PAD])
    rows = [[3, 1], [4, 4]]
    for step in range(80):
        out = ask(tracker, rows)
        first = legal(out[0], rng) if step < 2 else EOS if step == 2 else PAD
        rows = [[*rows[0], first], [*rows[1], legal(out[1], rng)]]
    ended = rows[0][2:5]
    same(chain.sampled(ended, prompt=[3, 1]), anew(chain_of(), [3, 1], ended))
    assert len(chain.sampled(rows[1][2:])) == 80


def test_every_backend_records_the_same(backend: Backend) -> None:
    chain = RecordedChain(chain_of(*SPECS[1:]))
    tokens, prompt = [2, 2, 7], [3, 1]
    context = Context.start(backend.asarray(given([prompt])), prompt=[prompt], max_length=64)
    state, step = chain.init_state(context), context
    for place, token in enumerate(tokens):
        _, state = chain.process(backend.asarray(given([[*prompt, *tokens[:place]]])), state, step)
        step = context.accept([[token]])
    same(chain.sampled(tokens), anew(chain_of(*SPECS[1:]), prompt, tokens))


def test_what_a_row_was_rebuilt_from_is_not_known() -> None:
    specs = SPECS[:-1]
    chain = RecordedChain(chain_of(*specs))
    tracker = RowTracker(chain)
    ask(tracker, [[5, 1, 2]], prompt_lengths=[1])
    ask(tracker, [[5, 1, 2, 3]], prompt_lengths=[1])
    told = chain.sampled([1, 2, 3, 4], prompt=[5])
    assert told[:2] == (None, None)
    same(told[2:], anew(chain_of(*specs), [5], [1, 2, 3, 4])[2:])


def test_the_last_logits_of_a_prompt_that_is_shown_piece_by_piece_count() -> None:
    for first in (True, False):
        chain = RecordedChain(chain_of(("top_k", {"k": 3})), first=first)
        context = Context.start(given([[1]]))
        _, state = chain.process(given([[1]]), chain.init_state(context), context)
        chain.process(given([[2]]), state, context)
        [told] = chain.sampled([4])
        assert told is not None
        assert told.logprob_before == pytest.approx(float(normal(given([[1 if first else 2]])[0])[4]))


def test_a_configured_chain_writes_into_the_same_record_and_a_copy_into_its_own() -> None:
    chain = RecordedChain(chain_of(*SPECS[1:]))
    again = pickle.loads(pickle.dumps(chain))
    ask(RowTracker(chain.configure(tokenizer=VOCABULARY, top_k={"k": 2})), [[5]])
    assert [each and each.kept for each in chain.sampled([3])] == [2]
    with pytest.raises(NeedsNotMet, match="no row of this chain wrote it, or it is older than the 4096 steps"):
        again.sampled([3])


@pytest.mark.parametrize("kind", [RecordedChain, TracedChain])
def test_states_that_belong_to_a_record_are_refused_elsewhere_with_a_remedy(kind: Any) -> None:
    chain, context = kind(chain_of(("top_k", {"k": 2}))), Context.start(given([[5]]))
    state = chain.init_state(context)
    for send in (pickle.dumps, chain.save_state):
        with pytest.raises(StateMismatch, match=f"of a {kind.__name__} .* record .* 'unrecorded', .* replay"):
            send(state)
    # What the remedy names works.
    assert pickle.dumps(chain.unrecorded.init_state(context))
    chain.process(given([[5]]), state, context)


def test_states_after_many_tokens_are_copied_and_shown() -> None:
    chain, context = RecordedChain(chain_of(("top_k", {"k": 2}))), Context.start(given([[5]]))
    _, state = chain.process(given([[5]]), chain.init_state(context), context.accept([[3] * 5000]))
    assert len(repr(state)) < 500
    assert copy.deepcopy(state).processors[-1] == state.processors[-1]


def test_a_text_whose_end_is_unknown_is_looked_for_in_time_that_grows_with_its_length() -> None:
    counts = []
    for length in (30, 120):
        chain, context = RecordedChain(chain_of(("top_k", {"k": 2}))), Context.start(given([[5]]))
        state = chain.init_state(context)
        for _ in range(length):
            _, state = chain.process(given([[5]]), state, context.accept([[3]]))
        counts.append(instructions(functools.partial(chain.sampled, [*[3] * length, 4, 4])))
    assert counts[1] < 5 * counts[0]


def test_the_record_is_bounded() -> None:
    chain = RecordedChain(chain_of(), limit=4)
    tracker = RowTracker(chain)
    for first in range(8):
        ask(tracker, [[5, 5, first]])
    with pytest.raises(NeedsNotMet, match="Nothing is recorded of a text of the tokens \\[1\\]"):
        chain.sampled([1], prompt=[5, 5, 0])
    assert len(chain.sampled([1], prompt=[5, 5, 7])) == 1
    with pytest.raises(OptionError, match="at least one step of a row, but limit is 0"):
        RecordedChain(chain_of(), limit=0)


def test_the_logits_stay_as_they_are() -> None:
    chain = RecordedChain(chain_of(("temperature", {"temperature": 0.5})))
    logits = given([[1]])
    kept = logits.copy()
    context = Context.start(logits, donate=True)
    chain.process(logits, chain.init_state(context), context)
    assert (logits == kept).all()
