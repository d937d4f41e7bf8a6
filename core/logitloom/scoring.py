"""Log-probabilities of given sequences under a chain, over all positions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom import position as positions
from logitloom import state as rows
from logitloom.backend import NEG_INF, Array
from logitloom.context import Context, check_logits, padded
from logitloom.errors import IllegalToken, InvalidContext
from logitloom.step import Step
from logitloom.step_arguments import note
from logitloom.survivors import survivors_of

__all__ = ["Part", "Parts", "Scores", "check_arguments", "score"]

#: Most positions of a sequence that are processed at a time, so that their logits stay in the cache (``_MOST_BYTES``);
#: and the least, because with fewer the calls cost more than the passes over memory.
_MOST_POSITIONS: Final = 128
_LEAST_POSITIONS: Final = 16
_MOST_BYTES: Final = 1 << 22

Tokens = NDArray[np.int32]


class Scores(Protocol):
    """What is needed of a chain; see :class:`logitloom.Chain`."""

    sees_every_step: bool

    def init_state(self, context: Context) -> Any:
        """The state of a start."""
        ...

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """One step."""
        ...

    def with_resources(self, context: Context) -> Context:
        """The context with the chain's vocabulary and model."""
        ...


class Part(NamedTuple):
    """Some processors of a chain.

    Attributes:
        chain: a chain of them.
        labels: their names, for messages.
        steps: their ``process``.
        afters: their ``states_after``, None for one that has none.
        fresh: whether what a step returns is an array of its own, unless it is the very input.
        tracked: whether one of them needs lengths or histories.
    """

    chain: Scores
    labels: tuple[str, ...]
    steps: tuple[Step, ...]
    afters: tuple[Callable[[Any, Context], Any] | None, ...]
    fresh: tuple[bool, ...]
    tracked: bool


class Parts(NamedTuple):
    """A chain in two parts, the second of which needs to see only what is left of a row.

    Attributes:
        whole: sees the whole vocabulary.
        rest: sees survivors, in order of their ids.
        highest: the survivors are the so many highest logits, with those that tie; None: all that are not -inf.
    """

    whole: Part
    rest: Part | None
    highest: int | None


def score(parts: Parts, logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Array:
    """The log-probabilities with which a sampler chooses the tokens from what the chain makes of the logits.

    A position is a row of its own, so whatever processors do, they do it for many positions at once, and it is what
    they do in decoding. Processors that go by the survivors of a truncation get those alone.

    Args:
        parts: the processors.
        logits: ``[batch, time, vocab]``: those that each token was chosen from.
        tokens: per sequence its tokens, ragged, or ``[batch, time]`` with -1 behind the end.
        context: of the start.

    Returns:
        ``[batch, time] float32`` (float64 for such logits), 0 behind the end of a sequence.

    Raises:
        InvalidContext: if shapes do not fit together.
        IllegalToken: a token is one that a constraint forbids; names sequence and position.
            (Constraints on devices read nothing back to find it; there it scores -inf.)
    """
    taken = _checked(logits, tokens, context)
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    if not logits.shape[1]:
        return context.backend.asarray(np.zeros((len(taken), 0), dtype=np.float32))
    if parts.whole.chain.sees_every_step:
        return _one_by_one(parts.whole.chain, logits, taken, context)
    xp, (batch, time, vocab) = context.backend.xp, logits.shape
    fitting = max(_MOST_BYTES // max(4 * batch * vocab, 1), _LEAST_POSITIONS)
    width = min(fitting, _MOST_POSITIONS, time)
    runs = [_Run(part, context) for part in (parts.whole, parts.rest) if part is not None]
    found: list[Array] = []
    for start in range(0, time, width):
        here = taken[:, start : start + width]
        # The last token is no position's past in this round. It is in the next.
        before = here if start + width < time else here[:, :-1]
        lines = xp.reshape(xp.permute_dims(logits[:, start : start + width, :], (1, 0, 2)), (-1, vocab))
        try:
            for run in runs:
                run.go_on(before, here.shape[1])
            found.append(xp.reshape(_chosen(runs, lines, here.T, parts.highest, context), here.T.shape))
        except IllegalToken as error:
            place, row = divmod(error.row, batch)
            message = f"Sequence {row}, before its position {start + place}: {error}"
            raise IllegalToken(message, row=row) from error
    logprob = xp.permute_dims(xp.concat(found, axis=0), (1, 0))
    return xp.where(context.backend.asarray(taken) >= 0, logprob, xp.zeros_like(logprob))


def _one_by_one(chain: Scores, logits: Array, taken: Tokens, context: Context) -> Array:
    """The scores of a chain whose states see what came before along with the logits, as in decoding."""
    backend, state, given = context.backend, chain.init_state(context), context
    found: list[Array] = []
    for place in range(logits.shape[1]):
        here = taken[:, place : place + 1]
        if place:
            before = np.where(here >= 0, taken[:, place - 1 : place], -1)
            told = backend.xp.where(backend.asarray(before) >= 0, found[-1], backend.xp.zeros_like(found[-1]))
            given = context.accept(before, chosen_logprob=told)
        processed, state = chain.process(logits[:, place, :], state, given)
        logprob = backend.log_probability(processed, backend.asarray(np.maximum(here, 0)))
        found.append(backend.xp.where(backend.asarray(here) >= 0, logprob, backend.xp.zeros_like(logprob)))
    return backend.xp.concat(found, axis=1)


def _chosen(runs: list[_Run], lines: Array, here: Tokens, highest: int | None, context: Context) -> Array:
    """The log-probabilities of the tokens at some positions, ``[positions, 1]``.

    Args:
        runs: the parts of the chain.
        lines: ``[positions, vocab]``, the logits.
        here: the tokens.
        highest: see :class:`Parts`.
        context: of the start.
    """
    backend = context.backend
    chosen = np.maximum(here, 0).reshape(-1, 1)
    processed = runs[0].process(lines)
    if len(runs) == 1:
        return backend.log_probability(processed, backend.asarray(chosen))
    found = survivors_of(backend, processed, highest)
    if found is None:
        return backend.log_probability(runs[1].process(processed), backend.asarray(chosen))
    left = runs[1].process(found.logits)
    same = backend.to_numpy(found.ids) == chosen
    logprob = backend.log_probability(left, backend.asarray(same.argmax(-1)[:, None]))
    return backend.masked_fill(logprob, backend.asarray(~same.any(-1)[:, None]), NEG_INF)


class _Run:
    """Some processors on their way over the positions. Each position of each sequence is a row; the rows of one
    position, one per sequence, are neighbours.

    Args:
        part: the processors.
        context: of the start.
    """

    def __init__(self, part: Part, context: Context) -> None:
        self._part, self._context = part, part.chain.with_resources(context)
        state = part.chain.init_state(context)
        self._batch = context.batch
        #: The state at the end of what was seen, per processor.
        self._states: list[Any] = list(state.processors)
        self._position: Any = state.position
        #: The state at each position, and what a processor without ``states_after`` has yet to accept there.
        self._here: list[Any] = []
        self._given = self._context
        self._unread: Tokens = np.full((self._batch, 0), -1, dtype=np.int32)
        self._behind: Array = None

    def go_on(self, tokens: Tokens, count: int) -> None:
        """Stand at the next positions.

        Args:
            tokens: ``[batch, n]``, the tokens at these positions that others come behind.
            count: how many positions there are, ``n`` or one more.
        """
        backend, rows_here = self._context.backend, count * self._batch
        context = self._context.with_fields(donate_state=False).accept(tokens)
        self._given = self._context.with_fields(batch=rows_here, donate_state=True)
        self._here, self._behind = [], None
        if not tokens.shape[1]:
            self._here = list(self._states)
            self._given = positions.describe(self._given, self._position) if self._part.tracked else self._given
            return
        if self._part.tracked:
            here, self._position = _divided(positions.states_after(self._position, context), rows_here)
            self._given = positions.describe(self._given, here)
        for place, after in enumerate(self._part.afters):
            state = self._states[place]
            if not any(True for _ in rows.leaves(state)):
                self._here.append(state)
            elif after is not None:
                here, self._states[place] = _divided(after(state, context), rows_here)
                self._here.append(here)
            else:
                self._here.append(rows.take(state, np.tile(np.arange(self._batch, dtype=np.int32), count)))
                if self._behind is None:
                    self._behind = backend.asarray(_before_each(self._unread, tokens, count))
        self._unread = tokens[:, -1:]

    def process(self, logits: Array) -> Array:
        """The logits of the positions processed."""
        given = self._given.with_fields(vocab_size=logits.shape[1])
        for place, step in enumerate(self._part.steps):
            state, after, before = self._here[place], self._part.afters[place], logits
            behind = after is None and self._behind is not None
            context = given.with_fields(tokens=self._behind) if behind else given
            try:
                logits, state = step(logits, state, context)
            except Exception as error:
                note(error, self._part.labels[place], "process", context)
                raise
            if behind:
                self._states[place] = rows.take(state, np.arange(-self._batch, 0, dtype=np.int32) + logits.shape[0])
            if not given.donate and self._part.fresh[place] and logits is not before:
                given = given.with_fields(donate=True)
        return logits


def _divided(state: Any, count: int) -> tuple[Any, Any]:
    """The first rows of a state, and those behind them."""

    def first(leaf: Any) -> Any:
        return leaf.take_rows(np.arange(count)) if rows.is_row_leaf(leaf) else leaf[:count, ...]

    def last(leaf: Any) -> Any:
        return leaf.take_rows(np.arange(count, leaf.row_count())) if rows.is_row_leaf(leaf) else leaf[count:, ...]

    return rows.map_leaves(first, state), rows.map_leaves(last, state)


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


def check_arguments(logits: Any, context: Any, kept: Any) -> None:
    """Raise unless these are what :func:`score` takes.

    Raises:
        InvalidContext: saying which is not, and what it must be.
    """
    if not isinstance(context, Context):
        raise InvalidContext(f"Sequences are scored with the Context of their start, not with {context!r:.100}.")
    shape = getattr(logits, "shape", None)
    if shape is None or len(shape) != 3:
        given = f"are a {type(logits).__name__}" if shape is None else f"have the shape {list(shape)}"
        raise InvalidContext(
            f"Sequences are scored with logits [batch, time, vocab] for the {context.batch} rows of the context, but "
            f"the logits {given}."
        )
    check_logits(logits[:, 0, :] if shape[1] else logits[:, :, 0])
    if kept is not None:
        wanted = [int(shape[0]), int(shape[1]), -(-int(shape[2]) // 32)]
        if list(getattr(kept, "shape", ())) != wanted:
            found: Any = list(kept.shape) if hasattr(kept, "shape") else f"{kept!r:.100}"
            raise InvalidContext(f"'kept' must be an array of bits of the shape {wanted}, but is {found}.")


def _checked(logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Tokens:
    """The tokens as ``[batch, time] int32``."""
    if logits.ndim != 3 or logits.shape[0] != context.batch:
        raise InvalidContext(
            f"Sequences are scored with logits [batch, time, vocab] for the {context.batch} rows of the context, but "
            f"the logits have the shape {list(logits.shape)}."
        )
    try:
        host = padded(tokens)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidContext(
            f"Tokens to be scored are ids, a sequence of them per row, but {tokens!r:.100} was given: {error!s:.100}."
        ) from error
    batch, time = logits.shape[:2]
    if len(host) != batch or host.shape[1] > time:
        raise InvalidContext(
            f"The logits are those of {batch} sequences of {time} tokens at most, but {len(host)} sequences of up to "
            f"{host.shape[1]} tokens are to be scored."
        )
    whole = np.full((batch, time), -1, dtype=np.int32)
    whole[:, : host.shape[1]] = host
    gaps = (whole[:, :-1] < 0) & (whole[:, 1:] >= 0)
    if gaps.any():
        row, place = (int(i) for i in np.argwhere(gaps)[0])
        raise InvalidContext(f"Sequence {row} has no token at position {place}, but one behind it. Close the gap.")
    return whole
