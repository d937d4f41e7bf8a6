"""What a chain of five processors costs over the same array operations.

Two comparisons. Five processors of one array operation each against the five operations show what the chain itself adds
(accepting tokens, moving states, calling). Five built-ins against a hand-written step in the plain library show that
and what the built-ins do beyond the bare minimum (rows of -inf, half precision, options).

Run: ``python benchmarks/chain_overhead.py``. Logits are (4, 30000) float32. The two sides of a comparison run one
after the other, each first in every second turn, so that whatever else the machine does hits both alike. Overheads are
the median and the lower quartile of the differences within a turn: on a busy machine the second is the steadier one.
The lines for logits of (4, 8) measure the dispatch alone: there the array operations cost next to nothing.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from conditions import heading

from logitloom import Context, LogitloomError, load_backend, processors

SHAPE = (4, 30_000)
CHAIN = (
    ("suppress_tokens", {"tokens": [3, 5, 6, 7]}),
    ("temperature", {"temperature": 0.8}),
    ("top_k", {"k": 5}),
    ("top_p", {"p": 0.9}),
    ("min_p", {"p": 0.05}),
)


class Pair(NamedTuple):
    """Microseconds of the first function, and of what the second takes more within a turn (median, lower quartile)."""

    first: float
    second: float
    more: float
    more_quartile: float


def paired(first: Callable[[], Any], second: Callable[[], Any], turns: int) -> Pair:
    """Both functions in every turn, in either order."""
    times: dict[Callable[[], Any], list[float]] = {first: [], second: []}
    gc.collect()
    gc.disable()  # as timeit does: a collection would hit one side only
    for turn in range(-10, turns):
        for function in (first, second) if turn % 2 else (second, first):
            begin = time.perf_counter()
            function()
            if turn >= 0:
                times[function].append((time.perf_counter() - begin) * 1e6)
    gc.enable()
    more = sorted(b - a for a, b in zip(times[first], times[second], strict=True))
    middle = (statistics.median(times[function]) for function in (first, second))
    return Pair(*middle, statistics.median(more), more[len(more) // 4])


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


def halved(logits: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Five array operations alone, and five processors that each do one of them: what the chain itself adds."""

    def bare_halves() -> Any:
        x = logits
        for _ in range(5):
            x = x / 2
        return x

    chain = processors.load(*[lambda logits: logits / 2] * 5, debug=False)
    context = Context.start(logits)
    state = chain.init_state(context)
    tokens = context.backend.asarray(np.asarray([[1]] * logits.shape[0], dtype=np.int32))
    return bare_halves, lambda: chain.process(logits, state, context.accept(tokens))[0]


def outlines_halved(name: str, logits: Any, ids: Any) -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    """The same with five of outlines' processors."""
    try:
        from outlines.processors.base_logits_processor import OutlinesLogitsProcessor
    except ImportError as error:
        print(f"outlines is not measured: {error}")
        return None

    class Halve(OutlinesLogitsProcessor):
        def process_logits(self, input_ids: Any, logits: Any) -> Any:
            return logits / 2

    five = [Halve(name) for _ in range(5)]

    def processed() -> Any:
        x = logits
        for processor in five:
            x = processor(ids, x)
        return x

    return halved(logits)[0], processed


def main() -> None:
    rng = np.random.default_rng(0)
    print(heading("torch", "outlines"))
    print("Microseconds a step: median of the differences, in brackets their lower quartile")
    for name in ("numpy", "torch"):
        try:
            backend = load_backend(name)
        except LogitloomError as error:
            print(f"{name}: not available ({error})")
            continue
        for shape, turns in ((SHAPE, 100), ((4, 8), 2000)):
            logits = backend.asarray(rng.normal(size=shape).astype(np.float32))
            ids = backend.asarray(rng.integers(0, 8, (shape[0], 16)))
            bare, chain = BARE[name](logits), chained(logits)
            assert np.array_equal(backend.to_numpy(bare()), backend.to_numpy(chain()))
            own = paired(*halved(logits), 10 * turns)
            theirs = outlines_halved(name, logits, ids)
            built_in = paired(bare, chain, turns)
            print(
                f"{name:8} {shape!s:12} five built-ins over plain {name}: {built_in.first:.1f} us -> "
                f"{built_in.second:.1f} us ({built_in.second / built_in.first:.3f}x), "
                f"{built_in.more:.1f} us more ({built_in.more_quartile:.1f})"
            )
            print(f"{'':21} five of one operation each: {own.more:.1f} us more ({own.more_quartile:.1f})")
            if theirs is not None:
                other = paired(*theirs, 10 * turns)
                print(f"{'':21} five of outlines' processors: {other.more:.1f} us more ({other.more_quartile:.1f})")


if __name__ == "__main__":
    main()
