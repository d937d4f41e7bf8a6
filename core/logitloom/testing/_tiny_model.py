"""One block of a transformer, on an array library's namespace and again with plain loops over NumPy's vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logitloom.arrays.backend import NEG_INF, Array, Backend

__all__ = ["tiny_logits", "tiny_logits_by_hand"]

VOCAB, HEADS, WIDTH = 11, 2, 4
DIM = HEADS * WIDTH

_dice = np.random.default_rng(3)
#: Embedding ``[vocab, dim]``; the projections to queries, keys and values, and back, ``[dim, dim]`` each.
EMBEDDING = _dice.normal(size=(VOCAB, DIM)).astype(np.float32)
QUERY, KEY, VALUE, OUT = (_dice.normal(size=(DIM, DIM)).astype(np.float32) / 3 for _ in range(4))


def tiny_logits(backend: Backend, tokens: NDArray[np.int32], lengths: NDArray[np.int32], capacity: int) -> Array:
    """Logits after the last token of each row, ``[rows, vocab] float32``, with keys and values in buffers.

    Args:
        backend: the array library.
        tokens: ``[rows, n]``, as many of each row as ``lengths`` says.
        lengths: ``[rows] int32``, at least 1.
        capacity: positions of the buffers, at least ``n``.
    """
    xp, (rows, n) = backend.xp, tokens.shape
    embedding = backend.asarray(EMBEDDING)
    ids = backend.asarray(np.maximum(tokens, 0).astype(np.int32))
    x = xp.reshape(xp.take(embedding, xp.reshape(ids, (-1,)), axis=0), (rows, n, DIM))
    x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    queries, keys, values = (
        xp.permute_dims(xp.reshape(x @ backend.asarray(part), (rows, n, HEADS, WIDTH)), (0, 2, 1, 3))
        for part in (QUERY, KEY, VALUE)
    )
    # Into longer buffers: position s holds the new token s, while there are any.
    slots = backend.arange(capacity)
    held = backend.asarray(lengths)[:, None]
    fresh = slots[None, :] < held
    source = xp.where(fresh, slots[None, :], xp.zeros_like(held))[:, None, :, None]
    blank = xp.zeros((rows, HEADS, capacity, WIDTH), dtype=xp.float32)
    keys, values = (
        xp.where(fresh[:, None, :, None], xp.take_along_axis(part, source, axis=2), blank) for part in (keys, values)
    )
    scores = queries @ xp.permute_dims(keys, (0, 1, 3, 2)) * WIDTH**-0.5
    hidden = slots[None, None, None, :] > backend.arange(n)[None, None, :, None]
    mixed = backend.softmax(backend.masked_fill(scores, hidden, NEG_INF)) @ values
    mixed = xp.reshape(xp.permute_dims(mixed, (0, 2, 1, 3)), (rows, n, DIM))
    x = xp.tanh(x + mixed @ backend.asarray(OUT))
    last = backend.asarray((np.arange(rows) * n + lengths - 1).astype(np.int32))
    return backend.take_rows(xp.reshape(x, (rows * n, DIM)), last) @ xp.permute_dims(embedding, (1, 0))


def tiny_logits_by_hand(tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> NDArray[np.float64]:
    """The logits of the model, computed row by row, position by position and head by head, in double precision."""
    out = np.zeros((len(tokens), VOCAB))
    for row, length in enumerate(lengths):
        x = EMBEDDING[tokens[row, :length]].astype(np.float64)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)
        queries, keys, values = x @ QUERY, x @ KEY, x @ VALUE
        mixed = np.zeros(DIM)
        for head in range(HEADS):
            part = slice(head * WIDTH, (head + 1) * WIDTH)
            weight = np.exp(keys[:, part] @ queries[-1, part] / np.sqrt(WIDTH))
            mixed[part] = weight @ values[:, part] / weight.sum()
        out[row] = np.tanh(x[-1] + mixed @ OUT) @ EMBEDDING.T
    return out
