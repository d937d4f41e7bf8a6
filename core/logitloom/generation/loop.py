"""The decoding loop for samplers that follow one hypothesis per row: greedy and multinomial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from logitloom.arguments import flag, id_lists, optional_ids, shown, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.errors import GenerationError, IllegalToken, InvalidLogits, NoLegalToken
from logitloom.generation.dead_ends import invalid_logits, no_legal_token, written
from logitloom.generation.model import ModelAdapter
from logitloom.generation.rows import ModelRows
from logitloom.generation.sampled import Sampled, forced, sampled
from logitloom.masks.logits_pool import LogitsPool
from logitloom.rows import tree as row_state
from logitloom.vocabulary import Vocabulary

__all__ = ["Emission", "FinishReason", "Sampler", "decode", "start_context"]

FinishReason = Literal["eos", "stop", "length"]
#: By row of a batch why the row ends, and the number of bytes at the end of its text that do not belong to the text.
Finished = dict[int, tuple[FinishReason, int]]


class Strategy(Protocol):
    """A decoding strategy with one row per sequence."""

    @property
    def samples(self) -> int:
        """Sequences per prompt."""
        ...


class Sampler(Strategy, Protocol):
    """Chooses the next token of each row; see :class:`logitloom.generation.greedy.Greedy`.

    A sampler may have an attribute ``shift_invariant = True``, which declares that a constant added to all logits of a
    row does not change the choice, so guidance can leave out its log-softmaxes.
    """

    def choose(self, backend: Backend, logits: Array, seeds: Array, lengths: Array) -> tuple[Array, Array]:
        """Token ids and log-probabilities of the next token, ``[rows]`` each. The logits may be a read-only array."""
        ...


@dataclass(frozen=True, slots=True)
class Emission:
    """The tokens that one row accepted in one step.

    Attributes:
        row: the number of the sequence, counted over all prompts and samples of the start.
        tokens: the new tokens: one sampled token, and the tokens that a constraint forced after (or, in a row's first
            emission, before) it. An end-of-sequence token is not among them.
        logprob: log-probability of the new tokens under the processed distribution (forced tokens count 0).
        forced: number of forced tokens, for which the model was not evaluated; they are the last of the new tokens.
        drafted: number of drafted and accepted tokens; they are the first of the new tokens.
        hold: number of bytes at the end of the row's text that a stop string may still remove.
        finish: why the row ended with this emission, or None.
        cut: with ``finish="stop"``: number of bytes at the end of the row's text that do not belong to it.
        sampled: with ``record``: the distribution of each new token, and of an end-of-sequence token at the end.
    """

    row: int
    tokens: tuple[int, ...]
    logprob: float
    forced: int = 0
    hold: int = 0
    finish: FinishReason | None = None
    cut: int = 0
    drafted: int = 0
    sampled: tuple[Sampled, ...] = ()


def start_context(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    vocabulary: Vocabulary | None,
    seeds: Sequence[int],
    donate: bool,
) -> Context:
    """The context of a generation over a model, one row per prompt.

    Raises:
        GenerationError: if ``max_tokens`` is below 1, a prompt has ``model.max_length`` or more tokens, or an id
            that the model does not have.
    """
    if whole(max_tokens, "max_tokens", GenerationError) < 1:
        raise GenerationError(f"max_tokens must be at least 1, but is {max_tokens}.")
    for row, prompt in enumerate(prompts):
        if prompt and max(prompt) >= model.vocab_size:
            raise GenerationError(
                f"The prompt of row {row} has the id {max(prompt)}, but the model has {model.vocab_size} tokens. "
                f"Encode the prompt with the tokenizer of this model."
            )
    longest = max(len(prompt) for prompt in prompts)
    if longest >= model.max_length:
        raise GenerationError(
            f"A prompt has {longest} tokens, but the model takes {model.max_length} at most and needs room to "
            f"generate. Shorten the prompt."
        )
    return Context(
        backend=model.backend,
        batch=len(prompts),
        vocab_size=model.vocab_size,
        vocabulary=vocabulary,
        prompt=tuple(tuple(int(t) for t in prompt) for prompt in prompts),
        max_length=min(longest + max_tokens, model.max_length),
        seed=tuple(seeds),
        model=model,
        donate=donate,
        donate_state=donate,
    ).validated()


def sampling_start(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    sampler: Strategy,
    *,
    max_tokens: int,
    seed: int,
    eos: Sequence[int] | None,
    vocabulary: Vocabulary | None,
) -> tuple[Context, frozenset[int]]:
    """The context of :func:`decode`, one row per prompt and sample, and the ids that end a row."""
    seed = whole(seed, "seed", GenerationError)
    eos = optional_ids(eos, "eos", GenerationError)
    vocabulary = vocabulary if vocabulary is not None else chain.vocabulary
    stop_ids = frozenset(eos if eos is not None else vocabulary.eos if vocabulary is not None else ())
    rows = [tuple(prompt) for prompt in prompts for _ in range(sampler.samples)]
    seeds = rng.row_seeds(seed, len(rows)).tolist()
    context = start_context(
        model, rows, max_tokens=max_tokens, vocabulary=vocabulary, seeds=seeds, donate=not chain.debug
    )
    # A processor may leave out a constant only if neither the processors after it nor the sampler depend on it.
    shift_free = getattr(sampler, "shift_invariant", False) and all(link.effect.ignores_shifts for link in chain.links)
    return context.with_fields(shift_free=shift_free, pool=LogitsPool()), stop_ids


def decode(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    sampler: Sampler,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
    skip_forced: bool = True,
    record: bool = False,
) -> Iterator[Emission]:
    """Decode all prompts together and yield the new tokens of each row, step by step.

    Each prompt has ``sampler.samples`` consecutive rows. A row that ends is removed from the batch at once. If a
    constraint allows only one token, that token is accepted without a pass of the model. A run of such forced tokens
    is fed to the model in one pass.

    Args:
        model: any model adapter.
        prompts: token ids per prompt, ragged.
        chain: processors, possibly none (``processors.load()``).
        sampler: chooses tokens.
        max_tokens: most new tokens per row.
        seed: seed of all random draws.
        eos: ids that end a row; default: the vocabulary's.
        vocabulary: bytes of the tokens, for processors that need them; default: the chain's.
        skip_forced: whether forced tokens are accepted without a pass of the model. For greedy decoding the result is
            the same either way. Nothing is skipped if a processor declares that it must see every step.
        record: whether to record the distribution of each token (:attr:`Emission.sampled`).

    Yields:
        One :class:`Emission` per row and step, in the order of the rows.

    Raises:
        NoLegalToken: if a row has no legal token; the message names row, step and processor.
        InvalidLogits: if the processed logits of a row have NaN or +inf; the message names row and step.
        GenerationError, NeedsNotMet, ChainIncomplete: before the first step.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return
    context, stop_ids = sampling_start(
        model, prompts, chain, sampler, max_tokens=max_tokens, seed=seed, eos=eos, vocabulary=vocabulary
    )
    batch = DecodingBatch(model, chain, context, max_tokens, stop_ids, skip_forced, record)
    yield from run(batch, _SampledStep(batch, sampler))


class DecodingStep(Protocol):
    """How a loop gives each row of a batch its next tokens."""

    def begin(self) -> Iterator[Emission]:
        """Accept the tokens that are forced from the start, if any, and feed the prompts to the model."""
        ...

    def step(self) -> Iterator[Emission]:
        """Choose tokens for each row, drop the rows that have ended, and feed the model."""
        ...


def run(batch: DecodingBatch, step: DecodingStep) -> Iterator[Emission]:
    """Take steps until no row of the batch is left."""
    yield from step.begin()
    while batch.rows:
        yield from step.step()


class _SampledStep:
    """A sampler chooses one token for each row, and the tokens that follow by force are added."""

    def __init__(self, batch: DecodingBatch, sampler: Sampler) -> None:
        self.batch, self.sampler = batch, sampler

    def begin(self) -> Iterator[Emission]:
        return self.batch.begin()

    def step(self) -> Iterator[Emission]:
        yield from self.batch.gain(self._choose)
        self.batch.feed()

    def _choose(self, processed: Array) -> tuple[Array, Array]:
        batch, backend = self.batch, self.batch.context.backend
        lengths = backend.asarray(np.asarray([row.length for row in batch.rows], dtype=np.int32))
        found = self.sampler.choose(backend, processed, batch.seeds, lengths)
        rows = len(batch.rows)
        # Arrays of the standard have a shape and no length.
        if not isinstance(found, tuple) or [tuple(np.shape(part)) for part in found] != [(rows,), (rows,)]:
            raise GenerationError(
                f"{type(self.sampler).__name__}.choose must return ids and log-probabilities, an array of {rows} each, "
                f"but returned {shown(found)}."
            )
        return found


class _DecodedRow:
    """One unfinished sequence."""

    __slots__ = (
        "drafted",
        "forced",
        "hold",
        "length",
        "logprob",
        "logprobs",
        "number",
        "pending",
        "room",
        "sampled",
        "seen",
        "taken",
    )

    def __init__(self, number: int, length: int, room: int) -> None:
        self.number = number
        self.length = length
        self.room = room
        #: Accepted tokens that the chain's state and the model have not seen yet, apart from the first ``seen``.
        self.pending: list[int] = []
        #: Log-probabilities of the pending tokens; forced tokens have 0.
        self.logprobs: list[float] = []
        #: Number of pending tokens that the chain's state has seen, in a round of speculation.
        self.seen = 0
        #: All accepted tokens, for messages.
        self.taken: list[int] = []
        #: With ``record``, the distributions of the tokens of this step.
        self.sampled: list[Sampled] = []
        self.logprob = 0.0
        self.forced = 0
        self.drafted = 0
        self.hold = 0

    def add(self, tokens: Sequence[int], logprob: float = 0.0) -> None:
        self.pending += tokens
        self.logprobs += [logprob] * len(tokens)
        self.taken += tokens
        self.length += len(tokens)
        self.room -= len(tokens)


class DecodingBatch:
    """All unfinished rows, with their caches of the model and states of the chain.

    A loop is a batch and a :class:`DecodingStep`, which holds the batch.
    """

    def __init__(
        self,
        model: ModelAdapter,
        chain: Chain,
        context: Context,
        max_tokens: int,
        eos: frozenset[int],
        skip_forced: bool,
        record: bool,
    ) -> None:
        if flag(record, "record", GenerationError):
            # The chain must not overwrite the model's logits.
            context = context.with_fields(donate=False)
        self.model, self.chain, self.context, self.record = model, chain, context, record
        self.eos, self.skip_forced = eos, skip_forced and not chain.sees_every_step
        self.tells_chosen = "chosen_logprob" in chain.needs
        prompts = context.prompt or ()
        self.branches: list[Sequence[Sequence[int]]] = [prompts, *chain.branch_prompts(context)]
        room = min(max_tokens, (context.max_length or max_tokens) - min(len(p) for p in prompts))
        longest = [max(len(prompt) for prompt in each) for each in zip(*self.branches, strict=True)]
        limits = [min(room, model.max_length - length) for length in longest]
        context = self.context = context.with_fields(max_new_tokens=tuple(limits))
        self.rows = [_DecodedRow(i, len(p), n) for i, (p, n) in enumerate(zip(prompts, limits, strict=True))]
        self.seeds = context.backend.asarray(context.row_seeds())
        self.state = chain.init_state(context)
        self.model_rows: ModelRows | None = None

    def begin(self) -> Iterator[Emission]:
        """Accept the tokens that are forced from the start, then feed the prompts."""
        finished: Finished = {}
        if self.skip_forced:
            self._force(self.context, finished)
            self._end_texts(self.accepted_context(), finished)
            self._out_of_room(finished)
            yield from self.emit(finished)
        if self.rows:
            fed = [[[*branch[row.number], *row.pending] for row in self.rows] for branch in self.branches]
            self.model_rows = ModelRows(self.model, fed)

    def feed(self) -> None:
        """Feed the new tokens of the rows to the model; without rows nothing is done."""
        if self.rows:
            assert self.model_rows is not None
            self.model_rows.feed([row.pending for row in self.rows])

    def gain(self, choose: Callable[[Array], tuple[Array, Array]]) -> Iterator[Emission]:
        """Process the logits, choose a token for each row, add the forced tokens, and drop the rows that have ended.

        Args:
            choose: takes ``[rows, vocab]`` processed logits and returns ``[rows]`` ids and their log-probabilities.
        """
        assert self.model_rows is not None
        backend, before = self.context.backend, self.state
        context = self.accepted_context()
        logits = self.model_rows.logits
        if self.chain.guided:
            # Guidance scales differences of logits, for which half types are not precise enough.
            logits = backend.at_least_float32(logits)
        with self.naming_rows():
            processed, self.state = self.chain.process(logits, before, context)
        chosen, logprobs = choose(processed)
        tokens, scores = backend.to_numpy(chosen).tolist(), backend.to_numpy(logprobs).tolist()
        recorded = sampled(backend, logits, processed, tokens, scores) if self.record else None
        for i, (row, token) in enumerate(zip(self.rows, tokens, strict=True)):
            if not scores[i] > NEG_INF:
                raise self.cannot_go_on(i, processed, before, context)
            row.logprob, row.forced, row.hold, row.pending, row.logprobs = scores[i], 0, 0, [], []
            row.add([token], scores[i])
            row.sampled = [] if recorded is None else [recorded[i]]
        yield from self.emit(self.settle())

    def settle(self) -> Finished:
        """End texts, accept forced tokens, and end the rows at the token limit. Returns the rows that end."""
        finished: Finished = {i: ("eos", 0) for i, row in enumerate(self.rows) if row.pending[-1] in self.eos}
        accepted = self.accepted_context()
        with self.naming_rows():
            self._end_texts(accepted, finished)
            if self.skip_forced:
                self._force(accepted, finished)
                if any(row.forced for row in self.rows):
                    self._end_texts(self.accepted_context(), finished)
        self._out_of_room(finished)
        return finished

    def accepted_context(self) -> Context:
        """The context with the pending tokens that the chain's state has not seen."""
        if not any(row.pending for row in self.rows):
            return self.context
        tokens = [row.pending[row.seen :] for row in self.rows]
        if not self.tells_chosen:
            return self.context.accept(tokens)
        return self.context.accept(tokens, chosen_logprob=[row.logprobs[row.seen :] for row in self.rows])

    def _force(self, context: Context, finished: Finished) -> None:
        runs = self.chain.forced_tokens(self.state, context)
        for i, (row, run) in enumerate(zip(self.rows, runs or (), strict=False)):
            if i in finished:
                continue
            ended = next((n for n, token in enumerate(run) if token in self.eos), None)
            if ended is not None and ended < row.room:
                finished[i] = ("eos", 0)
                run = run[: ended + 1]
            run = run[: max(row.room, 0)]
            row.add(run)
            row.forced = len(run)
            if self.record:
                row.sampled += forced(run)

    def _end_texts(self, context: Context, finished: Finished) -> None:
        ends = self.chain.text_ends(self.state, context)
        for i, (row, end) in enumerate(zip(self.rows, ends or (), strict=False)):
            row.hold = end.hold
            if end.finished:
                finished[i] = ("stop", end.hold)

    def _out_of_room(self, finished: Finished) -> None:
        for i, row in enumerate(self.rows):
            if i not in finished and row.room <= 0:
                finished[i] = ("length", 0)

    def emit(self, finished: Finished) -> Iterator[Emission]:
        """Yield the tokens of each row, then drop the rows that ended."""
        for i, row in enumerate(self.rows):
            reason, cut = finished.get(i, (None, 0))
            ended = bool(row.pending) and row.pending[-1] in self.eos
            tokens = tuple(row.pending[:-1] if ended else row.pending)
            if tokens or reason is not None:
                skipped = row.forced - (ended and row.forced > 0)
                drafted = min(row.drafted, len(tokens))
                # After a stop string an end-of-sequence token is forced, which is no part of a text that stopped.
                told = tuple(row.sampled[:-1] if ended and reason == "stop" else row.sampled)
                yield Emission(row.number, tokens, row.logprob, skipped, row.hold, reason, cut, drafted, told)
        self.drop(finished)

    def drop(self, finished: Finished) -> None:
        """Remove the rows that ended."""
        if finished:
            kept = np.asarray([i for i in range(len(self.rows)) if i not in finished], dtype=np.int32)
            self.rows = [self.rows[i] for i in kept]
            if self.rows:
                self.state = row_state.take(self.state, kept)
                self.seeds = self.context.backend.take_rows(self.seeds, kept)
                if self.model_rows is not None:
                    self.model_rows.take(kept)

    @contextmanager
    def naming_rows(self) -> Iterator[None]:
        """Add to an illegal-token error the sequence of the row and its text so far."""
        try:
            yield
        except IllegalToken as error:
            row = self.rows[error.row]
            message = f"Sequence {row.number}{self._written(row)}: {error}"
            raise IllegalToken(message, row=row.number) from error

    def _written(self, row: _DecodedRow) -> str:
        return written(self.chain, self.context, row.taken)

    def cannot_go_on(
        self, i: int, processed: Array, before: ChainState, context: Context
    ) -> InvalidLogits | NoLegalToken:
        """The error of row ``i`` of the batch, for which no token could be chosen."""
        row = self.rows[i]
        name, at, taken = f"row {row.number}", row.length, row.taken
        invalid = invalid_logits(self.chain, processed, before, context, i, name=name, position=at, tokens=taken)
        return invalid or no_legal_token(self.chain, before, context, i, name=name, position=at, tokens=taken)
