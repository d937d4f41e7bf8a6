"""The adapters against the calling protocols of their engines, and the page, with stand-ins for these engines."""

from __future__ import annotations

import copy
import pickle
import re
import string
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="these engines pass PyTorch tensors")

from logitloom_protocol_adapters.dynamo import to_dynamo
from logitloom_protocol_adapters.exllamav3 import to_exllamav3
from logitloom_protocol_adapters.lmdeploy import to_lmdeploy
from logitloom_protocol_adapters.tensorrt_llm import to_tensorrt_llm

from logitloom import Context, Vocabulary, processors
from logitloom.errors import IllegalToken, InvalidContext, NeedsNotMet
from logitloom.trace import RecordedChain

#: End of sequence, padding, and the width of the logits: a model has more ids than its tokenizer.
EOS, PAD, WIDTH = 0, 1, 128
TEXTS = [*string.ascii_lowercase, *string.digits, *" -@.", "red", "blue"]
VOCABULARY = Vocabulary([b"", b"", *(text.encode() for text in TEXTS)], eos=[EOS], special=[PAD], name="letters")
PAGE = Path(__file__).parents[1] / "README.md"
PATTERN = "[0-9]{3}-[0-9]{4}"


def encode(text: str) -> list[int]:
    return [2 + TEXTS.index(letter) for letter in text]


R, E, D, B, X = (encode(letter)[0] for letter in "redbx")


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=VOCABULARY)


def legal(line: Any) -> list[int]:
    return np.flatnonzero(np.isfinite(np.asarray(line))).tolist()


def chosen(line: Any, dice: np.random.Generator) -> int:
    return int(dice.choice(np.flatnonzero(np.isfinite(np.asarray(line)))))


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """A stand-in for an engine's module."""
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


def run(section: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> SimpleNamespace:
    """Run the Python block of a section of the page."""
    page = PAGE.read_text(encoding="utf-8")
    [code] = re.findall(rf"^## {section}\n.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:1]
    made = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", made)
    vars(made).update(names, tokenizer=VOCABULARY)
    exec(compile(code, str(PAGE), "exec"), vars(made))
    return SimpleNamespace(**vars(made))


# -- TensorRT-LLM -------------------------------------------------------------------------------------


def test_tensorrt_llm_requests_are_processed_in_place() -> None:
    one = to_tensorrt_llm(chain_of(("regex", {"pattern": "red"})))
    batch = to_tensorrt_llm(chain_of(("regex", {"pattern": "red"})), batched=True)
    rows: dict[int, list[int]] = {11: [5, 6], 12: [7]}
    for step, token in enumerate((R, E, D, EOS)):
        given = {request: torch.zeros((1, 1, WIDTH)) for request in rows}
        if step % 2:  # requests may stand in another order
            given = dict(reversed(given.items()))
        alone = torch.zeros((1, 1, WIDTH))
        one(11, alone, [rows[11]], None, None)
        batch(list(given), list(given.values()), [[rows[request]] for request in given], None, [None] * 2)
        for logits in (alone, *given.values()):
            assert token in legal(logits[0, 0])
        for row in rows.values():
            row.append(token)
    with pytest.raises(InvalidContext, match=r"shape \[2, 1, 128\] for 1 beams of request 3"):
        one(3, torch.zeros((2, 1, WIDTH)), [[5]], None, None)


def test_tensorrt_llm_beams_keep_their_states() -> None:
    processor = to_tensorrt_llm(chain_of(("regex", {"pattern": "red|bed"})))
    for beams, expected in (
        ([[5], [5]], None),
        ([[5, R], [5, B]], [E, E]),
        ([[5, B, E], [5, R, E]], [D, D]),
        ([[5, R, E, D], [5, B, E, X]], [EOS, None]),
    ):
        logits = torch.zeros((2, 1, WIDTH))
        processor(1, logits, beams, None, None)
        for line, token in zip(logits[:, 0], expected or (), strict=False):
            assert (legal(line) or [None])[0] == token


# -- LMDeploy -----------------------------------------------------------------------------------------


def test_lmdeploy_requests_share_an_object_whatever_their_padding() -> None:
    """What the engine does in a step: rows padded on the left, each processor called with its row."""
    pattern, pad, dice = "(red|bed) [0-9]{1,3}", PAD, np.random.default_rng(3)
    shared = to_lmdeploy(
        chain_of(("regex", {"pattern": pattern}), ("repetition_penalty", {"penalty": 1.2})), padding=pad
    )
    texts: dict[int, list[int]] = {n: encode(text) for n, text in enumerate(("hello", "a", "dog 12", "a"))}
    prompts, open_rows = {n: len(ids) for n, ids in texts.items()}, set(texts)
    while open_rows:
        width = max(len(texts[n]) for n in open_rows)
        for n in sorted(open_rows):
            ids = torch.tensor([pad] * (width - len(texts[n])) + texts[n])
            logits = torch.from_numpy(dice.normal(size=WIDTH).astype(np.float32))
            before = logits.clone()
            token = int(shared(ids, logits).argmax())
            assert torch.equal(logits, before)
            if dice.random() < 0.2:  # a request that is computed again, after preemption
                assert shared(ids, logits).shape == (WIDTH,)
            texts[n] += [token]
            if token == EOS:
                open_rows.discard(n)
    for n, ids in texts.items():
        assert re.fullmatch(pattern, VOCABULARY.decode(ids[prompts[n] : -1]))


def test_lmdeploy_refuses_what_is_no_row() -> None:
    with pytest.raises(InvalidContext, match=r"ids \[width\] and logits \[vocab\] of one request"):
        to_lmdeploy(chain_of(("top_k", {"k": 3})))(torch.zeros(1, 4), torch.zeros(1, WIDTH))
    with pytest.raises(NeedsNotMet, match="LMDeploy cannot run"):
        to_lmdeploy(chain_of(("cfg", {"scale": 1.5})))


def test_dynamo_refuses_what_it_cannot_give() -> None:
    with pytest.raises(InvalidContext, match=r"logits \[vocab\] of one request.*\[1, 128\]"):
        to_dynamo(chain_of(("top_k", {"k": 3})))([1], torch.zeros(1, WIDTH))
    with pytest.raises(NeedsNotMet, match="Dynamo cannot run"):
        to_dynamo(chain_of(("repetition_penalty", {"penalty": 1.5})))


def test_dynamo_ends_a_text_whose_error_a_worker_swallows() -> None:
    processor, logits = to_dynamo(chain_of(("regex", {"pattern": "red"}))), torch.zeros(WIDTH)
    processor([5], logits)
    with pytest.raises(IllegalToken):
        processor([5, X], logits)
    assert legal(logits) == [EOS]


# -- ExLlamaV3 ----------------------------------------------------------------------------------------


class InnerSampler:
    """What every sampler of ExLlamaV3 has; it takes the likeliest token."""

    reqs_past_ids = False
    reqs_torch_seed = True

    def forward(
        self, logits: Any, sequence_ids: Any = None, rand_u32: Any = None, tokenizer: Any = None, logit_mask: Any = None
    ) -> Any:
        if logit_mask is not None:
            logits = logits + logit_mask
        return logits.argmax(dim=-1)


class Job:
    """What the generator of release 1.4.1 does with a job: tokens are sampled and taken back."""

    def __init__(self, sampler: Any, prompt: list[int], token_healing: bool = False) -> None:
        self.sampler, self.ids, self.prompt_length = sampler, list(prompt), len(prompt)
        self.prefix_token = self.ids.pop() if token_healing else None
        self.new_tokens = -1 if token_healing else 0

    def receive_logits(self, logits: Any, mask: Any = None) -> None:
        import torch

        given = torch.tensor([self.ids]) if self.sampler.reqs_past_ids else None
        token = self.sampler.forward(logits[None, None], given, 17, None, logit_mask=mask)
        self.ids.append(int(token.view(-1)))
        self.new_tokens += 1


def test_exllamav3_jobs_share_a_sampler_and_take_tokens_back() -> None:
    pattern, dice = "(red|bed) [0-9]{1,3}", np.random.default_rng(3)
    chain = chain_of(("regex", {"pattern": pattern}), ("repetition_penalty", {"penalty": 1.2}))
    shared = to_exllamav3(chain, sampler=InnerSampler())
    assert shared.reqs_torch_seed
    jobs = [Job(shared, encode(text)) for text in ("hello", "a", "dog 12", "b")]
    running = list(jobs)
    while running:
        for job in list(running):
            logits = torch.from_numpy(dice.normal(size=WIDTH).astype(np.float16))
            before = logits.clone()
            if dice.random() < 0.2 and job.new_tokens > 1:  # a banned string: tokens are taken back
                del job.ids[-2:]
                job.new_tokens -= 2
            job.receive_logits(logits)
            assert torch.equal(logits, before)
            if job.ids[-1] == EOS:
                running.remove(job)
    for job in jobs:
        assert re.fullmatch(pattern, VOCABULARY.decode(job.ids[job.prompt_length : -1]))


def test_exllamav3_tells_when_the_engine_took_what_the_chain_forbids() -> None:
    job = Job(to_exllamav3(chain_of(("regex", {"pattern": "red"})), sampler=InnerSampler()), encode("a"))
    mask = torch.zeros(WIDTH)
    mask[X] = torch.inf  # -inf + inf is no number, and a maximum takes that
    job.receive_logits(torch.zeros(WIDTH), mask)
    assert job.ids[-1] == X
    with pytest.raises(IllegalToken, match="Its text so far is ''"):
        job.receive_logits(torch.zeros(WIDTH))


def test_exllamav3_refuses_what_it_cannot_give() -> None:
    with pytest.raises(NeedsNotMet, match="ExLlamaV3 cannot run"):
        to_exllamav3(chain_of(("cfg", {"scale": 1.5})), sampler=InnerSampler())
    outer = to_exllamav3(chain_of(("top_k", {"k": 3})), sampler=InnerSampler())
    for ids, rows in ((None, 1), (torch.tensor([[1], [2]]), 2)):
        with pytest.raises(InvalidContext, match="jobs with one sequence"):
            outer.forward(torch.zeros(rows, 1, WIDTH), ids)
    with pytest.raises(NeedsNotMet, match="token_healing=False"):
        Job(outer, encode("a1"), token_healing=True).receive_logits(torch.zeros(WIDTH))


# -- what was sampled -------------------------------------------------------------------------------------


def called(engine: str, chain: Any, prompt: list[int], tokens: list[int]) -> None:
    """Call a chain as an engine would for a text; the logits of each step are those of :func:`given`."""
    adapters: dict[str, Any] = {
        "dynamo": to_dynamo(chain), "lmdeploy": to_lmdeploy(chain), "tensorrt_llm": to_tensorrt_llm(chain),
        "exllamav3": to_exllamav3(chain, sampler=InnerSampler()),
    }  # fmt: skip
    adapter = adapters[engine]
    for place in range(len(tokens)):
        ids, logits = [*prompt, *tokens[:place]], torch.from_numpy(given(place))
        if engine == "tensorrt_llm":
            adapter(1, logits[None, None], [ids], None, None)
        elif engine == "exllamav3":
            adapter.forward(logits[None, None], torch.tensor([ids]), place)
        else:
            adapter(torch.tensor(ids) if engine == "lmdeploy" else ids, logits)


def given(place: int) -> np.ndarray:
    return np.random.default_rng(place).normal(size=WIDTH).astype(np.float32)


@pytest.mark.parametrize("engine", ["tensorrt_llm", "lmdeploy", "dynamo", "exllamav3"])
def test_what_was_sampled_is_known_after_the_documented_calls(engine: str) -> None:
    plain = chain_of(("temperature", {"temperature": 0.5}), ("top_k", {"k": 20}))
    chain, tokens = RecordedChain(plain), [int(given(place).argsort()[-3]) for place in range(5)]
    called(engine, chain, [5, 6], tokens)
    told = chain.sampled(tokens)
    wanted = plain.score(np.stack([given(place) for place in range(5)])[None], [tokens], Context.start(given(0)[None]))
    assert [each and each.logprob for each in told] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    assert {each and each.kept for each in told} == {20}


# -- the page -----------------------------------------------------------------------------------------


def test_tensorrt_llm_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:

    def sampling_params(*, logits_processor: Any) -> Any:
        return SimpleNamespace(logits_processor=logits_processor)

    def llm(model: str, *, batched_logits_processor: Any) -> Any:
        return SimpleNamespace(model=model, batched_logits_processor=batched_logits_processor)

    module(monkeypatch, "tensorrt_llm", LLM=llm, SamplingParams=sampling_params)
    page, dice = run("TensorRT-LLM", monkeypatch), np.random.default_rng(0)
    alone, rows = encode("tel"), {1: encode("tel"), 2: encode("my tel")}
    prompts = {request: len(row) for request, row in rows.items()}
    while alone[-1] != EOS:
        logits = torch.zeros((1, 1, WIDTH))
        page.params.logits_processor(7, logits, [alone], None, None)
        alone.append(chosen(logits[0, 0], dice))
    while running := [request for request, row in rows.items() if row[-1] != EOS]:
        each = [torch.zeros((1, 1, WIDTH)) for _ in running]
        page.llm.batched_logits_processor(running, each, [[rows[r]] for r in running], None, [None] * len(running))
        for request, logits in zip(running, each, strict=True):
            rows[request].append(chosen(logits[0, 0], dice))
    texts = [VOCABULARY.decode(alone[3:-1]), *(VOCABULARY.decode(row[prompts[r] : -1]) for r, row in rows.items())]
    assert all(re.fullmatch(PATTERN, text) for text in texts), texts


def test_lmdeploy_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)

    def engine(model: str) -> Any:
        def answer(prompts: list[str], gen_config: Any) -> list[str]:
            [processor] = gen_config.logits_processors
            texts = []
            for _ in prompts:
                row = [0, 0, *encode("tel")]
                while row[-1] != EOS:
                    row.append(chosen(processor(torch.tensor(row), torch.zeros(WIDTH)), dice))
                texts.append(VOCABULARY.decode(row[5:-1]))
            return texts

        return answer

    module(monkeypatch, "lmdeploy", pipeline=engine, GenerationConfig=SimpleNamespace)
    [text] = run("LMDeploy", monkeypatch).answers
    assert re.fullmatch(PATTERN, text), text


def test_exllamav3_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)

    def sample(logits: Any, *given: Any) -> Any:
        return torch.tensor([[chosen(logits.view(-1), dice)]])

    def top_p(top_p: float) -> Any:
        return SimpleNamespace(top_p=top_p, reqs_torch_seed=False, forward=sample)

    module(monkeypatch, "exllamav3", Job=lambda **given: SimpleNamespace(**given), TopPSampler=top_p)
    job = run("ExLlamaV3", monkeypatch, input_ids=torch.tensor([encode("tel")])).job
    assert job.stop_conditions == [EOS]
    row = job.input_ids
    while row[0, -1] not in job.stop_conditions:
        row = torch.cat([row, job.sampler.forward(torch.zeros(1, 1, WIDTH), row)], dim=1)
    text = VOCABULARY.decode(row[0, 3:-1].tolist())
    assert re.fullmatch(PATTERN, text), text


@pytest.mark.parametrize("shown", [encode("tel"), []], ids=["with the prompt", "without"])
def test_dynamo_runs_what_its_page_says(monkeypatch: pytest.MonkeyPatch, shown: list[int]) -> None:
    [processor] = run("NVIDIA Dynamo", monkeypatch).logits_processors
    dice, row = np.random.default_rng(0), list(shown)
    while not row or row[-1] != EOS:
        logits = torch.zeros(WIDTH)
        processor(row, logits)
        row.append(chosen(logits, dice))
    assert re.fullmatch(PATTERN, VOCABULARY.decode(row[len(shown) : -1]))


# -- copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_of_a_used_adapter_gives_what_its_original_gives(way: Any) -> None:
    chain, prompt = chain_of(("regex", {"pattern": "red"})), encode("tel")

    def called_with(adapter: Any, ids: list[int]) -> list[int]:
        logits = torch.zeros(WIDTH)
        if hasattr(adapter, "forward"):
            return [int(adapter.forward(logits[None, None], torch.tensor([ids])).view(-1))]
        name = type(adapter).__name__
        if name.startswith("TensorRt"):
            given = (1, logits[None, None], [ids], None, None)
            adapter(*given) if name.endswith("Request") else adapter(*([each] for each in given[:3]), None, [None])
        elif name == "LmdeployProcessor":
            logits = adapter(torch.tensor(ids), logits)
        else:
            adapter(ids, logits)
        return legal(logits)

    for adapter in (
        to_dynamo(chain), to_lmdeploy(chain), to_exllamav3(chain, sampler=InnerSampler()), to_tensorrt_llm(chain),
        to_tensorrt_llm(chain, batched=True),
    ):  # fmt: skip
        called_with(adapter, prompt)
        copied = way(adapter)
        assert copied is not adapter
        for n in range(3):
            ids = [*prompt, *encode("red"[:n])]
            assert called_with(copied, ids) == called_with(adapter, ids)
