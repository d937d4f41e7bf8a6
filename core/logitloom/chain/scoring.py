"""Log-probabilities of given sequences under a chain, over many positions at once.

A position is a row of its own: the processors treat many positions at once as they treat rows in decoding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from logitloom.arrays.backend import Array
from logitloom.chain import positions
from logitloom.chain.plan import Segment
from logitloom.chain.score_arguments import Tokens
from logitloom.chain.steps import Step
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.rows import tree as rows

__all__ = ["score", "told_late"]

#: Most positions of a sequence that are processed at a time, so that their logits stay in the cache (``_MOST_BYTES``);
#: and the least number of positions, because with fewer the calls cost more than the passes over memory.
_MOST_POSITIONS: Final = 256
_LEAST_POSITIONS: Final = 16
_MOST_BYTES: Final = 1 << 23


class ScoredChain(Protocol):
    """The attributes of a chain that scoring uses; see :class:`logitloom.Chain`."""

    sees_every_step: bool
    _afters: tuple[Callable[[Any, Context], Any] | None, ...]
    _tracked: frozenset[str]

    def init_state(self, context: Context) -> Any: ...

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]: ...

    def with_resources(self, context: Context) -> Context: ...


def told_late(step: Step) -> Step:
    """The step of a processor without ``states_after``, for a state that brings the tokens not yet told to the
    processor.
    """

    def telling(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        if isinstance(state, _Told):
            logits, new = step(logits, state.state, context.with_fields(tokens=state.tokens))
            return logits, _Told(new, state.tokens)
        return step(logits, state, context)

    return telling


class _Told(NamedTuple):
    """A state, and the tokens that its rows have accepted since: a row tree.

    Attributes:
        state: a row tree.
        tokens: ``[rows, n] int32``.
    """

    state: Any
    tokens: Array


def score(chain: ScoredChain, plan: Segment, logits: Array, taken: Tokens, context: Context) -> Array:
    """See :meth:`logitloom.Chain.score`, which checks the arguments.

    Args:
        chain: the chain.
        plan: the chain's processors; :func:`told_late` wraps the steps of processors without ``states_after``.
        logits, context: as there.
        taken: ``[batch, time]``, the tokens, -1 behind the end.
    """
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    backend, xp, (batch, time, vocab) = context.backend, context.backend.xp, logits.shape
    if not taken.size:
        return backend.asarray(np.zeros(taken.shape, dtype=np.float32))
    if chain.sees_every_step:
        return _one_by_one(chain, logits, taken, context)
    width = min(time, _MOST_POSITIONS, max(_MOST_BYTES // (4 * batch * vocab), _LEAST_POSITIONS))
    # The last token of a sequence is no position's past.
    followed = np.append(taken[:, 1:] >= 0, np.zeros((batch, 1), dtype=np.bool_), axis=1)
    walk, found = _Walk(chain, np.where(followed, taken, np.int32(-1)), context), []
    memory: Array | None = None
    for start in range(0, time, width):
        end = min(start + width, time)
        chosen = np.maximum(taken[:, start:end].T, 0).reshape(-1, 1)
        try:
            states, here = walk.go_on(start, end, end < time)
            lines = xp.permute_dims(logits[:, start:end, :], (1, 0, 2))
            own = backend.copied(lines, memory)
            memory = own if memory is None else memory
            flat = xp.reshape(lines if own is None else own, (-1, vocab))
            processed, after = plan.run(flat, states, here.with_fields(donate=own is not None))
        except IllegalToken as error:
            position, row = divmod(error.row, batch)
            raise IllegalToken(f"Sequence {row}, before its position {start + position}: {error}", row=row) from error
        walk.keep(after)
        logprob = backend.log_probability(processed, backend.asarray(chosen))
        found.append(xp.reshape(logprob, (end - start, batch)))
    logprob = xp.permute_dims(xp.concat(found, axis=0), (1, 0))
    return xp.where(backend.asarray(taken) >= 0, logprob, xp.zeros_like(logprob))


class _Walk:
    """The states of a chain on their way over the positions of sequences.

    Each position of each sequence is a row. The rows of one position (one row per sequence) are adjacent.

    Args:
        chain: the chain.
        tokens: ``[batch, time]``, the sequences without their last tokens.
        context: of the start.
    """

    def __init__(self, chain: ScoredChain, tokens: Tokens, context: Context) -> None:
        self._chain, self._tokens, self._batch = chain, tokens, context.batch
        self._context = chain.with_resources(context)
        state = chain.init_state(context)
        #: The state at the end of what was seen, per processor.
        self._states: list[Any] = list(state.processors)
        self._position: Any = state.position
        #: The last token that processors without ``states_after`` have not seen yet.
        self._unread: Tokens = np.full((self._batch, 0), -1, dtype=np.int32)

    def go_on(self, start: int, end: int, others: bool) -> tuple[tuple[Any, ...], Context]:
        """Go to the next positions.

        Args:
            start: the first of them.
            end: behind the last of them.
            others: whether positions come behind. The last token is no position's past in this round, but in the next.

        Returns:
            The state of each processor at the positions, and the context of their step.
        """
        tokens, count = self._tokens[:, start : end if others else end - 1], end - start
        backend, rows_here = self._context.backend, count * self._batch
        context = self._context.with_fields(donate_state=False).accept(tokens)
        given = self._context.with_fields(batch=rows_here, donate_state=True)
        if not tokens.shape[1]:
            given = positions.describe(given, self._position) if self._chain._tracked else given
            return tuple(self._states), given
        if self._chain._tracked:
            here, self._position = _divided(positions.states_after(self._position, context), rows_here)
            given = positions.describe(given, here)
        unread, states = backend.asarray(_before_each(self._unread, tokens, count)), []
        for index, after in enumerate(self._chain._afters):
            state = self._states[index]
            if after is not None:
                here, self._states[index] = _divided(after(state, context), rows_here)
                states.append(here)
            else:
                repeated = rows.take(state, np.tile(np.arange(self._batch, dtype=np.int32), count))
                states.append(_Told(repeated, unread))
        self._unread = tokens[:, -1:]
        return tuple(states), given

    def keep(self, after: Sequence[Any]) -> None:
        """Keep the states that a step returned for processors without ``states_after``, which only steps advance."""
        last = np.arange(-self._batch, 0, dtype=np.int32)
        for index, state in enumerate(after):
            if isinstance(state, _Told):
                self._states[index] = rows.take(state.state, last + int(state.tokens.shape[0]))


def _divided(state: Any, count: int) -> tuple[Any, Any]:
    """The first rows of a state, and the rows behind them."""

    def cut(leaf: Any, part: slice) -> Any:
        return leaf.take_rows(np.arange(leaf.row_count())[part]) if rows.is_row_leaf(leaf) else leaf[part, ...]

    parts = slice(count), slice(count, None)
    first, last = (rows.map_leaves(functools.partial(cut, part=part), state) for part in parts)
    return first, last


def _before_each(past: Tokens, tokens: Tokens, count: int) -> Tokens:
    """The tokens before each of some positions, ``[count * batch, n]``; -1 stands for tokens that come later.

    Args:
        past: ``[batch, 0 or 1]``, the token before the first position.
        tokens: ``[batch, n]``, the tokens at the positions.
        count: how many positions there are.
    """
    given = np.concatenate([past, tokens], axis=1)
    known = np.arange(given.shape[1])[None, :] < np.arange(count)[:, None] + past.shape[1]
    before: Tokens = np.where(known[:, None, :], given[None, :, :], np.int32(-1))
    return before.reshape(-1, given.shape[1])


def _one_by_one(chain: ScoredChain, logits: Array, taken: Tokens, context: Context) -> Array:
    """The scores of a chain whose states see what came before along with the logits, as in decoding."""
    backend, state, given = context.backend, chain.init_state(context), context
    found: list[Array] = []
    for position in range(logits.shape[1]):
        here = taken[:, position : position + 1]
        if position:
            before = np.where(here >= 0, taken[:, position - 1 : position], -1)
            told = backend.xp.where(backend.asarray(before) >= 0, found[-1], backend.xp.zeros_like(found[-1]))
            given = context.accept(before, chosen_logprob=told)
        processed, state = chain.process(logits[:, position, :], state, given)
        logprob = backend.log_probability(processed, backend.asarray(np.maximum(here, 0)))
        found.append(backend.xp.where(backend.asarray(here) >= 0, logprob, backend.xp.zeros_like(logprob)))
    return backend.xp.concat(found, axis=1)
