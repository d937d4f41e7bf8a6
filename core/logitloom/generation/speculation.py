"""Speculative decoding: tokens are drafted cheaply, and the target model verifies several of them in one pass.

The loop is that of :mod:`logitloom.generation.loop`; each step of the loop is a round. In a round the model reads each
row's accepted tokens and its draft together. Then the chain processes the positions of the draft one after the other.
The chain sees a drafted token only after that token was accepted, and the state at the last accepted position becomes
the row's state. So processors need no support for speculation, and the result is that of plain decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import id_lists, shown
from logitloom.arrays.backend import NEG_INF, Array, Backend, backend_of
from logitloom.chain import Chain, ChainState
from logitloom.chain.links import Link
from logitloom.context import Context, padded
from logitloom.errors import GenerationError
from logitloom.generation import loop
from logitloom.generation.acceptance import Verdict, accept_equal, accept_sampled
from logitloom.generation.candidates import CandidateGenerator, ChainPart, DraftRequest, Drafts
from logitloom.generation.loop import DecodingBatch, Emission, Sampler
from logitloom.generation.model import ModelAdapter
from logitloom.generation.multinomial import Multinomial
from logitloom.generation.sampled import sampled
from logitloom.generation.schedules import BackOff
from logitloom.rows import tree as row_state
from logitloom.vocabulary import Vocabulary

__all__ = ["Round", "Statistics", "speculate"]


@dataclass(frozen=True, slots=True)
class Round:
    """The costs and results of one round.

    Attributes:
        rows: number of rows.
        drafted: number of drafted tokens.
        accepted: number of drafted tokens that were accepted.
        tokens: number of new tokens of all rows, forced ones included.
        draft_seconds: time for drafting.
        target_seconds: time in the target model.
        chain_seconds: time for processing, choosing and accepting.
    """

    rows: int
    drafted: int
    accepted: int
    tokens: int
    draft_seconds: float
    target_seconds: float
    chain_seconds: float


@dataclass
class Statistics:
    """Sums over the rounds of one or several generations. Pass :meth:`add` as ``on_round``.

    Example:
        >>> statistics = Statistics()
        >>> statistics.add(Round(1, 4, 3, 4, 0.0, 0.1, 0.0))
        >>> statistics.acceptance_rate, statistics.tokens_per_pass
        (0.75, 4.0)
    """

    rounds: int = 0
    row_rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    chain_seconds: float = 0.0

    def add(self, done: Round) -> None:
        """Add a round to the sums."""
        self.rounds += 1
        self.row_rounds += done.rows
        self.drafted += done.drafted
        self.accepted += done.accepted
        self.tokens += done.tokens
        self.draft_seconds += done.draft_seconds
        self.target_seconds += done.target_seconds
        self.chain_seconds += done.chain_seconds

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens per drafted token."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """New tokens of a row per pass of the target model (the pass over the prompt included)."""
        return self.tokens / self.row_rounds if self.row_rounds else 0.0

    def __str__(self) -> str:
        busy = self.draft_seconds + self.target_seconds + self.chain_seconds
        draft, target, chain = (
            round(100 * part / busy) if busy else 0
            for part in (self.draft_seconds, self.target_seconds, self.chain_seconds)
        )
        return (
            f"{self.accepted} of {self.drafted} drafted tokens accepted ({100 * self.acceptance_rate:.0f} %), "
            f"{self.tokens_per_pass:.2f} tokens per target pass, time: drafts {draft} %, target {target} %, "
            f"chain {chain} %"
        )


def speculate(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    sampler: Sampler,
    candidates: CandidateGenerator,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
    skip_forced: bool = True,
    on_round: Callable[[Round], None] | None = None,
    record: bool = False,
) -> Iterator[Emission]:
    """Decode as :func:`logitloom.generation.decode` does, with drafts.

    Greedy decoding gives the same tokens. Sampling gives the same distribution; if the drafts are deterministic (prompt
    look-up, n-grams, grammars), it gives the same tokens as plain sampling with the same seed. Both hold to the extent
    that the model computes the same logits for one token at a time as for several at once.

    Args:
        model: the target, any model adapter.
        prompts: token ids per prompt, ragged.
        chain: processors, possibly none.
        sampler: chooses tokens. With :class:`Multinomial` random drafts are accepted by exact speculative sampling;
            with every other sampler a drafted token is accepted if it is the sampler's choice.
        candidates: drafts tokens.
        max_tokens: most new tokens per row.
        seed: seed of all random draws.
        eos: ids that end a row; default: the vocabulary's.
        vocabulary: bytes of the tokens; default: the chain's.
        skip_forced: whether forced tokens are accepted without a pass of the model.
        on_round: called with the costs and results of each round.
        record: whether to record the target's distribution of each token (:attr:`Emission.sampled`).

    Yields:
        One :class:`Emission` per row and round, in the order of the rows.

    Raises:
        NoLegalToken: if a row has no legal token; the message names row, step and processor.
        InvalidLogits: if the processed logits of a row have NaN or +inf; the message names row and step.
        GenerationError, NeedsNotMet, ChainIncomplete: before the first step.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return
    context, stop_ids = loop.sampling_start(
        model, prompts, chain, sampler, max_tokens=max_tokens, seed=seed, eos=eos, vocabulary=vocabulary
    )
    # The states of all positions are kept until the last accepted position of each row is known.
    context = context.with_fields(donate_state=False)
    batch = DecodingBatch(model, chain, context, max_tokens, stop_ids, skip_forced, record)
    yield from loop.run(batch, _SpeculativeStep(batch, sampler, candidates, on_round))


def _runs_on_drafts(link: Link) -> bool:
    """Whether a processor can run on drafts: it needs one branch only, and not every step of the target."""
    return link.declared("stage") != "guidance" and not link.sees_every_step


class _SpeculativeStep:
    """A round: drafts of all rows, with the target's logits at the positions of the drafts."""

    def __init__(
        self,
        batch: DecodingBatch,
        sampler: Sampler,
        candidates: CandidateGenerator,
        on_round: Callable[[Round], None] | None,
    ) -> None:
        self.batch, self.sampler = batch, sampler
        context, prompts = batch.context, batch.branches[0]
        self.candidates, self.on_round = candidates, on_round
        self.constraints = ChainPart(batch.chain, lambda link: link.declared("stage") == "constraint")
        # Drafts may have any distribution, so processors that cannot run on drafts are left out.
        self.unguided = ChainPart(batch.chain, _runs_on_drafts)
        self.draft_state = candidates.init_state(context)
        self._check_state("init_state", context.batch)
        #: By row number: the prompt and all accepted tokens.
        self.sequences = [list(prompt) for prompt in prompts]
        self.drafts = Drafts([[] for _ in prompts])
        #: By row number: the limit of the row's drafts.
        self.back_off = [BackOff.on(batch.model.backend)] * len(prompts)
        #: The target's logits at all positions of the drafts, ``[branches * rows * width, vocab]``; None in the first
        #: round, which has only the logits after the prompts.
        self.ahead: Array | None = None
        self.width = 0
        #: Seconds of drafting and of the target model since the last report of a round.
        self.spent = (0.0, 0.0)

    def begin(self) -> Iterator[Emission]:
        """Accept the tokens that are forced from the start, then feed the prompts."""
        started = time.perf_counter()
        yield from self.batch.begin()
        for row in self.batch.rows:
            self.sequences[row.number] += row.pending
        self.drafts = Drafts([[] for _ in self.batch.rows])
        if self.batch.model_rows is not None:
            self._wait(self.batch.model_rows.logits)
        self.spent = (0.0, time.perf_counter() - started)

    def step(self) -> Iterator[Emission]:
        """Verify the drafts, yield the new tokens of each row, then draft again and feed the model."""
        started = time.perf_counter()
        accepted = self._verify()
        finished = self.batch.settle()
        self._roll_back()
        if self.ahead is not None:
            self.draft_state = self.candidates.update(self.draft_state, accepted)
            self._check_state("update", len(accepted))
            for row, draft, count in zip(self.batch.rows, self.drafts.tokens, accepted, strict=True):
                self.back_off[row.number] = self.back_off[row.number].verified(len(draft), count)
        if self.on_round is not None:
            drafted, gained = sum(map(len, self.drafts.tokens)), sum(len(row.pending) for row in self.batch.rows)
            spent = time.perf_counter() - started
            self.on_round(Round(len(self.batch.rows), drafted, sum(accepted), gained, *self.spent, spent))
        if finished and len(finished) < len(self.batch.rows):
            kept = np.asarray([i for i in range(len(self.batch.rows)) if i not in finished], dtype=np.int32)
            self.draft_state = row_state.take(self.draft_state, kept)
        yield from self.batch.emit(finished)
        for row in self.batch.rows:
            self.sequences[row.number] += row.pending
            row.pending, row.logprobs, row.seen = row.pending[row.seen :], row.logprobs[row.seen :], 0
        if self.batch.rows:
            self._draft()

    # -- verification ----------------------------------------------------------------------------------

    def _verify(self) -> list[int]:
        """Run the chain on the positions of the drafts, and accept or replace the drafted tokens.

        Afterwards a row's ``pending`` has its new tokens: the accepted ones, then one token of the target's own choice
        unless an accepted token ended the text. The chain's state has seen all of them but the last.

        Returns:
            Per row, the number of drafted tokens that were accepted.
        """
        backend, rows, draft = self.batch.context.backend, self.batch.rows, self.drafts.tokens
        offsets = [len(row.pending) - 1 for row in rows]
        lengths = np.asarray([row.length for row in rows], dtype=np.int32)
        context, before = self.batch.accepted_context(), self.batch.state
        for row in rows:
            row.logprob, row.forced, row.hold, row.pending, row.logprobs, row.sampled = 0.0, 0, 0, [], [], []
        accepted = [0] * len(rows)
        states: list[ChainState] = []
        going = list(range(len(rows)))
        while going:
            position = len(states)
            for i in going:
                rows[i].seen = position
            logits = self._logits_at(offsets)
            with self.batch.naming_rows():
                processed, state = self.batch.chain.process(logits, before, context)
            states.append(state)
            drafted = [-1] * len(rows)
            for i in going:
                if position < len(draft[i]):
                    drafted[i] = draft[i][position]
            verdict = self._judge(processed, drafted, position, backend.asarray(lengths + np.int32(position)))
            told = self.batch.record
            recorded = sampled(backend, logits, processed, verdict.tokens, verdict.logprobs) if told else None
            for i in going:
                if not verdict.logprobs[i] > NEG_INF:
                    raise self.batch.cannot_go_on(i, processed, before, context)
                rows[i].add([verdict.tokens[i]], verdict.logprobs[i])
                rows[i].logprob += verdict.logprobs[i]
                rows[i].sampled += [] if recorded is None else [recorded[i]]
                accepted[i] += verdict.accepted[i]
            going = self._not_ended([i for i in going if verdict.accepted[i]], verdict, state)
            before, context = state, self._next(going, verdict)
        self.batch.state = row_state.select(states, [row.seen for row in rows])
        for row, count in zip(rows, accepted, strict=True):
            row.drafted = count
        return accepted

    def _next(self, going: Sequence[int], verdict: Verdict) -> Context:
        """The context in which each of the rows ``going`` has accepted one more token."""
        goes = set(going)

        def of_those(values: Sequence[float]) -> list[list[float]]:
            return [[values[i]] if i in goes else [] for i in range(len(self.batch.rows))]

        chosen = of_those(verdict.logprobs) if self.batch.tells_chosen else None
        return self.batch.context.accept(of_those(verdict.tokens), chosen_logprob=chosen)

    def _not_ended(self, going: list[int], verdict: Verdict, state: ChainState) -> list[int]:
        """The rows of ``going`` whose text does not end with their last accepted token."""
        going = [i for i in going if verdict.tokens[i] not in self.batch.eos]
        if not going:
            return []
        ends = self.batch.chain.text_ends(state, self._next(going, verdict))
        return going if ends is None else [i for i in going if not ends[i].finished]

    def _logits_at(self, offsets: Sequence[int]) -> Array:
        """The target's logits behind the tokens of each row that the chain's state has seen."""
        assert self.batch.model_rows is not None
        logits = self.batch.model_rows.logits
        if self.ahead is not None:
            positions = [offset + row.seen for offset, row in zip(offsets, self.batch.rows, strict=True)]
            rows = np.arange(self.batch.model_rows.branches * len(self.batch.rows)) * self.width
            index = rows + np.asarray(positions * self.batch.model_rows.branches)
            logits = self.batch.context.backend.take_rows(self.ahead, index.astype(np.int32))
        return self.batch.context.backend.at_least_float32(logits) if self.batch.chain.guided else logits

    def _judge(self, logits: Array, drafted: list[int], position: int, lengths: Array) -> Verdict:
        backend, probs = self.batch.context.backend, self.drafts.probs
        if probs is not None and isinstance(self.sampler, Multinomial) and any(token >= 0 for token in drafted):
            verdict = accept_sampled(backend, logits, probs[position], self.batch.seeds, lengths, drafted)
            if verdict.undrawn:
                row = verdict.undrawn[0]
                raise self._undrawn(backend.to_numpy(probs[position])[row], drafted[row], row, position)
            return verdict
        return accept_equal(backend, self.sampler, logits, self.batch.seeds, lengths, drafted)

    def _undrawn(self, probs: NDArray[Any], token: int, row: int, position: int) -> GenerationError:
        """The error for a drafted token that cannot have been drawn from the probabilities of its draft."""
        return GenerationError(
            f"{type(self.candidates).__name__} drafted the token {token} for row {self.batch.rows[row].number}, but "
            f"probs[{position}][{row}] of its Drafts is no distribution from which {token} can be drawn: its numbers "
            f"are {probs.min():.3g} to {probs.max():.3g}, their sum is {probs.sum():.3g}, and that of {token} is "
            f"{probs[token]:.3g}. Give the probabilities from which the token was drawn, which are not negative and "
            f"have the sum 1, or leave probs out."
        )

    # -- between rounds ---------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Remove rejected tokens from the model's cache."""
        if self.batch.model_rows is None or self.ahead is None:
            return
        rejected = [len(draft) - row.seen for draft, row in zip(self.drafts.tokens, self.batch.rows, strict=True)]
        if any(rejected):
            cache = self.batch.model_rows.cache
            self.batch.model_rows.cache = cache.crop(
                cache.lengths - np.asarray(rejected * self.batch.model_rows.branches)
            )

    def _draft(self) -> None:
        """Draft for each row, and feed the accepted and the drafted tokens to the model."""
        assert self.batch.model_rows is not None
        started = time.perf_counter()
        request = DraftRequest(
            context=self.batch.accepted_context(),
            chain=self.batch.chain,
            chain_state=self.batch.state,
            constraints=self.constraints,
            unguided=self.unguided,
            sequences=[self.sequences[row.number] for row in self.batch.rows],
            pending=[row.pending for row in self.batch.rows],
            # A round adds the accepted drafted tokens and one more token.
            limits=[self.back_off[row.number].limit(row.room - 1) for row in self.batch.rows],
            sampling=isinstance(self.sampler, Multinomial),
            seeds=self.batch.seeds,
            eos=self.batch.eos,
        )
        proposed = self.candidates.propose(self.draft_state, request)
        if not isinstance(proposed, tuple) or len(proposed) != 2 or not isinstance(proposed[0], Drafts):
            raise GenerationError(
                f"{type(self.candidates).__name__}.propose must return Drafts and a state, but returned "
                f"{shown(proposed)}. Write: return Drafts(tokens), state."
            )
        drafts, self.draft_state = proposed
        self._check_state("propose", len(self.batch.rows))
        tokens = self._checked(drafts.tokens, request.limits)
        self._check_probs(drafts.probs, max(map(len, tokens)))
        self.drafts = drafts._replace(tokens=tokens)
        drafted = time.perf_counter()
        fed = padded([row.pending + draft for row, draft in zip(self.batch.rows, self.drafts.tokens, strict=True)])
        ahead, self.batch.model_rows.cache = self.batch.model.forward(
            np.tile(fed, (self.batch.model_rows.branches, 1)), self.batch.model_rows.cache, all_positions=True
        )
        self.width = fed.shape[1]
        self.ahead = self.batch.context.backend.xp.reshape(ahead, (-1, ahead.shape[-1]))
        self._wait(self.ahead)
        self.spent = (drafted - started, time.perf_counter() - drafted)

    def _checked(self, drafts: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """The drafts, cut to their limits.

        Raises:
            GenerationError: if the number of drafts is not the number of rows, or a token is not an id of the target.
        """
        rows = self.batch.rows
        drafts = id_lists(drafts, f"{type(self.candidates).__name__}.propose()[0].tokens", GenerationError)
        if len(drafts) != len(rows):
            raise GenerationError(
                f"{type(self.candidates).__name__} drafted for {len(drafts)} rows, but there are {len(rows)}."
            )
        size = self.batch.model.vocab_size
        for row, draft in zip(rows, drafts, strict=True):
            wrong = next((token for token in draft if not 0 <= token < size), None)
            if wrong is not None:
                raise GenerationError(
                    f"{type(self.candidates).__name__} drafted the token {wrong} for row {row.number}, but the target "
                    f"has the ids 0 to {size - 1}. Draft with a model of the same tokenizer, or translate its tokens."
                )
        return [list(draft[: max(limit, 0)]) for limit, draft in zip(limits, drafts, strict=True)]

    def _check_state(self, method: str, rows: int) -> None:
        """Raise unless the state that a method of the generator returned has the rows of the batch."""
        row_state.check_rows(
            self.draft_state, rows, f"{type(self.candidates).__name__}.{method}", kind="Candidate generator"
        )

    def _check_probs(self, probs: Any, longest: int) -> None:
        """Raise unless the probabilities are arrays of the target's backend, one for each position of the drafts.

        Their numbers are checked where drafted tokens are accepted.

        Raises:
            GenerationError: naming the position, and what to return.
        """
        if probs is None:
            return
        backend, wanted = self.batch.context.backend, (len(self.batch.rows), self.batch.model.vocab_size)
        name = f"{type(self.candidates).__name__}.propose()[0].probs"
        remedy = (
            f"Give one floating array of shape {list(wanted)} on the target's backend, request.context.backend, for "
            f"each position of the longest draft, or leave probs out."
        )
        count = len(probs) if hasattr(probs, "__len__") else 0
        if count < longest:
            raise GenerationError(f"{name} has {count} arrays, but the longest draft has {longest} tokens. {remedy}")
        for position, array in enumerate(probs[:longest]):
            if not hasattr(array, "shape") or not _is_on(backend, array) or not backend.is_floating(array):
                raise GenerationError(f"{name}[{position}] is {shown(array)}. {remedy}")
            if tuple(array.shape) != wanted:
                raise GenerationError(f"{name}[{position}] has the shape {list(array.shape)}. {remedy}")

    def _wait(self, logits: Array) -> None:
        """Wait for a pass of the model if times are reported, so that the time of the pass is not counted elsewhere."""
        if self.on_round is not None:
            self.batch.context.backend.synchronize(logits)


def _is_on(backend: Backend, array: Array) -> bool:
    """Whether an array is of the library and on the device of a backend.

    The backend of a running batch is another object than that of new arrays once a plug-in has been registered.
    """
    return backend_of(array).name == backend.name and backend.at(backend.device_of(array)) is backend
