"""The step of truncations that read whole rows: some rows at a time in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logitloom import Array, Backend, Context
from logitloom.arrays.backend import NEG_INF

__all__ = ["fill_forbidden"]

#: Logits of one block: values computed from one block stay in the cache, and their memory is used again.
_BLOCK: Final = 1 << 20


def fill_forbidden(find: Callable[[Array, Backend], Array], logits: Array, context: Context) -> Array:
    """The logits with -inf for the tokens that a function forbids. No row depends on another.

    Args:
        find: from ``[rows, vocab]`` logits and their backend to ``[rows, vocab] bool``, the forbidden tokens. On the
            host it is called for blocks of rows.
        logits: ``[batch, vocab]``.
        context: of the step. On devices and in compiled loops all rows are one block.
    """
    backend, (rows, vocab) = context.backend, logits.shape
    if not backend.on_host or context.compiled or rows * vocab <= _BLOCK:
        forbidden = find(logits, backend)
    else:
        step = max(1, _BLOCK // vocab)
        forbidden = backend.concat_rows([find(logits[at : at + step], backend) for at in range(0, rows, step)])
    return backend.masked_fill(logits, forbidden, NEG_INF, context.donate)
