"""Chain.score beside a loop over steps, ours and that of transformers: ratios of processor time in one process.

Run: ``python benchmarks/score.py [numpy,torch] [256,2048,16384] [rows of a batch]``. Every result is compared with
the loop's.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
from conditions import heading

from logitloom import Backend, Chain, Context, load_backend, processors

STEPS = 512
CHAINS: dict[str, list[Any]] = {
    "ordinary": [
        ("repetition_penalty", {"penalty": 1.3}), ("temperature", {"temperature": 0.7}), ("top_k", {"k": 50}),
        ("top_p", {"p": 0.9}), ("min_p", {"p": 0.02}),
    ],
    "penalties": [
        ("frequency_penalty", {"penalty": 0.4}), ("presence_penalty", {"penalty": 0.5}), ("no_repeat_ngram", {"n": 3}),
        ("logit_bias", {"bias": {2: 1.0}}), ("temperature", {"temperature": 0.7}),
    ],
    "warps": [
        ("temperature", {"temperature": 0.7}), ("top_p", {"p": 0.9}), ("min_p", {"p": 0.02}),
        ("quadratic", {"factor": 0.1}), ("typical_p", {"p": 0.95}),
    ],
    "mixed": [
        ("dry", {"breakers": []}), ("top_k", {"k": 40}), ("xtc", {}), ("min_tokens", {"n": 5, "eos": [0]}),
        ("dynamic_temperature", {}),
    ],
}  # fmt: skip


def step_by_step(chain: Chain, backend: Backend, logits: Any, tokens: np.ndarray, context: Context) -> np.ndarray:
    """``[batch, steps]``, as a loop has them."""
    state, given, found = chain.init_state(context), context, []
    for step in range(logits.shape[1]):
        out, state = chain.process(logits[:, step], state, given)
        now = tokens[:, step : step + 1]
        found.append(backend.gather(backend.log_softmax(out), backend.asarray(now)))
        given = context.accept(now)
    return backend.to_numpy(backend.xp.concat(found, axis=1))


def by_transformers(logits: Any, tokens: np.ndarray, context: Context) -> np.ndarray:
    """``[batch, steps]`` of the chain "ordinary", as a loop over transformers' own processors has them."""
    import torch
    from transformers.generation import logits_process as its

    warpers = [
        its.RepetitionPenaltyLogitsProcessor(1.3), its.TemperatureLogitsWarper(0.7), its.TopKLogitsWarper(50),
        its.TopPLogitsWarper(0.9), its.MinPLogitsWarper(0.02),
    ]  # fmt: skip
    chosen, prompt = torch.from_numpy(tokens).long(), torch.tensor(context.prompt, dtype=torch.long)
    sequence, found = torch.cat([prompt, chosen], 1), []
    for step in range(logits.shape[1]):
        now = prompt.shape[1] + step
        out = its.LogitsProcessorList(warpers)(sequence[:, :now], logits[:, step].clone())
        found.append(torch.log_softmax(out, -1).gather(1, sequence[:, now : now + 1]))
    return torch.cat(found, 1).numpy()


def seconds(call: Any, times: int) -> tuple[float, Any]:
    """Least processor time of some calls, and the result."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        result = call()
        best = min(best, time.process_time() - start)
    return best, result


def main(libraries: str = "numpy,torch", widths: str = "256,2048,16384", batch: str = "1") -> None:
    """Print a table."""
    if "torch" in libraries:
        import torch

        torch.set_num_threads(1)  # processor time of threads that wait for each other is no measure
    print(heading("torch", "transformers"))
    print("library | vocabulary | chain | loop, us a position | score | ratio | largest difference")
    for library in libraries.split(","):
        backend = load_backend(library)
        for vocab in map(int, widths.split(",")):
            host = np.random.default_rng(0).normal(scale=3, size=(int(batch), STEPS, vocab)).astype(np.float32)
            logits, tokens = backend.asarray(host), host.argmax(-1).astype(np.int32)
            context = Context.start(logits[:, 0], prompt=[[1, 2, 3]] * int(batch), max_length=STEPS + 8, seed=3)
            for name, specs in CHAINS.items():
                chain = processors.load(*specs)
                loop, wanted = seconds(partial(step_by_step, chain, backend, logits, tokens, context), 3)
                once, scored = seconds(partial(chain.score, logits, tokens, context), 10)
                found = backend.to_numpy(scored)
                possible = np.isfinite(wanted)
                assert (np.isfinite(found) == possible).all()
                error = np.abs(found[possible] - wanted[possible]).max()
                each = [f"{t * 1e6 / STEPS:.1f}" for t in (loop, once)]
                print(" | ".join([library, str(vocab), name, *each, f"{loop / once:.1f}", f"{error:.0e}"]))
                if library == "torch" and name == "ordinary":
                    theirs, wanted = seconds(partial(by_transformers, logits, tokens, context), 3)
                    error = np.abs(found[possible] - wanted[possible]).max()
                    each[0] = f"{theirs * 1e6 / STEPS:.1f}"
                    peer = "the same, a loop over transformers' processors"
                    print(" | ".join(["torch", str(vocab), peer, *each, f"{theirs / once:.1f}", f"{error:.0e}"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
