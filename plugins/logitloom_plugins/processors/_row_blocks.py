"""Distributions of many rows in host memory, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logitloom import Array, Context

__all__ = ["in_row_blocks"]

#: Logits of one block: what is computed from them then stays in the cache, and its memory is used again.
_BLOCK: Final = 1 << 20


def in_row_blocks(find: Callable[[Array], Array], logits: Array, context: Context) -> Array:
    """``find(logits)``, where no row depends on another: on the host in blocks of rows.

    Args:
        find: from ``[rows, vocab]`` logits to ``[rows, ...]``.
        logits: ``[batch, vocab]``.
        context: of the step. On devices and in compiled loops all rows are one block.
    """
    rows, vocab = logits.shape
    if not context.backend.on_host or context.compiled or rows * vocab <= _BLOCK:
        return find(logits)
    step = max(1, _BLOCK // vocab)
    return context.backend.concat_rows([find(logits[at : at + step]) for at in range(0, rows, step)])
