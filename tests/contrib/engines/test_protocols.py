"""Adapters to engines that do not run here, against their calling protocols."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import Context, processors
from logitloom.errors import GenerationError, IllegalToken, InvalidContext, NeedsNotMet, UnknownPlugin
from logitloom.trace import RecordedChain
from logitloom_contrib.engines import sglang
from logitloom_contrib.engines.llama_cpp import to_llama_cpp
from tests.contrib.engines.conftest import EOS, PAD, VOCABULARY, WIDTH, encode


def chain_of(*specs: Any) -> Any:
    return processors.load(*specs, tokenizer=VOCABULARY)


def legal(line: Any) -> list[int]:
    return np.flatnonzero(np.isfinite(np.asarray(line))).tolist()


R, E, D, B, X = (encode(letter)[0] for letter in "redbx")

# -- llama-cpp-python ---------------------------------------------------------------------------------


def strided() -> np.ndarray:
    """Scores as the library shows them: one field of records of 12 bytes."""
    return np.zeros((WIDTH, 3), dtype=np.float32)[:, 1]


class FakeLlama:
    """Calls processors as the library does: exceptions are swallowed, the result is copied into the view."""

    draft_model: Any = None

    def __init__(self, override: int | None = None) -> None:
        self.override = override
        self.ids: list[int] = []

    def sample(self, processor: Any, idx: int | None = None) -> int:
        scores = strided()
        if processor is not None:
            with contextlib.suppress(Exception):
                scores[:] = processor(np.array(self.ids, dtype=np.int32), scores)
        step, self.step = self.step, self.step + 1
        return int(np.argmax(scores)) if self.override is None or step != 1 else self.override

    def create_completion(
        self, prompt: list[int], *, logits_processor: Any, stopping_criteria: Any, logit_bias: Any = None,
        max_tokens: int = 8,
    ) -> list[int]:  # fmt: skip
        text, self.step = list(prompt), 0
        if logit_bias:
            logits_processor = logits_processor.extend([])  # None
        while self.step < max_tokens:
            # Drafts stand behind the text, and are wrong.
            self.ids = text + ([X, X] if self.draft_model else [])
            token = self.sample(logits_processor, idx=len(text) - 1)
            if stopping_criteria(np.array(text, dtype=np.int32), np.zeros(WIDTH, dtype=np.float32)):
                break
            text.append(token)
            if token == EOS:
                break
        stopping_criteria(np.array(text, dtype=np.int32), np.zeros(WIDTH, dtype=np.float32))
        return text[len(prompt) :]


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library's list types, which call their members in order."""

    class Each(list):  # type: ignore[type-arg]
        def __call__(self, ids: Any, scores: Any) -> Any:
            for member in self:
                scores = member(ids, scores)
            return scores

    module = SimpleNamespace(LogitsProcessorList=Each, StoppingCriteriaList=Each)
    monkeypatch.setitem(__import__("sys").modules, "llama_cpp", module)
    return Each


def test_llama_cpp_completions_match(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    for prompt in ([5, 6], [5, 6], [7]):
        assert VOCABULARY.decode(processor.complete(prompt)) == "red"


def test_llama_cpp_texts_are_complete_within_max_tokens_or_refused_with_the_least(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "a{7}|bz"})), FakeLlama())
    a = encode("a")
    # The last prompts are beginnings of texts that were written before.
    for prompt, limit, text in (
        ([5, 6], 8, "a" * 7), ([5, 6], 7, "bz"), ([5, 6], 8, "a" * 7), ([5, 6, *a], 8, "a" * 7), ([5, 6, *a], 7, "bz")
    ):  # fmt: skip
        written = processor.complete(prompt, max_tokens=limit)
        assert written[-1] == EOS
        assert VOCABULARY.decode(written) == text
    with pytest.raises(GenerationError, match=r"may generate 2 tokens, but .* Regex allows needs 3.*Allow at least 3"):
        processor.complete([5, 6], max_tokens=2)


def test_llama_cpp_errors_surface(lists: Any) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red|rxb"})), FakeLlama(override=B))
    for _ in range(2):
        with pytest.raises(IllegalToken, match="accepted token .*'b'.*text so far is 'r"):
            processor.complete([5, 6])


def test_llama_cpp_biases_and_drafts_do_not_switch_the_chain_off(lists: Any) -> None:
    model = FakeLlama()
    model.draft_model = object()
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "(red|blue) (cat|dog )"})), model)
    found = [VOCABULARY.decode(processor.complete([5], logit_bias=bias)) for bias in (None, {str(R): 3.0, X: 9.0})]
    assert all(text in ("blue cat", "blue dog ", "red cat", "red dog ") for text in found)
    assert found[1].startswith("r")
    assert "sample" not in vars(model)


@pytest.mark.parametrize(
    "options",
    [
        {"grammar": object()},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
        {"grammar": object(), "stream": True},
    ],
)
def test_llama_cpp_refuses_a_grammar_of_its_own_beside_a_chain(lists: Any, options: dict[str, Any]) -> None:
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), FakeLlama())
    with pytest.raises(NeedsNotMet, match=r"cannot follow '(grammar|response_format)' and a chain at once"):
        processor.complete([5, 6], **options)
    assert VOCABULARY.decode(processor.complete([5, 6])) == "red"


def test_llama_cpp_takes_a_response_format_of_text(lists: Any) -> None:
    from logitloom_contrib.engines.llama_cpp import _refuse_grammars

    for options in ({}, {"response_format": None}, {"response_format": {"type": "text"}}, {"grammar": None}):
        _refuse_grammars(options)


def test_llama_cpp_tells_of_what_switches_the_chain_off_or_misleads_it(lists: Any) -> None:
    chain, model = chain_of(("regex", {"pattern": "red"})), FakeLlama()
    processor = to_llama_cpp(chain, model)
    given = {"logits_processor": lists([processor]), "stopping_criteria": lists([processor.stopping])}
    for _ in range(2):
        with pytest.raises(NeedsNotMet, match="did not call the chain.*logit_bias"):
            model.create_completion([5], logit_bias={3: 1.0}, **given)
        assert VOCABULARY.decode(model.create_completion([5], **given)) == "red"
    model.draft_model = object()
    with pytest.raises(NeedsNotMet, match="3 ids where the text has 1.*unverified drafts"):
        model.create_completion([5], **given)
    with pytest.raises(NeedsNotMet, match="No Llama is bound"):
        to_llama_cpp(chain).complete([5])


# -- SGLang -------------------------------------------------------------------------------------------


@pytest.fixture
def offered() -> Any:
    for name, pattern in (("red", "red"), ("bed", "bed")):
        sglang.offer(name, chain_of(("regex", {"pattern": pattern})))
    yield
    for name in ("red", "bed"):
        sglang.withdraw(name)


def request(prompt: list[int], output: list[int], name: str = "red") -> dict[str, Any]:
    return {"logitloom": name, "__req__": SimpleNamespace(origin_input_ids=prompt, output_ids=output)}


def test_sglang_rows_keep_their_states_in_any_object(offered: None) -> None:
    blank = np.zeros((3, WIDTH), dtype=np.float32)
    one, two, three = request([5], []), request([5, 6], []), request([7], [], "bed")
    out = sglang.SglangProcessor()(blank, [one, two, three])
    assert R in legal(out[0])
    assert B in legal(out[2])
    one["__req__"].output_ids.append(R)
    two["__req__"].output_ids.extend([R, E])
    three["__req__"].output_ids.append(B)
    out = sglang.SglangProcessor()(blank, [three, one, two])
    assert [legal(line)[0] for line in out] == [E, E, D]
    late = request([9], [B, E], "bed")  # came back after a preemption, between the others
    out = sglang.SglangProcessor()(np.zeros((2, WIDTH), dtype=np.float32), [one, late])
    assert [legal(line)[0] for line in out] == [E, D]


def test_sglang_requests_that_cannot_be_followed_are_refused(offered: None) -> None:
    blank = np.zeros((1, WIDTH), dtype=np.float32)
    with pytest.raises(UnknownPlugin, match="asks for the chain 'blue'; this server offers bed, red"):
        sglang.SglangProcessor()(blank, [request([5], [], "blue")])
    with pytest.raises(NeedsNotMet, match="did not show the request of row 0"):
        sglang.SglangProcessor()(blank, [{"logitloom": "red"}])
    with pytest.raises(NeedsNotMet, match="0 parameter records for 1 rows"):
        sglang.SglangProcessor()(blank)
    drafted = request([5], [])
    with pytest.raises(NeedsNotMet, match="several rows of one request"):
        sglang.SglangProcessor()(np.zeros((2, WIDTH), dtype=np.float32), [drafted, drafted])


# -- TensorRT-LLM -------------------------------------------------------------------------------------


@pytest.mark.torch
def test_tensorrt_llm_requests_are_processed_in_place() -> None:
    torch = pytest.importorskip("torch", reason="TensorRT-LLM passes PyTorch tensors")
    from logitloom_contrib.engines.tensorrt_llm import to_tensorrt_llm

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


@pytest.mark.torch
def test_tensorrt_llm_beams_keep_their_states() -> None:
    torch = pytest.importorskip("torch", reason="TensorRT-LLM passes PyTorch tensors")
    from logitloom_contrib.engines.tensorrt_llm import to_tensorrt_llm

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


# -- objects that are no processors of the engine --------------------------------------------------------


class SwallowingLlama:
    """As the library generates: processors are iterated over in a callback of C, whose exceptions are swallowed."""

    def __init__(self, forced: int | None = None) -> None:
        self.forced = forced

    def sample(self, processors: Any) -> int:
        scores = strided()
        scores[0] = 1.0
        with contextlib.suppress(Exception):
            for each in processors:
                scores[:] = each(np.array(self.ids, dtype=np.int32), scores)
        return int(np.argmax(scores)) if self.forced is None else self.forced

    def detokenize(self, tokens: list[int]) -> bytes:
        return VOCABULARY.decode(tokens).encode()

    def create_completion(self, prompt: list[int], *, logits_processor: Any, max_tokens: int = 8) -> str:
        self.ids, text = list(prompt), ""
        for _ in range(max_tokens):
            token = self.sample(logits_processor)
            text = self.detokenize([*self.ids[len(prompt) :], token]).decode()
            if token == EOS:
                break
            self.ids.append(token)
        return text


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("form", ["processor", "[processor]", "chain", "[chain]"])
def test_llama_cpp_takes_a_chain_in_any_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom.direct_use.load_plugin", lambda kind, name: to_llama_cpp)
    chain, model = chain_of(("regex", {"pattern": "red"})), SwallowingLlama()
    given = {"processor": to_llama_cpp(chain, model), "chain": chain}[form.strip("[]")]
    for _ in range(2):
        found = model.create_completion([5, 6], logits_processor=[given] if form.startswith("[") else given)
        assert found == "red"


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("most", [1, 2, 8])
def test_llama_cpp_raises_what_the_library_swallows_also_by_hand(
    direct: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitloom.direct_use.load_plugin", lambda kind, name: to_llama_cpp)
    model = SwallowingLlama()

    def failing(logits: Any) -> Any:
        raise ValueError("no logits today")

    given = processors.load("regex") if direct else to_llama_cpp(chain_of(failing))
    for _ in range(2):
        with pytest.raises(Exception, match="misses options" if direct else "no logits today"):
            model.create_completion([5, 6], logits_processor=given, max_tokens=most)
        assert not {"sample", "detokenize"} & set(vars(model))


class AbortingLlama(SwallowingLlama):
    """As the library samples with a grammar: it ends the process if the processors leave none of its tokens."""

    allowed = 0

    def sample(self, processors: Any, grammar: Any = None) -> int:
        scores = strided()
        self._apply(processors, scores)
        if grammar is not None and scores[self.allowed] == -np.inf:
            pytest.fail("The process would be aborted.")
        return self.allowed

    def _apply(self, processors: Any, scores: Any) -> None:
        with contextlib.suppress(Exception):
            for each in processors:
                scores[:] = each(np.array([5, 6], dtype=np.int32), scores)


@pytest.mark.usefixtures("lists")
def test_llama_cpp_refuses_a_grammar_that_is_given_by_hand() -> None:
    model = AbortingLlama()
    processor = to_llama_cpp(chain_of(("regex", {"pattern": "red"})), model)
    for _ in range(2):
        token = model.sample(processor, grammar=object())
        with pytest.raises(NeedsNotMet, match=r"cannot follow 'grammar' and a chain at once"):
            model.detokenize([token])
        assert not {"sample", "detokenize"} & set(vars(model))
        model.sample(processor)
        processor.raise_error()


@pytest.mark.torch
def test_a_chain_given_to_an_engine_names_the_adapter() -> None:
    torch = pytest.importorskip("torch", reason="transformers passes tensors")
    chain = chain_of(("top_k", {"k": 5}))
    with pytest.raises(NeedsNotMet, match=r"given to transformers as if .*Give to_transformers\(chain, model"):
        chain(torch.zeros((1, 2), dtype=torch.int64), torch.zeros((1, WIDTH)))
    with pytest.raises(NeedsNotMet, match=r"as if it were an engine's processor.*to_vllm\(chain\)"):
        chain([1, 2], [3.0])
    [itself] = chain
    assert itself is chain


# -- LMDeploy -----------------------------------------------------------------------------------------


@pytest.mark.torch
def test_lmdeploy_requests_share_an_object_whatever_their_padding() -> None:
    """What the engine does in a step: rows padded on the left, each processor called with its row."""
    torch = pytest.importorskip("torch", reason="LMDeploy passes PyTorch tensors")
    from logitloom_contrib.engines.lmdeploy import to_lmdeploy

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


@pytest.mark.torch
def test_lmdeploy_refuses_what_is_no_row() -> None:
    torch = pytest.importorskip("torch", reason="LMDeploy passes PyTorch tensors")
    from logitloom_contrib.engines.lmdeploy import to_lmdeploy

    with pytest.raises(InvalidContext, match=r"ids \[width\] and logits \[vocab\] of one request"):
        to_lmdeploy(chain_of(("top_k", {"k": 3})))(torch.zeros(1, 4), torch.zeros(1, WIDTH))
    with pytest.raises(NeedsNotMet, match="LMDeploy cannot run"):
        to_lmdeploy(chain_of(("cfg", {"scale": 1.5})))


@pytest.mark.torch
def test_dynamo_refuses_what_it_cannot_give() -> None:
    torch = pytest.importorskip("torch", reason="Dynamo passes PyTorch tensors")
    from logitloom_contrib.engines.dynamo import to_dynamo

    with pytest.raises(InvalidContext, match=r"logits \[vocab\] of one request.*\[1, 128\]"):
        to_dynamo(chain_of(("top_k", {"k": 3})))([1], torch.zeros(1, WIDTH))
    with pytest.raises(NeedsNotMet, match="Dynamo cannot run"):
        to_dynamo(chain_of(("repetition_penalty", {"penalty": 1.5})))


@pytest.mark.torch
def test_dynamo_ends_a_text_whose_error_a_worker_swallows() -> None:
    torch = pytest.importorskip("torch", reason="Dynamo passes PyTorch tensors")
    from logitloom_contrib.engines.dynamo import to_dynamo

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


@pytest.mark.torch
def test_exllamav3_jobs_share_a_sampler_and_take_tokens_back() -> None:
    torch = pytest.importorskip("torch", reason="ExLlamaV3 passes PyTorch tensors")
    from logitloom_contrib.engines.exllamav3 import to_exllamav3

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


@pytest.mark.torch
def test_exllamav3_tells_when_the_engine_took_what_the_chain_forbids() -> None:
    torch = pytest.importorskip("torch", reason="ExLlamaV3 passes PyTorch tensors")
    from logitloom_contrib.engines.exllamav3 import to_exllamav3

    job = Job(to_exllamav3(chain_of(("regex", {"pattern": "red"})), sampler=InnerSampler()), encode("a"))
    mask = torch.zeros(WIDTH)
    mask[X] = torch.inf  # -inf + inf is no number, and a maximum takes that
    job.receive_logits(torch.zeros(WIDTH), mask)
    assert job.ids[-1] == X
    with pytest.raises(IllegalToken, match="Its text so far is ''"):
        job.receive_logits(torch.zeros(WIDTH))


@pytest.mark.torch
def test_exllamav3_refuses_what_it_cannot_give() -> None:
    torch = pytest.importorskip("torch", reason="ExLlamaV3 passes PyTorch tensors")
    from logitloom_contrib.engines.exllamav3 import to_exllamav3

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
    torch = pytest.importorskip("torch", reason="these engines pass PyTorch tensors")
    from logitloom_contrib.engines.dynamo import to_dynamo
    from logitloom_contrib.engines.exllamav3 import to_exllamav3
    from logitloom_contrib.engines.lmdeploy import to_lmdeploy
    from logitloom_contrib.engines.tensorrt_llm import to_tensorrt_llm

    sglang.offer("recorded", chain)
    adapters: dict[str, Any] = {
        "dynamo": to_dynamo(chain), "lmdeploy": to_lmdeploy(chain), "tensorrt_llm": to_tensorrt_llm(chain)
    }  # fmt: skip
    for place in range(len(tokens)):
        ids, logits = [*prompt, *tokens[:place]], torch.from_numpy(given(place))
        if engine == "sglang":
            sglang.SglangProcessor()(logits[None], [request(prompt, tokens[:place], "recorded")])
        elif engine == "tensorrt_llm":
            adapters[engine](1, logits[None, None], [ids], None, None)
        elif engine == "exllamav3":
            outer = adapters.setdefault("job", to_exllamav3(chain, sampler=InnerSampler()))
            outer.forward(logits[None, None], torch.tensor([ids]), place)
        else:
            adapters[engine](torch.tensor(ids) if engine == "lmdeploy" else ids, logits)
    sglang.withdraw("recorded")


def given(place: int) -> np.ndarray:
    return np.random.default_rng(place).normal(size=WIDTH).astype(np.float32)


@pytest.mark.torch
@pytest.mark.parametrize("engine", ["sglang", "tensorrt_llm", "lmdeploy", "dynamo", "exllamav3"])
def test_what_was_sampled_is_known_after_the_documented_calls(engine: str) -> None:
    plain = chain_of(("temperature", {"temperature": 0.5}), ("top_k", {"k": 20}))
    chain, tokens = RecordedChain(plain), [int(given(place).argsort()[-3]) for place in range(5)]
    called(engine, chain, [5, 6], tokens)
    told = chain.sampled(tokens)
    wanted = plain.score(np.stack([given(place) for place in range(5)])[None], [tokens], Context.start(given(0)[None]))
    assert [each and each.logprob for each in told] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    assert {each and each.kept for each in told} == {20}
    page = (Path(__file__).parents[3] / "docs" / "engines" / f"{engine}.md").read_text(encoding="utf-8")
    assert "`RecordedChain`" in page
