"""Model runner V1's protocol: updates of the batch as the engine makes them, against oracles of one row each.

The walk below does what vLLM's persistent batch does: requests leave, others take their places (without being reported
as removed), the rest are condensed onto free places, places are swapped, requests are preempted and come back with a
long output, and partial prefill asks without a new token. ``LOGITLOOM_FUZZ_STEPS`` sets the number of steps (the full
walk has 10,000).
"""

from __future__ import annotations

import enum
import logging
import math
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="vLLM hands over torch tensors")

from logitloom import MASK, Context, Processor, backend_of, processors  # noqa: E402
from logitloom.errors import NeedsNotMet  # noqa: E402
from logitloom.generation import Sampled  # noqa: E402
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1  # noqa: E402
from logitloom_contrib.requests.chain_rows import ChainRows  # noqa: E402
from logitloom_contrib.requests.request import Request  # noqa: E402
from logitloom_contrib.requests.request_record import read_record, write_record  # noqa: E402
from logitloom_plugins.processors.frequency_penalty import FrequencyPenalty  # noqa: E402
from logitloom_plugins.processors.repetition_penalty import RepetitionPenalty  # noqa: E402
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, encode  # noqa: E402
from tests.contrib.engines.vllm.conftest import MAX_LENGTH, engine_of, one, params_of  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = int(os.environ.get("LOGITLOOM_FUZZ_STEPS", "100"))
MOST = 7


class Direction(enum.Enum):
    UNIDIRECTIONAL = 1
    SWAP = 2


def update(size: int, removed: Any = (), added: Any = (), moved: Any = ()) -> Any:
    return SimpleNamespace(batch_size=size, removed=list(removed), added=list(added), moved=list(moved))


CHAINS: tuple[Any, ...] = (
    None,
    one("regex", pattern=r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)"),
    one("choice", choices=["red cat", "blue dog", "red dog 12"]),
    one("json", schema={"enum": [1, 12, 3]}, whitespace="compact"),
    one("stop", strings=["co", "a1"]),
    [*one("repetition_penalty", penalty=1.7), *one("min_tokens", n=4)],
    [*one("no_repeat_ngram", n=2), *one("regex", pattern="[a-d]{4,12}")],
    [*one("xtc", probability=0.5, threshold=0.05), *one("temperature", temperature=0.7)],
)


class Sequence:
    """A request as the engine knows it."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.chain = rng.choice(CHAINS)
        self.prompt = [rng.randrange(2, 30) for _ in range(rng.randrange(1, 9))]
        self.output: list[int] = []
        self.limit = rng.randrange(10, 30)  # the shortest texts need 10 tokens
        self.params = params_of(self.chain, seed=number, max_tokens=self.limit)


class Oracle:
    """Each row from nothing but its ids, alone."""

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}

    def __call__(self, sequence: Sequence, line: Any) -> Any:
        if sequence.chain is None:
            return line
        key = repr(sequence.chain)
        if key not in self.loaded:
            specs = [(entry["use"], entry["options"]) for entry in sequence.chain]
            self.loaded[key] = processors.load(*specs, tokenizer=VOCABULARY)
        chain = self.loaded[key]
        from logitloom.arrays import rng

        context = Context.start(
            line[None], prompt=[sequence.prompt], max_length=MAX_LENGTH, seed=[rng.fold(sequence.params.seed)],
            max_new_tokens=min(sequence.params.max_tokens, MAX_LENGTH - len(sequence.prompt)),
        )  # fmt: skip
        state = chain.replay([sequence.output], context)
        return chain.process(line[None].clone(), state, context)[0][0]


class Engine:
    """vLLM's persistent batch: which request sits where, and what it tells about changes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.batch, self.waiting, self.number = rng, [], [], 0
        self.runner = RunnerV1(engine_of())
        self.batch: list[Sequence] = []
        self.waiting: list[Sequence] = []

    def step(self, finished: set[int]) -> None:
        rng = self.rng
        removed = sorted(finished)
        for place in range(len(self.batch)):
            if place not in finished and rng.random() < 0.03:
                removed.append(place)
                if rng.random() < 0.7:  # preempted, to come back later; else cancelled
                    self.waiting.append(self.batch[place])
        places: list[Sequence | None] = [None if i in removed else s for i, s in enumerate(self.batch)]
        free = sorted(removed)
        added = []
        while (len(places) - len(free) < MOST) and rng.random() < 0.45:
            if self.waiting and rng.random() < 0.6:
                sequence = self.waiting.pop(rng.randrange(len(self.waiting)))
                # The engine may hand over another list with the same tokens.
                sequence.output = list(sequence.output)
            else:
                self.number += 1
                sequence = Sequence(self.number, rng)
            place = free.pop(0) if free else len(places)
            if place == len(places):
                places.append(None)
            places[place] = sequence
            added.append((place, sequence.params, sequence.prompt, sequence.output))
        # What is still free is filled from the end; places that stay free are reported as removed.
        moved: list[Any] = []
        last = len(places) - 1
        while free:
            while last in free:
                last -= 1
            if free[0] >= last:
                break
            target = free.pop(0)
            places[target], places[last] = places[last], None
            moved.append((last, target, Direction.UNIDIRECTIONAL))
            last -= 1
        self.batch = [sequence for sequence in places if sequence is not None]
        if len(self.batch) > 1 and rng.random() < 0.2:
            a, b = rng.sample(range(len(self.batch)), 2)
            self.batch[a], self.batch[b] = self.batch[b], self.batch[a]
            moved.append((a, b, Direction.SWAP))
        changed = free or added or moved
        self.runner.update_state(update(len(self.batch), free[::-1], added, moved) if changed else None)


def test_a_long_walk_of_batch_updates_equals_each_row_alone() -> None:
    rng, oracle = random.Random(7), Oracle()
    engine, numbers = Engine(rng), torch.Generator().manual_seed(3)
    finished: set[int] = set()
    compared = 0
    for _ in range(STEPS):
        engine.step(finished)
        finished = set()
        if not engine.batch:
            continue
        logits = torch.randn(len(engine.batch), WIDTH, generator=numbers) * 2
        expected = torch.stack([oracle(s, line) for s, line in zip(engine.batch, logits, strict=True)])
        processed = engine.runner.apply(logits.clone())
        torch.testing.assert_close(processed, expected, rtol=1e-5, atol=1e-5)
        compared += sum(sequence.chain is not None for sequence in engine.batch)
        for place, sequence in enumerate(engine.batch):
            if not sequence.output and rng.random() < 0.3:
                continue  # a partial prefill: the sampled token is thrown away
            token = int(torch.multinomial(torch.softmax(processed[place], -1), 1, generator=numbers))
            sequence.output.append(token)
            if token == EOS or len(sequence.output) >= sequence.limit:
                finished.add(place)
    assert compared > STEPS
    assert engine.number > STEPS // 10
    assert not any(request.failure for request in engine.runner.requests.values())


def runner_with(*requests: tuple[Any, list[int]], **changes: Any) -> RunnerV1:
    runner = RunnerV1(engine_of(**changes))
    added = [(place, params_of(chain), [5, 6], output) for place, (chain, output) in enumerate(requests)]
    runner.update_state(update(len(added), added=added))
    return runner


def legal(line: Any) -> list[int]:
    return torch.isfinite(line).nonzero()[:, 0].tolist()


A, B, C, RED = (one("regex", pattern=pattern) for pattern in ("a+", "b+", "c+", "red"))


def test_a_slot_that_is_filled_again_forgets_who_was_there() -> None:
    runner = runner_with((A, []), (B, []))
    runner.apply(torch.zeros(2, WIDTH))
    runner.update_state(update(2, added=[(0, params_of(C), [5], [])]))
    assert [legal(line) for line in runner.apply(torch.zeros(2, WIDTH))] == [encode("c"), encode("b")]
    runner.update_state(update(2, added=[(1, params_of(), [5], [])]))
    assert len(legal(runner.apply(torch.zeros(2, WIDTH))[1])) == WIDTH


def test_a_request_without_a_chain_that_moves_drops_the_chain_of_the_place() -> None:
    runner = runner_with((A, []), (B, []), (None, []))
    runner.apply(torch.zeros(3, WIDTH))
    runner.update_state(update(2, moved=[(2, 0, Direction.UNIDIRECTIONAL)]))
    out = runner.apply(torch.zeros(2, WIDTH))
    assert (len(legal(out[0])), legal(out[1])) == (WIDTH, encode("b"))


def test_preempted_requests_come_back_with_a_long_output() -> None:
    chain, output = one("regex", pattern="(red ?){60}", finish_within=0), encode("red" * 20)
    runner = runner_with((chain, output))
    assert legal(runner.apply(torch.zeros(1, WIDTH))[0]) == sorted([*encode("r"), *encode(" "), 2 + 26 + 10 + 4])


def test_partial_prefill_asks_again_without_a_token() -> None:
    output: list[int] = []
    runner = runner_with((RED, output))
    for _ in range(4):
        assert encode("r")[0] in legal(runner.apply(torch.zeros(1, WIDTH))[0])
        runner.update_state(None)
    output += encode("r")
    assert legal(runner.apply(torch.zeros(1, WIDTH))[0]) == encode("e")


def test_tokens_that_the_engine_takes_back_are_taken_back() -> None:
    output = encode("re")
    runner = runner_with((RED, output), (A, []))
    assert legal(runner.apply(torch.zeros(2, WIDTH))[0]) == encode("d")
    del output[1:]
    assert legal(runner.apply(torch.zeros(2, WIDTH))[0]) == encode("e")


def test_several_tokens_at_once_are_fed() -> None:
    output: list[int] = []
    runner = runner_with((RED, output))
    runner.apply(torch.zeros(1, WIDTH))
    output += encode("red")
    assert legal(runner.apply(torch.zeros(1, WIDTH))[0]) == [EOS]


def test_chains_are_compiled_once_and_forgotten_in_bounds() -> None:
    runner = runner_with((A, []), (A, []), additional_config={"logitloom": {"chains": 4}})
    first, second = runner.requests[0].compiled, runner.requests[1].compiled
    assert first is second
    for n in range(20):
        runner.engine.admit(params_of(one("regex", pattern=f"a{{{n + 1}}}")))
    assert len(runner.engine.chains) == 4


def test_logits_of_requests_without_a_chain_are_not_touched() -> None:
    runner = runner_with((None, []), (A, []), (None, []))
    logits = torch.randn(3, WIDTH)
    kept = logits.clone()
    out = runner.apply(logits)
    assert torch.equal(out[[0, 2]], kept[[0, 2]])


def test_without_any_chain_the_very_logits_come_back() -> None:
    runner = runner_with((None, []))
    logits = torch.randn(1, WIDTH)
    assert runner.apply(logits) is logits


def test_an_exception_in_one_row_ends_that_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    broken, healthy = encode("r"), encode("r")
    runner = runner_with((RED, broken), (RED, healthy), (None, []))
    runner.apply(torch.zeros(3, WIDTH))
    broken += encode("x")  # somebody overrode the chain
    healthy += encode("e")
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        out = runner.apply(torch.zeros(3, WIDTH))
    assert [legal(line) for line in out[:2]] == [[EOS], encode("d")]
    assert len(legal(out[2])) == WIDTH
    assert len(caplog.records) == 1
    assert "IllegalToken" in caplog.records[0].getMessage()
    # The engine may go on with it all the same: it stays ended, and nobody else notices.
    broken += [EOS]
    healthy += encode("d")
    runner.update_state(None)
    assert [legal(line) for line in runner.apply(torch.zeros(3, WIDTH))[:2]] == [[EOS], [EOS]]
    assert len(caplog.records) == 1


def test_a_chain_of_penalties_is_not_applied_twice_when_a_neighbour_fails() -> None:
    chain = [*one("logit_bias", bias={"5": 1.0}), *RED]
    broken, healthy = encode("r"), encode("r")
    runner = runner_with((chain, broken), (chain, healthy), (None, []))
    broken += encode("x")
    out = runner.apply(torch.zeros(3, WIDTH))
    assert legal(out[0]) == [EOS]
    assert legal(out[1]) == encode("e")
    biased = [*one("logit_bias", bias={"5": 1.0})]
    line = runner_with((biased, [])).apply(torch.zeros(1, WIDTH))[0]
    assert float(line[5]) == 1.0


def test_a_row_that_the_engine_left_no_legal_token_ends(caplog: pytest.LogCaptureFixture) -> None:
    runner = runner_with((RED, encode("red")), (A, []))
    logits = torch.zeros(2, WIDTH)
    logits[:, EOS] = -torch.inf  # min_tokens of the engine
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        out = runner.apply(logits)
    assert [legal(line) for line in out] == [[EOS], encode("a")]
    assert "No token is legal" in caplog.text


def test_what_the_engine_forbade_stays_forbidden() -> None:
    runner = runner_with(([*one("logit_bias", bias={"5": 3.0}), *one("temperature", temperature=0.5)], []))
    logits = torch.zeros(1, WIDTH)
    logits[0, 5:] = -torch.inf
    assert legal(runner.apply(logits)[0]) == [0, 1, 2, 3, 4]


def test_placeholders_end_the_request_and_not_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    output: list[int] = []
    runner = runner_with((A, output), (A, []))
    runner.apply(torch.zeros(2, WIDTH))
    output.append(-1)
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        out = runner.apply(torch.zeros(2, WIDTH))
    assert [legal(line) for line in out] == [[EOS], encode("a")]
    assert "asynchronous scheduling" in caplog.text


def test_a_request_that_was_never_validated_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        runner = runner_with(("nonsense", []), (A, []))
        out = runner.apply(torch.zeros(2, WIDTH))
    assert [legal(line) for line in out] == [[EOS], encode("a")]
    assert "is no JSON" in caplog.text


def test_a_request_without_prompt_ids_ends_only_if_its_chain_looks_at_them() -> None:
    runner = RunnerV1(engine_of())
    penalized = one("repetition_penalty", penalty=1.5)
    runner.update_state(update(2, added=[(0, params_of(A), None, []), (1, params_of(penalized), None, [])]))
    out = runner.apply(torch.ones(2, WIDTH))
    assert legal(out[0]) == encode("a")
    assert len(legal(out[1])) in (1, WIDTH)


def test_all_rows_of_a_chain_are_processed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with((A, []), (B, []), (A, []), (A, []))
    runner.apply(torch.zeros(4, WIDTH))
    calls: list[int] = []
    for place in (0, 1):
        compiled = runner.requests[place].compiled
        assert compiled is not None
        process = compiled.chain.process

        def counted(logits: Any, state: Any, context: Any, process: Any = process) -> Any:
            calls.append(logits.shape[0])
            return process(logits, state, context)

        monkeypatch.setattr(compiled.chain, "process", counted)
    runner.apply(torch.zeros(4, WIDTH))
    assert sorted(calls) == [1, 3]


def test_masks_of_all_chains_are_written_to_the_engines_logits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[list[int]] = [[] for _ in range(5)]
    runner = runner_with(*zip((A, B, None, A, RED), outputs, strict=True))
    runner.apply(torch.zeros(5, WIDTH))
    backend, written = backend_of(torch.zeros(1)), []
    apply = type(backend).apply_token_rows

    def counted(logits: Any, rows: Any, *more: Any) -> Any:
        written.append(len(rows))
        return apply(backend, logits, rows, *more)

    monkeypatch.setattr(backend, "apply_token_rows", counted)
    monkeypatch.setattr(torch.Tensor, "index_select", None)
    for output, token in zip(outputs, encode("abear"), strict=True):
        output.append(token)
    outputs[1][0] = encode("b")[0]
    logits = torch.randn(5, WIDTH)
    given = logits.clone()
    assert runner.apply(given) is given
    assert written == [5]
    expected = [sorted([EOS, *encode(more)]) for more in ("a", "b", "a")]
    assert [legal(line) for line in given[[0, 1, 3, 4]]] == [*expected, encode("e")]
    torch.testing.assert_close(given[2], logits[2])


@dataclass(frozen=True)
class OddOnly(Processor):
    """A mask that is written by an operation of its own."""

    effect = MASK

    def process(self, logits: Any, state: Any, context: Any) -> Any:
        even = context.backend.arange(logits.shape[-1]) % 2 == 0
        return context.backend.masked_fill(logits, even[None, :], -math.inf, context.donate), state


def test_a_mask_that_a_chain_writes_otherwise_is_no_less_applied() -> None:
    chain = processors.load(OddOnly(), tokenizer=VOCABULARY)
    rows = ChainRows(chain, MAX_LENGTH)
    request = Request(None, [5], [], params_of(), (EOS,), MAX_LENGTH)
    logits = torch.randn(1, WIDTH)
    rows.settle([request], logits)
    assert rows.masks(logits) is None
    out = rows.process(logits, logits.clone, False)
    assert all(token % 2 for token in legal(out[0]))


@pytest.mark.parametrize("others", [0, 1])
def test_a_failure_after_writing_leaves_neighbours_what_they_had(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that writes to the logits it was lent, and then raises for one row."""
    outputs: list[list[int]] = [[], []]
    penalty = one("repetition_penalty", penalty=2.0)
    runner = runner_with(*[(None, [])] * others, *zip((penalty, penalty), outputs, strict=True))
    runner.apply(torch.ones(2 + others, WIDTH))
    process = RepetitionPenalty.process

    def broken(self: Any, logits: Any, state: Any, context: Any) -> Any:
        out, state = process(self, logits, state, context)
        if (context.tokens == 7).any():
            raise RuntimeError("seven")
        return out, state

    monkeypatch.setattr(RepetitionPenalty, "process", broken)
    for group, _, _ in runner._rows:
        group.all_or_nothing = False
    [chain] = {request.compiled.chain for request in runner.requests.values() if request.compiled is not None}
    chain._assemble()
    outputs[0].append(7)
    outputs[1].append(8)
    out = runner.apply(torch.ones(2 + others, WIDTH))
    assert legal(out[others]) == [EOS]
    expected = torch.ones(WIDTH)
    expected[[5, 6, 8]] = 0.5
    torch.testing.assert_close(out[others + 1], expected)


def test_a_penalty_that_fails_has_overwritten_neither_logits_nor_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lent the engine's logits and its own state; the state is made again from the tokens."""
    outputs: list[list[int]] = [[], []]
    asked = one("frequency_penalty", penalty=0.5)
    runner = runner_with(*zip((asked, asked), outputs, strict=True))
    for token in (8, 9, 8):
        runner.apply(torch.ones(2, WIDTH))
        for output in outputs:
            output.append(token)
    process = FrequencyPenalty.process

    def failing(self: Any, logits: Any, state: Any, context: Any) -> Any:
        if not (context.tokens == 7).any():
            return process(self, logits, state, context)
        with monkeypatch.context() as patched:
            patched.setattr(type(context.backend), "update_where", None)
            return process(self, logits, state, context)  # the state is overwritten, then an operation is missing

    monkeypatch.setattr(FrequencyPenalty, "process", failing)
    [chain] = {request.compiled.chain for request in runner.requests.values() if request.compiled is not None}
    chain._assemble()
    outputs[0].append(7)
    outputs[1].append(8)
    given = torch.ones(2, WIDTH)
    out = runner.apply(given)
    assert legal(out[0]) == [EOS]
    expected = torch.ones(WIDTH)
    expected[[8, 9]] -= torch.tensor([1.5, 0.5])  # three times and once
    torch.testing.assert_close(out[1], expected)


def test_requests_complete_their_texts_within_their_own_limits() -> None:
    chain = one("regex", pattern="[ab]{2,9}c")
    limits, outputs = (4, 6, 40), [[], [], []]
    runner = RunnerV1(engine_of())
    added = [(place, params_of(chain, max_tokens=limits[place]), [5], outputs[place]) for place in range(3)]
    runner.update_state(update(3, added=added))
    for _ in range(12):
        out = runner.apply(torch.randn(3, WIDTH))
        for output, line in zip(outputs, out, strict=True):
            if not output or output[-1] != EOS:
                output.append(max(set(legal(line)) - {EOS} or {EOS}, key=lambda token: token in encode("ab")))
    assert [len(output) for output in outputs] == [4, 6, 11]
    assert all(re.fullmatch("[ab]{2,9}c", VOCABULARY.decode(output[:-1])) for output in outputs)


def test_a_request_whose_limit_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="may generate 1 tokens, but the shortest text that regex allows needs 2"):
        engine_of().admit(params_of(RED, max_tokens=1))
    engine_of().admit(params_of(RED, max_tokens=2))


def test_histories_of_different_lengths_share_few_states() -> None:
    chain = one("no_repeat_ngram", n=2)
    runner = RunnerV1(engine_of(model={"max_model_len": 4096}))
    added = [(i, params_of(chain, max_tokens=10 * (i + 1)), [5], []) for i in range(20)]
    added.append((20, params_of(chain, max_tokens=2000), [5], []))
    runner.update_state(update(21, added=added))
    runner.apply(torch.zeros(21, WIDTH))
    assert sorted(group.capacity for group, _, _ in runner._rows) == [256, 2048]


def test_the_oracle_itself_forbids_and_biases() -> None:
    sequence = Sequence(1, random.Random(0))
    sequence.chain, sequence.output = one("regex", pattern="red"), encode("r")
    assert legal(Oracle()(sequence, torch.zeros(WIDTH))) == encode("e")


@pytest.mark.parametrize(
    "chain",
    [
        one("regex", pattern="[a-d]{4,12}"),
        [*one("no_repeat_ngram", n=2), *one("regex", pattern="[a-d]{4,12}"), *one("top_k", k=3)],
        [*one("repetition_penalty", penalty=1.7), *one("min_tokens", n=4), *one("xtc", probability=0.5)],
        one("stop", strings=["co", "a1"]),
    ],
)
@pytest.mark.parametrize("others", [0, 2])
def test_nothing_is_read_from_an_accelerator(chain: Any, others: int) -> None:
    """Arrays of the device ``meta`` have no values: code that reads one on the host raises, and its request fails."""
    runner, rows = RunnerV1(engine_of()), 3 + others
    outputs: list[list[int]] = [[] for _ in range(rows)]
    params = [params_of(chain) if place >= others else params_of() for place in range(rows)]
    runner.update_state(update(rows, added=[(i, params[i], encode("red"), outputs[i]) for i in range(rows)]))
    for step in range(4):
        assert runner.apply(torch.empty((rows, WIDTH), device="meta")).device.type == "meta"
        assert [request.failure for request in runner.requests.values()] == [None] * 3
        for i, output in enumerate(outputs):
            output.append(encode("abcd")[(step + i) % 4])
        if step == 1:
            runner.update_state(update(rows, moved=[(rows - 1, rows - 2, Direction.SWAP)]))


def recorded(folder: Path, *requests: tuple[str, list[int]]) -> RunnerV1:
    runner = RunnerV1(engine_of(additional_config={"logitloom": {"record": str(folder)}}))
    asked = [(params_of(RED, logitloom_record=name), output) for name, output in requests]
    added = [(place, params, [5, 6], output) for place, (params, output) in enumerate(asked)]
    runner.update_state(update(len(added), added=added))
    return runner


def test_a_request_that_leaves_is_recorded(tmp_path: Path) -> None:
    outputs: list[list[int]] = [[], []]
    runner = recorded(tmp_path, ("first", outputs[0]), ("second", outputs[1]))
    logits = torch.randn(2, WIDTH)
    for letter in "red":
        runner.apply(logits.clone())
        for output in outputs:
            output += encode(letter)
    runner.apply(logits.clone())
    outputs[1].append(EOS)
    runner.update_state(update(1, removed=[1]))
    told = read_record(tmp_path, "second")
    assert [each and (each.token, each.kept, each.logprob) for each in told][3:] == [(EOS, 1, 0.0)]
    before = torch.log_softmax(logits[1], -1)
    wanted = [float(before[token]) for token in outputs[1]]
    assert [each and each.logprob_before for each in told] == pytest.approx(wanted, abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["second.json"]
    runner.update_state(update(0, removed=[0]))
    assert [each and each.token for each in read_record(tmp_path, "first")] == outputs[0]


def test_what_was_sampled_before_a_preemption_is_not_known(tmp_path: Path) -> None:
    output = encode("r")
    runner = recorded(tmp_path, ("back", output))
    runner.apply(torch.randn(1, WIDTH))
    output += encode("e")
    runner.update_state(update(0, removed=[0]))
    assert [each and each.token for each in read_record(tmp_path, "back")] == [None, *encode("e")]


def test_records_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    def admitted(engine: Any, name: Any = "mine", **more: Any) -> None:
        params = params_of(RED, logitloom_record=name)
        vars(params).update(more)
        engine.admit(params)

    keeping = {"additional_config": {"logitloom": {"record": str(tmp_path)}}}
    with pytest.raises(NeedsNotMet, match="this server keeps none.*LOGITLOOM_SERVER_RECORD"):
        admitted(engine_of())
    for name in ("../mine", "", "a" * 65, 7, ["mine"]):
        with pytest.raises(NeedsNotMet, match="must be a name of 1 to 64 letters"):
            admitted(engine_of(**keeping), name)
    with pytest.raises(NeedsNotMet, match="keeps its tokens on the device"):
        admitted(engine_of(use_v2_model_runner=True, **keeping))
    with pytest.raises(NeedsNotMet, match="of one text, but the request asks for n=2"):
        admitted(engine_of(**keeping), n=2)
    admitted(engine_of(**keeping))
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(NeedsNotMet, match="a record 'mine' already. Choose another name"):
        admitted(engine_of(**keeping))
    with pytest.raises(ValueError, match="'logitloom.record' in vLLM's additional config must be a folder that exists"):
        admitted(engine_of(additional_config={"logitloom": {"record": "/nowhere"}}))


def test_infinite_log_probabilities_are_written_as_json_has_them(tmp_path: Path) -> None:
    told = (Sampled(3, -math.inf, None, 1, 0.0), None)
    write_record(str(tmp_path), "odd", told)
    assert "Infinity" not in (tmp_path / "odd.json").read_text()
