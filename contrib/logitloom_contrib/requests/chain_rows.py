"""The requests that share a chain: one state with a row for each request, and one call for the logits of all rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from logitloom import Array, Backend, Chain, ChainState, Context, backend_of
from logitloom.arrays.backend import NEG_INF, BufferPool, TokenIds
from logitloom.errors import NoLegalToken
from logitloom.rows import tree as row_state
from logitloom_contrib.requests.engine_constraints import no_token_left
from logitloom_contrib.requests.request import Request

__all__ = ["ChainRows", "DraftRows", "closed_rows", "force_end"]

#: Ids of bytes and of the commonest words; an open row mostly allows at least one of them.
_BEGINNING: Final = 1024


class DraftRows(NamedTuple):
    """The rows of logits of a step. A request may own several rows: one after its text, and one after each draft token.

    Attributes:
        owner: per row the number of its request among the chain's requests; rows of a request stand together.
        drafted: per row whether the row stands after draft tokens.
        tokens: gives for some rows the tokens since the state was made, as lists or as a native array (-1 = none).
    """

    owner: list[int]
    drafted: list[bool]
    tokens: Callable[[Sequence[int]], Any]


class _MaskCollector:
    """A backend that takes the masks of rows and leaves the logits as they are.

    Args:
        backend: that of the logits, in host memory; not changed.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend: Any = object.__new__(type(backend))  # a copy would be the very backend, which all share
        vars(self.backend).update(vars(backend), apply_token_rows=self._collect)
        self._rows: list[Sequence[TokenIds]] = []

    def _collect(
        self, logits: Array, rows: Sequence[TokenIds], donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        self._rows.append(rows)
        return logits

    def taken(self) -> list[TokenIds] | None:
        """The masks that were applied since the last call, then forgotten; ``None`` unless they were applied by exactly
        one operation.
        """
        rows, self._rows = self._rows, []
        return list(rows[0]) if len(rows) == 1 else None


class ChainRows:
    """Requests that run one chain.

    The engine says which request is in which row of the batch. The rows of the state follow the requests, whatever rows
    the requests take in the batch. So moving a request costs nothing, and removing or adding a request costs one
    :func:`~logitloom.rows.tree.take`.

    Args:
        chain: the chain of all requests.
        capacity: room for the history of each request.
    """

    def __init__(self, chain: Chain, capacity: int) -> None:
        self.chain, self.capacity = chain, capacity
        self.requests: list[Request] = []
        self._state: ChainState | None = None
        #: Rows of requests that are not in the step.
        self._aside: dict[Request, ChainState] = {}
        self._base: Context | None = None
        # A mask alone keeps the tokens forbidden that the engine forbade; any other processor might raise their logits
        # again.
        self.keeps_masked = all(link.effect.keeps_forbidden for link in chain.links)
        # A chain of one constraint raises before it writes anything, so it may write into the engine's own logits.
        self.all_or_nothing = len(chain.links) == 1 and chain.links[0].is_constraint
        # The chain is then a single mask, unless a subclass of ``Chain`` must see the logits before the mask.
        self._one_mask = self.all_or_nothing and type(chain) is Chain
        # A state that was overwritten by a step that failed can be made again.
        self._rebuilds = not chain.sees_every_step
        self._collector: _MaskCollector | None = None

    def settle(self, requests: Sequence[Request], logits: Array, *, absent: Sequence[Request] = ()) -> None:
        """Make the rows the rows of ``requests``, in that order; requests that cannot start fail and get no row.

        Args:
            requests: the chain's requests in this step, in the order of the batch.
            logits: any logits of the engine, for their library, device and width.
            absent: requests that are not in this step and may come back; their rows of the state are kept.
        """
        if self._base is None or self._base.vocab_size != logits.shape[-1]:
            self._base = Context(
                backend=backend_of(logits), batch=0, vocab_size=int(logits.shape[-1]),
                vocabulary=self.chain.vocabulary, max_length=self.capacity,
            )  # fmt: skip
            self._collector = _MaskCollector(self._base.backend) if self._base.backend.on_host else None
            self.requests, self._aside = [], {}
        if self.requests == list(requests) and not self.any_rewound():
            return
        states = {request: (state, 0) for request, state in self._aside.items()}
        if self._state is not None:
            states |= {request: (self._state, row) for row, request in enumerate(self.requests)}
        self._aside = {request: _row(*states[request]) for request in absent if request in states}
        for request in requests:
            if request.rewound:
                states.pop(request, None)
            if request not in states:
                request.restart()
        joining, begun = self._begun([request for request in requests if request not in states])
        parts: list[ChainState] = [] if begun is None else [begun]
        index = {request: row for row, request in enumerate(joining)}
        staying = [request for request in requests if request in states and states[request][0] is self._state]
        if staying:
            parts.append(row_state.take(self._state, [states[request][1] for request in staying]))
            index |= {request: len(joining) + row for row, request in enumerate(staying)}
        for request in requests:
            if request in states and request not in index:
                parts.append(states[request][0])
                index[request] = len(index)
        self.requests = [request for request in requests if request in index]
        if not parts:
            self._state = None
            return
        order = [index[request] for request in self.requests]
        joined = row_state.concat(parts)
        self._state = joined if order == list(range(len(order))) else row_state.take(joined, order)

    def any_rewound(self) -> bool:
        """Whether the engine took back tokens of a request that the chain has seen."""
        return any(request.rewound for request in self.requests)

    def keep(self, live: Collection[Request]) -> bool:
        """Drop rows that were put aside for requests that are gone; whether any request is left."""
        self._aside = {request: state for request, state in self._aside.items() if request in live}
        return bool(self._aside) or any(request in live for request in self.requests)

    def masks(self, logits: Array) -> list[TokenIds] | None:
        """Feed the tokens that are new, and give the mask of each request's row instead of applying it.

        Args:
            logits: any of as many rows; not modified.

        Returns:
            None, and nothing was fed, if the rows have to be processed: on devices, where a chain is no single mask,
            and where a row ends by an error.
        """
        collector = self._collector
        if collector is None or self._state is None or not self._one_mask:
            return None
        assert self._base is not None
        try:
            tokens = self._listed(range(len(self.requests)))
            context = _accepted(self._base, tokens, batch=len(tokens), backend=collector.backend)
            out, after = self.chain.process(logits, self._state, context)
        except Exception:  # the function that processes the rows reports the error
            return None
        finally:
            found = collector.taken()
        if out is not logits or found is None:
            return None
        self._state = after
        for request, taken in zip(self.requests, tokens, strict=True):
            request.advance(taken)
        return found

    def process(
        self, logits: Array, again: Callable[[], Array], donate: bool, drafts: DraftRows | None = None
    ) -> Array:
        """Feed the tokens that are new, and process the rows of logits of each request.

        Args:
            logits: ``[rows, vocab]``, in the order of :attr:`requests`: a row for each request, or as ``drafts`` says.
            again: gives the same logits once more, unchanged.
            donate: whether the logits may be overwritten.
            drafts: the rows and their tokens, if the engine keeps them; default: one row per request, and the new
                tokens of the request's output list.

        Returns:
            ``[rows, vocab]``. Rows of requests that failed allow nothing but their end.
        """
        if drafts is None:
            drafts = DraftRows(list(range(len(self.requests))), [False] * len(self.requests), self._listed)
        rows = list(range(len(drafts.owner)))
        overwrites = self._rebuilds and drafts.tokens == self._listed
        try:
            tokens = drafts.tokens(rows)
            out, after = self._run(logits, tokens, self._expanded(drafts.owner), donate, overwrites)
        except Exception:  # whatever a plug-in raises concerns its own row alone: find out which row
            if overwrites:
                seen = [list(request.output[: request.fed]) for request in self.requests]
                self._state = self._rebuilt(self.requests, seen)
            return self._one_by_one(again(), drafts)
        committed = [row for row in rows if not drafts.drafted[row]]
        self._state = after if len(committed) == len(rows) else row_state.take(after, committed)
        if drafts.tokens == self._listed:
            for request, taken in zip(self.requests, tokens, strict=True):
                request.advance(taken)
        return self._with_ends(out, drafts)

    def _listed(self, rows: Sequence[int]) -> list[list[int]]:
        return [self.requests[row].pending() for row in rows]

    def _expanded(self, owner: list[int]) -> ChainState | None:
        return self._state if owner == list(range(len(self.requests))) else row_state.take(self._state, owner)

    def _run(
        self, logits: Array, tokens: Any, state: ChainState | None, donate: bool, donate_state: bool = False
    ) -> tuple[Array, ChainState]:
        assert self._base is not None
        assert state is not None
        donate = donate and self.keeps_masked
        context = _accepted(self._base, tokens, batch=int(logits.shape[0]), donate=donate, donate_state=donate_state)
        out, after = self.chain.process(logits, state, context)
        if not self.keeps_masked:
            out = context.backend.masked_fill(out, logits == NEG_INF, NEG_INF)
        return out, after

    def _one_by_one(self, logits: Array, drafts: DraftRows) -> Array:
        """Process each row alone, so that an error ends the request of its own row only."""
        assert self._base is not None
        backend = self._base.backend
        rows, committed = [], []
        for row, (owner, drafted) in enumerate(zip(drafts.owner, drafts.drafted, strict=True)):
            request, before = self.requests[owner], row_state.take(self._state, [owner])
            alone = backend.take_rows(logits, np.asarray([row], dtype=np.int32))
            try:
                tokens = drafts.tokens([row])
                out, after = self._run(alone, tokens, before, False)
                if drafts.tokens == self._listed:
                    request.advance(tokens[0])
            except Exception as error:  # this is the row
                out, after = backend.masked_fill(alone, alone == alone, NEG_INF), before
                if not drafted:
                    request.fail(error)
            rows.append(out)
            if not drafted:
                committed.append(after)
        self._state = row_state.concat(committed)
        return self._with_ends(backend.concat_rows(rows), drafts)

    def _with_ends(self, out: Array, drafts: DraftRows) -> Array:
        """The rows, after ending the requests that failed and the requests without a legal token.

        A draft token that the chain forbids leaves no legal token in the rows after it. The engine rejects the draft
        and ignores these rows, but still computes with them, so an end id is allowed in each of these rows as well.
        """
        assert self._base is not None
        backend, xp = self._base.backend, self._base.backend.xp
        if backend.on_host:
            for row in closed_rows(out):
                request = self.requests[drafts.owner[row]]
                if not drafts.drafted[row]:
                    self.close(request)
                out = force_end(out, row, request)
            return out
        # The host waits for nothing: such a row may end, whatever the reason, and the request with it.
        ends = np.asarray([[self.requests[owner].end] for owner in drafts.owner], dtype=np.int32)
        closed = xp.max(out, axis=-1, keepdims=True) == NEG_INF
        token = backend.arange(out.shape[-1])[None, :] == backend.asarray(ends)
        return xp.where(xp.logical_and(closed, token), xp.zeros_like(out[:1, :1]), out)

    def close(self, request: Request) -> None:
        """End a request that has no legal token."""
        if request.failure is None:
            request.fail(NoLegalToken(no_token_left(self.chain, request.engine_constraints)))

    def _begun(self, requests: list[Request]) -> tuple[list[Request], ChainState | None]:
        """A state for requests that join: one row per request, after the tokens that the request's output holds
        already.
        """
        if not requests:
            return [], None
        try:
            state = self._started(requests)
        except Exception as error:  # as in process
            if len(requests) == 1:
                requests[0].fail(error)
                return [], None
            started = [self._begun([request]) for request in requests]
            states = [state for _, state in started if state is not None]
            return [request for alone, _ in started for request in alone], row_state.concat(states) if states else None
        return requests, state

    def _started(self, requests: list[Request]) -> ChainState:
        pending = [request.pending() for request in requests]
        state = self._rebuilt(requests, pending)
        for request, tokens in zip(requests, pending, strict=True):
            request.advance(tokens)
        return state

    def _rebuilt(self, requests: list[Request], tokens: list[list[int]]) -> ChainState:
        """The state of requests after some tokens of each, from their prompts."""
        assert self._base is not None
        prompts: Any = [request.prompt for request in requests]
        context = self._base.with_fields(
            batch=len(requests),
            prompt=None if any(prompt is None for prompt in prompts) else tuple(map(tuple, prompts)),
            seed=tuple(request.seed for request in requests),
            max_new_tokens=tuple(request.most for request in requests),
        ).validated()
        return self.chain.replay(tokens, context)


def _accepted(base: Context, tokens: Any, **changes: Any) -> Context:
    """The context of a step in which the rows accept ``tokens``: lists, possibly all empty, or a native array."""
    if isinstance(tokens, list):
        if not any(tokens):
            return base.with_fields(**changes)
        if min(map(len, tokens)) == max(map(len, tokens)) == 1:  # the usual step
            tokens = base.backend.asarray(np.array(tokens, dtype=np.int32))
    return base.accept(tokens, **changes)


def _row(state: ChainState, row: int) -> ChainState:
    alone: ChainState = row_state.take(state, [row])
    return alone


def closed_rows(logits: Array, masks: Sequence[TokenIds] | None = None) -> list[int]:
    """Rows in host memory that allow no token.

    Few rows are examined as a whole: most open rows allow the first token that their mask lists, or a token near the
    beginning.

    Args:
        logits: ``[rows, vocab]``.
        masks: the mask of each row; default: unknown.
    """
    to_numpy = backend_of(logits).to_numpy
    rows = list(range(len(logits)))
    if masks is not None:
        first = {row: int(ids[0]) for row, (allowed, ids) in enumerate(masks) if allowed and len(ids)}
        values = to_numpy(logits[[*first], [*first.values()]]).tolist()
        opened = {row for row, value in zip(first, values, strict=True) if value != NEG_INF}
        rows = [row for row in rows if row not in opened]
    highest = np.maximum.reduce(to_numpy(logits[rows, :_BEGINNING]), axis=1).tolist()
    shut = [row for row, value in zip(rows, highest, strict=True) if value == NEG_INF]
    return [row for row in shut if to_numpy(logits[row]).max() == NEG_INF]


def force_end(logits: Array, row: int, request: Request) -> Array:
    """The logits, written in place, with only the end id of a failed request allowed in the request's row."""
    logits[row] = NEG_INF
    logits[row, request.end] = 0.0
    return logits
