"""What a chain of five processors costs over the same array operations written out by hand.

Run: ``python benchmarks/chain_overhead.py``. Logits are (4, 30000) float32. Every variant runs in turn within one
loop, so that whatever else the machine does hits all of them alike. Overheads are the median and the lower quartile
of the differences within a turn: on a busy machine the second is the steadier one. The lines for logits of (4, 8)
measure the dispatch alone: there the array operations themselves cost next to nothing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from logitloom import Context, LogitloomError, load_backend, processors

SHAPE = (4, 30_000)
CHAIN = (
    ("suppress_tokens", {"tokens": [3, 5, 6, 7]}),
    ("temperature", {"temperature": 0.8}),
    ("top_k", {"k": 5}),
    ("top_p", {"p": 0.9}),
    ("min_p", {"p": 0.05}),
)


def in_turn(functions: dict[str, Callable[[], Any]], turns: int) -> dict[str, list[float]]:
    """Microseconds of each function in each turn."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 5):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            if turn >= 5:
                times[name].append((time.perf_counter() - begin) * 1e6)
    return times


def bare(backend: Any, logits: Any) -> Callable[[], Any]:
    """The operations of the chain without any logitloom around them, in place where the chain may write in place."""
    xp = backend.xp
    ids = backend.asarray(np.asarray([[3, 5, 6, 7]], dtype=np.int32))
    log_p = math.log(0.05)

    def run() -> Any:
        x = backend.set_at(logits, xp.broadcast_to(ids, (logits.shape[0], 4)), -math.inf, False)
        x = backend.divide(x, 0.8, True)
        x = backend.masked_fill(x, x < backend.kth_largest(x, 5), -math.inf, True)
        descending = backend.sort_descending(x)
        above = xp.cumulative_sum(backend.softmax(descending), axis=-1)[:, :-1]
        others = backend.masked_fill(descending[:, 1:], above >= 0.9, math.inf)
        threshold = xp.minimum(xp.min(others, axis=-1, keepdims=True), descending[:, :1])
        x = backend.masked_fill(x, x < threshold, -math.inf, True)
        return backend.masked_fill(x, x < xp.max(x, axis=-1, keepdims=True) + log_p, -math.inf, True)

    return run


def chained(logits: Any) -> Callable[[], Any]:
    chain = processors.load(*CHAIN, debug=False)
    context = Context.start(logits)
    state = chain.init_state(context)
    tokens = context.backend.asarray(np.asarray([[1]] * logits.shape[0], dtype=np.int32))

    def run() -> Any:
        return chain.process(logits, state, context.accept(tokens))[0]

    return run


def outlines_calls(name: str, logits: Any, ids: Any) -> dict[str, Callable[[], Any]]:
    """One trivial processor of outlines, and its body: the difference is what outlines adds per processor."""
    try:
        from outlines.processors.base_logits_processor import OutlinesLogitsProcessor
    except ImportError as error:
        print(f"outlines is not measured: {error}")
        return {}

    class Halve(OutlinesLogitsProcessor):
        def process_logits(self, input_ids: Any, logits: Any) -> Any:
            return logits / 2

    processor = Halve(name)
    return {"outlines bare": lambda: logits / 2, "outlines": lambda: processor(ids, logits)}


def overhead(times: dict[str, list[float]], with_it: str, without: str) -> tuple[float, float]:
    """Median and lower quartile of the differences."""
    differences = sorted(a - b for a, b in zip(times[with_it], times[without], strict=True))
    return statistics.median(differences), differences[len(differences) // 4]


def main() -> None:
    rng = np.random.default_rng(0)
    print(
        f"{'library':8} {'shape':12} {'bare':>10} {'chain':>10} {'ratio':>6} {'overhead of 5 (median, quartile)':>34}"
    )
    for name in ("numpy", "torch"):
        try:
            backend = load_backend(name)
        except LogitloomError as error:
            print(f"{name}: not available ({error})")
            continue
        for shape, turns in ((SHAPE, 100), ((4, 8), 2000)):
            logits = backend.asarray(rng.normal(size=shape).astype(np.float32))
            ids = backend.asarray(rng.integers(0, 8, (shape[0], 16)))
            variants = {"bare": bare(backend, logits), "chain": chained(logits)}
            assert np.array_equal(*(backend.to_numpy(run()) for run in variants.values()))
            times = in_turn({**variants, **outlines_calls(name, logits, ids)}, turns)
            middle = {key: statistics.median(values) for key, values in times.items()}
            typical, quartile = overhead(times, "chain", "bare")
            print(
                f"{name:8} {shape!s:12} {middle['bare']:8.1f}us {middle['chain']:8.1f}us "
                f"{middle['chain'] / middle['bare']:6.3f} {typical:22.1f}us {quartile:8.1f}us"
            )
            if "outlines" in times:
                typical, quartile = overhead(times, "outlines", "outlines bare")
                five = 5 * typical
                print(f"{'':8} outlines, one trivial processor: {typical:.1f}us ({quartile:.1f}us); five: {five:.1f}us")


if __name__ == "__main__":
    main()
