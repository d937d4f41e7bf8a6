"""The adapter for vLLM alone, without the engine: processor time of ``update_state`` and ``apply`` per step.

    python benchmarks/vllm_adapter.py [--batches 1 8 64] [--steps 24]

Calls what model runner V1 calls, on ``[batch, 49152]`` float32 logits of PyTorch on one thread. Each row accepts a
random letter or word at each step. Printed are lower quartiles in milliseconds over the steps after the first eight, in
which states are visited for the first time, and the same for one copy of the logits. The logits of a step are written
anew before it, outside the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from conditions import heading
from engines import WIDTH, vocabulary

from logitloom import Vocabulary
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.engines.vllm.served_engine import ServedEngine

MAX_LENGTH, WARM = 512, 8


def regex(number: int = 0) -> list[dict[str, Any]]:
    return [{"use": "regex", "options": {"pattern": "[a-z]*" + "abcdefgh"[number]}}]


PENALTY = [{"use": "repetition_penalty", "options": {"penalty": 1.3}}]
#: What the rows of a batch ask for, by their place.
WORK: dict[str, Callable[[int], Any]] = {
    "one regex, all rows": lambda place: regex(),
    "one regex, every other row": lambda place: None if place % 2 else regex(),
    "eight regexes, rows interleaved": lambda place: regex(place % 8),
    "repetition penalty, all rows": lambda place: PENALTY,
}


def engine_of(known: Vocabulary, max_length: int = MAX_LENGTH) -> ServedEngine:
    """An engine as data: what the adapter reads of vLLM's configuration."""
    model = SimpleNamespace(
        max_model_len=max_length, get_vocab_size=lambda: known.size, is_diffusion=False, logits_processors=None
    )
    config = SimpleNamespace(
        model_config=model, scheduler_config=SimpleNamespace(async_scheduling=False), use_v2_model_runner=False,
        speculative_config=None, additional_config={}, num_speculative_tokens=0,
    )  # fmt: skip
    return ServedEngine(config, environment={}, vocabulary=known)


def request(place: int, chain: Any) -> tuple[int, Any, list[int], list[int]]:
    """What the engine tells of a request that joins."""
    extra = None if chain is None else {"logitloom": chain}
    params = SimpleNamespace(
        extra_args=extra, seed=place, max_tokens=MAX_LENGTH, stop_token_ids=[], all_stop_token_ids={0}
    )
    return place, params, [5, 6, 7], []


def step_ms(known: Vocabulary, chain_at: Callable[[int], Any], batch: int, steps: int) -> float:
    """Milliseconds of processor time that one step takes the adapter."""
    rng, runner = np.random.default_rng(0), RunnerV1(engine_of(known))
    joined = [request(place, chain_at(place)) for place in range(batch)]
    update: Any = SimpleNamespace(batch_size=batch, removed=[], added=joined, moved=[])
    logits, times = torch.randn(batch, WIDTH), []
    for _ in range(WARM + steps):
        given = logits.clone()
        begin = time.process_time()
        runner.update_state(update)
        runner.apply(given)
        times.append(1e3 * (time.process_time() - begin))
        update = None
        for _, _, _, output in joined:
            output.append(int(rng.integers(1, 2000)))
    assert not any(request.failure for request in runner.places.values())
    return statistics.quantiles(times[WARM:], n=4)[0]


def copy_ms(batch: int, steps: int) -> float:
    """Milliseconds of processor time of one copy of the logits."""
    logits, times = torch.randn(batch, WIDTH), []
    for _ in range(steps):
        begin = time.process_time()
        logits.clone()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.quantiles(times, n=4)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = vocabulary()
    print(heading("torch"))
    print("| chains in the batch | " + " | ".join(f"batch {batch}" for batch in options.batches) + " |")
    print("|---|" + "---|" * len(options.batches))
    for name, chain_at in WORK.items():
        cells = [f"{step_ms(known, chain_at, batch, options.steps):.2f}" for batch in options.batches]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    cells = [f"{copy_ms(batch, options.steps):.2f}" for batch in options.batches]
    print("| one copy of the logits | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
