"""The real engine with the real SmolLM2 on the CPU (model runner V1): many requests, each as if it were alone."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from logitloom.masks.kernels import host_kernels
from tests.contrib.engines.vllm.conftest import one
from tests.contrib.engines.vllm.smollm2_folder import missing_packages, smollm2_folder

if missing_packages():
    pytest.skip(f"not installed: {', '.join(missing_packages())}", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.extras]

PATTERNS = (
    r"\d{3}-\d{4}",
    r"(red|green|blue|yellow) (cat|dog|bird) [0-9]{2}",
    r"[a-z]{2,5}@[a-z]{2,4}\.(com|org|net)",
)
CHOICES = ["Paris", "Berlin", "Rome is eternal"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip

#: Eight chains; the last one is none.
CHAINS: dict[str, Any] = {
    **{f"regex {i}": one("regex", pattern=pattern) for i, pattern in enumerate(PATTERNS)},
    "choice": json.dumps(one("choice", choices=CHOICES)),
    "json": json.dumps({"logitloom": 1, "processor": one("json", schema=SCHEMA, whitespace="compact")}),
    "stop": one("stop", strings=["the", "\n"]),
    "penalties": [*one("repetition_penalty", penalty=1.3), *one("no_repeat_ngram", n=2)],
    "plain": None,
}
PROMPTS = ("My phone number is ", "In 1999, the old man")
#: Tokens that suffice for any text of a chain.
LONGEST = {"regex 0": 16, "regex 1": 24, "regex 2": 24, "choice": 10, "json": 48}


def valid(kind: str, text: str, ids: list[int], finished: bool) -> bool:
    if kind.startswith("regex"):
        return re.fullmatch(PATTERNS[int(kind[-1])], text) is not None
    if kind == "choice":
        return text in CHOICES
    if kind == "json":
        if not finished:
            return text.startswith("{")
        value = json.loads(text)
        return set(value) == {"name", "age"} and isinstance(value["age"], int) and 0 <= value["age"] <= 99
    if kind == "stop":
        ends = [text.find(stop) + len(stop) for stop in ("the", "\n") if stop in text]
        # The token that completes a stop string may go on after it; the next one ends the text.
        return not ends or (finished and len(text) - min(ends) < 12)
    if kind == "penalties":
        return len(set(itertools.pairwise(ids))) == max(len(ids) - 1, 0)
    return True


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """An engine in this process, small enough that requests are preempted and prompts are filled in chunks.

    In float32, so that a token does not depend on how many rows were computed with it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("LOGITLOOM_SERVER_SECONDS", "20")  # test machines may be busy
        patch.setenv("LOGITLOOM_SERVER_ENGINE_SECONDS", "20")
        from vllm import LLM

        llm = LLM(
            model=str(smollm2_folder()), enforce_eager=True, max_model_len=256, max_num_seqs=16, dtype="float32",
            max_num_batched_tokens=96, num_gpu_blocks_override=15, block_size=32, seed=0, disable_log_stats=True,
            enable_prefix_caching=False,
        )  # fmt: skip
        yield llm.llm_engine


def params_of(chain: Any, max_tokens: int) -> Any:
    from vllm import SamplingParams

    extra = None if chain is None else {"logitloom": chain}
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=extra)


def run(
    engine: Any, requests: dict[str, tuple[str, Any, int]], arrivals: Any, cancel: dict[str, int]
) -> dict[str, Any]:
    """Feed requests as they arrive, cancel some after a number of tokens, and return what became of the others."""
    waiting, done = list(requests), {}
    while waiting or engine.has_unfinished_requests():
        for _ in range(min(len(waiting), arrivals() if engine.has_unfinished_requests() else 1)):
            name = waiting.pop(0)
            prompt, chain, max_tokens = requests[name]
            engine.add_request(name, prompt, params_of(chain, max_tokens))
        for output in engine.step():
            name = output.request_id
            completion = output.outputs[0]
            if output.finished:
                done[name] = (completion.text, list(completion.token_ids), completion.finish_reason)
            elif name in cancel and len(completion.token_ids) >= cancel[name]:
                engine.abort_request([name])
                cancel.pop(name)
    return done


def test_the_adapter_loads_no_kernels_that_keep_engines_from_starting(engine: Any) -> None:
    assert engine is not None
    assert host_kernels() is None


def test_sixty_four_requests_at_once_equal_the_same_requests_alone(engine: Any) -> None:
    rng = random.Random(5)
    requests: dict[str, tuple[str, Any, int]] = {}
    kinds: dict[str, str] = {}
    for number in range(64):
        kind = list(CHAINS)[number % len(CHAINS)]
        fits = rng.choice([6, 14, 20]) if kind in ("stop", "penalties", "plain") else LONGEST[kind]
        requests[str(number)] = (rng.choice(PROMPTS), CHAINS[kind], fits)
        kinds[str(number)] = kind
    cancelled = {str(number): rng.randrange(1, 6) for number in rng.sample(range(64), 8)}
    together = run(engine, requests, lambda: rng.choice([0, 0, 1, 3]), dict(cancelled))
    assert len(together) >= 56
    alone: dict[Any, Any] = {}
    for name, (text, ids, reason) in together.items():
        kind, (prompt, chain, _) = kinds[name], requests[name]
        assert valid(kind, text, ids, reason == "stop"), (kind, text)
        if (prompt, kind) not in alone:
            request = {"alone": (prompt, chain, LONGEST.get(kind, 20))}
            alone[prompt, kind] = run(engine, request, lambda: 1, {})["alone"]
        # A greedy output that was allowed fewer tokens is the beginning of a longer one.
        assert alone[prompt, kind][1][: len(ids)] == ids, (kind, prompt, alone[prompt, kind][0], text)


@pytest.mark.parametrize("given", ["nonsense", json.dumps(one("cfg")), json.dumps(one("regex", pattern="("))])
def test_bad_requests_are_refused_and_the_engine_goes_on(engine: Any, given: str) -> None:
    with pytest.raises(Exception, match=r"logitloom|may not use|regular expression") as caught:
        engine.add_request("bad", "x", params_of(given, 4))
    assert "Validation" in type(caught.value).__name__
    good = run(engine, {"good": (PROMPTS[0], CHAINS["regex 0"], 24)}, lambda: 1, {})["good"]
    assert re.fullmatch(PATTERNS[0], good[0])


def test_long_prompts_in_chunks_and_preempted_requests_stay_valid(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests that cannot all keep their blocks; prompts of several chunks of prefill."""
    from logitloom_contrib.engines.vllm import batch_order

    follow, came_back = batch_order.follow, []

    def watched(places: Any, update: Any, begin: Any) -> None:
        came_back.extend(len(output) for _, _, _, output in update.added if output)
        follow(places, update, begin)

    monkeypatch.setattr(batch_order, "follow", watched)
    pattern = r"([0-9]{3} ){25}[0-9]{3}"
    requests = {
        str(i): ("word " * (110 + 5 * i) + "and now numbers: ", one("regex", pattern=pattern), 120) for i in range(3)
    }
    done = run(engine, requests, lambda: 3, {})
    assert len(done) == 3
    assert came_back, "nothing was preempted: give the engine fewer blocks"
    for text, _, reason in done.values():
        assert reason == "stop"
        assert re.fullmatch(pattern, text)


def test_an_error_in_one_row_ends_that_request_alone(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from logitloom_plugins.processors.choice import Choice

    process, running, failed = Choice.process, [], []

    def arrivals() -> int:
        running.append(True)  # asked for when the first request was admitted and has run
        return 3

    def failing(self: Any, logits: Any, state: Any, context: Any) -> Any:
        if running:
            failed.append(True)
            raise RuntimeError("a bug in a plug-in")
        return process(self, logits, state, context)

    monkeypatch.setattr(Choice, "process", failing)
    unseen = one("choice", choices=["Lisbon and then a lot of words", "Madrid and then a lot of words"])
    requests = {
        "broken": (PROMPTS[1], unseen, 24),
        "healthy": (PROMPTS[0], CHAINS["regex 1"], 24),
        "plain": (PROMPTS[1], None, 6),
    }
    done = run(engine, requests, arrivals, {})
    assert failed
    assert done["broken"][2] == "stop"
    assert len(done["broken"][1]) <= 4
    assert re.fullmatch(PATTERNS[1], done["healthy"][0])
    assert len(done["plain"][1]) == 6


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}},
            "speculative",
        ),
        ({"async_scheduling": True}, "--no-async-scheduling"),
        ({}, None),
    ],
)
def test_engines_that_would_drop_a_chain_refuse_it(changes: dict[str, Any], part: str | None) -> None:
    """The engine's own frontend, with its own configuration; no model is loaded."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.input_processor import InputProcessor

    options = {"model": str(smollm2_folder()), "enforce_eager": True, "max_model_len": 256}
    config = EngineArgs(**options).create_engine_config()
    if "speculative_config" in changes:
        config = EngineArgs(**options, **changes).create_engine_config()
    else:
        # The CPU never schedules asynchronously, so this is said afterwards.
        config.scheduler_config.async_scheduling = bool(changes)
    frontend = InputProcessor(config)
    prompt = {"prompt_token_ids": [1, 2, 3]}
    frontend.process_inputs("plain", prompt, params_of(None, 4), ("generate",))
    if part is None:
        frontend.process_inputs("chain", prompt, params_of(CHAINS["regex 0"], 16), ("generate",))
        return
    with pytest.raises(Exception, match=part) as caught:
        frontend.process_inputs("chain", prompt, params_of(CHAINS["regex 0"], 16), ("generate",))
    assert "Validation" in type(caught.value).__name__


def test_the_chain_document_of_a_chain_is_what_the_engine_runs(engine: Any) -> None:
    from vllm import SamplingParams

    from logitloom import processors
    from logitloom_contrib.engines.vllm import to_vllm

    chain = processors.load(("regex", {"pattern": "(yes|no)!"}))
    for text in (False, True):
        engine.add_request(f"{text}", "Yes or no? ", SamplingParams(temperature=1.0, seed=1, max_tokens=8, extra_args=to_vllm(chain, text=text)))  # fmt: skip  # noqa: E501
    done = []
    while engine.has_unfinished_requests():
        done += [output.outputs[0].text for output in engine.step() if output.finished]
    assert len(done) == 2
    assert set(done) <= {"yes!", "no!"}
