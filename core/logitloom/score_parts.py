"""Parts of a chain that is scored: processors on their way over the positions of sequences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom import position as positions
from logitloom import state as rows
from logitloom.backend import NEG_INF, Array, Backend
from logitloom.context import Context
from logitloom.link import Link
from logitloom.renumbering import Renumbering
from logitloom.score_arguments import Tokens
from logitloom.step import Step
from logitloom.step_arguments import note
from logitloom.survivors import Survivors

__all__ = ["Passage", "Run", "ScoredChain", "among_survivors", "changes_only_seen"]


class ScoredChain(Protocol):
    """What is needed of a chain, or of some of its processors; see :class:`logitloom.Chain`."""

    links: tuple[Link, ...]
    sees_every_step: bool
    _steps: tuple[Step, ...]
    _fresh: tuple[bool, ...]
    _afters: tuple[Callable[[Any, Context], Any] | None, ...]
    _tracked: frozenset[str]

    def part(self, links: Sequence[Link]) -> ScoredChain:
        """A chain of other links."""
        ...

    def init_state(self, context: Context) -> Any:
        """The state of a start."""
        ...

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One step."""
        ...

    def with_resources(self, context: Context) -> Context:
        """The context with the chain's vocabulary and model."""
        ...


def changes_only_seen(chain: ScoredChain) -> bool:
    """Whether all processors change only logits of tokens that the sequence has had."""
    return all(link.declared("changes_only_seen") for link in chain.links)


class Passage(NamedTuple):
    """The passage of a chain over the positions of some sequences.

    Attributes:
        first: the processors that see whole rows, one after the other.
        behind: the others that go along.
        scored: takes the logits of some positions after the first processors, ``[positions, batch, vocab]``, whether
            they may be overwritten, and the first position and that behind the last one. It returns the
            log-probabilities of the tokens there, ``positions * batch`` of them, or None to give up.
        goes_over_rows: whether rows are read more than once, so that they had better stay in the cache.
        writes: whether rows are written to, so that a copy saves others.
    """

    first: Sequence[Run]
    behind: Sequence[Run]
    scored: Callable[[Array, bool, int, int], Array | None]
    goes_over_rows: bool
    writes: bool


class Run:
    """Some processors on their way over the positions. Each position of each sequence is a row; the rows of one
    position, one per sequence, are neighbours.

    Args:
        chain: of the processors.
        tokens: ``[batch, time]``, the sequences.
        context: of the start.
        numbered: the numbers by which the processors know the tokens, if those are not their ids.
    """

    def __init__(
        self, chain: ScoredChain, tokens: Tokens, context: Context, numbered: Renumbering | None = None
    ) -> None:
        context = context if numbered is None else numbered.context
        self._chain, self._backend = chain, context.backend
        #: Whether each processor goes by ids, so that it cannot be given survivors as they are.
        self.by_ids = [not link.declared("ignores_ids") for link in chain.links]
        self._tokens = tokens if numbered is None else numbered.tokens
        self._numbered = numbered
        self._context = chain.with_resources(context)
        state = chain.init_state(context)
        self._batch = context.batch
        #: The state at the end of what was seen, per processor.
        self._states: list[Any] = list(state.processors)
        self._position: Any = state.position
        #: The state at each position, and what a processor without ``states_after`` has yet to accept there.
        self._here: list[Any] = []
        self._given = self._context
        self._unread: Tokens = np.full((self._batch, 0), -1, dtype=np.int32)
        self._behind: Array = None

    def go_on(self, start: int, end: int, others: bool) -> None:
        """Stand at the next positions.

        Args:
            start: the first of them.
            end: behind the last of them.
            others: whether positions come behind.
        """
        tokens, count = self._tokens[:, start : end if others else end - 1], end - start
        backend, rows_here = self._backend, count * self._batch
        context = self._context.with_fields(donate_state=False).accept(tokens)
        self._given = self._context.with_fields(batch=rows_here, donate_state=True)
        self._here, self._behind = [], None
        if not tokens.shape[1]:
            self._here = list(self._states)
            self._given = positions.describe(self._given, self._position) if self._chain._tracked else self._given
            return
        if self._chain._tracked:
            here, self._position = _divided(positions.states_after(self._position, context), rows_here)
            self._given = positions.describe(self._given, here)
        for index, after in enumerate(self._chain._afters):
            state = self._states[index]
            if not any(True for _ in rows.leaves(state)):
                self._here.append(state)
            elif after is not None:
                here, self._states[index] = _divided(after(state, context), rows_here)
                self._here.append(here)
            else:
                self._here.append(rows.take(state, np.tile(np.arange(self._batch, dtype=np.int32), count)))
                if self._behind is None:
                    self._behind = backend.asarray(_before_each(self._unread, tokens, count))
        self._unread = tokens[:, -1:]

    def process(self, logits: Array, donate: bool) -> tuple[Array, bool]:
        """The logits of the positions, ``[positions, batch, vocab]``, processed; whether they may be overwritten."""
        if not self._chain._steps:
            return logits, donate
        backend, shape = self._backend, tuple(logits.shape)
        if self._numbered is not None:
            columns, _ = self.process_rows(self._numbered.columns(backend, logits), True)
            return self._numbered.restored(backend, logits, columns, donate), True
        flat, donate = self.process_rows(backend.xp.reshape(logits, (-1, shape[-1])), donate)
        return backend.xp.reshape(flat, shape), donate

    def process_rows(self, logits: Array, donate: bool) -> tuple[Array, bool]:
        """The same for ``[rows, vocab]``."""
        for index in range(len(self._chain._steps)):
            before = logits
            logits = self._step(index, logits, donate)
            donate = donate or (self._chain._fresh[index] and logits is not before)
        return logits, donate

    def process_survivors(self, found: Survivors, wide: Array, donate: bool) -> Array:
        """The logits of the survivors, ``[rows, n]``, processed.

        Args:
            found: the survivors.
            wide: ``[rows, vocab]``, the logits that they are from.
            donate: whether those may be overwritten.
        """
        backend, left = self._backend, found.logits
        for index, by_ids in enumerate(self.by_ids):
            if not by_ids:
                left = self._step(index, left, True)
                continue
            wide = self._step(index, backend.spread(left, found.ids, wide, donate), True)
            donate, gaps = True, found.ids < 0
            left = backend.gather(wide, backend.xp.where(gaps, backend.xp.zeros_like(found.ids), found.ids))
            left = backend.masked_fill(left, gaps, NEG_INF, True)
        return left

    def _step(self, index: int, logits: Array, donate: bool) -> Array:
        """What one processor makes of the logits."""
        behind = self._chain._afters[index] is None and self._behind is not None
        context = self._given.with_fields(vocab_size=logits.shape[1], donate=donate)
        if behind:
            context = context.with_fields(tokens=self._behind)
        try:
            logits, state = self._chain._steps[index](logits, self._here[index], context)
        except Exception as error:
            note(error, self._chain.links[index].label, "process", context)
            raise
        if behind:
            self._states[index] = rows.take(state, np.arange(-self._batch, 0, dtype=np.int32) + logits.shape[0])
        return logits


def _divided(state: Any, count: int) -> tuple[Any, Any]:
    """The first rows of a state, and those behind them."""

    def cut(leaf: Any, part: slice) -> Any:
        return leaf.take_rows(np.arange(leaf.row_count())[part]) if rows.is_row_leaf(leaf) else leaf[part, ...]

    parts = slice(count), slice(count, None)
    first, last = (rows.map_leaves(functools.partial(cut, part=part), state) for part in parts)
    return first, last


def _before_each(past: Tokens, tokens: Tokens, count: int) -> Tokens:
    """The tokens before each of some positions, ``[count * batch, n]``; -1 stands for those that come later.

    Args:
        past: ``[batch, 0 or 1]``, the token before the first position.
        tokens: ``[batch, n]``, the tokens at the positions.
        count: how many positions there are.
    """
    given = np.concatenate([past, tokens], axis=1)
    known = np.arange(given.shape[1])[None, :] < np.arange(count)[:, None] + past.shape[1]
    before: Tokens = np.where(known[:, None, :], given[None, :, :], np.int32(-1))
    return before.reshape(-1, given.shape[1])


def among_survivors(backend: Backend, ids: NDArray[np.int64], left: Array, chosen: NDArray[Any]) -> Array:
    """The log-probabilities of tokens of which the survivors of their rows are known, ``[rows, 1]``; -inf if not there.

    Args:
        backend: of the logits.
        ids: ``[rows, n]``, the survivors.
        left: ``[rows, n]``, their logits.
        chosen: ``[rows, 1]``, the tokens.
    """
    same = ids == chosen
    logprob = backend.log_probability(left, backend.asarray(same.argmax(-1)[:, None]))
    return backend.masked_fill(logprob, backend.asarray(~same.any(-1)[:, None]), NEG_INF)
