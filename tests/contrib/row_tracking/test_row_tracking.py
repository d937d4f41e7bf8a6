from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Processor, Vocabulary, processors
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import IllegalToken, InvalidContext, NeedsNotMet, NoLegalToken
from logitloom_contrib.row_tracking import RowTracker, right_aligned
from logitloom_contrib.row_tracking.call_snapshot import CallSnapshot
from tests.contrib.row_tracking.counted_tracker import CountedTracker
from tests.core.generation.test_feedback import Drift

VOCAB = 12
EOS, PAD = 10, 11
VOCABULARY = Vocabulary([bytes([97 + i]) for i in range(10)] + [b"", b""], eos=[EOS], special=[PAD])


class Mixed(NamedTuple):
    hash: Any  # [rows] int32, of prompt and tokens


@dataclass(frozen=True)
class Mix(Processor):
    """Logits that depend on the prompt, on every token, and on their order."""

    needs = frozenset({"prompt"})

    def init_state(self, context: Context) -> Mixed:
        assert context.prompt is not None
        hashes = np.zeros(context.batch, dtype=np.int32)
        for row, prompt in enumerate(context.prompt):
            for token in prompt:
                hashes[row] = (int(hashes[row]) * 31 + token + 1) % 10_007
        return Mixed(context.backend.asarray(hashes))

    def process(self, logits: Any, state: Mixed, context: Context) -> tuple[Any, Mixed]:
        hashed = state.hash
        if context.tokens is not None:
            for column in np.asarray(context.tokens).T:
                hashed = np.where(column >= 0, (hashed * 31 + column + 1) % 10_007, hashed).astype(np.int32)
        return logits + np.sin(hashed[:, None] + np.arange(logits.shape[1])).astype(np.float32), Mixed(hashed)


def tracker_of(*specs: Any, **more: Any) -> CountedTracker:
    return CountedTracker(processors.load(*specs, tokenizer=VOCABULARY), eos=[EOS], padding=[PAD], **more)


def alone(chain: Any, prompt: list[int], tokens: list[int], **more: Any) -> np.ndarray:
    """The oracle: one row, replayed from nothing."""
    blank = np.zeros((1, VOCAB), dtype=np.float32)
    context = Context.start(blank, prompt=[prompt], **more)
    return chain.process(blank, chain.replay([tokens], context), context)[0][0]


def call(tracker: RowTracker, rows: list[list[int]]) -> np.ndarray:
    return tracker.process(np.zeros((len(rows), VOCAB), dtype=np.float32), *right_aligned(rows))


@st.composite
def searches(draw: Any) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Ragged prompts, and per call the rows that each row continues and with which token."""
    size = draw(st.integers(1, 4))
    prompts = [draw(st.lists(st.integers(0, 3), min_size=1, max_size=5)) for _ in range(size)]
    steps = [
        [(draw(st.integers(0, size - 1)), draw(st.integers(0, 2))) for _ in range(size)]
        for _ in range(draw(st.integers(1, 12)))
    ]
    return prompts, steps


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_stay_in_place_are_not_searched_for(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = tracker_of(("regex", {"pattern": "([abc]b|[abc][ac])*"}))
    ids = np.tile(np.arange(4, dtype=np.int64), (rows, 1))
    logits = np.zeros((rows, VOCAB), dtype=np.float32)
    tracker.process(logits, ids)
    monkeypatch.delattr("logitloom_contrib.row_tracking.row_tracker.match_together")
    monkeypatch.delattr("logitloom_contrib.row_tracking.row_tracker.CallMatch")
    for step in range(70):  # longer than the first buffer of ids
        ids = np.concatenate([ids, (ids[:, :1] + step + np.arange(rows)[:, None]) % 3], axis=1)
        out = tracker.process(logits, ids)
    expected = [alone(tracker.chain, row[:4], row[4:]) for row in ids.tolist()]
    np.testing.assert_array_equal(out, np.stack(expected))
    assert tracker.replayed == 0


@pytest.mark.parametrize("rows", [1, 2])
def test_a_changed_id_anywhere_begins_a_new_generation(rows: int) -> None:
    prompts = [[1, 2, 3, 4][: 4 - row] for row in range(rows)]
    for place in range(3):
        tracker = tracker_of(Mix())
        call(tracker, prompts)
        other = [[*row] for row in prompts]
        other[0][place] = 7
        extended = [[*row, 5] for row in other]
        expected = [alone(tracker.chain, row, []) for row in extended]
        np.testing.assert_array_equal(call(tracker, extended), np.stack(expected))


def test_an_id_that_the_logits_do_not_have_is_told() -> None:
    for rows in ([[1, 2]], [[1, 2], [1, 3]]):
        tracker = tracker_of(Mix())
        call(tracker, rows)
        with pytest.raises(InvalidContext, match=f"The id {VOCAB} was accepted, and ids are from 0 to {VOCAB - 1}"):
            call(tracker, [[*row, VOCAB] for row in rows])


@given(searches(), st.sampled_from([1, 2, 64]))
def test_reordered_and_duplicated_rows_keep_their_states(search: Any, states: int) -> None:
    prompts, steps = search
    tracker = tracker_of(Mix(), states=states)
    rows = [(prompt, []) for prompt in prompts]
    call(tracker, prompts)
    for step in steps:
        # Within one batch every row gained as many tokens, as engines that pass one array do it.
        rows = [(rows[parent][0], [*rows[parent][1], token]) for parent, token in step]
        out = call(tracker, [prompt + tokens for prompt, tokens in rows])
        for line, (prompt, tokens) in zip(out, rows, strict=True):
            assert np.array_equal(line, alone(tracker.chain, prompt, tokens))


ROWS = st.lists(st.lists(st.integers(0, 1), max_size=12), min_size=1, max_size=6)


@given(ROWS, st.data(), st.sampled_from([0, 1, 3]))
def test_rows_looked_up_all_at_once_are_those_found_one_by_one(known: list[list[int]], data: Any, reach: int) -> None:
    """Short alphabets, so that rows are equal to each other, and to beginnings of each other."""
    wanted = data.draw(ROWS)
    for place in range(len(wanted)):
        if data.draw(st.booleans()):
            wanted[place] = [*data.draw(st.sampled_from(known)), *data.draw(st.lists(st.integers(0, 1), max_size=2))]
    before, rows = CallSnapshot(*right_aligned(known)), CallSnapshot(*right_aligned(wanted))
    found = before.find_each(rows, np.full(len(wanted), reach))
    for place, row in enumerate(wanted):
        one_by_one = before.find(np.asarray(row, dtype=np.int64), place, reach)
        assert found[place] in (-1, one_by_one)
        if one_by_one is not None and known.count(known[one_by_one]) == 1 and len(known[one_by_one]) >= len(row) - 1:
            assert found[place] == one_by_one


def test_rows_with_equal_fingerprints_are_told_apart() -> None:
    """The last ids are the same, those before them are not."""
    same = [3] * 20
    known = [[1, *same], [2, *same], [1, 1, *same]]
    before = CallSnapshot(*right_aligned(known))
    rows = CallSnapshot(*right_aligned([[2, *same, 5], [1, *same, 5], [1, 1, *same], [4, *same, 5]]))
    for found in (
        [before.find(rows.row(i), i, 1) for i in range(4)],
        [before.find(rows.row(i), i, 1) if at < 0 else at for i, at in enumerate(before.find_each(rows, np.ones(4)))],
    ):
        assert found == [1, 0, 2, None]


@pytest.mark.parametrize("told", [False, True])
def test_many_long_rows_that_all_move_keep_their_states(told: bool) -> None:
    tracker, dice = tracker_of(Mix()), np.random.default_rng(0)
    rows = [[int(n) for n in dice.integers(0, 4, 150 if not told else 140 + i)] for i in range(80)]
    lengths = [len(row) for row in rows]
    blank = np.zeros((len(rows), VOCAB), dtype=np.float32)
    for _ in range(4):
        ids, starts = right_aligned(rows)
        out = tracker.process(blank, ids, starts, prompt_lengths=lengths if told else None)
        for place in dice.integers(0, len(rows), 5).tolist():
            row, n = rows[place], lengths[place]
            assert np.array_equal(out[place], alone(tracker.chain, row[:n], row[n:]))
        order = dice.permutation(len(rows)) if told else dice.integers(0, len(rows), len(rows))
        rows = [[*rows[i], int(dice.integers(0, 4))] for i in order]
        lengths = [lengths[i] for i in order]
    assert tracker.replayed == 0


@pytest.mark.parametrize("ragged", [False, True])
def test_rows_that_moved_may_go_back_to_any_earlier_call(ragged: bool) -> None:
    """Calls whose ids are kept as moves of earlier ones, and calls that grew in place between them."""
    tracker, dice = tracker_of(Mix(), states=4), np.random.default_rng(3)
    rows = [([1, 2, i % 3, *([0] * (i % 4 if ragged else 1))], []) for i in range(6)]
    asked: list[list[tuple[list[int], list[int]]]] = []
    for step in range(90):
        call(tracker, [prompt + tokens for prompt, tokens in rows])
        asked.append(rows)
        order = range(6) if step % 40 > 34 else dice.integers(0, 6, 6).tolist()
        rows = [(rows[i][0], [*rows[i][1], int(dice.integers(0, 4))]) for i in order]
    generation = next(iter(tracker._known.values()))
    thin = [known.asked for known in generation.calls if known.asked._block is None]
    assert len(thin) > 60
    assert max(asked_rows._parents.away for asked_rows in thin) <= 32
    for step in (88, 60, 59, 33, 1):
        again = asked[step]
        out = call(tracker, [[*prompt, *tokens, 3] for prompt, tokens in again])
        for line, (prompt, tokens) in zip(out, again, strict=True):
            assert np.array_equal(line, alone(tracker.chain, prompt, [*tokens, 3]))
    assert len(tracker._known) == 1  # none of them was taken for a new generation


def test_rows_that_moved_and_gained_several_tokens_may_go_back() -> None:
    tracker, dice = tracker_of(Mix(), states=2, reach=3), np.random.default_rng(5)
    rows = [([1, 2, i], []) for i in range(5)]
    asked: list[list[tuple[list[int], list[int]]]] = []
    for _ in range(30):
        call(tracker, [prompt + tokens for prompt, tokens in rows])
        asked.append(rows)
        gains = dice.integers(1, 3, 5).tolist() if dice.random() < 0.5 else [1] * 5
        rows = [
            (rows[i][0], [*rows[i][1], *dice.integers(0, 4, n).tolist()])
            for i, n in zip(dice.permutation(5).tolist(), gains, strict=True)
        ]
    for step in (28, 17, 9, 3):
        out = call(tracker, [[*prompt, *tokens, 3] for prompt, tokens in asked[step]])
        for line, (prompt, tokens) in zip(out, asked[step], strict=True):
            assert np.array_equal(line, alone(tracker.chain, prompt, [*tokens, 3]))
    assert len(tracker._known) == 1


def test_rows_that_move_take_little_memory() -> None:
    tracker = tracker_of(Mix(), state_bytes=100_000)
    rows = [[i % 3] * 500 for i in range(8)]
    for step in range(200):
        call(tracker, rows)
        rows = [[*row, step % 4] for row in reversed(rows)]
    generation = next(iter(tracker._known.values()))
    held = sum(known.asked.nbytes for known in generation.calls)
    assert generation._row_bytes == held
    assert held < 500_000 < len(generation.calls) * 8 * 500 * 8


def test_a_row_that_was_away_for_long_is_replayed() -> None:
    tracker = tracker_of(Mix())
    blank = np.zeros((1, VOCAB), dtype=np.float32)
    away, other = [7, 1, 2], [8]
    tracker.process(blank, np.array([away]), prompt_lengths=[1])
    replayed = tracker.replayed
    for _ in range(600):
        other.append(3)
        tracker.process(blank, np.array([other]), prompt_lengths=[1])
    out = tracker.process(blank, np.array([[*away, 0]]), prompt_lengths=[1])
    assert tracker.replayed == replayed + 2  # the other row began with a token as well
    assert np.array_equal(out[0], alone(tracker.chain, [7], [1, 2, 0]))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=10))
def test_one_row_may_go_back_and_be_asked_again(rounds: list[tuple[int, int, int]]) -> None:
    tracker = tracker_of(Mix(), states=3)
    prompt, tokens = [1, 2, 3], []
    call(tracker, [prompt])
    for number, (drafts, accepted, last) in enumerate(rounds):
        draft = [(number + i) % 3 for i in range(drafts)]
        for n in range(drafts + 1):  # verification asks about every draft position
            out = call(tracker, [prompt + tokens + draft[:n]])[0]
            assert np.array_equal(out, alone(tracker.chain, prompt, tokens + draft[:n]))
        tokens = [*tokens, *draft[: min(accepted, drafts)], last]


def test_states_beyond_the_bound_are_replayed_with_the_same_result() -> None:
    tracker = tracker_of(Mix(), states=1)
    for n in range(6):
        call(tracker, [[4, 5] + [1] * n])
    assert tracker.replayed == 0
    out = call(tracker, [[4, 5, 1, 1, 2]])[0]
    assert tracker.replayed == 1
    assert np.array_equal(out, alone(tracker.chain, [4, 5], [1, 1, 2]))


def test_rows_may_leave_and_grow_by_several_tokens() -> None:
    tracker = tracker_of(Mix(), reach=4)
    prompts = [[1], [2, 3], [4]]
    call(tracker, prompts)
    out = call(tracker, [[1, 0], [4, 0, 0, 1]])
    assert np.array_equal(out[0], alone(tracker.chain, [1], [0]))
    assert np.array_equal(out[1], alone(tracker.chain, [4], [0, 0, 1]))


def test_interleaved_generations_do_not_mix() -> None:
    tracker = tracker_of(Mix())
    one, two = [[1, 2], [3, 4]], [[1, 2], [5, 6]]
    call(tracker, one), call(tracker, two)
    for step in range(5):
        for prompts, token in ((one, 0), (two, 1)):
            tokens = [token] * step + [2]
            out = call(tracker, [prompt + [token] * step for prompt in prompts])
            for line, prompt in zip(out, prompts, strict=True):
                assert np.array_equal(line, alone(tracker.chain, prompt, tokens[:-1]))


def test_threads_share_one_tracker() -> None:
    tracker = tracker_of(Mix())
    wrong: list[Any] = []

    def run(first: int) -> None:
        prompt, tokens = [first, 7], []
        for step in range(40):
            out = call(tracker, [prompt + tokens])[0]
            if not np.array_equal(out, alone(tracker.chain, prompt, tokens)):
                wrong.append((prompt, tokens))
            tokens = [*tokens, (first + step) % 5]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_longer_text_that_begins_like_an_old_one_is_a_new_prompt() -> None:
    tracker = tracker_of(("regex", {"pattern": "ab"}))
    call(tracker, [[5, 6]]), call(tracker, [[5, 6, 0]]), call(tracker, [[5, 6, 0, 1]])
    out = call(tracker, [[5, 6, 0, 1, 7, 7]])  # the next turn of a conversation
    assert np.flatnonzero(np.isfinite(out[0])).tolist() == [0]


def test_the_same_prompt_again_is_a_new_generation() -> None:
    tracker = tracker_of(("regex", {"pattern": "ab"}))
    for _ in range(3):
        assert np.flatnonzero(np.isfinite(call(tracker, [[5]])[0])).tolist() == [0]
        assert np.flatnonzero(np.isfinite(call(tracker, [[5, 0]])[0])).tolist() == [1]


def test_padding_after_the_end_is_no_token() -> None:
    tracker = tracker_of(("regex", {"pattern": "ab|abab"}), Mix())
    prompts = [[5], [6]]
    call(tracker, prompts)
    rows = [[5], [6]]
    for first, second in ((0, 0), (1, 1), (EOS, 0), (PAD, 1), (PAD, EOS), (PAD, PAD)):
        rows = [[*rows[0], first], [*rows[1], second]]
        out = call(tracker, rows)
        assert np.isfinite(out).any(axis=1).all()
    assert np.isfinite(out[1, EOS])


def test_padding_after_an_end_that_the_chain_did_not_see_is_no_token() -> None:
    tracker = tracker_of(("regex", {"pattern": "a{9}"}))
    rows = [[5], [6]]
    call(tracker, rows)
    for first, second in ((0, 0), (PAD, 0), (PAD, 0)):  # the engine stopped row 0 for a reason of its own
        rows = [[*rows[0], first], [*rows[1], second]]
        out = call(tracker, rows)
    assert np.flatnonzero(np.isfinite(out[1])).tolist() == [0]


def test_a_row_may_go_on_after_its_end() -> None:
    tracker = tracker_of(Mix())
    call(tracker, [[1, 2]]), call(tracker, [[1, 2, EOS]])
    out = call(tracker, [[1, 2, EOS, 3]])[0]
    assert np.array_equal(out, alone(tracker.chain, [1, 2], [EOS, 3]))


def test_a_token_that_was_forbidden_is_an_error_with_the_text() -> None:
    tracker = tracker_of(("regex", {"pattern": "abc"}))
    call(tracker, [[5], [6]]), call(tracker, [[5, 0], [6, 0]])
    with pytest.raises(IllegalToken, match=r"row 1 accepted token 3 \('d'\).*text so far is 'a'") as caught:
        call(tracker, [[5, 0, 1], [6, 0, 3]])
    assert caught.value.row == 1


def test_a_row_without_any_legal_token_is_an_error() -> None:
    tracker = tracker_of(("regex", {"pattern": "abc"}), ("suppress_tokens", {"tokens": [1]}))
    call(tracker, [[5]])
    with pytest.raises(
        NoLegalToken, match="'regex' and 'suppress_tokens' contradict each other: .* row 0 .* at position 2 after 'a'"
    ):
        call(tracker, [[5, 0]])


def test_a_truncation_that_leaves_no_token_of_a_constraint_is_named() -> None:
    tracker = tracker_of(("top_k", {"k": 1}), ("regex", {"pattern": "abc"}))
    logits = np.zeros((1, VOCAB), dtype=np.float32)
    logits[0, 2] = 9.0
    with pytest.raises(NoLegalToken, match="'top_k' kept no token that 'regex' allows, which left row 0 .* position 1"):
        tracker.process(logits, np.array([[5]]))


@pytest.mark.parametrize("before", [[], [("top_k", {"k": 1})]], ids=["constraint", "truncation and constraint"])
def test_settings_of_the_engine_that_leave_no_token_of_a_constraint_are_named(before: list[Any]) -> None:
    tracker = tracker_of(*before, ("regex", {"pattern": "abc"}))
    logits = np.zeros((2, VOCAB), dtype=np.float32)
    logits[:, 0] = 9.0
    tracker.process(logits, np.array([[5], [6]]))
    logits[:, :2] = [[0.0, 9.0], [9.0, NEG_INF]]  # the engine forbids 'b' in row 1
    with pytest.raises(NoLegalToken, match="own settings forbade .* 'regex' allows, .* row 1 .* after 'a'"):
        tracker.process(logits, np.array([[5, 0], [6, 0]]))


def test_a_draft_that_was_forbidden_closes_its_row_only() -> None:
    tracker = tracker_of(("regex", {"pattern": "abc"}))
    logits = np.zeros((1, VOCAB), dtype=np.float32)
    tracker.process(logits, np.array([[5]]))
    for row in ([5, 0], [5, 0, 3], [5, 0, 3, 1]):
        out = tracker.process(logits, np.array([row]), tentative=lambda: True)
    assert not np.isfinite(out).any()
    assert np.flatnonzero(np.isfinite(call(tracker, [[5, 0, 1]])[0])).tolist() == [2]


def test_a_beam_that_was_forbidden_closes_alone() -> None:
    tracker = tracker_of(("regex", {"pattern": "a(b|c)d"}))
    call(tracker, [[5]] * 3), call(tracker, [[5, 0]] * 3)
    call(tracker, [[5, 0, 1], [5, 0, 2], [5, 0, 1]])
    out = call(tracker, [[5, 0, 2, 3], [5, 0, 1, 3], [5, 0, 1, 0]])  # beams 0 and 1 changed places
    assert np.flatnonzero(np.isfinite(out[0])).tolist() == [EOS]
    assert not np.isfinite(out[2]).any()
    out = call(tracker, [[5, 0, 1, 0, 0], [5, 0, 1, 3, EOS], [5, 0, 2, 3, EOS]])
    assert not np.isfinite(out[0]).any()


def test_history_grows_with_the_rows() -> None:
    chain = processors.load(("no_repeat_ngram", {"n": 2}))
    tracker = CountedTracker(chain)
    row = [n % 7 for n in range(250)]
    for n in range(250, 270):
        out = call(tracker, [row])[0]
        expected = alone(chain, row[:250], row[250:], max_length=512)
        assert np.array_equal(out, expected)
        row = [*row, int(np.flatnonzero(np.isfinite(out))[n % 3]) if np.isfinite(out).sum() > 3 else 9]
    assert tracker.replayed


def test_ids_and_logits_must_have_the_same_rows() -> None:
    with pytest.raises(InvalidContext, match=r"ids of shape \[1, 2\] with logits of shape \[3, 12\]"):
        tracker_of(Mix()).process(np.zeros((3, VOCAB), dtype=np.float32), np.zeros((1, 2), dtype=np.int64))


def test_the_newest_state_is_kept_whatever_it_takes() -> None:
    tracker = tracker_of(Mix(), state_bytes=0)
    for n in range(5):
        assert np.array_equal(call(tracker, [[1] + [2] * n])[0], alone(tracker.chain, [1], [2] * n))
    assert tracker.replayed == 0


@given(st.data(), st.sampled_from([1, 3, 64]))
def test_rows_of_an_engine_that_tells_prompts_may_do_anything(data: Any, states: int) -> None:
    """Joining, leaving, moving, preemption, going back, several tokens at once."""
    tracker = tracker_of(Mix(), states=states)
    requests: list[tuple[list[int], list[int]]] = []
    for _ in range(data.draw(st.integers(1, 10))):
        if len(requests) < 4 and (not requests or data.draw(st.booleans())):
            requests.append((data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)), []))
        for prompt, tokens in requests:
            keep = data.draw(st.integers(max(len(tokens) - 2, 0), len(tokens)))
            new = data.draw(st.lists(st.integers(0, 2), max_size=3))
            tokens[:] = [*tokens[:keep], *new]
            del prompt
        order = data.draw(st.permutations(range(len(requests))))
        shown = [requests[i] for i in order[: data.draw(st.integers(1, len(order)))]]
        ids, starts = right_aligned([prompt + tokens for prompt, tokens in shown])
        blank = np.zeros((len(shown), VOCAB), dtype=np.float32)
        out = tracker.process(blank, ids, starts, prompt_lengths=[len(prompt) for prompt, _ in shown])
        for line, (prompt, tokens) in zip(out, shown, strict=True):
            assert np.array_equal(line, alone(tracker.chain, prompt, tokens))


def test_a_preempted_row_comes_back_with_all_its_tokens() -> None:
    tracker = tracker_of(("regex", {"pattern": "abcdef"}))
    blank = np.zeros((1, VOCAB), dtype=np.float32)
    out = tracker.process(blank, np.array([[7, 0, 1, 2]]), prompt_lengths=[1])
    assert np.flatnonzero(np.isfinite(out[0])).tolist() == [3]
    assert tracker.replayed == 1
    out = tracker.process(blank, np.array([[7, 0, 1, 2, 3, 4, 5, EOS]]), prompt_lengths=[1])
    assert np.flatnonzero(np.isfinite(out[0])).tolist() == [EOS]


def test_a_prompt_of_another_length_is_another_row() -> None:
    tracker = tracker_of(("regex", {"pattern": "aab"}))
    blank = np.zeros((1, VOCAB), dtype=np.float32)
    tracker.process(blank, np.array([[7, 0]]), prompt_lengths=[1])
    out = tracker.process(blank, np.array([[7, 0, 0, 0]]), prompt_lengths=[2])
    assert np.flatnonzero(np.isfinite(out[0])).tolist() == [1]


def test_the_tracker_keeps_states_and_refuses_rows_that_it_would_have_to_replay() -> None:
    dice = np.random.default_rng(0)
    lines = dice.normal(size=(6, 1, 8)).astype(np.float32)
    chain, tracker = processors.load(Drift()), RowTracker(processors.load(Drift()))
    context = Context.start(lines[0], prompt=[[1]])
    state, ids = chain.init_state(context), [1]
    for step, line in enumerate(lines):
        expected, state = chain.process(line, state, context.accept([ids[-1:]]) if step else context)
        np.testing.assert_array_equal(tracker.process(line, np.asarray([ids])), expected)
        ids.append(step)
    # A row that goes back finds its state again; one that was never seen cannot be had.
    np.testing.assert_array_equal(tracker.process(lines[-1], np.asarray([ids[:-1]])), expected)
    with pytest.raises(NeedsNotMet, match="cannot be rebuilt from tokens"):
        RowTracker(chain).process(lines[0], np.asarray([ids]), prompt_lengths=[1])
