"""Weighted decoding: particles of each prompt, weighed at every step and drawn anew when their weights are uneven.

The algorithm is sequential Monte Carlo. A step proposes from the masked distribution and multiplies the weight of a
particle by the probability that the target leaves to the legal tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import MOST_ROWS, id_lists, number, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.errors import GenerationError, NoLegalToken
from logitloom.generation.dead_ends import invalid_logits, written
from logitloom.generation.loop import FinishReason, sampling_start
from logitloom.generation.model import ModelAdapter
from logitloom.generation.multinomial import Multinomial
from logitloom.generation.rows import ModelRows
from logitloom.processor import NEEDS
from logitloom.rows import tree as row_state
from logitloom.vocabulary import Vocabulary

__all__ = ["Particle", "Particles", "decode_weighted"]

#: Random stream of resampling; it differs from the streams of samplers and processors.
_STREAM: Final = 0x9A271C


@dataclass(frozen=True)
class Particles:
    """Decode weighted copies of each prompt, whose weights say how probable their texts are under the target.

    The target is the distribution of whole texts that the chain without its constraints gives the model, under the
    condition that the constraints allow the text. A constraint is a processor of the stage ``constraint``. Tokens are
    drawn from the legal tokens; each step multiplies the weight of a particle by the probability of all legal tokens.

    Raises:
        GenerationError: if an option is out of its range.

    Example:
        >>> from logitloom import Vocabulary, processors
        >>> from logitloom.generation import Generator, posterior
        >>> from logitloom_contrib.llama import random_model
        >>> words = Vocabulary([b"yes", b"no", b" way", b""], eos=[3])
        >>> flat = ("temperature", {"temperature": 20.0})
        >>> chain = processors.load(("choice", {"choices": ["yes", "no way"]}), flat, tokenizer=words)
        >>> found = Generator(random_model("numpy", vocab=4), chain, Particles(8), max_tokens=4)([2])
        >>> (answer,) = posterior(found)
        >>> sorted(answer.probabilities), round(sum(answer.probabilities.values()), 6)
        (['no way', 'yes'], 1.0)

    References:
        A. Lew et al., "Sequential Monte Carlo steering of large language models using probabilistic programs", 2023;
        J. Loula et al., "Syntactic and semantic control of large language models via sequential Monte Carlo", 2025;
        A. Doucet, A. Johansen, "A tutorial on particle filtering and smoothing", 2009, section 3.
    """

    #: Adding a constant to all logits of a row does not change the result.
    shift_invariant: ClassVar[bool] = True

    #: Particles per prompt, at least 1.
    samples: int = 16
    #: The particles of a prompt are drawn anew when their effective sample size is below this part of ``samples``; 0:
    #: never, 1: as soon as the weights are uneven.
    resample_below: float = 0.5

    def __post_init__(self) -> None:
        count = whole(self.samples, "samples", GenerationError, least=1, most=MOST_ROWS)
        object.__setattr__(self, "samples", count)
        if not 0.0 <= number(self.resample_below, "resample_below", GenerationError) <= 1.0:
            raise GenerationError(
                f"resample_below is a part of the number of particles, from 0 to 1, but is {self.resample_below}."
            )


@dataclass(frozen=True, slots=True)
class Particle:
    """One finished sequence with its weight.

    Attributes:
        sample: its number among the particles of the prompt.
        tokens: new tokens, without the end-of-sequence token.
        logprob: sum of the log-probabilities of the tokens among the legal ones, end-of-sequence included.
        log_weight: the natural logarithm of its weight. The weights of a prompt add up to the estimate of the
            probability that the target's chain writes a text that the constraints allow.
        finish: why it ended.
        cut: with ``finish="stop"``: number of bytes at the end of its text that do not belong to it.
    """

    sample: int
    tokens: tuple[int, ...]
    logprob: float
    log_weight: float
    finish: FinishReason
    cut: int = 0


def decode_weighted(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    settings: Particles,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
) -> list[list[Particle]]:
    """Decode all prompts together, each with particles of its own.

    The constraints run after all other processors, wherever they stand in the chain.

    Args:
        model: any model adapter.
        prompts: token ids per prompt, ragged.
        chain: processors, possibly none.
        settings: number of particles, and when they are drawn anew.
        max_tokens: most new tokens per particle.
        seed: seed of all random draws.
        eos: ids that end a sequence; default: the vocabulary's.
        vocabulary: bytes of the tokens; default: the chain's.

    Returns:
        Per prompt its particles. A particle whose weight became 0 is left out.

    Raises:
        NoLegalToken: if all particles of a prompt have the weight 0.
        InvalidLogits: if the logits of a row have NaN or +inf.
        GenerationError: if a constraint does more than forbid tokens, or the chain is recorded.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return []
    shaping, constraints = _parts(chain)
    context, stop_ids = sampling_start(
        model, prompts, chain, settings, max_tokens=max_tokens, seed=seed, eos=eos, vocabulary=vocabulary
    )
    decoding = _WeightedDecoding(model, shaping, constraints, settings, context, stop_ids, max_tokens)
    while decoding.step():
        pass
    return [prompt.found() for prompt in decoding.prompts]


def _parts(chain: Chain) -> tuple[Chain, Chain]:
    """The processors that shape the target, and the constraints.

    Raises:
        ChainIncomplete: options are missing; lists them all.
        GenerationError: if a constraint does more than forbid tokens, another processor may forbid all, or the chain is
            recorded.
    """
    chain.require(NEEDS, engine="Weighted decoding")  # an effect may depend on options
    if chain.unrecorded is not chain:
        raise GenerationError(
            f"Particles cannot be recorded by a {type(chain).__name__}: the constraints of its chain run apart from "
            f"the other processors. Give the attribute 'unrecorded' of the {type(chain).__name__}, the chain itself."
        )
    constraints = [link for link in chain.links if link.declared("stage") == "constraint"]
    shaping = [link for link in chain.links if link.declared("stage") != "constraint"]
    for link in constraints:
        if not link.effect.ignores_logits:
            raise GenerationError(
                f"Particles are weighed by the tokens that constraints forbid, but the constraint {link.label!r} "
                f"declares an effect that may do more. If it forbids tokens whatever their logits are, declare "
                f"effect = logitloom.MASK; otherwise leave it out, or use Multinomial."
            )
    for link in shaping:
        if link.effect.forbids_only and not link.effect.keeps_last:
            raise GenerationError(
                f"Particles are weighed by all tokens that a constraint leaves, but {link.label!r} forbids tokens by "
                f"their logits and may leave none, so nothing tells that probability. Leave it out, or use Multinomial."
            )
    return chain.part(shaping), chain.part(constraints)


class _Copy(NamedTuple):
    """The text of a particle so far."""

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0
    finish: FinishReason | None = None
    cut: int = 0


class _WeightedPrompt:
    """The particles of one prompt.

    Args:
        number: of the prompt.
        settings: number of particles, and when they are drawn anew.
        seed: of resampling.
    """

    def __init__(self, number: int, settings: Particles, seed: int) -> None:
        self.number, self._settings = number, settings
        self._seed = np.asarray([seed], dtype=np.int32)
        self.copies = [_Copy()] * settings.samples
        #: ``[particles]``; the weights add up to the estimate of the probability that a text is legal.
        self.log_weights = np.full(settings.samples, -math.log(settings.samples))

    @property
    def unfinished(self) -> list[int]:
        """The numbers of the particles that take another token."""
        weights = self.log_weights
        return [n for n, copy in enumerate(self.copies) if copy.finish is None and weights[n] > NEG_INF]

    @np.errstate(under="ignore")
    def ancestors(self, step: int) -> NDArray[np.int64]:
        """Per particle the number of the particle that takes its place; with uneven weights they are drawn by weight.

        Particles that are drawn anew have equal weights.
        """
        count, largest = len(self.copies), self.log_weights.max()
        weights = np.exp(self.log_weights - largest)
        total = float(weights.sum())
        effective = total**2 / float((weights**2).sum())
        if effective >= self._settings.resample_below * count or not self.unfinished:
            return np.arange(count)
        # Systematic resampling: one random number, and equal distances.
        start = float(rng.uniform(np, self._seed, np.asarray([step], dtype=np.int32), _STREAM)[0])
        sums = np.cumsum(weights)
        chosen = np.searchsorted(sums / sums[-1], (np.arange(count) + start) / count, side="right")
        self.copies = [self.copies[n] for n in chosen]
        self.log_weights = np.full(count, largest + math.log(total) - math.log(count))
        return chosen

    def found(self) -> list[Particle]:
        """The particles, without those of weight 0."""
        weighed = zip(self.copies, self.log_weights.tolist(), strict=True)
        return [
            Particle(n, copy.tokens, copy.logprob, log_weight, copy.finish, copy.cut)
            for n, (copy, log_weight) in enumerate(weighed)
            if copy.finish is not None and log_weight > NEG_INF
        ]


class _WeightedDecoding:
    """The particles of all prompts; those that take another token are rows of the model, in order.

    Args:
        model: any model adapter.
        shaping: the processors that shape the target.
        constraints: the constraints.
        settings: number of particles, and when they are drawn anew.
        context: of the start, one row per particle.
        stop_ids: ids that end a sequence.
        max_tokens: most new tokens.
    """

    def __init__(
        self,
        model: ModelAdapter,
        shaping: Chain,
        constraints: Chain,
        settings: Particles,
        context: Context,
        stop_ids: frozenset[int],
        max_tokens: int,
    ) -> None:
        assert context.prompt is not None
        self._backend, self._stop_ids = model.backend, stop_ids
        self._shaping, self._constraints = shaping, constraints
        branches: list[Sequence[Sequence[int]]] = [context.prompt, *shaping.branch_prompts(context)]
        longest = [max(len(prompt) for prompt in each) for each in zip(*branches, strict=True)]
        self._rooms = [min(max_tokens, model.max_length - length) for length in longest]
        self._lengths = [len(prompt) for prompt in context.prompt]
        self._seeds = context.row_seeds()
        self._start = self._context = context.with_fields(max_new_tokens=tuple(self._rooms))
        self._state: tuple[ChainState, ChainState] = (
            shaping.init_state(self._start), constraints.init_state(self._start)
        )  # fmt: skip
        self._samples, self._steps = settings.samples, 0
        firsts = range(0, context.batch, settings.samples)
        self.prompts = [_WeightedPrompt(n, settings, int(self._seeds[first])) for n, first in enumerate(firsts)]
        #: Per row the prompt and the number of its particle.
        self._rows = [(prompt, n) for prompt in self.prompts for n in prompt.unfinished]
        self._model_rows = ModelRows(model, branches)

    def step(self) -> bool:
        """Weigh the particles, draw them anew where their weights are uneven, and give each its next token.

        Returns:
            Whether particles are left that take another token.
        """
        legal, gained = self._weigh()
        legal, gained = self._resample(legal, gained)
        if not self._rows:
            return False
        backend, numbers = self._backend, [prompt.number * self._samples + n for prompt, n in self._rows]
        lengths = np.asarray([self._lengths[i] + self._steps for i in numbers], dtype=np.int32)
        seeds = backend.asarray(self._seeds[numbers])
        chosen, chosen_logprobs = Multinomial().choose(backend, legal, seeds, backend.asarray(lengths))
        tokens = backend.to_numpy(chosen).tolist()
        logprobs = backend.to_numpy(chosen_logprobs).astype(np.float64)
        self._steps += 1
        # What the target itself gives the tokens, which does not depend on the constraints.
        accepted = self._accepted(tokens, logprobs + gained)
        for row, (finish, cut) in enumerate(self._ends(tokens, numbers, accepted)):
            prompt, n = self._rows[row]
            before, end = prompt.copies[n], tokens[row] in self._stop_ids
            new = before.tokens if end else (*before.tokens, tokens[row])
            prompt.copies[n] = _Copy(new, before.logprob + float(logprobs[row]), finish, cut)
        kept = [row for row, (prompt, n) in enumerate(self._rows) if prompt.copies[n].finish is None]
        self._keep(kept)
        if kept:
            tokens = [tokens[row] for row in kept]
            self._context = self._accepted(tokens, (logprobs + gained)[kept])
            self._model_rows.feed([[token] for token in tokens])
        return bool(kept)

    def _weigh(self) -> tuple[Array, NDArray[np.float64]]:
        """``[rows, vocab]`` logits of the legal tokens, and ``[rows]`` the log-probabilities of all legal tokens."""
        logits, before, context = self._model_rows.logits, self._state, self._context
        if self._shaping.guided:
            # Guidance scales differences of logits, for which half types are not precise enough.
            logits = self._backend.at_least_float32(logits)
        # Only what runs last may lend its result from the pool.
        shaped, shaping = self._shaping.process(logits, before[0], context.with_fields(pool=None))
        totals = _log_totals(self._backend, shaped)
        for row in np.flatnonzero(~(totals < np.inf)).tolist():
            prompt, n = self._rows[row]
            invalid = invalid_logits(
                self._shaping, shaped, before[0], context, row, name=f"prompt {prompt.number}, particle {n}",
                position=self._lengths[prompt.number * self._samples] + self._steps, tokens=prompt.copies[n].tokens,
            )  # fmt: skip
            if invalid is not None:
                raise invalid
        legal, constraints = self._constraints.process(shaped, before[1], context)
        self._state = shaping, constraints
        left = _log_totals(self._backend, legal)
        possible = left > NEG_INF
        gained = np.where(possible, np.minimum(left - np.where(possible, totals, 0.0), 0.0), NEG_INF)
        for (prompt, n), log_probability in zip(self._rows, gained.tolist(), strict=True):
            prompt.log_weights[n] += log_probability
        for prompt, n in self._rows:
            if not (prompt.log_weights > NEG_INF).any():
                raise self._all_dead(prompt, n)
        return legal, gained

    def _all_dead(self, prompt: _WeightedPrompt, n: int) -> NoLegalToken:
        """The error of a prompt whose particles all have the weight 0; ``n`` is one of them that took a last step."""
        cutting = " and ".join(repr(link.label) for link in self._shaping.links if link.effect.forbids_only)
        by = " and ".join(map(repr, self._constraints.labels))
        text = written(self._constraints, self._start, prompt.copies[n].tokens)
        return NoLegalToken(
            f"All {self._samples} particles of prompt {prompt.number} have the weight 0 at position "
            f"{self._lengths[prompt.number * self._samples] + self._steps}, particle {n}{text}: {by} allowed none of "
            f"the tokens that {cutting or 'the model'} left. "
            f"{f'Leave out {cutting}' if cutting else f'Loosen {by}'}{', or take more particles' * (self._steps > 0)}."
        )

    def _resample(self, legal: Array, gained: NDArray[np.float64]) -> tuple[Array, NDArray[np.float64]]:
        """Draw the particles anew where their weights are uneven; rows of weight 0 are dropped.

        Args:
            legal: ``[rows, vocab]``.
            gained: ``[rows]``.

        Returns:
            The same of the new rows.
        """
        row_of = {(prompt.number, n): row for row, (prompt, n) in enumerate(self._rows)}
        order: list[int] = []
        rows: list[tuple[_WeightedPrompt, int]] = []
        for prompt in self.prompts:
            if any(copy.finish is None for copy in prompt.copies):
                chosen = prompt.ancestors(self._steps)
                rows += [(prompt, n) for n in prompt.unfinished]
                order += [row_of[prompt.number, int(chosen[n])] for n in prompt.unfinished]
        if order and order != list(range(len(self._rows))):
            index = np.asarray(order, dtype=np.int32)
            self._move(index)
            legal, gained = self._backend.take_rows(legal, index), gained[index]
        self._rows = rows
        return legal, gained

    def _ends(self, tokens: list[int], numbers: list[int], accepted: Context) -> list[tuple[FinishReason | None, int]]:
        """Why each row ends with its token, if it does, and the bytes that are cut from its text."""
        found: list[tuple[FinishReason | None, int]] = [
            ("eos" if token in self._stop_ids else "length" if self._rooms[i] <= self._steps else None, 0)
            for token, i in zip(tokens, numbers, strict=True)
        ]
        for chain, state in zip((self._shaping, self._constraints), self._state, strict=True):
            for row, end in enumerate(chain.text_ends(state, accepted) or ()):
                if end.finished:
                    found[row] = "stop", end.hold
        return found

    def _accepted(self, tokens: list[int], logprobs: NDArray[np.float64]) -> Context:
        """The context in which the rows accepted their tokens."""
        told = any("chosen_logprob" in chain.needs for chain in (self._shaping, self._constraints))
        return self._start.accept(tokens, chosen_logprob=logprobs.tolist() if told else None)

    def _keep(self, kept: list[int]) -> None:
        """Keep some of the rows, in order."""
        if kept and len(kept) < len(self._rows):
            self._move(np.asarray(kept, dtype=np.int32))
        self._rows = [self._rows[row] for row in kept]

    def _move(self, index: NDArray[np.int32]) -> None:
        """Take rows of the states and of the model's cache."""
        self._state = row_state.take(self._state, index)
        self._model_rows.take(index)


def _log_totals(backend: Backend, logits: Array) -> NDArray[np.float64]:
    """``[rows]`` host numbers: the logarithm of the sum of ``exp(logits)``, NaN or +inf for a row that has such."""
    best = backend.xp.argmax(logits, axis=-1)[:, None]
    top = backend.to_numpy(backend.gather(logits, best)[:, 0]).astype(np.float64)
    share = backend.to_numpy(backend.log_probability(logits, best)[:, 0]).astype(np.float64)
    # A row without any token has no highest logit.
    totals: NDArray[np.float64] = top - np.where(top > NEG_INF, share, 0.0)
    return totals
