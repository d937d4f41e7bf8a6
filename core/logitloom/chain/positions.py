"""Lengths and history per row, kept by the chain for the processors that declare a need for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from logitloom.arrays.backend import Array, Backend
from logitloom.context import Context
from logitloom.errors import InvalidContext

__all__ = ["RowPositions", "advance", "describe", "start", "states_after", "tracked"]


class RowPositions(NamedTuple):
    """Where each row is: a row tree.

    Attributes:
        length: ``[rows] int32``, tokens so far, prompt included.
        prompt_length: ``[rows] int32``.
        sequence: ``[rows, capacity] int32``, the tokens from the left, then -1; ``()`` if no processor needs it.
    """

    length: Array
    prompt_length: Array
    sequence: Any


def tracked(needs: Collection[str]) -> frozenset[str]:
    """Which needs the position serves."""
    return frozenset(needs) & {"length", "history"}


def start(context: Context, needs: Collection[str]) -> RowPositions:
    """The position at the start of a generation: the prompts, or nothing if the engine does not tell them."""
    prompts = context.prompt if context.prompt is not None else ((),) * context.batch
    lengths = np.asarray([len(prompt) for prompt in prompts], dtype=np.int32)
    sequence: Any = ()
    if "history" in needs:
        assert context.max_length is not None
        buffer = np.full((context.batch, context.max_length), -1, dtype=np.int32)
        for row, prompt in enumerate(prompts):
            buffer[row, : len(prompt)] = prompt
        sequence = context.backend.asarray(buffer)
    return RowPositions(context.backend.asarray(lengths), context.backend.asarray(lengths.copy()), sequence)


def advance(position: RowPositions, context: Context) -> RowPositions:
    """The position after the context's tokens.

    Raises:
        InvalidContext: the history of a row is full. On devices and in compiled loops nothing is read back to find
            that; there, tokens beyond the capacity are counted and not kept.
    """
    if context.tokens is None or context.tokens.shape[1] == 0:
        return position
    found = _advanced(position, context.tokens, context)
    if not isinstance(found.sequence, tuple):
        _check_capacity(found, context)
    return found


def _check_capacity(position: RowPositions, context: Context) -> None:
    capacity = position.sequence.shape[1]
    if context.compiled or not context.backend.on_host or not context.backend.has_values(position.length):
        return
    # A batch has few rows, so a list is faster than calls of NumPy.
    lengths: list[int] = position.length.tolist()
    longest = max(lengths, default=0)
    if longest > capacity:
        row = lengths.index(longest)
        raise InvalidContext(
            f"Row {row} has {longest} tokens, but the histories of this generation hold {capacity}, the "
            f"max_length of its start. Start with a context whose max_length is the most tokens that a row can reach, "
            f"prompt included; chain.replay makes the state of the tokens so far."
        )


def _advanced(position: RowPositions, tokens: Array, context: Context) -> RowPositions:
    backend = context.backend
    valid = tokens >= 0
    length, sequence = position.length, position.sequence
    if tokens.shape[1] == 1:
        if not isinstance(sequence, tuple):
            index = backend.xp.where(valid, length[:, None], -1)
            sequence = backend.write_at(sequence, index, tokens, context.donate_state)
        return RowPositions(length + _as_int(backend, valid[:, 0]), position.prompt_length, sequence)
    counted = backend.xp.cumulative_sum(_as_int(backend, valid), axis=1)
    if not isinstance(sequence, tuple):
        index = backend.xp.where(valid, length[:, None] + counted - 1, -1)
        sequence = backend.write_at(sequence, index, tokens, context.donate_state)
    return RowPositions(length + backend.cast(counted[:, -1], "int32"), position.prompt_length, sequence)


def states_after(position: RowPositions, context: Context) -> RowPositions:
    """The positions before the context's tokens, after the first of each row, and so on: ``(n + 1) * rows`` rows."""
    backend, xp, tokens = context.backend, context.backend.xp, context.tokens
    assert tokens is not None
    last = _advanced(position, tokens, context.with_fields(donate_state=False))
    counted = xp.cumulative_sum(_as_int(backend, tokens >= 0), axis=1)
    taken = xp.concat([counted[:, :1] * 0, counted], axis=1)
    length = position.length[None, :] + backend.cast(taken, "int32").T
    sequence = last.sequence
    if not isinstance(sequence, tuple):
        known = backend.arange(sequence.shape[1])[None, None, :] < length[:, :, None]
        sequence = xp.reshape(xp.where(known, sequence[None, :, :], -1), (-1, sequence.shape[1]))
    prompts = xp.broadcast_to(position.prompt_length[None, :], length.shape)
    return RowPositions(xp.reshape(length, (-1,)), xp.reshape(prompts, (-1,)), sequence)


def describe(context: Context, position: RowPositions) -> Context:
    """The context with the position's fields filled in."""
    sequence = None if isinstance(position.sequence, tuple) else position.sequence
    return context.with_fields(sequence=sequence, length=position.length, prompt_length=position.prompt_length)


def _as_int(backend: Backend, mask: Array) -> Array:
    return backend.xp.astype(mask, backend.xp.int32)
