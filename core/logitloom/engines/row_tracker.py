"""Row tracking: from the token ids that an engine shows, recover which earlier row each row continues.

Engines reorder rows, duplicate them (beams), drop and add them, preempt and re-prefill them, and ask again about
shorter rows (speculative decoding), and tell nobody. A row's ids are its only identity. The tracker remembers the rows
of earlier calls with the chain's state after them. For each row of a call it finds the longest remembered row that it
continues, compares every id, takes that row's state, and feeds the chain the tokens that are new. A row whose state was
dropped meanwhile is replayed from its ids, with the same result.

What a step costs: a few dictionary look-ups and Python operations per row, whatever its length; and one comparison of
the ids with the remembered ones at the speed of memory (8 bytes per token, so a row of 4,096 tokens is 32 KB, less
than its logits). Rows that moved are copied once, at the same rate. Reading the ids is inherent: an engine hands over
a new array at every step, and a bare hash of it proves nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import state as row_state
from logitloom.automata.constraint import AutomatonProcessor
from logitloom.automata.dfa import DEAD
from logitloom.backend import NEG_INF, Array
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.engines.asked_rows import AskedRows, Ids
from logitloom.errors import IllegalToken, InvalidContext, NoLegalToken

__all__ = ["RowTracker", "right_aligned"]

_SMALLEST_HISTORY: Final = 256
#: Calls of a generation that are remembered, with or without their states.
_MOST_CALLS: Final = 8192
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


class _Origin(NamedTuple):
    """What a row began with; enough, with its ids, to have its state again."""

    prompt: tuple[int, ...]
    seed: int


class _Generation:
    """Rows that began together, or that an engine mixes: their origins, and what is remembered of them."""

    __slots__ = ("base", "calls", "held", "held_bytes", "moved", "origins", "returned", "row_bytes")

    def __init__(self, origins: list[_Origin], base: Context) -> None:
        #: Those of the first call.
        self.origins = origins
        #: The context of each step, before tokens are accepted.
        self.base = base
        #: Calls that still have their state, and the bytes of those states; bytes of all remembered ids.
        self.held: deque[_Call] = deque()
        self.held_bytes = 0
        self.row_bytes = 0
        #: The logits returned for the newest call, which tell whether a next token was forbidden.
        self.returned: Array | None = None
        #: The newest call is the last one.
        self.calls: list[_Call] = []
        #: Whether rows have changed places, or gone back: beam search and speculation do, plain decoding does not.
        self.moved = False


class _Call:
    """One call of the engine: its rows, and the chain's state after them (None when it was dropped).

    Attributes:
        origin: per row what it began with.
        fed: per row how many of its ids the state has seen, prompt included.
        ended: rows that ended (end-of-sequence, padding); their state stays that before the end.
        dead: rows that accepted a token which the chain forbade: losing beams, draft tokens about to be rejected.
    """

    __slots__ = ("asked", "dead", "ended", "fed", "fixed", "generation", "nbytes", "origin", "state")

    def __init__(
        self,
        generation: _Generation,
        asked: AskedRows,
        state: ChainState | None,
        origin: list[_Origin],
        fed: NDArray[np.int64],
        ended: NDArray[np.bool_],
        dead: NDArray[np.bool_],
    ) -> None:
        self.generation, self.asked, self.state = generation, asked, state
        self.origin, self.fed, self.ended, self.dead = origin, fed, ended, dead
        #: Bytes of the state, and whether they depend on nothing but the number of rows.
        self.nbytes, self.fixed = 0, False

    def began_with(self, prompt_lengths: Sequence[int]) -> bool:
        """Whether the rows have prompts of these lengths."""
        return [len(origin.prompt) for origin in self.origin] == list(prompt_lengths)


class _Match(NamedTuple):
    """Where the rows of a call come from: row ``rows[i]`` of ``calls[which[i]]``."""

    calls: list[_Call]
    which: NDArray[np.int64]
    rows: NDArray[np.int64]
    #: The one earlier call whose rows are continued place by place, if it is so.
    grown: _Call | None = None

    def gather(self, name: str) -> NDArray[Any]:
        if self.grown is not None:
            column: NDArray[Any] = getattr(self.grown, name)
            return column.copy()
        columns = [getattr(call, name) for call in self.calls]
        return np.asarray([columns[w][r] for w, r in zip(self.which, self.rows, strict=True)])

    def origins(self) -> list[_Origin]:
        if self.grown is not None:
            return self.grown.origin
        return [self.calls[w].origin[r] for w, r in zip(self.which, self.rows, strict=True)]


class RowTracker:
    """A chain for an engine that shows rows as token ids alone.

    Where the engine does not tell how long prompts are, all rows of one call belong to one generation. A call begins
    a new generation if not every row continues a remembered one by at most ``reach`` tokens: then its rows are
    prompts. Where it does tell, rows are independent of each other.

    Args:
        chain: the processors.
        eos: ids that end a row. They are not fed to the chain unless the engine goes on after them.
        padding: ids that stand behind the end of a row.
        reach: most tokens a row may gain between two calls.
        seed: row ``i`` of a generation gets a seed derived from it and ``i``.
        max_length: most tokens of a row, prompt included; default: grows as needed (for chains that keep history).
        context: further fields of the chain's context (``vocabulary``, ``model``, ``compiled``).
        generations: how many generations are remembered at a time.
        states: how many calls of a generation keep their states; others are replayed.
        state_bytes: what those states may take together; the newest is always kept.

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
        context: dict[str, Any] | None = None,
        generations: int = 8,
        states: int = 64,
        state_bytes: int = 64 << 20,
    ) -> None:
        self.chain = chain
        self.eos, self.padding = frozenset(eos), frozenset(padding) | frozenset(eos)
        self.reach, self.seed, self.max_length = reach, seed, max_length
        self._more = dict(context or {})
        self._generations, self._states, self._state_bytes = generations, states, state_bytes
        self._known: OrderedDict[int, _Generation] = OrderedDict()
        self._lock = threading.RLock()
        #: The rows of an engine that tells prompt lengths.
        self._mixed: _Generation | None = None
        self._capacity = max_length or _SMALLEST_HISTORY
        self._grows = max_length is None and "history" in chain.needs
        #: Processors that may leave a row nothing, and, if all of them tell of it by themselves, their places.
        closing = [(i, link.processor) for i, link in enumerate(chain.links) if not link.declared("keeps_last")]
        self._guarded = bool(closing)
        told = all(isinstance(processor, AutomatonProcessor) for _, processor in closing)
        self._automata = closing if told and not self._more.get("compiled") else []
        #: How many rows had to be replayed; for tests and measurements.
        self.replayed = 0

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
                own: it may join, leave, be preempted and come back, and gain any number of tokens. One that continues
                no remembered row is replayed from its ids.
            seeds: with ``prompt_lengths``, one per row, used where a row is begun or replayed; default: by place.
            tentative: asked when a row has accepted a token that the chain forbade: whether the engine may have
                put it there without choosing it (a draft to be verified, a beam of probability zero). Rows that
                moved or went back are reason enough; else it is an error.

        Returns:
            ``[rows, vocab]`` processed logits. A row with a forbidden token comes out all -inf.

        Raises:
            IllegalToken: a row accepted a token that the chain forbids; tells the row's text so far.
            NoLegalToken: the chain had left a row no token at all.
        """
        with self._lock:
            if prompt_lengths is not None:
                return self._process_mixed(logits, ids, starts, prompt_lengths, seeds, tentative)
            return self._process(logits, ids, starts, tentative)

    def forget(self) -> None:
        """Drop everything that is remembered: the next call begins a new generation."""
        with self._lock:
            self._known.clear()
            self._mixed = None

    # -- one call ------------------------------------------------------------------------------------

    def _process(
        self, logits: Array, ids: Ids, starts: NDArray[np.int64] | None, tentative: Callable[[], bool] | None
    ) -> Array:
        self._check(logits, ids)
        starts = np.zeros(len(ids), dtype=np.int64) if starts is None else starts
        if self._grows and ids.shape[1] - int(starts.min(initial=0)) > self._capacity:
            self._grow(ids.shape[1])
        match = self._match(ids, starts)
        if match is None:
            return self._begin(logits, ids, starts)
        generation = match.calls[0].generation
        asked = AskedRows(ids, starts, match.grown.asked if match.grown is not None else None)
        self._note_moves(generation, match, asked)
        fed, ended, dead = match.gather("fed"), match.gather("ended"), match.gather("dead")
        call = _Call(generation, asked, None, match.origins(), fed, ended, dead)
        return self._continue(match, call, self._state_of(match), logits, tentative)

    def _continue(
        self,
        match: _Match,
        call: _Call,
        state: ChainState,
        logits: Array,
        tentative: Callable[[], bool] | None,
    ) -> Array:
        """Feed the chain what is new in each row of a call, and remember the call."""
        generation, fed = call.generation, call.fed
        base = generation.base
        tokens = self._new_tokens(call.asked, fed, call.ended, call.dead)

        def tolerated() -> bool:
            return generation.moved or (tentative is not None and tentative())

        judged = self._judged(base)
        if judged:
            self._judge(match, call, tokens, tolerated, base, state)
        while True:
            context = base.accept(tokens) if any(tokens) else base
            try:
                out, after = self.chain.process(logits, state, context)
                break
            except IllegalToken as error:
                if not tokens[error.row]:
                    raise
                for row in self._lost(error.row, state, context) if not judged else [error.row]:
                    self._reject(call, row, tokens, tolerated, state, error)
        for row, taken in enumerate(tokens):
            if taken:
                fed[row] += len(taken)
        call.state = after
        return self._remember(call, out)

    def _process_mixed(
        self,
        logits: Array,
        ids: Ids,
        starts: NDArray[np.int64] | None,
        prompt_lengths: Sequence[int],
        seeds: Sequence[int] | None,
        tentative: Callable[[], bool] | None,
    ) -> Array:
        self._check(logits, ids)
        starts = np.zeros(len(ids), dtype=np.int64) if starts is None else starts
        if self._grows and ids.shape[1] - int(starts.min(initial=0)) > self._capacity:
            self._grow(ids.shape[1])
        if self._mixed is None:
            self._mixed = _Generation([], Context.start(logits, **self._fields()))
        generation = self._mixed
        newest = generation.calls[-1] if generation.calls else None
        if newest is not None and newest.asked.grew_into(ids, starts) and newest.began_with(prompt_lengths):
            rows = np.arange(len(ids))
            match = _Match([newest], np.zeros_like(rows), rows, newest)
            asked = AskedRows(ids, starts, newest.asked)
            fed, ended, dead = match.gather("fed"), match.gather("ended"), match.gather("dead")
            call = _Call(generation, asked, None, match.origins(), fed, ended, dead)
            return self._continue(match, call, self._state_of(match), logits, tentative)
        asked = AskedRows(ids, starts)
        if seeds is None:
            seeds = generation.base.with_fields(seed=self.seed, batch=len(ids)).row_seeds().tolist()
        fresh = self._fresh(generation, asked, prompt_lengths, seeds)
        match = self._match_mixed(generation, asked, prompt_lengths, fresh)
        fed, ended, dead = match.gather("fed"), match.gather("ended"), match.gather("dead")
        call = _Call(generation, asked, None, match.origins(), fed, ended, dead)
        return self._continue(match, call, self._state_of(match), logits, tentative)

    def _fresh(
        self, generation: _Generation, asked: AskedRows, prompt_lengths: Sequence[int], seeds: Sequence[int]
    ) -> _Call:
        """A call before these rows, in which they were prompts; its state is made when it is needed."""
        lengths = np.asarray(prompt_lengths, dtype=np.int64)
        origins = [
            _Origin(tuple(asked.row(i)[:n].tolist()), int(seed))
            for i, (n, seed) in enumerate(zip(lengths.tolist(), seeds, strict=True))
        ]
        no = np.zeros(len(lengths), dtype=np.bool_)
        return _Call(generation, asked, None, origins, lengths, no, no)

    def _begin(self, logits: Array, ids: Ids, starts: NDArray[np.int64]) -> Array:
        rows = len(ids)
        asked = AskedRows(ids, starts)
        prompts = [tuple(asked.row(i).tolist()) for i in range(rows)]
        base = Context.start(logits, **self._fields())
        seeds = base.with_fields(seed=self.seed).row_seeds().tolist()
        generation = _Generation([_Origin(*each) for each in zip(prompts, seeds, strict=True)], base)
        context = _started(base, generation.origins)
        out, state = self.chain.process(logits, self.chain.init_state(context), context)
        no = np.zeros(rows, dtype=np.bool_)
        self._known[id(generation)] = generation
        call = _Call(generation, asked, state, generation.origins, asked.lengths.copy(), no, no.copy())
        return self._remember(call, out)

    def _check(self, logits: Array, ids: Ids) -> None:
        if ids.ndim != 2 or ids.shape[0] != logits.shape[0]:
            raise InvalidContext(
                f"The engine passed ids of shape {list(ids.shape)} with logits of shape {list(logits.shape)}; ids are "
                f"[rows, width], one row per row of logits."
            )

    def _fields(self) -> dict[str, Any]:
        needs_history = "history" in self.chain.needs
        return {"max_length": self._capacity if needs_history else self.max_length, **self._more}

    def _note_moves(self, generation: _Generation, match: _Match, asked: AskedRows) -> None:
        newest = generation.calls[-1]
        if match.grown is not newest:
            same = len(match.calls) == 1 and match.calls[0] is newest and len(asked.starts) == len(newest.fed)
            generation.moved = generation.moved or not (same and (match.rows == np.arange(len(match.rows))).all())

    def _new_tokens(
        self, asked: AskedRows, fed: NDArray[np.int64], ended: NDArray[np.bool_], dead: NDArray[np.bool_]
    ) -> list[list[int]]:
        """What each row gives the chain; marks rows that ended or go on."""
        new = asked.lengths - fed
        if bool((new == 1).all()):
            tokens = [[token] for token in asked.ids[:, -1].tolist()]
        else:
            ids, width = asked.ids, asked.width
            tokens = [ids[i, width - n :].tolist() if n else [] for i, n in enumerate(new.tolist())]
        if self.padding:
            for row, taken in enumerate(tokens):
                if taken and taken[-1] in self.padding:
                    kept = self._without_end(taken, bool(ended[row]))
                    if kept is not None:
                        tokens[row] = kept
                        ended[row] = True
                        continue
                if taken:
                    ended[row] = False
        if dead.any():
            for row in np.flatnonzero(dead):
                tokens[row] = []
        return tokens

    def _without_end(self, tokens: list[int], ended: bool) -> list[int] | None:
        """The tokens before an end-of-sequence and its padding, if that is how they finish."""
        at = len(tokens)
        while at and tokens[at - 1] in self.padding:
            at -= 1
        if at == 0 and ended:
            return []
        while at < len(tokens) and tokens[at] not in self.eos:
            at += 1
        return tokens[:at] if at < len(tokens) else None

    # -- tokens that the chain forbade -------------------------------------------------------------------

    def _judged(self, context: Context) -> bool:
        """Whether forbidden tokens are looked for in the logits returned before, which are kept for it.

        Automata on the host find them by themselves, as they are fed.
        """
        return self._guarded and not (self._automata and context.backend.on_host)

    def _lost(self, first: int, state: ChainState, context: Context) -> list[int]:
        """All rows whose new tokens an automaton forbids, so that the chain is run once more and not once for each."""
        lost = {first}
        for i, processor in self._automata:
            states = processor.host_states(state.processors[i], _equipped(context, self.chain))
            lost |= {row for row, reached in enumerate(states) if reached == DEAD}
        return sorted(lost)

    def _judge(
        self,
        match: _Match,
        call: _Call,
        tokens: list[list[int]],
        tolerated: Callable[[], bool],
        context: Context,
        state: ChainState,
    ) -> None:
        """Reject rows whose one new token the last call's logits forbade: without running the chain on it."""
        generation = call.generation
        if generation.returned is None or len(match.calls) != 1 or match.calls[0] is not generation.calls[-1]:
            return
        rows = [row for row, taken in enumerate(tokens) if len(taken) == 1]
        if not rows:
            return
        backend, returned = context.backend, generation.returned
        width = returned.shape[1]
        if match.grown is not None:
            asked = np.zeros((returned.shape[0], 1), dtype=np.int64)
            for row in rows:
                asked[row, 0] = min(max(tokens[row][0], 0), width - 1)
            scores = backend.to_numpy(backend.gather(returned, backend.asarray(asked)))[:, 0]
        else:
            # One row of the last call may be continued by several rows, with different tokens.
            flat = [int(match.rows[row]) * width + min(max(tokens[row][0], 0), width - 1) for row in rows]
            found = backend.take_rows(backend.xp.reshape(returned, (-1,)), np.asarray(flat, dtype=np.int64))
            scores = np.zeros(len(tokens), dtype=np.float32)
            scores[rows] = backend.to_numpy(found)
        for row in rows:
            if scores[row] == NEG_INF:
                self._reject(call, row, tokens, tolerated, state, None)

    def _reject(
        self,
        call: _Call,
        row: int,
        tokens: list[list[int]],
        tolerated: Callable[[], bool],
        state: ChainState,
        error: IllegalToken | None,
    ) -> None:
        token = tokens[row][-1]
        if len(tokens[row]) == 1 and token in self.padding and token not in self.eos:
            call.ended[row] = True  # ended by the engine's own criterion, and padded since
        elif tolerated():
            call.dead[row] = True
        else:
            raise self._illegal(call, row, token, state, error)
        tokens[row] = []

    def _illegal(self, call: _Call, row: int, token: int, state: ChainState, error: IllegalToken | None) -> Exception:
        ids = call.asked.row(row)
        vocabulary = self._more.get("vocabulary") or self.chain.vocabulary
        taken = ids[len(call.origin[row].prompt) : len(ids) - 1].tolist()
        so_far = f"Its text so far is {vocabulary.decode(taken)!r}." if vocabulary else f"Its tokens so far: {taken}."
        base, labels = call.generation.base, ", ".join(self.chain.labels)
        blank = base.backend.asarray(np.zeros((1, base.vocab_size), dtype=np.float32))
        label = self.chain.closing_processor(blank, row_state.take(state, [row]), base, 0)
        if label is not None:
            return NoLegalToken(
                f"Processor {label!r} left row {row} without any legal token at position {len(ids) - 1}, and the "
                f"engine went on with token {token}. {so_far} Chain: {labels}. Loosen one of its constraints."
            )
        if error is not None:
            return IllegalToken(f"{error} {so_far}", row)
        shown = f" ({vocabulary.describe(token)})" if vocabulary else ""
        return IllegalToken(
            f"Row {row} accepted token {token}{shown}, which the chain ({labels}) had forbidden. {so_far} Another "
            f"processor or the engine overrode the chain, or left it no legal token.",
            row,
        )

    # -- finding rows --------------------------------------------------------------------------------

    def _match(self, ids: Ids, starts: NDArray[np.int64]) -> _Match | None:
        for generation in reversed(self._known.values()):
            newest = generation.calls[-1]
            if newest.asked.grew_into(ids, starts):
                rows = np.arange(len(ids))
                first = newest is generation.calls[0]
                if first and ids.shape[1] == newest.asked.width:
                    return None  # the same prompts again
                return _Match([newest], np.zeros_like(rows), rows, newest)
        for generation in reversed(self._known.values()):
            found = self._match_rows(generation, ids, starts)
            if found is not None:
                return found
        return None

    def _match_rows(self, generation: _Generation, ids: Ids, starts: NDArray[np.int64]) -> _Match | None:
        calls: list[_Call] = []
        which, rows = [], []
        for place in range(len(ids)):
            row = ids[place, starts[place] :]
            for call in reversed(generation.calls):
                found = call.asked.find(row, place, self.reach)
                if found is not None:
                    break
            else:
                return None
            if not calls or calls[-1] is not call:
                if call in calls:
                    which.append(calls.index(call))
                    rows.append(found)
                    continue
                calls.append(call)
            which.append(calls.index(call))
            rows.append(found)
        origins = generation.origins
        if len(ids) == len(origins) and all(
            call_row == place and ids.shape[1] - starts[place] == len(origins[place].prompt)
            for place, call_row in enumerate(rows)
        ):
            return None  # the same prompts again: a new generation
        return _Match(calls, np.asarray(which), np.asarray(rows))

    def _match_mixed(
        self, generation: _Generation, asked: AskedRows, prompt_lengths: Sequence[int], fresh: _Call
    ) -> _Match:
        calls: list[_Call] = []
        which, rows = [], []
        newest = generation.calls[-1] if generation.calls else None
        for place, prompt_length in enumerate(prompt_lengths):
            row = asked.row(place)
            source, found = fresh, place
            for call in reversed(generation.calls):
                at = call.asked.find(row, place, len(row) - prompt_length)
                if at is not None and len(call.origin[at].prompt) == prompt_length:
                    source, found = call, at
                    break
            if source is not newest and source is not fresh:
                generation.moved = True  # a row that goes back
            if source not in calls:
                calls.append(source)
            which.append(calls.index(source))
            rows.append(found)
        if fresh in calls:
            # Only the rows that nothing is remembered of are begun.
            calls, which, rows = self._narrowed(fresh, calls, which, rows)
        return _Match(calls, np.asarray(which), np.asarray(rows))

    def _narrowed(
        self, fresh: _Call, calls: list[_Call], which: list[int], rows: list[int]
    ) -> tuple[list[_Call], list[int], list[int]]:
        """The match with a state for the rows of ``fresh`` that are in use, replayed up to their newest token."""
        at = calls.index(fresh)
        used = [row for w, row in zip(which, rows, strict=True) if w == at]
        asked, origins = fresh.asked, [fresh.origin[row] for row in used]
        context = _started(fresh.generation.base, origins)
        accepted = [asked.row(row)[len(fresh.origin[row].prompt) :].tolist() for row in used]
        ended = np.zeros(len(used), dtype=np.bool_)
        for i, taken in enumerate(accepted):
            kept = self._without_end(taken, False) if taken and taken[-1] in self.padding else None
            if kept is not None:
                accepted[i], ended[i] = kept, True
        self.replayed += sum(1 for taken in accepted if taken)
        fed = np.asarray([len(o.prompt) + len(t) for o, t in zip(origins, accepted, strict=True)], dtype=np.int64)
        state = self.chain.replay(accepted, context)
        begun = _Call(fresh.generation, asked, state, origins, fed, ended, np.zeros(len(used), dtype=np.bool_))
        place = {row: i for i, row in enumerate(used)}
        rows = [place[row] if w == at else row for w, row in zip(which, rows, strict=True)]
        return [*calls[:at], begun, *calls[at + 1 :]], which, rows

    # -- states --------------------------------------------------------------------------------------

    def _state_of(self, match: _Match) -> ChainState:
        states = [call.state if call.state is not None else self._replay(call) for call in match.calls]
        for call, state in zip(match.calls, states, strict=True):
            if call.state is None:
                call.state = state
                self._hold(call)
        if match.grown is not None:
            return states[0]
        offsets = np.cumsum([0] + [len(call.fed) for call in match.calls])
        index = (offsets[match.which] + match.rows).astype(np.int32)
        joined: ChainState = row_state.take(row_state.concat(states), index)
        return joined

    def _replay(self, call: _Call) -> ChainState:
        """The state of a call's rows again, from their ids."""
        self.replayed += len(call.origin)
        accepted = [
            call.asked.row(i)[len(origin.prompt) : fed].tolist()
            for i, (origin, fed) in enumerate(zip(call.origin, call.fed.tolist(), strict=True))
        ]
        return self.chain.replay(accepted, _started(call.generation.base, call.origin))

    def _grow(self, width: int) -> None:
        """Make room for longer histories: states of the old width are replayed when they are needed."""
        while self._capacity < width:
            self._capacity *= 2
        for generation in (*self._known.values(), *((self._mixed,) if self._mixed is not None else ())):
            generation.base = generation.base.with_fields(max_length=self._capacity)
            for call in generation.held:
                call.state = None
            generation.held.clear()
            generation.held_bytes = 0

    def _remember(self, call: _Call, out: Array) -> Array:
        generation = call.generation
        if call.dead.any():
            backend = generation.base.backend
            out = backend.masked_fill(out, backend.asarray(call.dead[:, None]), NEG_INF)
        if not generation.calls or call.asked.owned_alone:
            generation.row_bytes += call.asked.nbytes
        generation.calls.append(call)
        generation.returned = out if self._judged(generation.base) else None
        if generation is not self._mixed:
            self._known[id(generation)] = generation
            self._known.move_to_end(id(generation))
        for n, other in enumerate(reversed(self._known.values())):
            if n >= _WITH_LOGITS:
                other.returned = None
        while len(self._known) > self._generations:
            self._known.popitem(last=False)
        self._hold(call)
        self._trim_rows(generation)
        return out

    def _hold(self, call: _Call) -> None:
        """Keep the state of a call; drop the oldest ones beyond the bounds, the newest never."""
        generation = call.generation
        newest = generation.held[-1] if generation.held else None
        same = newest is not None and newest.fixed and len(newest.fed) == len(call.fed)
        call.nbytes, call.fixed = (newest.nbytes, True) if same and newest is not None else _nbytes(call.state)
        generation.held.append(call)
        generation.held_bytes += call.nbytes
        while len(generation.held) > 1 and (
            len(generation.held) > self._states or generation.held_bytes > self._state_bytes
        ):
            oldest = generation.held.popleft()
            oldest.state = None
            generation.held_bytes -= oldest.nbytes

    def _trim_rows(self, generation: _Generation) -> None:
        """Forget the older half of the calls when their ids take too much."""
        calls = generation.calls
        if generation.row_bytes <= self._state_bytes and len(calls) <= _MOST_CALLS:
            return
        del calls[: len(calls) // 2]
        blocks = {id(call.asked.ids.base): call.asked.nbytes for call in calls}
        generation.row_bytes = sum(blocks.values())
        while generation.held and generation.held[0] is not calls[0] and generation.held[0] not in calls:
            generation.held_bytes -= generation.held.popleft().nbytes


def _started(base: Context, origins: Sequence[_Origin]) -> Context:
    """The context of a start of rows with these origins."""
    return base.with_fields(
        batch=len(origins),
        prompt=tuple(origin.prompt for origin in origins),
        seed=tuple(origin.seed for origin in origins),
    )


def _equipped(context: Context, chain: Chain) -> Context:
    """The context as the chain hands it to its processors."""
    return context if context.vocabulary is not None else context.with_fields(vocabulary=chain.vocabulary)


def _nbytes(state: Any) -> tuple[int, bool]:
    leaves = [leaf for _, leaf in row_state.leaves(state)]
    fixed = not any(isinstance(leaf, row_state.RowLeaf) for leaf in leaves)
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves), fixed
