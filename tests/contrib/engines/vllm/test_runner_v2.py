"""Model runner V2's documented protocol, on the CPU: the runner itself needs Triton and is not run.

The emulation keeps what the runner keeps: slots that are recycled without notice, token tables that are written
between ``add_request`` and ``apply_staged_writes``, rows that change their order at every step, requests that sit out
steps, preemption, partial prefill, and draft tokens that only the inputs show.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="vLLM hands over torch tensors")

from logitloom import Context, load_backend, option, processors  # noqa: E402
from logitloom.arrays import rng  # noqa: E402
from logitloom_contrib.engines.vllm.runner_v2 import RunnerV2  # noqa: E402
from logitloom_plugins.processors.checked import Checked  # noqa: E402
from tests.cases import each_once  # noqa: E402
from tests.contrib.engines.conftest import EOS, VOCABULARY, WIDTH, encode  # noqa: E402
from tests.contrib.engines.vllm.conftest import MAX_LENGTH, engine_of, one, params_of  # noqa: E402

pytestmark = pytest.mark.torch

SLOTS = 8

CHAINS: tuple[Any, ...] = (
    None,
    one("regex", pattern=r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)"),
    one("choice", choices=["red cat", "blue dog", "red dog 12"]),
    one("json", schema={"enum": [1, 12, 3]}, whitespace="compact"),
    one("stop", strings=["co", "a1"]),
    [*one("repetition_penalty", penalty=1.7), *one("no_repeat_ngram", n=2)],
    [*one("xtc", probability=0.5, threshold=0.05), *one("min_tokens", n=3)],
)


class Sequence:
    def __init__(self, number: int, chain: Any, prompt: list[int], limit: int) -> None:
        self.chain, self.prompt, self.output, self.limit, self.slot = chain, prompt, [], limit, -1
        self.params = params_of(chain, seed=number, max_tokens=limit)


class Emulation:
    """The state of the runner that processors see, and the calls it makes."""

    def __init__(self, drafts: int = 0, **config: Any) -> None:
        self.table = torch.full((SLOTS, MAX_LENGTH), -7, dtype=torch.int32)
        self.total = torch.zeros(SLOTS, dtype=torch.int32)
        self.prompt_len, self.prefill_len = torch.zeros(SLOTS, dtype=torch.int32), torch.zeros(SLOTS, dtype=torch.int32)
        states = SimpleNamespace(
            device=torch.device("cpu"), max_num_reqs=SLOTS, vocab_size=WIDTH,
            all_token_ids=SimpleNamespace(gpu=self.table), total_len=SimpleNamespace(gpu=self.total),
            prompt_len=SimpleNamespace(np=self.prompt_len.numpy(), gpu=self.prompt_len),
            prefill_len=SimpleNamespace(np=self.prefill_len.numpy(), gpu=self.prefill_len),
        )  # fmt: skip
        self.runner = RunnerV2(engine_of(use_v2_model_runner=True, num_speculative_tokens=drafts, **config), states)
        self.free = list(range(SLOTS))
        self._staged: list[tuple[int, list[int]]] = []

    def enter(self, sequence: Sequence) -> bool:
        sequence.slot = self.free.pop()
        ids = [*sequence.prompt, *sequence.output]
        self.prompt_len[sequence.slot], self.prefill_len[sequence.slot] = len(sequence.prompt), len(ids)
        self._staged.append((sequence.slot, ids))
        return self.runner.add_request(sequence.slot, sequence.params)

    def leave(self, sequence: Sequence) -> None:
        self.free.append(sequence.slot)

    def flush(self) -> None:
        for slot, ids in self._staged:
            self.table[slot, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
            self.total[slot] = len(ids)
        self._staged = []
        self.runner.apply_staged_writes()

    def commit(self, sequence: Sequence, tokens: list[int]) -> None:
        for token in tokens:
            self.table[sequence.slot, self.total[sequence.slot]] = token
            self.total[sequence.slot] += 1
            sequence.output.append(token)

    def apply(self, batch: list[tuple[Sequence, list[int]]], logits: Any) -> Any:
        """``batch``: the step's requests with their drafts, in the order of their rows."""
        slots = [s.slot for s, drafts in batch for _ in range(1 + len(drafts))]
        places = [i for _, drafts in batch for i in range(1 + len(drafts))]
        inputs = [token for s, drafts in batch for token in ([*s.prompt, *s.output][-1], *drafts)]
        ids = torch.tensor([s.slot for s, _ in batch], dtype=torch.int32)
        context = SimpleNamespace(
            idx_mapping=ids, idx_mapping_np=ids.numpy(), input_ids=torch.tensor(inputs, dtype=torch.int32),
            expanded_idx_mapping=torch.tensor(slots, dtype=torch.int32),
            expanded_local_pos=torch.tensor(places, dtype=torch.int32),
        )  # fmt: skip
        return self.runner.apply(logits, context)


_LOADED: dict[str, Any] = {}


def oracle(sequence: Sequence, drafts: list[int], line: Any) -> Any:
    """A row from nothing but its ids, alone, in NumPy."""
    if sequence.chain is None:
        return line
    line = line.numpy()
    key = repr(sequence.chain)
    if key not in _LOADED:
        specs = [(entry["use"], entry["options"]) for entry in sequence.chain]
        _LOADED[key] = processors.load(*specs, tokenizer=VOCABULARY)
    seed = [rng.fold(sequence.params.seed)]
    most = min(sequence.limit, MAX_LENGTH - len(sequence.prompt))
    context = Context.start(line[None], prompt=[sequence.prompt], max_length=MAX_LENGTH, max_new_tokens=most, seed=seed)
    state = _LOADED[key].replay([[*sequence.output, *drafts]], context)
    return torch.from_numpy(_LOADED[key].process(line[None], state, context)[0][0].copy())


def legal(line: Any) -> list[int]:
    return torch.isfinite(line).nonzero()[:, 0].tolist()


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Host memory, or host memory that is treated like a device's: tables, no values read back, no exceptions."""
    if request.param == "device":
        backend = load_backend("torch").at("cpu")
        monkeypatch.setattr(backend, "on_host", False)
        monkeypatch.setattr(backend, "uses_buffer_pool", False, raising=False)
    return str(request.param)


@pytest.mark.parametrize(("drafts", "place"), each_once([0, 3], ["host", "device"]), indirect=["place"])
def test_a_long_walk_of_slots_and_drafts_equals_each_row_alone(drafts: int, place: str) -> None:
    draw, numbers = random.Random(11 + drafts), torch.Generator().manual_seed(5)
    engine, live, waiting, number, compared = Emulation(drafts), [], [], 0, 0
    for _ in range(40):
        for sequence in [s for s in live if draw.random() < 0.05]:  # preempted, or cancelled
            live.remove(sequence)
            engine.leave(sequence)
            if draw.random() < 0.7:
                waiting.append(sequence)
        while engine.free and draw.random() < 0.5:
            if waiting and draw.random() < 0.6:
                sequence = waiting.pop()
            else:
                number += 1
                prompt = [draw.randrange(2, 30) for _ in range(draw.randrange(1, 9))]
                sequence = Sequence(number, draw.choice(CHAINS), prompt, draw.randrange(10, 30))
            assert engine.enter(sequence) == (sequence.chain is not None)
            live.append(sequence)
        engine.flush()
        batch = [s for s in live if draw.random() < 0.8]  # the others sit this step out
        draw.shuffle(batch)
        if not batch:
            continue
        proposed: list[tuple[Sequence, list[int]]] = []
        for sequence in batch:
            walked: list[int] = []
            for _ in range(draw.randrange(drafts + 1) if drafts else 0):
                line = oracle(sequence, walked, torch.randn(WIDTH, generator=numbers))
                if walked[-1:] == [EOS]:
                    break
                walked.append(draw.choice(legal(line)))
            proposed.append((sequence, walked))
        rows = [(s, walked[:i]) for s, walked in proposed for i in range(len(walked) + 1)]
        logits = torch.randn(len(rows), WIDTH, generator=numbers) * 2
        expected = torch.stack([oracle(s, walked, line) for (s, walked), line in zip(rows, logits, strict=True)])
        processed = engine.apply(proposed, logits.clone())
        torch.testing.assert_close(processed, expected, rtol=1e-5, atol=1e-5)
        compared += sum(s.chain is not None for s, _ in rows)
        at = 0
        for sequence, walked in proposed:
            accepted = draw.randrange(len(walked) + 1)
            row, at = at + accepted, at + len(walked) + 1
            if not sequence.output and draw.random() < 0.3:
                continue  # a partial prefill
            token = int(torch.multinomial(torch.softmax(processed[row], -1), 1, generator=numbers))
            engine.commit(sequence, [*walked[:accepted], token])
            if EOS in sequence.output or len(sequence.output) >= sequence.limit:
                live.remove(sequence)
                engine.leave(sequence)
    assert compared > 60
    assert not any(request.failure for request in engine.runner.slots.values())


def entered(engine: Emulation, chain: Any, output: str = "") -> Sequence:
    sequence = Sequence(1, chain, [5, 6], 40)
    sequence.output = encode(output)
    engine.enter(sequence)
    engine.flush()
    return sequence


RED = one("regex", pattern="red")


def test_a_recycled_slot_forgets_who_was_there() -> None:
    engine = Emulation()
    first = entered(engine, RED)
    engine.apply([(first, [])], torch.zeros(1, WIDTH))
    engine.commit(first, encode("r"))
    engine.apply([(first, [])], torch.zeros(1, WIDTH))
    engine.leave(first)
    second = entered(engine, one("regex", pattern="x+"))
    assert second.slot == first.slot
    assert legal(engine.apply([(second, [])], torch.zeros(1, WIDTH))[0]) == encode("x")
    engine.leave(second)
    third = entered(engine, None)
    assert len(legal(engine.apply([(third, [])], torch.zeros(1, WIDTH))[0])) == WIDTH


def test_a_request_that_comes_back_has_its_output() -> None:
    engine = Emulation()
    sequence = entered(engine, RED, "re")
    assert legal(engine.apply([(sequence, [])], torch.zeros(1, WIDTH))[0]) == encode("d")


def test_rejected_drafts_leave_no_trace() -> None:
    engine = Emulation(drafts=3)
    sequence = entered(engine, RED)
    out = engine.apply([(sequence, encode("red"))], torch.zeros(4, WIDTH))
    assert [legal(line) for line in out[1:]] == [encode("e"), encode("d"), [EOS]]
    engine.commit(sequence, encode("r"))
    assert legal(engine.apply([(sequence, [])], torch.zeros(1, WIDTH))[0]) == encode("e")


def test_a_forbidden_draft_harms_nobody(caplog: pytest.LogCaptureFixture, place: str) -> None:
    engine = Emulation(drafts=2)
    sequence, other = entered(engine, RED), entered(engine, RED, "r")
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        out = engine.apply([(sequence, encode("xe")), (other, encode("e"))], torch.zeros(5, WIDTH))
    assert encode("r")[0] in legal(out[0])
    assert [legal(line) for line in out[1:3]] == [[EOS], [EOS]]  # never looked at, but computed with
    assert [legal(line) for line in out[3:]] == [encode("e"), encode("d")]
    assert not caplog.records


def test_an_exception_in_one_row_ends_that_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    engine = Emulation()
    broken, healthy = entered(engine, RED), entered(engine, RED)
    engine.apply([(broken, []), (healthy, [])], torch.zeros(2, WIDTH))
    engine.commit(broken, encode("x"))
    engine.commit(healthy, encode("r"))
    with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
        out = engine.apply([(healthy, []), (broken, [])], torch.zeros(2, WIDTH))
    assert [legal(line) for line in out] == [encode("e"), [EOS]]
    assert len(caplog.records) == 1
    assert legal(engine.apply([(broken, [])], torch.zeros(1, WIDTH))[0]) == [EOS]


def test_a_request_that_cannot_go_on_ends(place: str) -> None:
    engine = Emulation()
    broken, healthy = entered(engine, RED), entered(engine, RED)
    engine.apply([(broken, []), (healthy, [])], torch.zeros(2, WIDTH))
    engine.commit(broken, encode("x"))
    engine.commit(healthy, encode("r"))
    out = engine.apply([(broken, []), (healthy, [])], torch.zeros(2, WIDTH))
    assert [legal(line) for line in out] == [[EOS], encode("e")]


def test_states_of_requests_that_are_gone_are_dropped() -> None:
    engine = Emulation()
    for _ in range(30):
        sequences = [entered(engine, RED) for _ in range(3)]
        engine.apply([(s, []) for s in sequences], torch.zeros(3, WIDTH))
        engine.apply([(sequences[0], [])], torch.zeros(1, WIDTH))
        for sequence in sequences:
            engine.leave(sequence)
    held = [len(group.requests) + len(group._aside) for group in engine.runner._groups.values()]
    assert sum(held) <= SLOTS


def begins_red(text: str, ends: bool) -> bool:
    """Whether a text is the beginning of ``red``, or at its end all of it."""
    if text == "q":
        raise RuntimeError("no text begins with this letter")
    return text == "red" if ends else "red".startswith(text)


@dataclass(frozen=True)
class SpellsRed(Checked):
    """A function of the text, under a name that requests can give."""

    check: Callable[[str, bool], bool] = option(begins_red, help="Whether a text is the beginning of red.")


def test_a_function_with_a_name_checks_requests_and_drafts(caplog: pytest.LogCaptureFixture) -> None:
    processors.register("spells_red", SpellsRed)
    try:
        engine = Emulation(drafts=3, additional_config={"logitloom": {"allow": "+spells_red"}})
        chain = one("spells_red", sample=False)
        sequence, broken = entered(engine, chain), entered(engine, chain)
        logits = torch.zeros(5, WIDTH)
        logits[:, encode("red")] = torch.tensor([2.0, 3.0, 1.0])
        logits[:, encode("q")] = torch.tensor([-float("inf")] * 4 + [99.0])[:, None]
        with caplog.at_level(logging.ERROR, logger="logitloom.requests"):
            out = engine.apply([(sequence, encode("rxd")), (broken, [])], logits.clone())
        assert legal(out[0]) == encode("r")
        assert legal(out[1]) == encode("e")
        assert [legal(line) for line in out[2:]] == [[EOS]] * 3  # two behind the refused draft, and the failed request
        (record,) = caplog.records
        assert "the text 'q' may go on from there" in record.getMessage()
        engine.commit(sequence, encode("r"))
        assert legal(engine.apply([(sequence, [])], logits[:1])[0]) == encode("e")
    finally:
        processors.unregister("spells_red")
