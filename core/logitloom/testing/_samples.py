"""Inputs of named operations, and what each operation must give, computed in the plainest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import Array, Backend

Host = NDArray[Any]
INF = float("inf")
VOCAB = 70

#: What the results of an operation may differ by, relative and absolute.
TOLERANCE = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def sample(batch: int, seed: int = 0) -> Host:
    """Logits ``[batch, VOCAB]``: many ties, some -inf, and, with more than one row, a row of nothing else."""
    dice = np.random.default_rng(seed)
    x = (np.round(dice.normal(size=(batch, VOCAB)) * 4) / 2).astype(np.float32)
    x[dice.random(x.shape) < 0.2] = -INF
    x[:, ::13] = -0.0
    if batch > 1:
        x[1] = -INF
    return x


def softmax(x: Host) -> Host:
    """Row by row; a row of -inf gives zeros."""
    out = np.zeros_like(x)
    for row, line in enumerate(x):
        if line.max() > -INF:
            e = np.exp(line - line.max())
            out[row] = e / e.sum()
    return out


def order_of(line: Host) -> list[int]:
    """The indices of a row, largest value first, equal values in the order of the row."""
    return sorted(range(len(line)), key=lambda i: (-line[i], i))


#: Tokens of three rows: none, one or several; -1 and ids beyond the row stand for nothing.
TOKENS = {
    "nothing": np.full((3, 2), -1),
    "no columns": np.zeros((3, 0)),
    "one": np.asarray([[5], [-1], [0]]),
    "all valid": np.asarray([[5, 9], [0, 69], [1, 0]]),
    "ragged": np.asarray([[-1, 3, 9, -1], [-1, -1, -1, -1], [0, -1, -1, 69]]),
    "token 0 beside nothing": np.asarray([[0, -1], [-1, 0], [-1, -1]]),
    "duplicates": np.asarray([[4, 4, 4, -1], [0, 0, -1, 0], [69, 1, 69, 1]]),
    "outside": np.asarray([[70, 3], [-100, 1000], [69, 70]]),
}


def added(x: Host, tokens: Host, value: float) -> Host:
    """``add_at``, one token after the other."""
    out = x.copy()
    for row, line in enumerate(tokens):
        for token in line:
            if 0 <= token < x.shape[1]:
                out[row, int(token)] += value
    return out


def written(x: Host, tokens: Host, values: Host) -> Host:
    """``set_at`` and ``write_at``, one token after the other."""
    out = x.copy()
    for row, line in enumerate(tokens):
        for index, token in enumerate(line):
            if 0 <= token < x.shape[1]:
                out[row, int(token)] = values[row, index]
    return out


def packed(allowed: Host) -> Host:
    """Bits of allowed tokens in 32-bit words, with set padding bits, which must not matter."""
    batch, vocab = allowed.shape
    words = -(-vocab // 32)
    out = np.zeros((batch, words), dtype=np.uint32)
    for row in range(batch):
        for i in range(words * 32):
            if i >= vocab or allowed[row, i]:
                out[row, i // 32] |= np.uint32(1) << np.uint32(i % 32)
    return out.view(np.int32)


def masked_by_hand(logits: Host, rows: list[tuple[bool, list[int]]]) -> Host:
    """``apply_token_rows``, one entry after the other."""
    out = logits.copy()
    for line, (allowed, ids) in zip(out, rows, strict=True):
        for token in range(len(line)):
            if (token in ids) != allowed:
                line[token] = -INF
    return out


_ROWS = np.asarray([[3, -1, 3], [-1, -1, -1], [0, 69, 71]], dtype=np.int32)
_ENTRIES = np.asarray([[3, -1, 4], [-1, -1, -1], [0, 69, 71]], dtype=np.int32)
_MASK = np.random.default_rng(5).random((3, VOCAB)) < 0.4
_OTHER, _BITS = sample(3, 9), packed(_MASK)
_VALUES = np.arange(9, dtype=np.float32).reshape(3, 3)
_COLUMNS = np.array([0, 3, VOCAB - 1], np.int32)
_CLASSES = (np.arange(VOCAB) % 4).astype(np.int32)
_CLASS_MASK = np.asarray([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], dtype=bool)

#: Operations that may be given their first argument, as functions of (backend, upload, x, donate).
DONATING: dict[str, Callable[..., Array]] = {
    "masked_fill": lambda b, up, x, donate: b.masked_fill(x, up(_MASK), -INF, donate),
    "scale": lambda b, up, x, donate: b.scale(x, 0.5, donate),
    "divide": lambda b, up, x, donate: b.divide(x, 0.5, donate),
    "add": lambda b, up, x, donate: b.add(x, up(_OTHER), donate),
    "add_at": lambda b, up, x, donate: b.add_at(x, up(_ROWS), 1.0, donate),
    "update_where": lambda b, up, x, donate: b.update_where(x, up(_MASK), lambda e, _: e * 0.5, donate),
    "fill_columns": lambda b, up, x, donate: b.fill_columns(x, up(_COLUMNS), -INF, donate),
    "set_at": lambda b, up, x, donate: b.set_at(x, up(_ROWS), -INF, donate),
    "write_at": lambda b, up, x, donate: b.write_at(x, up(_ENTRIES), up(_VALUES), donate),
    "apply_token_mask": lambda b, up, x, donate: b.apply_token_mask(x, up(_BITS), donate),
    "apply_class_mask": lambda b, up, x, donate: b.apply_class_mask(x, up(_CLASS_MASK), up(_CLASSES), donate),
}
_OTHERS: dict[str, Callable[..., Any]] = {
    "softmax": lambda b, up, x: b.softmax(x),
    "log_softmax": lambda b, up, x: b.log_softmax(x),
    "log_probability": lambda b, up, x: b.log_probability(x, up(np.asarray([[0, 5], [69, 1], [2, 2]], dtype=np.int32))),
    "sort_descending": lambda b, up, x: b.sort_descending(x),
    "argsort_descending": lambda b, up, x: b.argsort_descending(x),
    "kth_largest": lambda b, up, x: b.kth_largest(x, 5),
    "nucleus_threshold": lambda b, up, x: b.nucleus_threshold(x, 0.7),
    "top_k": lambda b, up, x: b.top_k(x, 5),
    "take_rows": lambda b, up, x: b.take_rows(x, up(np.asarray([2, 0, 0], dtype=np.int32))),
    "concat_rows": lambda b, up, x: b.concat_rows([x, x]),
    "gather": lambda b, up, x: b.gather(x, up(np.asarray([[0, 5], [69, 1], [2, 2]], dtype=np.int32))),
}


def _keeping(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda b, up, x: operation(b, up, x, False)


#: Every named operation that compilers trace, as functions of (backend, upload, x).
OPERATIONS: dict[str, Callable[..., Any]] = {**{n: _keeping(f) for n, f in DONATING.items()}, **_OTHERS}


class Agnostic(Backend):
    """Another backend's namespace and placement with none of its native operations."""

    def __init__(self, native: Backend) -> None:
        super().__init__(native.device)
        self.native, self.name, self.xp = native, native.name, native.xp

    def asarray(self, host: Any, dtype: str | None = None) -> Array:
        """The native one."""
        return self.native.asarray(host, dtype)

    def to_numpy(self, array: Array) -> Host:
        """The native one."""
        return self.native.to_numpy(array)
