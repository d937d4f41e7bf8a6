"""Named operations of every installed backend, next to the bare library call that comes nearest.

    python benchmarks/backends.py [backend ...]

Prints medians in microseconds and the ratio of both. The bare call may promise less (no mending of rows
that are all -inf, no order among equal values).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from logitloom import load_backend
from logitloom.arrays.backend import Backend
from logitloom.errors import LogitloomError

SHAPES = ((4, 30_000), (8, 131_072))
BACKENDS = ("numpy", "torch", "mlx", "jax", "cupy")
Pair = tuple[Callable[[], Any], Callable[[], Any]]


def operations(b: Backend, shape: tuple[int, int]) -> dict[str, Pair]:
    """Operation -> (the named operation, the bare call)."""
    batch, vocab = shape
    rng = np.random.default_rng(0)
    host = rng.normal(size=shape).astype(np.float32)
    x, mask = b.asarray(host), b.asarray(host < 2.5)
    tokens = b.asarray(rng.integers(0, vocab, (batch, 16)).astype(np.int32))
    words = np.packbits(np.pad(host >= 2.5, ((0, 0), (0, -vocab % 32))), axis=1, bitorder="little")
    bits = b.asarray(words.view(np.int32))
    rows = np.arange(batch, dtype=np.int32)[::-1].copy()
    native_rows = b.asarray(rows)
    xp = b.xp
    minus = xp.asarray(-np.inf, dtype=x.dtype)
    bare = _bare(b, x)
    return {
        "masked_fill": (lambda: b.masked_fill(x, mask, -np.inf), lambda: xp.where(mask, minus, x)),
        "scale": (lambda: b.scale(x, 0.5), lambda: x * 0.5),
        "softmax": (lambda: b.softmax(x), bare["softmax"]),
        "log_softmax": (lambda: b.log_softmax(x), bare["log_softmax"]),
        "kth_largest 50": (lambda: b.kth_largest(x, 50), bare["top_k"]),
        "top_k 50": (lambda: b.top_k(x, 50), bare["top_k"]),
        "argsort_descending": (lambda: b.argsort_descending(x), lambda: xp.argsort(x, axis=-1)),
        "take_rows (host)": (lambda: b.take_rows(x, rows), lambda: xp.take(x, native_rows, axis=0)),
        "gather 16": (lambda: b.gather(x, tokens), lambda: xp.take_along_axis(x, tokens, axis=-1)),
        "add_at 16": (lambda: b.add_at(x, tokens, 1.0), lambda: x + 1.0),
        "set_at 16": (lambda: b.set_at(x, tokens, 1.0), lambda: x + 1.0),
        "apply_token_mask": (lambda: b.apply_token_mask(x, bits), lambda: xp.where(mask, minus, x)),
    }


def _bare(b: Backend, x: Any) -> dict[str, Callable[[], Any]]:
    """What the library itself has for normalisation and selection."""
    if b.name == "torch":
        import torch

        return {
            "softmax": lambda: torch.softmax(x, -1),
            "log_softmax": lambda: torch.log_softmax(x, -1),
            "top_k": lambda: torch.topk(x, 50),
        }
    if b.name == "mlx":
        import mlx.core as mx

        return {
            "softmax": lambda: mx.softmax(x, axis=-1),
            "log_softmax": lambda: x - mx.logsumexp(x, axis=-1, keepdims=True),
            "top_k": lambda: mx.topk(x, 50),
        }
    if b.name == "jax":
        import jax

        return {
            "softmax": lambda: jax.nn.softmax(x),
            "log_softmax": lambda: jax.nn.log_softmax(x),
            "top_k": lambda: jax.lax.top_k(x, 50),
        }
    xp, place = b.xp, x.shape[-1] - 50

    def softmax() -> Any:
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    return {
        "softmax": softmax,
        "log_softmax": lambda: xp.log(softmax()),
        "top_k": lambda: xp.partition(x, place, axis=-1)[:, place:],
    }


def median(b: Backend, function: Callable[[], Any], seconds: float = 0.15) -> float:
    """Median time of a call in microseconds, waiting for its result."""

    def finish(result: Any) -> None:
        b.synchronize(*(result if isinstance(result, (tuple, list)) else [result]))

    finish(function())
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        finish(function())
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main(names: list[str]) -> None:
    """Print one table per backend and shape."""
    for name in names or BACKENDS:
        try:
            backend = load_backend(name)
        except LogitloomError as error:
            print(f"\n{name}: skipped ({error})")
            continue
        for shape in SHAPES:
            print(f"\n{name} {shape}\n{'operation':20} {'named us':>12} {'bare us':>12} {'ratio':>7}")
            for label, (named, bare) in operations(backend, shape).items():
                one, other = median(backend, named), median(backend, bare)
                print(f"{label:20} {one:12.1f} {other:12.1f} {one / other:7.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
