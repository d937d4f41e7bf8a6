"""Drafting with a model: the rounds that all generators with a model of their own share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Context, option
from logitloom.arrays import rng
from logitloom.context import padded
from logitloom.errors import OptionTypeError
from logitloom.generation import Cache, Configured, DraftRequest, Drafts, ModelAdapter, Policy, Schedule, carry, draw
from logitloom.rows.tree import Rows

__all__ = ["DraftOptions", "Followed", "ModelDrafts", "ModelState", "forward_shared"]

#: The random stream of drafted tokens, apart from the streams that accept or replace them.
DRAFT_STREAM = 0xD12AF7


class Followed(NamedTuple):
    """How far a drafting model followed one row: lengths, never copies of ids.

    Attributes:
        seen: how many of the row's tokens the model's cache stands for.
        base: the number of the drafting model's own ids in its cache for these tokens, before the draft.
        confidences: the probability of each token of the draft that is being verified.
    """

    seen: int = 0
    base: int = 0
    confidences: tuple[float, ...] = ()


class ModelState(NamedTuple):
    """State of a generator that drafts with a model.

    Attributes:
        cache: the drafting model's.
        followed: per row a :class:`Followed`.
        policies: per row a :class:`Policy`.
    """

    cache: Cache
    followed: Rows
    policies: Rows


@dataclass(frozen=True)
class DraftOptions(Configured):
    """Options of every generator that drafts with a model."""

    num_tokens: int = option(20, help="Most tokens of the first drafts.", ge=1, unit="tokens")
    schedule: Schedule = option("constant", help="How the number of drafted tokens adapts to how many are accepted.")
    confidence_threshold: float = option(
        0.4, help="A draft ends with the first token whose probability is below this.", ge=0, le=1
    )
    adapt_threshold: bool = option(False, help="Whether the threshold adapts to which tokens are accepted.")
    #: The number of draft tokens that the schedule "heuristic" carries from one generation to the next.
    _memory: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if hasattr(self, "model") and not callable(getattr(self.model, "forward", None)):
            raise OptionTypeError(
                f"Option 'model' of a candidate generator must be a model adapter, with a method 'forward', but is "
                f"{self.model!r:.100}."
            )

    @property
    def next_num_tokens(self) -> int:
        """How many tokens the next generation drafts first: with the schedule ``heuristic``, where the last ended."""
        return self._memory[0] if self._memory else self.num_tokens

    def start_policies(self, rows: int) -> Rows:
        """The policies of a new generation."""
        return Rows([Policy(self.next_num_tokens, self.confidence_threshold)] * rows)

    def verified(self, policies: Rows, drafts: Sequence[tuple[float, ...]], accepted: Sequence[int]) -> Rows:
        """The policies after a verdict."""
        after = Rows(
            policy.verified(self.schedule, confidences, count, adapt=self.adapt_threshold)
            for policy, confidences, count in zip(policies, drafts, accepted, strict=True)
        )
        if self.schedule == "heuristic" and after:
            self._memory[:] = [max(1, round(sum(policy.num_tokens for policy in after) / len(after)))]
        return after


@dataclass(frozen=True)
class ModelDrafts(DraftOptions):
    """Base of generators whose model's logits can be laid out over the target's vocabulary.

    The model runs on any backend and device: ids are host integers, and its logits are moved to the target's. Drafts
    go through the target's own processors (guidance excepted), on copies of their states, so a draft obeys the
    constraints and penalties that it will be judged by.
    """

    # -- what differs between generators ----------------------------------------------------------------

    def drafter(self, context: Context) -> ModelAdapter:
        """The drafting model: the option ``model``."""
        del context
        model: ModelAdapter = self.__dict__["model"]
        return model

    def unseen(self, sequence: Sequence[int], seen: int, context: Context) -> list[int]:
        """The drafting model's ids for ``sequence[seen:]``."""
        del context
        return list(sequence[seen:])

    def own_id(self, token: int, context: Context) -> int:
        """The drafting model's id of a token it drafted."""
        del context
        return token

    def laid_out(self, logits: Array, context: Context) -> Array:
        """The drafting model's logits over the target's vocabulary, on the target's backend."""
        return carry(logits, context.backend)

    # -- the generator -----------------------------------------------------------------------------------

    def init_state(self, context: Context) -> ModelState:
        """An empty cache."""
        cache = self.drafter(context).empty_cache(context.batch)
        return ModelState(cache, Rows([Followed()] * context.batch), self.start_policies(context.batch))

    def propose(self, state: ModelState, request: DraftRequest) -> tuple[Drafts, ModelState]:
        """Draft with the model, token by token, until a row's limit, its end, or a token below the threshold."""
        context, backend = request.context, request.context.backend
        model, rows = self.drafter(context), len(request.sequences)
        held = state.cache.lengths
        fresh, limits = self._fed(state, request, model.max_length)
        seen = [
            len(sequence) if new else followed.seen
            for sequence, new, followed in zip(request.sequences, fresh, state.followed, strict=True)
        ]
        base = [int(n) + len(new) for n, new in zip(held, fresh, strict=True)]
        lengths = np.asarray([len(sequence) for sequence in request.sequences], dtype=np.int32)

        chain_state = request.unguided.state_of(request.chain_state)
        context = context.with_fields(donate_state=False)
        cache, feed = state.cache, fresh
        tokens: list[list[int]] = [[] for _ in range(rows)]
        confidences: list[list[float]] = [[] for _ in range(rows)]
        probs: list[Array] = []
        going = [i for i in range(rows) if limits[i] > 0]
        while going:
            raw, cache = forward_shared(model, feed, cache)
            logits = self.laid_out(raw, context)
            if len(request.unguided):
                logits, chain_state = request.unguided.process(logits, chain_state, context)
            p = backend.softmax(logits)
            if request.sampling:
                positions = backend.asarray(lengths + np.int32(len(probs)))
                chosen = draw(backend, p, rng.uniform(backend.xp, request.seeds, positions, DRAFT_STREAM))
                probs.append(p)
            else:
                chosen = backend.xp.argmax(p, axis=-1)
            sure = backend.to_numpy(backend.gather(p, chosen[:, None])[:, 0]).tolist()
            picked = backend.to_numpy(chosen).tolist()
            # A draft may end after a token because of that token, never before it: leaving out some of the drawn
            # tokens would change the distribution that sampling gives.
            going = [i for i in going if sure[i] > 0]
            for i in going:
                tokens[i].append(picked[i])
                confidences[i].append(sure[i])
            going = [
                i
                for i in going
                if len(tokens[i]) < limits[i]
                and picked[i] not in request.eos
                and sure[i] >= state.policies[i].threshold
            ]
            goes = set(going)
            feed = [[self.own_id(picked[i], context)] if i in goes else [] for i in range(rows)]
            context = context.accept([[picked[i]] if i in goes else [] for i in range(rows)])
        followed = Rows(Followed(*each) for each in zip(seen, base, map(tuple, confidences), strict=True))
        return Drafts(tokens, probs if request.sampling else None), ModelState(cache, followed, state.policies)

    def _fed(self, state: ModelState, request: DraftRequest, capacity: int) -> tuple[list[list[int]], list[int]]:
        """Per row the tokens that the model has not read yet, and the most tokens to draft; none and 0 for no draft.

        Args:
            state: as in :meth:`propose`.
            request: as in :meth:`propose`.
            capacity: most tokens of a sequence of the model.
        """
        fresh: list[list[int]] = []
        limits: list[int] = []
        each = zip(request.sequences, request.limits, state.followed, state.policies, state.cache.lengths, strict=True)
        for sequence, limit, followed, policy, held in each:
            new = self.unseen(sequence, followed.seen, request.context) if limit > 0 else []
            # The last token of a draft is never fed.
            most = min(limit, policy.num_tokens, capacity - int(held) - len(new) + 1)
            # What the drafting model cannot read (a lone special token) gives it nothing to continue from.
            drafts = most > 0 and bool(new)
            fresh.append(new if drafts else [])
            limits.append(most if drafts else 0)
        return fresh, limits

    def update(self, state: ModelState, accepted: Sequence[int]) -> ModelState:
        """Remove the rejected tokens from the cache, and update the policies."""
        held = state.cache.lengths
        kept = np.asarray(
            [min(f.base + n, int(h)) for f, n, h in zip(state.followed, accepted, held, strict=True)], dtype=np.int32
        )
        followed = Rows(Followed(f.seen + int(n) - f.base, int(n)) for f, n in zip(state.followed, kept, strict=True))
        policies = self.verified(state.policies, [f.confidences for f in state.followed], accepted)
        cache = state.cache.crop(kept) if (kept < held).any() else state.cache
        return ModelState(cache, followed, policies)


def forward_shared(model: ModelAdapter, feed: Sequence[Sequence[int]], cache: Cache) -> tuple[Array, Cache]:
    """One pass over new tokens; with an empty cache, equal rows (the samples of one prompt) are computed once."""
    if not cache.lengths.any():
        rows = [tuple(row) for row in feed]
        unique = list(dict.fromkeys(rows))
        if len(unique) < len(rows):
            index_of = {row: i for i, row in enumerate(unique)}
            index: NDArray[np.int32] = np.asarray([index_of[row] for row in rows], dtype=np.int32)
            logits, cache = model.forward(padded(unique), model.empty_cache(len(unique)))
            return model.backend.take_rows(logits, index), cache.take_rows(index)
    return model.forward(padded(feed), cache)
