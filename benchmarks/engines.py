"""What the transformers adapter costs per step, beside the chain that it calls.

Every line is one step of ``generate`` at a batch size and length: all ids and all scores handed to the processor. The
chain is a regular expression over a vocabulary as wide as SmolLM2's. "chain" is the same chain called directly, with
its state at hand; the difference is what recognising rows costs. Rows stay in place (greedy, sampling) or change
places and are duplicated (beams). "copy" is one copy of the scores, for scale. Times are lower quartiles.

Run: ``OMP_NUM_THREADS=1 python benchmarks/engines.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from logitloom import Context, Vocabulary, processors
from logitloom_contrib.engines.transformers import to_transformers

WIDTH = 49_152
STEPS = 40


def chain() -> Any:
    rng = np.random.default_rng(0)
    tokens = [b"", *(bytes([c]) for c in range(97, 123))]
    tokens += [bytes(rng.integers(97, 123, size=int(n)).tolist()) for n in rng.integers(2, 9, WIDTH - len(tokens))]
    return processors.load(("regex", {"pattern": "[a-z]*"}), tokenizer=Vocabulary(tokens, eos=[0]), debug=False)


def microseconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return (time.perf_counter() - begin) * 1e6


def measure(loaded: Any, rows: int, length: int, beams: bool) -> tuple[float, float, float]:
    rng = np.random.default_rng(1)
    scores = torch.from_numpy(rng.normal(size=(rows, WIDTH)).astype(np.float32))
    ids = torch.from_numpy(rng.integers(1, WIDTH, size=(rows, length)))
    processor = to_transformers(loaded, eos=[0])
    processor(ids, scores)
    context = Context.start(scores)
    state = loaded.process(scores, loaded.init_state(context), context)[1]
    # Tokens that the automaton has met before: what a first meeting costs is the chain's affair.
    for token in range(1, 65):
        loaded.process(scores, state, context.accept([[token]] * rows))
    times: dict[str, list[float]] = {"adapter": [], "chain": [], "copy": []}
    for _ in range(STEPS):
        parents = torch.from_numpy(rng.integers(0, rows, size=rows)) if beams else torch.arange(rows)
        new = torch.from_numpy(rng.integers(1, 65, size=(rows, 1)))
        ids = torch.cat([ids[parents], new], dim=1)
        times["adapter"].append(microseconds(lambda ids=ids: processor(ids, scores)))
        accepted = context.accept(new)
        begin = time.perf_counter()
        state = loaded.process(scores, state, accepted)[1]
        times["chain"].append((time.perf_counter() - begin) * 1e6)
        times["copy"].append(microseconds(scores.clone))
    return tuple(statistics.quantiles(each, n=4)[0] for each in times.values())  # type: ignore[return-value]


def main() -> None:
    loaded = chain()
    print(f"{'rows':>5} {'length':>7} {'moves':>6} {'adapter us':>11} {'chain us':>9} {'added us':>9} {'copy us':>8}")
    for rows in (1, 8, 64):
        for length in (64, 1024, 4096):
            for beams in (False, True):
                adapter, alone, copy = measure(loaded, rows, length, beams)
                moves = "yes" if beams else "no"
                line = f"{rows:>5} {length:>7} {moves:>6} {adapter:>11.0f} {alone:>9.0f} {adapter - alone:>9.0f}"
                print(f"{line} {copy:>8.0f}")


if __name__ == "__main__":
    main()
