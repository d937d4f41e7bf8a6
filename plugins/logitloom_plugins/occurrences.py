"""Which tokens each row has had, as row state whose size does not depend on the length of the text."""

from __future__ import annotations

import itertools
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from logitloom import Array, Context, Processor

__all__ = ["OccurrencePenalty", "Recent", "Seen", "count", "mark", "recent", "seen", "seen_after", "slide", "windows"]


class Seen(NamedTuple):
    """Everything a row has had.

    Attributes:
        table: ``[rows, vocab]``: bool (had it or not) or float32 (how often).
    """

    table: Array


class Recent(NamedTuple):
    """The last tokens of a row.

    Attributes:
        tokens: ``[rows, window] int32``, newest last, -1 where a row has fewer tokens.
    """

    tokens: Array


def seen(context: Context, include_prompt: bool, dtype: str) -> Seen:
    """The table at the start: the prompt's tokens, or nothing. Prompt ids beyond the logits are left out."""
    table = np.zeros((context.batch, context.vocab_size), dtype=dtype)
    for row, prompt in enumerate(_prompts(context, include_prompt)):
        ids = np.asarray(prompt, dtype=np.int64)
        np.add.at(table[row], ids[(ids >= 0) & (ids < context.vocab_size)], table.dtype.type(1))
    return Seen(context.backend.asarray(table))


def recent(context: Context, include_prompt: bool, window: int) -> Recent:
    """The window at the start: the end of the prompt, or nothing."""
    tokens = np.full((context.batch, window), -1, dtype=np.int32)
    for row, prompt in enumerate(_prompts(context, include_prompt)):
        ids = np.asarray(prompt, dtype=np.int32)[-window:]
        tokens[row, window - len(ids) :] = np.where(ids < context.vocab_size, ids, -1)
    return Recent(context.backend.asarray(tokens))


def mark(state: Seen, context: Context) -> Seen:
    """The bool table after the newly accepted tokens: a store each, after a copy if earlier states are kept."""
    if context.tokens is None or context.tokens.shape[1] == 0:
        return state
    return Seen(context.backend.set_at(state.table, context.tokens, True, context.donate_state))


def count(state: Seen, context: Context) -> Seen:
    """The float32 table after the newly accepted tokens: an addition each, after a copy if earlier states are kept."""
    if context.tokens is None or context.tokens.shape[1] == 0:
        return state
    return Seen(context.backend.add_at(state.table, context.tokens, 1.0, context.donate_state))


def slide(state: Recent, context: Context) -> Recent:
    """The window after the newly accepted tokens."""
    backend, before, tokens = context.backend, state.tokens, context.tokens
    if tokens is None or tokens.shape[1] == 0:
        return state
    tokens = backend.cast(tokens, "int32")
    longer = backend.xp.concat([before, tokens], axis=1)
    if tokens.shape[1] == 1:
        return Recent(backend.xp.where(tokens >= 0, longer[:, 1:], before))
    # A stable order by "is a gap" brings gaps to the left and keeps the tokens' own order.
    gaps_first = backend.argsort_descending(backend.cast(longer < 0, "int32"))
    return Recent(backend.gather(longer, gaps_first)[:, tokens.shape[1] :])


def seen_after(state: Seen, context: Context) -> Seen:
    """The tables after none, one, two, ... of the new tokens: ``[(n + 1) * rows, vocab]``."""
    backend, xp, table, tokens = context.backend, context.backend.xp, state.table, context.tokens
    assert tokens is not None
    rows, vocab, steps = table.shape[0], table.shape[1], tokens.shape[1]
    counts = table.dtype != xp.bool
    blank = xp.zeros((steps * rows, vocab), dtype=table.dtype)
    each = xp.reshape(tokens.T, (-1, 1))
    news = backend.add_at(blank, each, 1.0, True) if counts else backend.set_at(blank, each, True, True)
    tables = xp.reshape(xp.concat([table, news], axis=0), (steps + 1, rows, vocab))
    if backend.on_host and backend.assignable and backend.has_values(tables):
        # One after the other: sums along the first axis are not vectorised. The memory is that of the tables.
        add, host = np.add if counts else np.logical_or, backend.to_numpy(tables)
        for before, line in itertools.pairwise(host):
            add(before, line, out=line)
    elif counts:
        tables = xp.cumulative_sum(tables, axis=0)
    else:
        tables = xp.cumulative_sum(backend.cast(tables, "int32"), axis=0) > 0
    return Seen(xp.reshape(tables, (-1, vocab)))


def windows(state: Recent, context: Context) -> Recent:
    """The windows after none, one, two, ... of the new tokens: ``[(n + 1) * rows, window]``."""
    backend, xp, before = context.backend, context.backend.xp, state.tokens
    assert context.tokens is not None
    tokens = backend.cast(context.tokens, "int32")
    present = backend.cast(tokens >= 0, "int32")
    # A stable order by "is a token" brings gaps to the right.
    packed = backend.gather(tokens, backend.argsort_descending(present))
    longer = xp.concat([before, packed], axis=1)
    taken = backend.cast(xp.cumulative_sum(present, axis=1), "int32")
    taken = xp.concat([taken[:, :1] * 0, taken], axis=1)
    rows, steps, width = before.shape[0], taken.shape[1], before.shape[1]
    index = taken[:, :, None] + backend.arange(width)[None, None, :]
    found = backend.gather(longer, xp.reshape(index, (rows, steps * width)))
    found = xp.permute_dims(xp.reshape(found, (rows, steps, width)), (1, 0, 2))
    return Recent(xp.reshape(found, (steps * rows, width)))


class OccurrencePenalty(Processor):
    """The common part of penalties of tokens that occurred: their options, and the tokens that occurred in each row.

    Subclasses declare the options ``window`` and ``include_prompt``.

    Attributes:
        counts: ``"float32"`` for how often tokens occurred, ``"bool"`` for whether they did.
        window: how many of the last tokens count, ``None`` for all.
        include_prompt: whether the tokens of the prompt count.
    """

    stage = "penalty"
    counts: ClassVar[Literal["bool", "float32"]]
    window: int | None
    include_prompt: bool

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The prompt, if it counts."""
        return frozenset({"prompt"}) if self.include_prompt else frozenset()

    def init_state(self, context: Context) -> Seen | Recent:
        """Nothing, or the tokens of the prompt: a table over the vocabulary, or the window."""
        if self.window is None:
            return seen(context, self.include_prompt, self.counts)
        return recent(context, self.include_prompt, self.window)

    def states_after(self, state: Seen | Recent, context: Context) -> Seen | Recent:
        """A table, or a window, per token."""
        return seen_after(state, context) if isinstance(state, Seen) else windows(state, context)

    def next_state(self, state: Seen | Recent, context: Context) -> Seen | Recent:
        """The table, or the window, after the newly accepted tokens."""
        if isinstance(state, Recent):
            return slide(state, context)
        return mark(state, context) if self.counts == "bool" else count(state, context)


def _prompts(context: Context, include_prompt: bool) -> tuple[tuple[int, ...], ...]:
    return context.prompt if include_prompt and context.prompt is not None else ()
