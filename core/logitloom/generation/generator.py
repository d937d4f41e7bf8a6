"""A generator: a model, a chain and a decoding strategy, called with text or token ids."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

from logitloom.arguments import about_messages, flag, ids, instance, optional_ids, shown, whole
from logitloom.chain import Chain
from logitloom.display.html_table import html_table
from logitloom.display.progress import progress_bar, waiting
from logitloom.errors import GenerationError, VocabularyError
from logitloom.generation.beam_search import BeamSearch, beam_search
from logitloom.generation.candidates import CandidateGenerator
from logitloom.generation.contrastive_search import ContrastiveSearch, contrastive_search
from logitloom.generation.greedy import Greedy
from logitloom.generation.healing import Healed, heal
from logitloom.generation.loop import Emission, FinishReason, Sampler, decode
from logitloom.generation.model import ModelAdapter
from logitloom.generation.multinomial import Multinomial
from logitloom.generation.partial_values import Partial, ValueReader, value_reader_of
from logitloom.generation.particles import Particles, decode_weighted
from logitloom.generation.sampled import Sampled
from logitloom.generation.soft_ban import SoftBan, decode_avoiding
from logitloom.generation.speculation import Round, speculate
from logitloom.host.entry_points import PluginName
from logitloom.host.options import check_object
from logitloom.host.registry import read_vocabulary
from logitloom.host.text_encoder import TextEncoder, text_encoder
from logitloom.vocabulary import Vocabulary

__all__ = ["Generated", "Generator", "Piece", "Progress"]


@dataclass(frozen=True)
class Generated:
    """One finished sequence.

    Attributes:
        prompt: number of the prompt.
        sample: number of the sequence among those of the prompt.
        tokens: new token ids, without the end-of-sequence token.
        text: the text of the tokens, cut at the start of a stop string (None where no vocabulary is known); with
            ``heal`` the text behind the whole prompt.
        logprob: cumulative log-probability of the tokens under the processed distributions.
        finish: ``"eos"``, ``"stop"`` or ``"length"``.
        forced: number of tokens that a constraint forced without a pass of the model.
        score: the score of beam search; otherwise the log-probability.
        sampled: with ``record``: the distribution of each token, and of an end-of-sequence token at the end.
        healed: with ``heal``: number of tokens at the end of the prompt that the first of ``tokens`` replace.
        log_weight: the natural logarithm of the weight of a particle (see :class:`Particles`); None with other
            strategies. The weights of a prompt add up to the estimate of its evidence; see
            :func:`~logitloom.generation.posterior.posterior`.
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    text: str | None
    logprob: float
    finish: FinishReason
    forced: int = 0
    score: float = 0.0
    sampled: tuple[Sampled, ...] = ()
    healed: int = 0
    log_weight: float | None = None

    def _repr_html_(self) -> str:
        """An HTML table of the text and its figures, for notebooks."""
        text = self.text if self.text is not None else " ".join(map(str, self.tokens))
        head = ["prompt", "sample", "text", "tokens", "log-probability", "finish"]
        row = [self.prompt, self.sample, text, len(self.tokens), f"{self.logprob:.2f}", self.finish]
        if self.log_weight is not None:
            head, row = [*head, "log-weight"], [*row, f"{self.log_weight:.2f}"]
        return html_table(head, [row])


@dataclass(frozen=True)
class Piece:
    """A piece of a stream.

    Attributes:
        prompt, sample: the numbers of the prompt and of the sequence.
        tokens: the new ids.
        text: the new text: whole characters only, without a suffix that may still be cut.
        finish: set on the last piece of a sequence.
        sampled: with ``record``: the distribution of each token, and of an end-of-sequence token at the end.
        partial: the value that the text denotes so far, if a processor of the chain reads its texts as values
            (``json``, ``tool_call``).
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    text: str
    finish: FinishReason | None
    sampled: tuple[Sampled, ...] = ()
    partial: Partial | None = None


@dataclass(frozen=True)
class Progress:
    """The progress of a generation, reported after every step.

    Attributes:
        tokens: new tokens so far, over all sequences.
        finished: sequences that ended.
        sequences: all sequences.
        seconds: seconds since the start.
    """

    tokens: int
    finished: int
    sequences: int
    seconds: float


class _RowText:
    """Incremental decoding of the text of one row, without its first ``skip`` bytes.

    With ``special``, special tokens count as the text that they are written as.
    """

    def __init__(self, vocabulary: Vocabulary, skip: int, *, special: bool = False) -> None:
        self.vocabulary, self.skip = vocabulary, skip
        self.shown = vocabulary.special_text if special else {}
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.held = b""

    def add(self, emission: Emission) -> str:
        """Add the tokens of an emission, and return the new text that is complete and cannot be cut later."""
        new = self.vocabulary.text_bytes(emission.tokens)
        if any(token in self.shown for token in emission.tokens):
            new = b"".join(
                self.shown[token].encode() if token in self.shown else self.vocabulary.text_bytes([token])
                for token in emission.tokens
            )
        data = self.held + new[self.skip :]
        self.skip = max(self.skip - len(new), 0)
        if emission.finish is not None:
            return self.decoder.decode(data[: max(len(data) - emission.cut, 0)], final=True)
        shown = max(len(data) - emission.hold, 0)
        self.held = data[shown:]
        return self.decoder.decode(data[:shown])


@dataclass(frozen=True)
class Generator:
    """The settings of a generation: all its inputs except the prompt and the seed.

    Args:
        model: any model adapter (see :class:`logitloom.generation.model.ModelAdapter`).
        chain: the processors.
        strategy: :class:`Greedy`, :class:`Multinomial`, :class:`BeamSearch`, :class:`ContrastiveSearch`,
            :class:`Particles`, or any sampler.
        max_tokens: most new tokens per sequence.
        tokenizer: required for prompts as text; a tokenizer of any library, or an object with ``encode(text) -> ids``.
        vocabulary: bytes of the tokens, or a tokenizer; default: the chain's, else the tokenizer's.
        eos: ids that end a sequence; default: the vocabulary's.
        skip_forced: whether tokens that a constraint forces are accepted without a pass of the model (not with beam or
            contrastive search, and not with particles, which are weighed by the probability of forced tokens).
        candidates: drafts tokens that the model verifies several at a time; see :func:`speculate`.
        on_round: called with the costs and results of each round of drafting and verifying.
        on_emission: called with the new tokens of each row in each step (not with beam search, which reorders rows).
        record: whether to record for each token its log-probability before and after the chain, and more (see
            :class:`~logitloom.generation.sampled.Sampled`).
        heal: whether a prompt that ends within a token is continued as if it had been one text with its continuation
            (see :func:`~logitloom.generation.healing.heal`). Tokens that write the end of the prompt again count for
            ``max_tokens`` and ``logprob``.
        avoid: phrases before which a sequence goes back and continues without them; see :class:`SoftBan`.

    Raises:
        GenerationError: for a soft ban with anything but a sampler alone; for beam search together with candidates or
            a record; for contrastive search with candidates; and for particles with candidates, a record or
            ``on_emission``.
    """

    model: ModelAdapter
    chain: Chain = field(default_factory=lambda: Chain(()))
    strategy: Sampler | BeamSearch | ContrastiveSearch | Particles = field(default_factory=Greedy)
    max_tokens: int = 128
    tokenizer: Any = None
    vocabulary: Any = None
    eos: tuple[int, ...] | None = None
    skip_forced: bool = True
    candidates: CandidateGenerator | None = None
    on_round: Callable[[Round], None] | None = None
    on_emission: Callable[[Emission], None] | None = None
    record: bool = False
    heal: bool = False
    avoid: SoftBan | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if self.avoid is not None and (
            self.candidates is not None or isinstance(self.strategy, (BeamSearch, ContrastiveSearch, Particles))
        ):
            raise GenerationError(
                "A soft ban takes tokens back, which neither beams, nor drafts, nor contrastive search, nor particles "
                "can follow. Use it with Greedy or Multinomial and without candidates, or ban the phrases with "
                "'bad_words'."
            )
        if self.candidates is not None and isinstance(self.strategy, BeamSearch):
            raise GenerationError(
                "Beam search cannot use drafts: its beams move between rows at every step, so a draft of several "
                "tokens belongs to no row. Leave out the candidates, or use Greedy or Multinomial."
            )
        if self.candidates is not None and isinstance(self.strategy, ContrastiveSearch):
            raise GenerationError(
                "Contrastive search cannot use drafts: it compares the hidden states of several candidates for each "
                "token. Leave out the candidates, or use Greedy or Multinomial."
            )
        if self.record and isinstance(self.strategy, BeamSearch):
            raise GenerationError(
                "Beam search samples nothing that could be recorded. Leave out the record, or use Greedy or "
                "Multinomial."
            )
        if isinstance(self.strategy, Particles):
            for name in ("candidates", "record", "on_emission"):
                if getattr(self, name) not in (None, False):
                    raise GenerationError(
                        f"Particles are drawn anew between two steps, so the tokens of a step belong to no sequence "
                        f"for good, as {name!r} needs. Leave it out, or use Greedy or Multinomial."
                    )

    def _check_types(self) -> None:
        instance(self.chain, Chain, "chain", GenerationError, "Make one with logitloom.processors.load.")
        samples = not isinstance(self.strategy, type) and hasattr(self.strategy, "samples")
        if not samples or not callable(getattr(self.strategy, "choose", None)):
            kinds = (Greedy, Multinomial, BeamSearch, ContrastiveSearch, Particles)
            instance(self.strategy, kinds, "strategy", GenerationError)
        self._check_methods("model", ("forward", "empty_cache"), "Give a model adapter.")
        if self.candidates is not None:
            methods = ("init_state", "propose", "update")
            self._check_methods("candidates", methods, "Make one with logitloom.generation.candidates.load.")
            check_object(self.candidates, PluginName(type(self.candidates), "logitloom.candidates"))
        for name in ("on_round", "on_emission"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise GenerationError(f"The argument {name!r} must be callable, but is {shown(getattr(self, name))}.")
        if self.avoid is not None:
            instance(self.avoid, SoftBan, "avoid", GenerationError)
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", read_vocabulary(self.vocabulary))
        for name in ("skip_forced", "record", "heal"):
            flag(getattr(self, name), name, GenerationError)
        whole(self.max_tokens, "max_tokens", GenerationError, least=1)
        eos, width = optional_ids(self.eos, "eos", GenerationError), getattr(self.model, "vocab_size", None)
        if eos and width is not None and not 0 <= min(eos) <= max(eos) < width:
            raise GenerationError(
                f"The argument 'eos' has the ids {shown(eos)}, but the model has {width} tokens, so no row would end. "
                f"Take the ids from the tokenizer of this model."
            )

    def _check_methods(self, name: str, methods: Sequence[str], remedy: str) -> None:
        given = getattr(self, name)
        for method in methods:
            if isinstance(given, type) or not callable(getattr(given, method, None)):
                raise GenerationError(
                    f"The argument {name!r} must have a method {method}, but is {shown(given)}. {remedy}"
                )

    def __call__(
        self,
        prompts: str | Sequence[Any],
        *,
        seed: int = 0,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> list[Generated]:
        """Generate all sequences to their ends.

        Args:
            prompts: a text, token ids, or a list of either.
            seed: seed of all random draws.
            on_progress: called after every step (not with beam search or particles); without it several sequences show
                a bar of tqdm, where that is installed, in terminals and notebooks (see
                :func:`~logitloom.display.progress.progress_bar`).

        Returns:
            All sequences, in the order of prompts and samples (of beams: best first; of particles: those whose weight
            is not 0).
        """
        if self.heal:
            generator, healed = self._healed(self.encode(prompts))
            found = generator._generate(healed.prompts, seed, on_progress, [len(text) for text in healed.texts])
            return [replace(one, healed=len(healed.removed[one.prompt])) for one in found]
        ids = self.encode(prompts)
        return self._generate(ids, seed, on_progress, [0] * len(ids))

    def _generate(
        self, ids: list[list[int]], seed: int, on_progress: Callable[[Progress], None] | None, skip: Sequence[int]
    ) -> list[Generated]:
        """Generate all sequences; the texts of each prompt lack their first ``skip`` bytes."""
        if isinstance(self.strategy, BeamSearch):
            return self._search(ids, seed, skip)
        if isinstance(self.strategy, Particles):
            return self._weighted(ids, seed, skip)
        samples = self.strategy.samples
        tokens: list[list[int]] = [[] for _ in range(len(ids) * samples)]
        logprobs, forced = [0.0] * len(tokens), [0] * len(tokens)
        sampled: list[list[Sampled]] = [[] for _ in tokens]
        results: dict[int, Generated] = {}
        started, total = time.monotonic(), 0
        several = on_progress is None and len(tokens) > 1
        with progress_bar(len(tokens), "sequences", shown=None if several else False) as advance:
            for emission in self._emissions(ids, seed, skip):
                row = emission.row
                tokens[row] += emission.tokens
                logprobs[row] += emission.logprob
                forced[row] += emission.forced
                sampled[row] += emission.sampled
                total += len(emission.tokens)
                if emission.finish is not None:
                    advance(1)
                    results[row] = self._generated(
                        row // samples, row % samples, tokens[row], logprobs[row], emission.finish, emission.cut,
                        skip[row // samples],
                    )  # fmt: skip
                    results[row] = replace(results[row], forced=forced[row], sampled=tuple(sampled[row]))
                if on_progress is not None:
                    on_progress(Progress(total, len(results), len(tokens), time.monotonic() - started))
        return [results[row] for row in sorted(results)]

    def stream(self, prompts: str | Sequence[Any], *, seed: int = 0) -> Iterator[Piece]:
        """Generate piece by piece. The concatenated texts of a sequence are equal to the text that a call returns.

        Where the chain has a processor whose texts are values (``json``, ``tool_call``), each piece has the value so
        far: :class:`~logitloom.generation.partial_values.Partial`.

        Raises:
            GenerationError: for beam search and particles, whose sequences are known only at the end, or without a
                vocabulary.
        """
        if isinstance(self.strategy, BeamSearch):
            raise GenerationError("Beam search cannot stream: which beam wins is known only at the end.")
        if isinstance(self.strategy, Particles):
            raise GenerationError("Particles cannot stream: which of them are kept is known only at the end.")
        vocabulary = self.known_vocabulary
        if vocabulary is None:
            raise GenerationError("Streaming text needs a vocabulary: give Generator(vocabulary=...) or a tokenizer.")
        generator, ids, samples = self, self.encode(prompts), self.strategy.samples
        skip = [0] * len(ids)
        if self.heal:
            generator, healed = self._healed(ids)
            ids, skip = healed.prompts, [len(text) for text in healed.texts]
        texts = [_RowText(vocabulary, count) for count in skip for _ in range(samples)]
        readers = [(self._value_reader(), _RowText(vocabulary, text.skip, special=True)) for text in texts]
        for emission in generator._emissions(ids, seed, skip):
            text = texts[emission.row].add(emission)
            prompt, sample = divmod(emission.row, samples)
            partial, (reader, shown) = None, readers[emission.row]
            if reader is not None:
                partial = reader.add(shown.add(emission))
                if emission.finish not in (None, "length"):
                    last = reader.end()
                    partial = replace(last, completed=partial.completed + last.completed)
            yield Piece(prompt, sample, emission.tokens, text, emission.finish, emission.sampled, partial)

    def _value_reader(self) -> ValueReader | None:
        found = (value_reader_of(link.processor) for link in self.chain.links)
        return next((reader for reader in found if reader is not None), None)

    def encode(self, prompts: str | Sequence[Any]) -> list[list[int]]:
        """Prompts as token ids.

        Raises:
            GenerationError: if text is given without a tokenizer.
        """
        if isinstance(prompts, str):
            return [self._encode_one(prompts)]
        if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, Mapping, type)):
            raise GenerationError(
                f"The argument 'prompts' must be a text, ids, or a list, but is {shown(prompts)}."
                f"{about_messages(prompts)}"
            )
        given = prompts.tolist() if hasattr(prompts, "tolist") else list(prompts)  # an array of any library
        given = given if isinstance(given, list) else [given]
        if len(given) > 0 and isinstance(given[0], Integral):
            given = [given]
        return [self._encode_one(prompt) for prompt in given]

    def _encode_one(self, prompt: Any) -> list[int]:
        if not isinstance(prompt, str):
            return list(ids(prompt, "prompts", GenerationError))
        if self.encoder is None:
            raise GenerationError("Prompts as text need Generator(tokenizer=...); or give token ids.")
        return self.encoder.encode(prompt)

    @cached_property
    def encoder(self) -> TextEncoder | None:
        """The tokenizer that encodes prompts as text; None without a tokenizer.

        Raises:
            VocabularyError: if the tokenizer cannot encode text.
        """
        return None if self.tokenizer is None else text_encoder(self.tokenizer)

    def _healed(self, ids: list[list[int]]) -> tuple[Generator, Healed]:
        """The generator for shortened prompts, and these prompts."""
        healed = heal(self.chain, ids, vocabulary=self.known_vocabulary, in_order=True)
        # The prompts are ids already.
        return replace(self, chain=healed.chain, vocabulary=self.known_vocabulary, tokenizer=None), healed

    @cached_property
    def known_vocabulary(self) -> Vocabulary | None:
        """The bytes of the tokens: the given vocabulary, the chain's, or the tokenizer's; None if unknown.

        Raises:
            VocabularyError: if an id has other bytes in the tokenizer.
        """
        known = self.chain.vocabulary if self.vocabulary is None else self.vocabulary
        if self.tokenizer is None:
            return known
        try:
            own = read_vocabulary(self.tokenizer)
        except VocabularyError:  # the tokenizer encodes, but does not say which bytes its tokens are
            return known
        if known is not None and known is not own:
            _require_alike(known, own)
        return own if known is None else known

    def _emissions(self, ids: list[list[int]], seed: int, skip: Sequence[int]) -> Iterator[Emission]:
        assert not isinstance(self.strategy, (BeamSearch, Particles))
        for emission in self._decoded(ids, seed, skip):
            if self.on_emission is not None:
                self.on_emission(emission)
            yield emission

    def _decoded(self, ids: list[list[int]], seed: int, skip: Sequence[int]) -> Iterator[Emission]:
        strategy, given = self.strategy, self._given(seed) | {"record": self.record}
        assert not isinstance(strategy, (BeamSearch, Particles))
        if isinstance(strategy, ContrastiveSearch):
            return contrastive_search(self.model, ids, self.chain, strategy, **given)
        if self.avoid is not None:
            return decode_avoiding(self.model, ids, self.chain, strategy, self.avoid, skip=skip, **given)
        given["skip_forced"] = self.skip_forced
        if self.candidates is not None:
            return speculate(self.model, ids, self.chain, strategy, self.candidates, on_round=self.on_round, **given)
        return decode(self.model, ids, self.chain, strategy, **given)

    def _given(self, seed: int) -> dict[str, Any]:
        """The arguments that all decoding loops take."""
        return {"max_tokens": self.max_tokens, "seed": seed, "eos": self.eos, "vocabulary": self.known_vocabulary}

    def _search(self, ids: list[list[int]], seed: int, skip: Sequence[int]) -> list[Generated]:
        assert isinstance(self.strategy, BeamSearch)
        with waiting(f"searching with {self.strategy.beams} beams"):
            found = beam_search(self.model, ids, self.chain, self.strategy, **self._given(seed))
        return [
            replace(self._generated(p, n, h.tokens, h.logprob, h.finish, h.cut, skip[p]), score=h.score)
            for p, hypotheses in enumerate(found)
            for n, h in enumerate(hypotheses)
        ]

    def _weighted(self, ids: list[list[int]], seed: int, skip: Sequence[int]) -> list[Generated]:
        assert isinstance(self.strategy, Particles)
        with waiting(f"decoding with {self.strategy.samples} particles"):
            found = decode_weighted(self.model, ids, self.chain, self.strategy, **self._given(seed))
        return [
            replace(
                self._generated(p, each.sample, each.tokens, each.logprob, each.finish, each.cut, skip[p]),
                log_weight=each.log_weight,
            )
            for p, particles in enumerate(found)
            for each in particles
        ]

    def _generated(
        self, prompt: int, sample: int, tokens: Sequence[int], logprob: float, finish: FinishReason, cut: int, skip: int
    ) -> Generated:
        text = None
        vocabulary = self.known_vocabulary
        if vocabulary is not None:
            data = vocabulary.text_bytes(tokens)
            text = data[skip : max(len(data) - cut, 0)].decode("utf-8", "replace")
        return Generated(prompt, sample, tuple(tokens), text, logprob, finish, score=logprob)


def _require_alike(known: Vocabulary, own: Vocabulary) -> None:
    """Refuse a tokenizer in which an id stands for other bytes than in the vocabulary that texts are read with.

    Special ids and the end of sequence may differ.

    Raises:
        VocabularyError: naming the first such id.
    """
    pairs = zip(known.token_bytes, own.token_bytes, strict=False)
    wrong = next((token for token, (one, other) in enumerate(pairs) if one != other and one and other), None)
    if wrong is not None:
        raise VocabularyError(
            f"The token {wrong} is {known.token_bytes[wrong]!r} in the vocabulary {known.name!r} of the chain or "
            f"generator, but {own.token_bytes[wrong]!r} in the generator's tokenizer ({own.name}). Load the chain with "
            f"the tokenizer of the model."
        )
