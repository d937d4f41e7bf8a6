"""Log-probabilities of given sequences under a chain, over all positions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from logitloom import position as positions
from logitloom import state as rows
from logitloom.backend import NEG_INF, Array
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.renumbering import Renumbering
from logitloom.row_program import RowProgram
from logitloom.score_arguments import Tokens, check_arguments, checked
from logitloom.step import Step
from logitloom.step_arguments import note
from logitloom.survivors import Survivors, survivors_of

__all__ = ["Part", "Parts", "Scores", "check_arguments", "score"]

#: Most positions of a sequence that are processed at a time, so that their logits stay in the cache (``_MOST_BYTES``);
#: and the least, because with fewer the calls cost more than the passes over memory.
_MOST_POSITIONS: Final = 256
_LEAST_POSITIONS: Final = 16
_MOST_BYTES: Final = 1 << 23


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
        by_ids: whether a step goes by ids, so that it cannot be given survivors as they are.
        changes_only_seen: whether all of them change only logits of tokens that the sequence has had.
    """

    chain: Scores
    labels: tuple[str, ...]
    steps: tuple[Step, ...]
    afters: tuple[Callable[[Any, Context], Any] | None, ...]
    fresh: tuple[bool, ...]
    tracked: bool
    by_ids: tuple[bool, ...]
    changes_only_seen: bool


class Parts(NamedTuple):
    """A chain in parts, the last of which needs to see only what is left of a row.

    Attributes:
        whole: all of the first parts, as one.
        first: those that see the whole vocabulary, of which some change only logits of tokens that were seen.
        rest: sees survivors, in order of their ids.
        highest: the survivors are the so many highest logits, with those that tie; None: all that are not -inf.
        program: what the last part does, as one loop; None if there is none.
    """

    whole: Part
    first: tuple[Part, ...]
    rest: Part | None
    highest: int | None
    program: RowProgram | None


def score(parts: Parts, logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Array:
    """The log-probabilities with which a sampler chooses the tokens from what the chain makes of the logits.

    A position is a row of its own, so whatever processors do, they do it for many positions at once, and it is what
    they do in decoding. Processors that go by the survivors of a truncation get those alone, and those that change only
    logits of tokens that a sequence has had get the columns of these tokens.

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
    taken = checked(logits, tokens, context)
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    if not logits.shape[1]:
        return context.backend.asarray(np.zeros((len(taken), 0), dtype=np.float32))
    if parts.whole.chain.sees_every_step:
        return _one_by_one(parts.whole.chain, logits, taken, context)
    xp, (batch, time, vocab) = context.backend.xp, logits.shape
    fitting = max(_MOST_BYTES // max(4 * batch * vocab, 1), _LEAST_POSITIONS)
    width = min(fitting, _MOST_POSITIONS, time)
    first, rest = _runs(parts, taken, context, vocab)
    writes = any(run.part.steps for run in first) or (rest is not None and any(rest.part.by_ids))
    found: list[Array] = []
    memory: Array | None = None
    for start in range(0, time, width):
        end = min(start + width, time)
        try:
            for run in (*first, *([rest] if rest is not None else [])):
                # The last token is no position's past in this round. It is in the next.
                run.go_on(start, end, end < time)
            lines = xp.permute_dims(logits[:, start:end, :], (1, 0, 2))
            own = context.backend.copied(lines, memory) if writes else None
            memory = own if memory is None else memory
            here = taken[:, start:end].T
            given = lines if own is None else own
            found.append(xp.reshape(_chosen(parts, first, rest, given, own is not None, here), here.shape))
        except IllegalToken as error:
            place, row = divmod(error.row, batch)
            message = f"Sequence {row}, before its position {start + place}: {error}"
            raise IllegalToken(message, row=row) from error
    logprob = xp.permute_dims(xp.concat(found, axis=0), (1, 0))
    return xp.where(context.backend.asarray(taken) >= 0, logprob, xp.zeros_like(logprob))


def _runs(parts: Parts, taken: Tokens, context: Context, vocab: int) -> tuple[list[_Run], _Run | None]:
    """The parts on their way: those that see whole rows, and the one that sees survivors."""
    numbered = None
    if any(part.changes_only_seen for part in parts.first):
        numbered = Renumbering.of(taken, context, vocab)
    chosen = (parts.whole,) if numbered is None else parts.first
    first = [_Run(part, taken, context, numbered if part.changes_only_seen else None) for part in chosen]
    return first, None if parts.rest is None else _Run(parts.rest, taken, context)


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


def _chosen(parts: Parts, first: list[_Run], rest: _Run | None, lines: Array, donate: bool, here: Tokens) -> Array:
    """The log-probabilities of the tokens at some positions, ``[positions * batch, 1]``.

    Args:
        parts: the processors.
        first: the parts that see whole rows.
        rest: the part that sees survivors.
        lines: ``[positions, batch, vocab]``, the logits.
        donate: whether they may be overwritten.
        here: ``[positions, batch]``, the tokens.
    """
    backend = first[0].backend
    chosen = np.maximum(here, 0).reshape(-1, 1)
    for run in first:
        lines, donate = run.process(lines, donate)
    flat = backend.xp.reshape(lines, (-1, lines.shape[-1]))
    operated = None
    if parts.program is not None and (address := parts.program.address(backend, flat)) is not None:
        operated = parts.program.run(address, flat.shape, backend)
    if operated is not None and operated.ids.shape[1]:
        ids, left = operated.ids, backend.asarray(operated.logits)
    else:
        found = None if rest is None else survivors_of(backend, flat, parts.highest)
        if rest is None or found is None:
            if rest is not None:
                flat, _ = rest.process_rows(flat, donate)
            return backend.log_probability(flat, backend.asarray(chosen))
        ids, left = backend.to_numpy(found.ids), rest.process_survivors(found, flat, donate)
    same = ids == chosen
    logprob = backend.log_probability(left, backend.asarray(same.argmax(-1)[:, None]))
    return backend.masked_fill(logprob, backend.asarray(~same.any(-1)[:, None]), NEG_INF)


class _Run:
    """Some processors on their way over the positions. Each position of each sequence is a row; the rows of one
    position, one per sequence, are neighbours.

    Args:
        part: the processors.
        tokens: ``[batch, time]``, the sequences.
        context: of the start.
        numbered: the numbers by which the processors know the tokens, if those are not their ids.
    """

    def __init__(self, part: Part, tokens: Tokens, context: Context, numbered: Renumbering | None = None) -> None:
        context = context if numbered is None else numbered.context
        self.part, self.backend = part, context.backend
        self._tokens = tokens if numbered is None else numbered.tokens
        self._numbered = numbered
        self._context = part.chain.with_resources(context)
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

    def go_on(self, start: int, end: int, others: bool) -> None:
        """Stand at the next positions.

        Args:
            start: the first of them.
            end: behind the last of them.
            others: whether positions come behind.
        """
        tokens, count = self._tokens[:, start : end if others else end - 1], end - start
        backend, rows_here = self.backend, count * self._batch
        context = self._context.with_fields(donate_state=False).accept(tokens)
        self._given = self._context.with_fields(batch=rows_here, donate_state=True)
        self._here, self._behind = [], None
        if not tokens.shape[1]:
            self._here = list(self._states)
            self._given = positions.describe(self._given, self._position) if self.part.tracked else self._given
            return
        if self.part.tracked:
            here, self._position = _divided(positions.states_after(self._position, context), rows_here)
            self._given = positions.describe(self._given, here)
        for place, after in enumerate(self.part.afters):
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

    def process(self, logits: Array, donate: bool) -> tuple[Array, bool]:
        """The logits of the positions, ``[positions, batch, vocab]``, processed; whether they may be overwritten."""
        if not self.part.steps:
            return logits, donate
        backend, shape = self.backend, tuple(logits.shape)
        if self._numbered is not None:
            columns, _ = self.process_rows(self._numbered.columns(backend, logits), True)
            return self._numbered.restored(backend, logits, columns, donate), True
        flat, donate = self.process_rows(backend.xp.reshape(logits, (-1, shape[-1])), donate)
        return backend.xp.reshape(flat, shape), donate

    def process_rows(self, logits: Array, donate: bool) -> tuple[Array, bool]:
        """The same for ``[rows, vocab]``."""
        for place in range(len(self.part.steps)):
            before = logits
            logits = self._step(place, logits, donate)
            donate = donate or (self.part.fresh[place] and logits is not before)
        return logits, donate

    def process_survivors(self, found: Survivors, wide: Array, donate: bool) -> Array:
        """The logits of the survivors, ``[rows, n]``, processed.

        Args:
            found: the survivors.
            wide: ``[rows, vocab]``, the logits that they are from.
            donate: whether those may be overwritten.
        """
        backend, left = self.backend, found.logits
        for place, by_ids in enumerate(self.part.by_ids):
            if not by_ids:
                left = self._step(place, left, True)
                continue
            wide = self._step(place, backend.spread(left, found.ids, wide, donate), True)
            donate, gaps = True, found.ids < 0
            left = backend.gather(wide, backend.xp.where(gaps, backend.xp.zeros_like(found.ids), found.ids))
            left = backend.masked_fill(left, gaps, NEG_INF, True)
        return left

    def _step(self, place: int, logits: Array, donate: bool) -> Array:
        """What one processor makes of the logits."""
        behind = self.part.afters[place] is None and self._behind is not None
        context = self._given.with_fields(vocab_size=logits.shape[1], donate=donate)
        if behind:
            context = context.with_fields(tokens=self._behind)
        try:
            logits, state = self.part.steps[place](logits, self._here[place], context)
        except Exception as error:
            note(error, self.part.labels[place], "process", context)
            raise
        if behind:
            self._states[place] = rows.take(state, np.arange(-self._batch, 0, dtype=np.int32) + logits.shape[0])
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
