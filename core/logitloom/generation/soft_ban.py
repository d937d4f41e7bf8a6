"""Soft bans: when a banned phrase is complete, the row goes back to its beginning and continues otherwise.

A hard ban (``bad_words``) forbids the last token of a phrase, when its beginning is written already and the rest of the
sentence expects it. With a soft ban the row returns to the first token of the phrase, where another token is chosen.

For each position that may still be part of a phrase, a row keeps the processed logits and the state of the chain, and
can return there. The model's cache is cropped. Tokens are emitted when they cannot be taken back any more.

References:
    S. Paech, "Antislop: a comprehensive framework for identifying and eliminating repetitive patterns in language
    models", 2025 (its sampler).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from logitloom.arguments import id_lists, names, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF, Array
from logitloom.automata import Dfa, texts_without
from logitloom.automata.deterministic.phrases import folded
from logitloom.chain import Chain, ChainState
from logitloom.errors import GenerationError
from logitloom.generation import loop
from logitloom.generation.loop import DecodingBatch, Emission, Finished, Sampler
from logitloom.generation.model import ModelAdapter
from logitloom.generation.sampled import Sampled, sampled
from logitloom.rows import tree as row_state
from logitloom.vocabulary import Vocabulary

__all__ = ["SoftBan", "decode_avoiding"]


@dataclass(frozen=True)
class SoftBan:
    """Phrases that a row takes back and avoids, as often as it is allowed to.

    Args:
        phrases: texts; they are also found inside words, and across token borders.
        ignore_case: whether they count in either case.
        returns: how many times a sequence goes back. After that, and where no other token is legal, phrases stay.

    Raises:
        GenerationError: if ``returns`` is below 1.
        OptionError: if there is no phrase, or one of them is empty.
        BudgetExceeded: if there are too many.

    Example:
        >>> SoftBan(("tapestry", "a testament to"), ignore_case=True).returns
        32
    """

    phrases: tuple[str, ...]
    ignore_case: bool = False
    returns: int = 32
    #: The texts without the phrases; every state accepts.
    clean: Dfa = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if whole(self.returns, "returns", GenerationError) < 1:
            raise GenerationError(f"A soft ban goes back at least once, but returns is {self.returns}.")
        phrases = (self.phrases,) if isinstance(self.phrases, str) else names(self.phrases, "phrases", GenerationError)
        object.__setattr__(self, "phrases", phrases)
        object.__setattr__(self, "clean", texts_without(self.phrases, ignore_case=self.ignore_case))

    def begin_of(self, text: bytes) -> int:
        """The position where the longest phrase at the end of a text begins; the text's length if there is none."""
        wanted = {folded(phrase) if self.ignore_case else phrase for phrase in self.phrases}
        for position in range(len(text)):
            part = text[position:].decode("utf-8", "replace")
            if (folded(part) if self.ignore_case else part) in wanted:
                return position
        return len(text)

    def begun(self, text: bytes, state: int) -> int:
        """The number of bytes at the end of a text that may be the beginning of a phrase: the depth of the search
        state.
        """
        start = self.clean.start
        if state == start:
            return 0
        return next((n for n in range(1, len(text)) if self.clean.walk(text[-n:], start) == state), len(text))


class _ReturnPoint(NamedTuple):
    """One step of the batch, to which rows may return.

    Attributes:
        processed: ``[rows, vocab]``, the logits after the chain.
        logits: ``[rows or more, vocab]``, those of the model; ``None`` without a record.
        state: the chain's state after the step.
    """

    processed: Array
    logits: Array | None
    state: ChainState


@dataclass(slots=True)
class _Held:
    """A token that may be taken back.

    Attributes:
        token, logprob, sampled: the values that are emitted later.
        step, row: the step in which the token was chosen, and the row of its arrays.
        search, skip: the state of the search before the token's text, and the number of bytes that the search skips.
        banned: tokens that were taken back at its position.
    """

    token: int
    logprob: float
    sampled: tuple[Sampled, ...]
    step: _ReturnPoint
    row: int
    search: int
    skip: int
    banned: frozenset[int]


@dataclass(slots=True)
class _HeldTokens:
    """The end of a row: tokens that are not emitted yet.

    Attributes:
        search: the state of the search after all tokens.
        skip: bytes at the beginning of the text in which no phrase is looked for.
        held: the tokens.
        returns: how many times the row went back.
    """

    search: int
    skip: int
    held: list[_Held] = field(default_factory=list)
    returns: int = 0


def decode_avoiding(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    sampler: Sampler,
    ban: SoftBan,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
    record: bool = False,
    skip: Sequence[int] | None = None,
) -> Iterator[Emission]:
    """Decode as :func:`logitloom.generation.decode` does, without the phrases of a soft ban.

    When the text of a row contains a phrase, the row returns to the token in which the phrase begins. There the sampler
    chooses another token from the same processed distribution, without the tokens that were taken back, and with random
    numbers that the row has not used yet. Everything after that position is forgotten: tokens, the chain's state, the
    model's cache. Forced tokens are asked of the model.

    Args:
        model, prompts, chain, sampler, max_tokens, seed, eos, vocabulary, record: as for ``decode``.
        ban: the phrases.
        skip: per prompt the bytes at the beginning of the generated text in which no phrase is looked for.

    Yields:
        Emissions, in the order of the rows of a step. A token is emitted when it can no longer be taken back, so a step
        may emit several tokens of a row, or none.

    Raises:
        GenerationError: without a vocabulary; and as ``decode``.
        NoLegalToken, InvalidLogits, NeedsNotMet, ChainIncomplete: as ``decode``.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return
    context, stop_ids = loop.sampling_start(
        model, prompts, chain, sampler, max_tokens=max_tokens, seed=seed, eos=eos, vocabulary=vocabulary
    )
    if context.vocabulary is None:
        raise GenerationError("A soft ban reads the text of tokens, and no vocabulary is known. Give Generator one.")
    # Rows return to the arrays of earlier steps, so nothing may overwrite these.
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    batch = DecodingBatch(model, chain, context, max_tokens, stop_ids, False, record)
    skipped = [0 if skip is None else skip[i // sampler.samples] for i in range(context.batch)]
    yield from loop.run(batch, _ReturningStep(batch, sampler, ban, skipped))


class _ReturningStep:
    """The sampler chooses a token for each row, and rows go back; tokens that may be taken back are held.

    Args:
        batch: the rows.
        sampler: chooses tokens.
        ban: the phrases.
        skipped: per row the bytes at the beginning of the generated text in which no phrase is looked for.
    """

    def __init__(self, batch: DecodingBatch, sampler: Sampler, ban: SoftBan, skipped: Sequence[int]) -> None:
        self.batch, self.sampler, self.ban = batch, sampler, ban
        #: By row number.
        self.tails = {row: _HeldTokens(ban.clean.start, skip) for row, skip in enumerate(skipped)}

    def begin(self) -> Iterator[Emission]:
        return self.batch.begin()

    def step(self) -> Iterator[Emission]:
        """Choose a token for each row, let rows go back, emit the tokens that stay, and feed the model."""
        assert self.batch.model_rows is not None
        backend, before, context = self.batch.context.backend, self.batch.state, self.batch.accepted_context()
        logits = self.batch.model_rows.logits
        if self.batch.chain.guided:
            logits = backend.at_least_float32(logits)
        with self.batch.naming_rows():
            processed, self.batch.state = self.batch.chain.process(logits, before, context)
        step = _ReturnPoint(processed, logits if self.batch.record else None, self.batch.state)
        lengths = [row.length for row in self.batch.rows]
        chosen = self._chosen(step.processed, step.logits, self.batch.seeds, lengths)
        back: list[tuple[int, int]] = []
        for i, (token, score, told) in enumerate(chosen):
            if not score > NEG_INF:
                raise self.batch.cannot_go_on(i, processed, before, context)
            tail = self._tail(i)
            target = self._take(i, _Held(token, score, told, step, i, tail.search, tail.skip, frozenset()))
            back += [] if target is None else [(i, target)]
        self._go_back(back)
        finished = self.batch.settle()
        yield from self._emit_what_stays(finished)
        self.batch.feed()

    def _tail(self, i: int) -> _HeldTokens:
        return self.tails[self.batch.rows[i].number]

    def _chosen(
        self, processed: Array, logits: Array | None, seeds: Array, lengths: Sequence[int]
    ) -> list[tuple[int, float, tuple[Sampled, ...]]]:
        """Per row the chosen token, its log-probability and its record."""
        backend = self.batch.context.backend
        at = backend.asarray(np.asarray(lengths, dtype=np.int32))
        tokens, scores = (backend.to_numpy(a).tolist() for a in self.sampler.choose(backend, processed, seeds, at))
        if logits is None:
            return [(token, score, ()) for token, score in zip(tokens, scores, strict=True)]
        told = sampled(backend, logits, processed, tokens, scores)
        return [(each.token, each.logprob, (each,)) for each in told]

    # -- going back --------------------------------------------------------------------------------------

    def _take(self, i: int, held: _Held) -> int | None:
        """Add a token to a row; returns the position in the row's tail to go back to, or ``None`` to stay."""
        row, tail = self.batch.rows[i], self._tail(i)
        row.logprob, row.forced, row.hold, row.pending, row.logprobs, row.sampled = 0.0, 0, 0, [], [], []
        row.add([held.token], held.logprob)
        tail.held.append(held)
        assert self.batch.context.vocabulary is not None
        text = self.batch.context.vocabulary.text_bytes([held.token])
        skipped = min(tail.skip, len(text))
        position, clean = skipped, self.ban.clean
        while position < len(text):
            after = clean.walk(text[position : position + 1], tail.search)
            position += 1
            if after >= 0:
                tail.search = after
                continue
            target = self._target(tail, len(text) - position)
            if target is not None:
                return target
            tail.search = clean.start
        tail.skip -= skipped
        return None

    def _target(self, tail: _HeldTokens, behind: int) -> int | None:
        """The position to go back to, for a phrase that is complete ``behind`` bytes before the end of the text."""
        assert self.batch.context.vocabulary is not None
        if tail.returns >= self.ban.returns:
            return None
        texts = [self.batch.context.vocabulary.text_bytes([held.token]) for held in tail.held]
        text = b"".join(texts)
        begin = self.ban.begin_of(text[: len(text) - behind])
        end = 0
        for target, (held, part) in enumerate(zip(tail.held, texts, strict=True)):
            end += len(part)
            if begin < end:
                left = self.batch.context.backend.to_numpy(held.step.processed[held.row]) > NEG_INF
                left[[held.token, *held.banned]] = False
                return target if left.any() else None
        return None

    def _go_back(self, back: list[tuple[int, int]]) -> None:
        """Take rows back to positions in their tails, and choose again, until no row has to go back."""
        if not back:
            return
        assert self.batch.model_rows is not None
        backend = self.batch.context.backend
        dropped = np.zeros(len(self.batch.rows), dtype=np.int32)
        returned: dict[int, _Held] = {}
        seeds = np.array(backend.to_numpy(self.batch.seeds))
        while back:
            targets = []
            for i, position in back:
                row, tail = self.batch.rows[i], self._tail(i)
                target, count = tail.held[position], len(tail.held) - position
                row.length, row.room, row.taken = row.length - count, row.room + count, row.taken[:-count]
                dropped[i] += count - 1
                tail.held, tail.search, tail.skip = tail.held[:position], target.search, target.skip
                tail.returns += 1
                seeds[i] = rng.fold(int(seeds[i]), tail.returns)
                targets.append(target)
            chosen = self._chosen_again(targets, seeds[[i for i, _ in back]], [i for i, _ in back])
            again = []
            for (i, _), target, (token, score, told) in zip(back, targets, chosen, strict=True):
                banned = target.banned | {target.token}
                returned[i] = _Held(token, score, told, target.step, target.row, target.search, target.skip, banned)
                further = self._take(i, returned[i])
                again += [] if further is None else [(i, further)]
            back = again
        order = np.arange(len(self.batch.rows), dtype=np.int32)
        order[list(returned)] = len(order) + np.arange(len(returned), dtype=np.int32)
        parts = [row_state.take(held.step.state, [held.row]) for held in returned.values()]
        self.batch.state = row_state.take(row_state.concat([self.batch.state, *parts]), order)
        self.batch.seeds = backend.asarray(seeds)
        cache = self.batch.model_rows.cache
        self.batch.model_rows.cache = cache.crop(cache.lengths - np.tile(dropped, self.batch.model_rows.branches))

    def _chosen_again(
        self, targets: Sequence[_Held], seeds: np.ndarray, rows: Sequence[int]
    ) -> list[tuple[int, float, tuple[Sampled, ...]]]:
        """Choose again at earlier positions, without the tokens that were taken back there."""
        backend = self.batch.context.backend

        def gathered(name: str) -> Array:
            return backend.concat_rows([backend.take_rows(getattr(t.step, name), np.array([t.row])) for t in targets])

        forbidden = np.zeros((len(targets), self.batch.context.vocab_size), dtype=bool)
        for line, target in zip(forbidden, targets, strict=True):
            line[[target.token, *target.banned]] = True
        processed = backend.masked_fill(gathered("processed"), backend.asarray(forbidden), NEG_INF)
        logits = gathered("logits") if self.batch.record else None
        lengths = [self.batch.rows[i].length for i in rows]
        return self._chosen(processed, logits, backend.asarray(seeds), lengths)

    # -- what stays --------------------------------------------------------------------------------------

    def _emit_what_stays(self, finished: Finished) -> Iterator[Emission]:
        """Yield the tokens that can no longer be taken back, then drop the rows that ended."""
        words = self.batch.context.vocabulary
        assert words is not None
        for i, row in enumerate(self.batch.rows):
            tail, (reason, cut) = self._tail(i), finished.get(i, (None, 0))
            texts = [words.text_bytes([held.token]) for held in tail.held]
            begun = 0 if reason is not None else self.ban.begun(b"".join(texts), tail.search)
            kept, behind = len(texts), 0
            while behind < begun:
                kept -= 1
                behind += len(texts[kept])
                # If this token is taken back, a phrase that began before the token counts again.
                begun = max(begun, behind + self.ban.begun(b"".join(texts[:kept]), tail.held[kept].search))
            stays, tail.held = tail.held[:kept], tail.held[kept:]
            tokens = tuple(held.token for held in stays if held.token not in self.batch.eos)
            if tokens or reason is not None:
                told = tuple(each for held in stays for each in held.sampled)
                score, hold = sum(held.logprob for held in stays), max(row.hold - behind, 0)
                yield Emission(row.number, tokens, score, 0, hold, reason, cut, 0, told)
        self.batch.drop(finished)
