"""Row tracking: from the token ids that an engine shows, recover which earlier row each row continues.

Engines reorder rows, duplicate them (beams), drop and add them, preempt and re-prefill them, and repeat shorter rows
(speculative decoding), without telling the processor. A row's ids are its only identity. The tracker remembers the rows
of earlier calls with the chain's state after them. For each row of a call the tracker finds the longest remembered row
that is a prefix of the row, compares every id, takes the remembered state, and feeds the chain the new tokens. A row
whose state was dropped meanwhile is replayed from its ids, with the same result.

The cost of a step: a few array operations for all rows; if rows have moved, also one dictionary look-up per row,
whatever its length; and one comparison of the ids with the remembered ids at memory bandwidth (8 bytes per token: a row
of 4,096 tokens has 32 KB, less than its logits). Rows that moved are copied once, at the same rate. Reading the ids is
inherent: an engine hands over a new array at every step, and a bare hash of it proves nothing.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Chain, ChainState, Context
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import IllegalToken, InvalidContext
from logitloom.generation.dead_ends import no_legal_token
from logitloom.process_memory import ProcessLock
from logitloom.rows import tree as row_state
from logitloom_contrib.row_tracking.call_snapshot import CallSnapshot, Ids
from logitloom_contrib.row_tracking.calls import Call, CallMatch, Generation, RowOrigin, started
from logitloom_contrib.row_tracking.forbidden_tokens import ForbiddenTokens
from logitloom_contrib.row_tracking.row_ends import RowEnds
from logitloom_contrib.row_tracking.row_matching import match_separately, match_together

__all__ = ["RowTracker", "right_aligned"]

_SMALLEST_HISTORY: Final = 256
#: Generations whose last logits are kept.
_WITH_LOGITS: Final = 2


def right_aligned(rows: Sequence[Sequence[int] | NDArray[Any]]) -> tuple[Ids, NDArray[np.int64]]:
    """Ragged rows as one array with the ends aligned, and where each row begins.

    >>> right_aligned([[1, 2], [3]])
    (array([[ 1,  2],
           [-1,  3]]), array([0, 1]))
    """
    width = max((len(row) for row in rows), default=0)
    ids = np.full((len(rows), width), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        if len(row):
            ids[i, width - len(row) :] = row
    return ids, np.asarray([width - len(row) for row in rows], dtype=np.int64)


class RowTracker:
    """A chain for an engine that shows rows as token ids alone.

    Where the engine does not tell how long prompts are, all rows of one call belong to one generation. A call begins
    a new generation if not every row continues a remembered row by at most ``reach`` tokens: then its rows are
    prompts. Where the engine tells prompt lengths, rows are independent of each other.

    Args:
        chain: the processors.
        eos: ids that end a row, and are not fed to the chain unless the engine goes on after them.
        padding: ids that stand behind the end of a row.
        reach: most tokens a row may gain between two calls.
        seed: row ``i`` of a generation gets a seed derived from it and ``i``.
        max_length: most tokens of a row, prompt included; default: grows as needed (for chains that keep history).
        max_new_tokens: most tokens that a row may generate, end-of-sequence included, if the engine has such a limit;
            may be set anew before a generation begins.
        context: further fields of the chain's context (``vocabulary``, ``model``, ``compiled``).
        generations: how many generations are remembered at a time.
        states: how many calls of a generation keep their states; others are replayed.
        state_bytes: most bytes of these states together; the newest state is always kept.

    Example:
        >>> from logitloom import processors
        >>> tracker = RowTracker(processors.load(("force_tokens", {"tokens": {0: 3, 1: 1}})))
        >>> logits = np.zeros((2, 5), dtype=np.float32)
        >>> tracker.process(logits, np.array([[7, 8], [7, 9]])).argmax(1)
        array([3, 3])
        >>> tracker.process(logits, np.array([[7, 9, 3], [7, 9, 3]])).argmax(1)
        array([1, 1])
    """

    def __init__(
        self,
        chain: Chain,
        *,
        eos: Collection[int] = (),
        padding: Collection[int] = (),
        reach: int = 1,
        seed: int = 0,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        context: dict[str, Any] | None = None,
        generations: int = 8,
        states: int = 64,
        state_bytes: int = 64 << 20,
    ) -> None:
        self.chain = chain
        self.reach, self.seed, self.max_length, self.max_new_tokens = reach, seed, max_length, max_new_tokens
        self._more = dict(context or {})
        self._generations, self._states, self._state_bytes = generations, states, state_bytes
        self._eos, self._padding = tuple(eos), tuple(padding)
        self._ends = RowEnds(frozenset(eos), frozenset(padding) | frozenset(eos))
        self._forbidden = ForbiddenTokens(chain, self._ends, self._more)
        self._known: OrderedDict[int, Generation] = OrderedDict()
        #: The newest call of all, where rows are not mixed.
        self._newest: Call | None = None
        self._lock = ProcessLock()
        #: The rows of an engine that tells prompt lengths.
        self._mixed: Generation | None = None
        self._capacity = max_length or _SMALLEST_HISTORY
        self._grows = max_length is None and "history" in chain.needs
        #: Where rows begin that are not told to begin elsewhere; the same array again is known to be equal.
        self._no_starts = np.zeros(0, dtype=np.int64)

    def __reduce__(self) -> Any:
        """Pickled are the settings: a copy knows no rows, and replays each row of its first call."""
        return self._made_anew, ()

    def __copy__(self) -> RowTracker:
        return self._made_anew()

    def __deepcopy__(self, memo: Any) -> RowTracker:
        return self._made_anew()

    @property
    def _made_anew(self) -> Callable[[], RowTracker]:
        return functools.partial(
            RowTracker,
            self.chain,
            eos=self._eos,
            padding=self._padding,
            reach=self.reach,
            seed=self.seed,
            max_length=self.max_length,
            max_new_tokens=self.max_new_tokens,
            context=self._more,
            generations=self._generations,
            states=self._states,
            state_bytes=self._state_bytes,
        )

    def process(
        self,
        logits: Array,
        ids: Ids,
        starts: NDArray[np.int64] | None = None,
        *,
        prompt_lengths: Sequence[int] | None = None,
        seeds: Sequence[int] | None = None,
        tentative: Callable[[], bool] | None = None,
    ) -> Array:
        """Process the logits of some rows.

        Args:
            logits: ``[rows, vocab]``; not modified.
            ids: ``[rows, width]`` host integers: each row's ids so far, right-aligned.
            starts: ``[rows]``: where each row begins in ``ids``; default: at 0.
            prompt_lengths: how many of each row's ids are its prompt, if the engine tells. Then every row is on its
                own: it may join, leave, be preempted and come back, and gain any number of tokens. A row that continues
                no remembered row is replayed from its ids.
            seeds: with ``prompt_lengths``, one per row, used where a row is begun or replayed; default: by position.
            tentative: called when a row has accepted a token that the chain forbade: whether the engine may have
                written the token without choosing it (a draft to be verified, a beam of probability zero). Rows that
                moved or went back are reason enough; else it is an error.

        Returns:
            ``[rows, vocab]`` processed logits. A row with a forbidden token comes out all -inf.

        Raises:
            IllegalToken: a row accepted a token that the chain forbids; tells the row's text so far.
            NoLegalToken: the chain had left a row no token at all.
        """
        with self._lock:
            if starts is None:
                if len(self._no_starts) != len(ids):
                    self._no_starts = np.zeros(len(ids), dtype=np.int64)
                starts = self._no_starts
            newest = self._newest if prompt_lengths is None else None
            if newest is not None:
                out = self._one_token_more(newest, logits, ids, starts, tentative)
                if out is not None:
                    return out
            if ids.ndim != 2 or ids.shape[0] != logits.shape[0]:
                raise InvalidContext(
                    f"The engine passed ids of shape {list(ids.shape)} with logits of shape {list(logits.shape)}; ids "
                    f"are [rows, width], one row per row of logits."
                )
            if self._grows and ids.shape[1] - int(starts.min(initial=0)) > self._capacity:
                self._grow(ids.shape[1])
            if prompt_lengths is not None:
                return self._process_separately(logits, ids, starts, prompt_lengths, seeds, tentative)
            return self._process_together(logits, ids, starts, tentative)

    def text_ends(self, ids: Ids, starts: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Per row whether its last token ends its text; the rows of this call are not remembered.

        Args:
            ids: ``[rows, width]`` host integers: rows of the newest call, in any order and number, each with one token
                more.
            starts: ``[rows]``: where each row begins in ``ids``; default: at 0.

        Returns:
            ``[rows]``. False for a row of another origin, for a row that had ended before, for a row that ends with
            end-of-sequence, and for a row whose last token the chain forbids.
        """
        with self._lock:
            found = np.zeros(len(ids), dtype=np.bool_)
            newest = self._newest
            if newest is None or newest.state is None:
                return found
            asked = CallSnapshot(ids, np.zeros(len(ids), dtype=np.int64) if starts is None else starts)
            parents = [newest.asked.find(asked.row(row)[:-1], row, 0) for row in range(len(ids))]
            tokens = ids[:, -1].tolist()
            rows = [
                row
                for row, parent in enumerate(parents)
                if parent is not None and tokens[row] not in self._ends.padding
                if not newest.ended[parent] and not newest.dead[parent]
            ]
            base = newest.generation.base
            while rows:
                state = row_state.take(newest.state, np.asarray([parents[row] for row in rows], dtype=np.int32))
                try:
                    ends = self.chain.text_ends(state, base.accept([[tokens[row]] for row in rows]))
                except IllegalToken as error:
                    forbidden = {rows[at] for at in error.rows}
                    rows = [row for row in rows if row not in forbidden]
                    continue
                for row, end in zip(rows, ends or (), strict=ends is not None):
                    found[row] = end.finished
                break
            return found

    def forget(self) -> None:
        """Drop everything that is remembered: the next call begins a new generation."""
        with self._lock:
            self._known.clear()
            self._mixed = self._newest = None

    # -- one call ------------------------------------------------------------------------------------

    def _one_token_more(
        self,
        before: Call,
        logits: Array,
        ids: Ids,
        starts: NDArray[np.int64],
        tentative: Callable[[], bool] | None,
    ) -> Array | None:
        """The usual step of plain decoding: each row stays in its place and gains a token, and no new token is special.

        The result equals the result of the search for rows and :meth:`_continue`; None if the step is of another kind.
        """
        known, state = before.asked, before.state
        if state is None or not before.plain or not known.gained_one(ids, starts):
            return None
        found = self._feed_one(before.generation.base, state, ids[:, -1:], logits)
        if found is None:
            return None
        out, new, context = found
        call = before.one_token_more(CallSnapshot(ids, starts, known), new, before.origin)
        out = self._with_an_end(out, logits, call, state, context, tentative)
        self._newest = call
        before.generation.remember(call, self._states, self._state_bytes)
        return out

    def _feed_one(
        self, base: Context, state: ChainState, tokens: Ids, logits: Array
    ) -> tuple[Array, ChainState, Context] | None:
        """Feed the chain one token per row, ``[rows, 1]``; None if one is special or may be forbidden."""
        listed = tokens.ravel().tolist()
        if self._forbidden.seen_in_logits(base) or not self._ends.padding.isdisjoint(listed):
            return None
        if min(listed) < 0 or max(listed) >= base.vocab_size:
            return None  # told of by the context
        native = base.backend.asarray(tokens, "int32")
        context = base.with_fields(tokens=native)
        try:
            out, new = self.chain.process(logits, state, context)
        except IllegalToken:
            return None  # looked into row by row
        return out, new, context

    def _process_together(
        self, logits: Array, ids: Ids, starts: NDArray[np.int64], tentative: Callable[[], bool] | None
    ) -> Array:
        match = match_together(reversed(self._known.values()), ids, starts, self.reach)
        if match is None:
            return self._begin(logits, ids, starts, tentative)
        newest = match.calls[0]
        generation = newest.generation
        asked = match.asked if match.asked is not None else CallSnapshot(ids, starts, newest.asked)
        if match.grown is not generation.calls[-1]:
            generation.note_moves(match, asked)
            generation.thin_out(match, asked)
        return self._continue(match, asked, logits, tentative)

    def _process_separately(
        self,
        logits: Array,
        ids: Ids,
        starts: NDArray[np.int64],
        prompt_lengths: Sequence[int],
        seeds: Sequence[int] | None,
        tentative: Callable[[], bool] | None,
    ) -> Array:
        if self._mixed is None:
            self._mixed = Generation(None, Context.start(logits, **self._fields()))
        generation = self._mixed
        newest = generation.calls[-1] if generation.calls else None
        if newest is not None and newest.asked.grew_into(ids, starts) and newest.began_with(prompt_lengths):
            match, asked = CallMatch.in_place(newest), CallSnapshot(ids, starts, newest.asked)
        else:
            asked = CallSnapshot(ids, starts, spare=generation.take_spare())

            def begun(new: list[int]) -> Call:
                return self._begun(generation, asked, new, prompt_lengths, seeds)

            match = match_separately(generation, asked, prompt_lengths, begun)
            generation.thin_out(match, asked)
        return self._continue(match, asked, logits, tentative)

    def _begin(self, logits: Array, ids: Ids, starts: NDArray[np.int64], tentative: Callable[[], bool] | None) -> Array:
        rows = len(ids)
        asked = CallSnapshot(ids, starts)
        prompts = [tuple(asked.row(i).tolist()) for i in range(rows)]
        base = self.chain.with_resources(Context.start(logits, **self._fields()))
        seeds = base.with_fields(seed=self.seed).row_seeds().tolist()
        generation = Generation([RowOrigin(*each) for each in zip(prompts, seeds, strict=True)], base)
        context = started(base, generation.origins)
        before = self.chain.init_state(context)
        out, state = self.chain.process(logits, before, context)
        no = np.zeros(rows, dtype=np.bool_)
        call = Call(generation, asked, state, generation.origins, asked.lengths.copy(), no, no.copy())
        out = self._with_an_end(out, logits, call, before, context, tentative)
        return self._remember(call, out)

    def _step_plainly(
        self, match: CallMatch, asked: CallSnapshot, logits: Array, tentative: Callable[[], bool] | None
    ) -> Array | None:
        """The usual step of plain decoding and beams: one token more in every row, and no new token is special.

        The result equals that of the rest of :meth:`_continue`; None if the step is of another kind.
        """
        before, in_place = match.calls[0], match.grown is not None
        if len(match.calls) > 1 or before.state is None or not before.plain:
            return None
        if in_place:
            one_more = asked.width > before.asked.width
        else:
            one_more = bool((asked.lengths == before.asked.lengths[match.rows] + 1).all())
        if not one_more:
            return None
        old = before.state if in_place else row_state.take(before.state, match.rows.astype(np.int32))
        found = self._feed_one(before.generation.base, old, asked.ids[:, -1:], logits)
        if found is None:
            return None
        out, state, context = found
        call = before.one_token_more(asked, state, match.origins())
        out = self._with_an_end(out, logits, call, old, context, tentative)
        return self._remember(call, out)

    def _continue(
        self, match: CallMatch, asked: CallSnapshot, logits: Array, tentative: Callable[[], bool] | None
    ) -> Array:
        """Feed the chain what is new in each row of a call, and remember the call."""
        out = self._step_plainly(match, asked, logits, tentative)
        if out is not None:
            return out
        call, state = Call.continuing(match, asked), self._state_of(match)
        generation, base = call.generation, call.generation.base
        tokens = self._ends.new_tokens(call.asked, call.fed, call.ended, call.dead)

        def tolerated() -> bool:
            return generation.moved or (tentative is not None and tentative())

        if self._forbidden.seen_in_logits(base):
            self._forbidden.reject_unlikely(match, call, tokens, tolerated, state)
        while True:
            context = base.accept(tokens) if any(tokens) else base
            try:
                out, call.state = self.chain.process(logits, state, context)
                break
            except IllegalToken as error:
                self._forbidden.reject_fed(error, call, tokens, tolerated, state)
        out = self._with_an_end(out, logits, call, state, context, tentative)
        for row, taken in enumerate(tokens):
            if taken:
                call.fed[row] += len(taken)
        return self._remember(call, out)

    def _with_an_end(
        self,
        out: Array,
        logits: Array,
        call: Call,
        before: ChainState,
        context: Context,
        tentative: Callable[[], bool] | None,
    ) -> Array:
        """Allow the end in rows that a ``stop`` ended and other processors left without a token: an engine would take
        any token.

        Raises:
            NoLegalToken: processors contradict each other, or what the engine itself forbids, and left a row no token;
                unless the row has ended, or the engine drops such rows by itself.
        """
        if not self._forbidden.guarded:
            return out
        closed = context.backend.to_numpy(context.backend.xp.max(out, axis=-1)) == NEG_INF
        rows = np.flatnonzero(closed & ~call.ended & ~call.dead).tolist()
        if not rows:
            return out
        stopped = self.chain.text_ends(before, context)
        ending = np.zeros(out.shape, dtype=np.bool_)
        for row in rows:
            if stopped is not None and stopped[row].finished and self._ends.eos:
                ending[row, min(self._ends.eos)] = True
            elif not (call.generation.moved or (tentative is not None and tentative())):
                taken = call.asked.row(row)
                written = taken[len(call.origin[row].prompt) :].tolist()
                raise no_legal_token(
                    self.chain, before, context, row,
                    name=f"row {row}", position=len(taken), tokens=written, given=logits,
                )  # fmt: skip
        return context.backend.masked_fill(out, context.backend.asarray(ending), 0.0)

    def _remember(self, call: Call, out: Array) -> Array:
        generation = call.generation
        if not call.plain and call.dead.any():
            backend = generation.base.backend
            out = backend.masked_fill(out, backend.asarray(call.dead[:, None]), NEG_INF)
        generation.remember(call, self._states, self._state_bytes)
        generation.returned = out if self._forbidden.seen_in_logits(generation.base) else None
        if generation is not self._mixed:
            self._newest = call
            self._known[id(generation)] = generation
            self._known.move_to_end(id(generation))
        if len(self._known) > _WITH_LOGITS:
            for other in list(self._known.values())[:-_WITH_LOGITS]:
                other.returned = None
        while len(self._known) > self._generations:
            self._known.popitem(last=False)
        return out

    def _fields(self) -> dict[str, Any]:
        needs_history = "history" in self.chain.needs
        longest = self._capacity if needs_history else self.max_length
        return {"max_length": longest, "max_new_tokens": self.max_new_tokens, **self._more}

    # -- states --------------------------------------------------------------------------------------

    def _state_of(self, match: CallMatch) -> ChainState:
        states = [call.state if call.state is not None else self._replay(call) for call in match.calls]
        for call, state in zip(match.calls, states, strict=True):
            if call.state is None:
                call.state = state
                call.generation.hold(call, self._states, self._state_bytes)
        if match.grown is not None:
            return states[0]
        joined: ChainState = row_state.take(row_state.concat(states), match.positions().astype(np.int32))
        return joined

    def _replay(self, call: Call) -> ChainState:
        """The state of a call's rows again, from their ids."""
        accepted = [
            call.asked.row(i)[len(origin.prompt) : fed].tolist()
            for i, (origin, fed) in enumerate(zip(call.origin, call.fed.tolist(), strict=True))
        ]
        return self.chain.replay(accepted, started(call.generation.base, call.origin))

    def _begun(
        self,
        generation: Generation,
        asked: CallSnapshot,
        new: list[int],
        prompt_lengths: Sequence[int],
        seeds: Sequence[int] | None,
    ) -> Call:
        """A call of some rows of ``asked`` that nothing is known of, replayed up to their newest token."""
        if seeds is None:
            every = generation.base.with_fields(seed=self.seed, batch=len(asked.starts))
            seeds = every.row_seeds().tolist()
        rows = [asked.row(position) for position in new]
        lengths = [int(prompt_lengths[position]) for position in new]
        origins = [
            RowOrigin(tuple(row[:n].tolist()), int(seeds[position]))
            for position, row, n in zip(new, rows, lengths, strict=True)
        ]
        accepted = [row[n:].tolist() for row, n in zip(rows, lengths, strict=True)]
        no = np.zeros(len(new), dtype=np.bool_)
        ended = no.copy()
        for i, taken in enumerate(accepted):
            kept = self._ends.before_end(taken) if taken and taken[-1] in self._ends.padding else None
            if kept is not None:
                accepted[i], ended[i] = kept, True
        fed = np.asarray([n + len(taken) for n, taken in zip(lengths, accepted, strict=True)], dtype=np.int64)
        state = self.chain.replay(accepted, started(generation.base, origins))
        return Call(generation, asked, state, origins, fed, ended, no)

    def _grow(self, width: int) -> None:
        """Make room for longer histories: states of the old width are replayed when they are needed."""
        while self._capacity < width:
            self._capacity *= 2
        for generation in (*self._known.values(), *((self._mixed,) if self._mixed is not None else ())):
            generation.base = generation.base.with_fields(max_length=self._capacity)
            generation.drop_states()
