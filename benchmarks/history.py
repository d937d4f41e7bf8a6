"""What a step costs as the history grows: penalties, dry and n-gram bans beside transformers' own.

Run: ``python benchmarks/history.py``. Batch 8, vocabulary 32,000, 64 to 8,192 tokens of history; median milliseconds
of a step that accepts one token per row, on PyTorch CPU. ``--backend numpy`` measures NumPy, without peers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from logitloom import Context, load_backend, processors

BATCH, VOCAB = 8, 32_000
LENGTHS = (64, 512, 2048, 8192)

SPECS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, tuple[Any, ...]] | None]] = {
    "repetition_penalty": (
        ("repetition_penalty", {"penalty": 1.2}),
        ("RepetitionPenaltyLogitsProcessor", (1.2,)),
    ),
    "repetition_penalty, window 64": (("repetition_penalty", {"penalty": 1.2, "window": 64}), None),
    "presence_penalty": (("presence_penalty", {"penalty": 0.5}), None),
    "frequency_penalty": (("frequency_penalty", {"penalty": 0.5}), None),
    "no_repeat_ngram 3": (("no_repeat_ngram", {"n": 3}), ("NoRepeatNGramLogitsProcessor", (3,))),
    "dry": (("dry", {"breakers": []}), None),
}


def median_ms(function: Callable[[], Any], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def step(backend: Any, spec: tuple[str, dict[str, Any]], prompts: list[list[int]]) -> Callable[[], Any]:
    chain = processors.load(spec, debug=False)
    logits = backend.asarray(np.random.default_rng(1).normal(size=(BATCH, VOCAB)).astype(np.float32))
    context = Context.start(logits, prompt=prompts, max_length=len(prompts[0]) + 1)
    state = chain.init_state(context)
    tokens = backend.asarray(np.asarray([[row[0]] for row in prompts], dtype=np.int32))

    def run() -> Any:
        processed, _ = chain.process(logits, state, context.accept(tokens))
        backend.synchronize(processed)

    return run


def peer_step(peer: tuple[str, tuple[Any, ...]], prompts: list[list[int]]) -> Callable[[], Any] | None:
    try:
        import torch
        import transformers.generation.logits_process as theirs
    except ImportError:
        return None
    processor = getattr(theirs, peer[0])(*peer[1])
    ids = torch.tensor([[*row, row[0]] for row in prompts])
    logits = torch.tensor(np.random.default_rng(1).normal(size=(BATCH, VOCAB)).astype(np.float32))
    return lambda: processor(ids, logits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    backend = load_backend(arguments.backend)
    print(f"{arguments.backend}, batch {BATCH}, vocabulary {VOCAB}; milliseconds a step")
    print(f"{'processor':32}" + "".join(f"{length:>10}" for length in LENGTHS) + f"{'growth':>10}")
    rng = np.random.default_rng(0)
    texts = {length: rng.integers(0, 2000, (BATCH, length)).tolist() for length in LENGTHS}
    for label, (spec, peer) in SPECS.items():
        rows = {label: [median_ms(step(backend, spec, texts[n]), arguments.repeats) for n in LENGTHS]}
        if peer is not None and arguments.backend == "torch":
            steps = [peer_step(peer, texts[n]) for n in LENGTHS]
            if all(steps):
                rows["  transformers"] = [median_ms(s, max(3, arguments.repeats // 5)) for s in steps if s]
        for name, times in rows.items():
            print(f"{name:32}" + "".join(f"{t:10.3f}" for t in times) + f"{times[-1] / times[0]:9.1f}x")


if __name__ == "__main__":
    main()
