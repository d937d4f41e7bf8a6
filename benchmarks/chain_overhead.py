"""What a chain of five processors costs over the same array operations.

Two comparisons. Five processors of one array operation each against the five operations show what the chain itself adds
(accepting tokens, moving states, calling). Five built-ins against a hand-written step in the plain library show that
and what the built-ins do beyond the bare minimum (rows of -inf, half precision, options).

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


def bare_numpy(logits: Any) -> Callable[[], Any]:
    """The operations of the chain in plain NumPy, in place wherever the chain may write in place."""
    columns, log_p, k = np.asarray([3, 5, 6, 7]), np.float32(math.log(0.05)), logits.shape[-1] - 5

    def run() -> Any:
        x = logits.copy()
        x[:, columns] = -np.inf
        np.divide(x, np.float32(0.8), out=x)
        np.copyto(x, -np.inf, where=x < np.partition(x, k, axis=-1)[:, k : k + 1])
        descending = np.flip(np.sort(x, axis=-1), axis=-1)
        p = np.exp(descending - descending[:, :1])
        p /= p.sum(axis=-1, keepdims=True)
        others = np.where(np.cumsum(p, axis=-1)[:, :-1] >= 0.9, np.float32(np.inf), descending[:, 1:])
        threshold = np.minimum(others.min(axis=-1, keepdims=True), descending[:, :1])
        np.copyto(x, -np.inf, where=x < threshold)
        np.copyto(x, -np.inf, where=x < x.max(axis=-1, keepdims=True) + log_p)
        return x

    return run


def bare_torch(logits: Any) -> Callable[[], Any]:
    """The operations of the chain in plain PyTorch (its sort through NumPy's, which is many times faster)."""
    import torch

    columns, log_p = torch.tensor([3, 5, 6, 7]), math.log(0.05)

    def run() -> Any:
        x = logits.clone()
        x.index_fill_(-1, columns, -math.inf)
        x.div_(0.8)
        x.masked_fill_(x < torch.topk(x, 5, dim=-1, sorted=False).values.amin(-1, keepdim=True), -math.inf)
        descending = torch.from_numpy(np.ascontiguousarray(np.sort(x.numpy(), axis=-1)[:, ::-1]))
        above = torch.cumsum(torch.softmax(descending, -1), -1)[:, :-1]
        others = torch.where(above >= 0.9, math.inf, descending[:, 1:])
        threshold = torch.minimum(others.amin(-1, keepdim=True), descending[:, :1])
        x.masked_fill_(x < threshold, -math.inf)
        return x.masked_fill_(x < x.amax(-1, keepdim=True) + log_p, -math.inf)

    return run


BARE = {"numpy": bare_numpy, "torch": bare_torch}


def chained(logits: Any) -> Callable[[], Any]:
    chain = processors.load(*CHAIN, debug=False)
    context = Context.start(logits)
    state = chain.init_state(context)
    tokens = context.backend.asarray(np.asarray([[1]] * logits.shape[0], dtype=np.int32))

    def run() -> Any:
        return chain.process(logits, state, context.accept(tokens))[0]

    return run


def halved(logits: Any) -> dict[str, Callable[[], Any]]:
    """Five processors that each do one array operation, and the five operations alone: what the chain itself adds."""

    def bare_halves() -> Any:
        x = logits
        for _ in range(5):
            x = x / 2
        return x

    chain = processors.load(*[lambda logits: logits / 2] * 5, debug=False)
    context = Context.start(logits)
    state = chain.init_state(context)
    tokens = context.backend.asarray(np.asarray([[1]] * logits.shape[0], dtype=np.int32))
    return {
        "five bare": bare_halves,
        "five chained": lambda: chain.process(logits, state, context.accept(tokens))[0],
    }


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
            variants = {"bare": BARE[name](logits), "chain": chained(logits)}
            assert np.array_equal(*(backend.to_numpy(run()) for run in variants.values()))
            times = in_turn({**variants, **halved(logits), **outlines_calls(name, logits, ids)}, turns)
            middle = {key: statistics.median(values) for key, values in times.items()}
            typical, quartile = overhead(times, "chain", "bare")
            print(
                f"{name:8} {shape!s:12} {middle['bare']:8.1f}us {middle['chain']:8.1f}us "
                f"{middle['chain'] / middle['bare']:6.3f} {typical:22.1f}us {quartile:8.1f}us"
            )
            typical, quartile = overhead(times, "five chained", "five bare")
            print(f"{'':8} five processors of one operation each: {typical:.1f}us ({quartile:.1f}us)")
            if "outlines" in times:
                typical, quartile = overhead(times, "outlines", "outlines bare")
                print(f"{'':8} outlines, five of its processors: {5 * typical:.1f}us ({5 * quartile:.1f}us)")


if __name__ == "__main__":
    main()
