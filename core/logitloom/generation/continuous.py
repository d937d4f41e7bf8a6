"""Continuous generation: the result of one generation is the start of the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import about_messages, instance, names
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.constraints import StopStrings
from logitloom.errors import (
    ContextLengthExceeded,
    GenerationError,
    PromptTypeError,
    SampleMismatchError,
    SlicingError,
)
from logitloom.generation.beam_search import BeamSearch, Carried, beam_search
from logitloom.generation.contrastive_search import ContrastiveSearch
from logitloom.generation.generator import Generator
from logitloom.generation.healing import Healed, heal
from logitloom.generation.loop import Sampler
from logitloom.generation.particles import Particles
from logitloom.generation.prefix_cache import PrefixCachedModel
from logitloom.generation.sequence_state import SequenceState
from logitloom.generation.token_prefix import common_prefix, continuation_ids, retokenized
from logitloom.vocabulary import Vocabulary

__all__ = ["ContinuousGenerator", "continuous"]

Ids = tuple[int, ...]


def continuous(generator: Generator) -> ContinuousGenerator:
    """A generator whose results can be continued, by itself or by another generator of the same model.

    Args:
        generator: model, chain and strategy; its ``strategy.samples`` is the number of sequences per prompt.

    Returns:
        A function of a text, texts, token ids or a :class:`SequenceState`, that returns a :class:`SequenceState`.

    Example:
        >>> from logitloom_contrib.llama import random_model
        >>> words = Vocabulary([bytes([32 + i]) for i in range(64)])
        >>> write = continuous(Generator(random_model("numpy"), vocabulary=words))
        >>> state = write([40, 41], max_tokens=3)
        >>> state = write(state, max_tokens=2)
        >>> state.token_ids.shape, state.kv_cache.lengths.tolist()
        ((1, 7), [6])
    """
    return ContinuousGenerator(generator)


@dataclass(frozen=True)
class ContinuousGenerator:
    """The result of :func:`continuous`.

    Args:
        generator: model, chain and strategy.

    Raises:
        GenerationError: for contrastive search and particles.
    """

    generator: Generator

    def __post_init__(self) -> None:
        instance(self.generator, Generator, "generator", GenerationError)
        if isinstance(self.generator.strategy, ContrastiveSearch):
            raise GenerationError(
                "Contrastive search cannot be continued from a state: it needs the hidden states of all tokens, which "
                "the cache of a state does not hold. Call the Generator itself, or use another strategy."
            )
        if isinstance(self.generator.strategy, Particles):
            raise GenerationError(
                "Particles cannot be continued from a state: their weights hold for whole texts, and a state begins "
                "the chain anew. Call the Generator itself, or use another strategy."
            )

    def __call__(
        self,
        prompt: str | Sequence[Any] | NDArray[np.integer[Any]] | SequenceState,
        max_tokens: int | None = None,
        stop_at: str | Sequence[str] | None = None,
        seed: int = 0,
    ) -> SequenceState:
        """Generate once, from prompts or from the end of a state.

        The chain starts anew, with the whole sequence so far as its prompt. New log-probabilities are added to the
        weights, and a beam search optimises the whole sequence. The model reads only tokens that the state's cache does
        not hold.

        Args:
            prompt: a text, a list of texts, token ids, a list of those, or a state. An end-of-sequence token at the end
                of a row of a state is removed before the row is continued.
            max_tokens: most new tokens; default: the generator's.
            stop_at: one or several texts; a row ends after the first of them that its new text contains.
            seed: seed of all random draws.

        Returns:
            The sequences, prompts included. End-of-sequence tokens are left out; the weights include their
            log-probabilities.

        Raises:
            SampleMismatchError: if a state has another number of samples than the generator.
            ContextLengthExceeded: if a sequence already fills the model's context.
            PromptTypeError: if ``prompt`` is something else.
        """
        generator = self._configured(max_tokens, stop_at)
        samples = generator.strategy.samples
        if isinstance(prompt, SequenceState):
            state = prompt
            self._check_vocabulary(state)
        else:
            state = self._first(prompt, samples)
        if state.samples != samples:
            raise SampleMismatchError(
                f"Continuous generation can't proceed, Generator has a `num_samples == {samples}` and SequenceState "
                f"has a `num_samples == {state.samples}`. Each sequence of the state is continued by one sample. A new "
                f"generator with `num_samples == {state.samples}` should be utilized to proceed."
            )
        rows = state.rows if state is not prompt else tuple(self._without_end(row) for row in state.rows)
        weights = _distinct(rows, state.weights)
        healed: Healed | None = None
        if generator.heal:
            search = isinstance(generator.strategy, BeamSearch)  # the beams of a prompt are not in order
            healed = heal(generator.chain, rows, vocabulary=self._vocabulary, in_order=not search)
            generator = replace(generator, chain=healed.chain, vocabulary=self._vocabulary, heal=False)
            rows = tuple(map(tuple, healed.prompts))
        limit = generator.model.max_length
        for i, row in enumerate(rows):
            if len(row) >= limit:
                raise ContextLengthExceeded(
                    f"Row {i} has {len(row)} tokens, and the model takes {limit} at most, so there is no room to "
                    f"continue it. Shorten it, for example by state[...] with a slice of its text."
                )
        cache = state.held_cache if state.model is generator.model else None
        if cache is not None:
            cache = cache.crop([min(int(n), len(row)) for n, row in zip(cache.lengths, rows, strict=True)])
        search = isinstance(generator.strategy, BeamSearch)
        model = PrefixCachedModel(generator.model, rows, cache, search=search)
        go_on = _search if search else _sample
        whole, weights, scored, texts = go_on(replace(generator, model=model), rows, state, weights, seed)
        if healed is not None:
            whole, texts = _with_ends_of_prompts(whole, texts, healed, self._vocabulary)
        return self._state(model, state, whole, rows, texts, weights, scored)

    # -- before --------------------------------------------------------------------------------------

    def _configured(self, max_tokens: int | None, stop_at: str | Sequence[str] | None) -> Generator:
        generator = self.generator
        if max_tokens is not None:
            generator = replace(generator, max_tokens=max_tokens)
        if stop_at is None:
            return generator
        strings = (stop_at,) if isinstance(stop_at, str) else names(stop_at, "stop_at", GenerationError)
        return replace(generator, chain=_stopping(generator.chain, strings, self._vocabulary))

    def _first(self, prompt: Any, samples: int) -> SequenceState:
        """The state before the first generation."""
        given, listed = prompt, getattr(prompt, "tolist", None)
        if callable(listed) and not isinstance(prompt, type):
            prompt = listed()  # an array of any library
        if not _is_prompt(prompt):
            what = "an empty list" if isinstance(prompt, (list, tuple)) and not prompt else type(given).__name__
            if isinstance(prompt, (list, tuple)) and prompt:
                what = f"{what} of {type(prompt[0]).__name__}"
            raise PromptTypeError(
                f"Continuous generation continues a text, a list of texts, token ids, a list of those, or a "
                f"SequenceState, but got {what}.{about_messages(given)}"
            )
        ids = self.generator.encode(prompt)
        return SequenceState(
            [row for row in ids for _ in range(samples)], np.zeros((len(ids), samples)),
            tokenizer=self.generator.tokenizer, vocabulary=self._vocabulary, model=self.generator.model,
        )  # fmt: skip

    @property
    def _vocabulary(self) -> Vocabulary | None:
        return self.generator.known_vocabulary

    def _check_vocabulary(self, state: SequenceState) -> None:
        mine, theirs = self._vocabulary, state.vocabulary
        if mine is None or theirs is None or mine is theirs or mine.fingerprint == theirs.fingerprint:
            return
        raise GenerationError(
            f"The SequenceState has the vocabulary {theirs!r} and the generator {mine!r}, so its ids would mean "
            f"something else. Go on from its texts: list(state)."
        )

    def _without_end(self, row: Ids) -> Ids:
        vocabulary = self._vocabulary
        eos = self.generator.eos
        ends = eos if eos is not None else vocabulary.eos if vocabulary is not None else ()
        length = len(row)
        while length and row[length - 1] in ends:
            length -= 1
        return row[:length]

    # -- after ---------------------------------------------------------------------------------------

    def _state(
        self,
        model: PrefixCachedModel,
        before: SequenceState,
        whole: list[tuple[int, Ids]],
        beginnings: Sequence[Ids],
        texts: list[str | None],
        weights: NDArray[np.float64],
        scored: NDArray[np.int64],
    ) -> SequenceState:
        generated = [(*beginnings[b], *new) for b, new in whole]
        rows = [(*beginnings[b], *self._within(new, text, before)) for (b, new), text in zip(whole, texts, strict=True)]
        cache = model.computed(generated)
        if cache is not None:
            held = [
                min(int(n), common_prefix(row, full), max(len(row) - 1, 0))
                for n, row, full in zip(cache.lengths, rows, generated, strict=True)
            ]
            cache = cache.crop(held) if any(held) else None
        return SequenceState(
            rows, weights, scored=scored,
            tokenizer=self.generator.tokenizer if self.generator.tokenizer is not None else before.tokenizer,
            vocabulary=self._vocabulary if self._vocabulary is not None else before.vocabulary,
            model=self.generator.model, cache=cache,
        )  # fmt: skip

    def _within(self, tokens: Ids, text: str | None, before: SequenceState) -> Ids:
        """Tokens of the new text after a stop string has shortened it."""
        vocabulary = self._vocabulary
        if text is None or vocabulary is None or vocabulary.decode(tokens) == text:
            return tokens
        tokenizer = self.generator.tokenizer if self.generator.tokenizer is not None else before.tokenizer
        try:
            return retokenized(tokens, text, vocabulary, tokenizer)
        except SlicingError:
            return tuple(continuation_ids(text, tokenizer)) if text else ()


_Found = tuple[list[tuple[int, Ids]], NDArray[np.float64], NDArray[np.int64], "list[str | None]"]


def _sample(
    generator: Generator, rows: Sequence[Ids], state: SequenceState, distinct: NDArray[np.float64], seed: int
) -> _Found:
    """Continue each row by one sequence.

    Returns:
        Per sequence the number of its start sequence and its new tokens; the weights, and the number of tokens in each;
        the new texts.
    """
    del distinct
    assert not isinstance(generator.strategy, (BeamSearch, ContrastiveSearch, Particles))
    found = replace(generator, strategy=_one_each(generator.strategy))(rows, seed=seed)
    gained = np.asarray([g.logprob for g in found]).reshape(state.weights.shape)
    scored = np.asarray([len(g.tokens) + (g.finish == "eos") for g in found]).reshape(state.weights.shape)
    whole = [(g.prompt, g.tokens) for g in found]
    return whole, state.weights + gained, state.scored + scored, [g.text for g in found]


def _search(
    generator: Generator, rows: Sequence[Ids], state: SequenceState, distinct: NDArray[np.float64], seed: int
) -> _Found:
    """Continue all sequences of each prompt by one beam search; returns as :func:`_sample`.

    Args:
        distinct: ``[batch, samples]``: the weights of the state, with -inf for repeated rows.
    """
    settings, samples = generator.strategy, state.samples
    assert isinstance(settings, BeamSearch)
    vocabulary = generator.vocabulary if generator.vocabulary is not None else generator.chain.vocabulary
    found = beam_search(
        generator.model, rows, generator.chain, settings, max_tokens=generator.max_tokens, seed=seed, eos=generator.eos,
        vocabulary=vocabulary, carried=Carried(distinct, state.scored),
    )  # fmt: skip
    whole: list[tuple[int, Ids]] = []
    texts: list[str | None] = []
    for p, hypotheses in enumerate(found):
        if len(hypotheses) < samples:
            raise GenerationError(
                f"The search found {len(hypotheses)} sequences for prompt {p}, but a state with {samples} samples "
                f"needs as many of each. Ask for fewer samples, or loosen the chain."
            )
        for h in hypotheses:
            whole.append((p * samples + h.beginning, h.tokens))
            data = vocabulary.text_bytes(h.tokens) if vocabulary is not None else b""
            texts.append(data[: max(len(data) - h.cut, 0)].decode("utf-8", "replace") if h.cut else None)
    weights = np.asarray([[h.logprob for h in hypotheses] for hypotheses in found])
    carried = [state.scored[p, h.beginning] + len(h.tokens) + (h.finish == "eos") for p, hypotheses in enumerate(found)
               for h in hypotheses]  # fmt: skip
    return whole, weights, np.asarray(carried).reshape(weights.shape), texts


def _with_ends_of_prompts(
    whole: list[tuple[int, Ids]], texts: list[str | None], healed: Healed, vocabulary: Vocabulary | None
) -> tuple[list[tuple[int, Ids]], list[str | None]]:
    """The new tokens and texts; a row whose new tokens do not write the whole removed text gets the removed tokens."""
    assert vocabulary is not None
    short = [len(vocabulary.text_bytes(new)) < len(healed.texts[b]) for b, new in whole]
    kept = [(b, tuple(healed.removed[b]) if cut else new) for (b, new), cut in zip(whole, short, strict=True)]
    return kept, [None if cut else text for text, cut in zip(texts, short, strict=True)]


def _distinct(rows: Sequence[Ids], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights, with -inf for all but the best of equal rows of a prompt."""
    kept = np.array(weights)
    for p in range(weights.shape[0]):
        best: dict[Ids, int] = {}
        for s in range(weights.shape[1]):
            row = rows[p * weights.shape[1] + s]
            first = best.setdefault(row, s)
            if first != s:
                loser = s if weights[p, s] <= weights[p, first] else first
                best[row] = s + first - loser
                kept[p, loser] = NEG_INF
    return kept


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return True
    if not isinstance(prompt, (list, tuple)) or not prompt:
        return False
    if all(isinstance(token, (int, np.integer)) for token in prompt):
        return True
    return all(
        isinstance(row, str)
        or (isinstance(row, (list, tuple, np.ndarray)) and all(isinstance(t, (int, np.integer)) for t in row))
        for row in prompt
    )


def _stopping(chain: Chain, strings: tuple[str, ...], vocabulary: Vocabulary | None) -> Chain:
    """The chain with a last processor that ends rows after one of the strings."""
    label, number = "stop", 1
    while label in chain.labels:
        number += 1
        label = f"stop#{number}"
    if chain.vocabulary is None and vocabulary is not None:
        chain = chain.configure(tokenizer=vocabulary)
    return chain.part([*chain.links, Link(label, None, None, processor=StopStrings(strings, include=True))])


class _OneEach:
    """Wraps a sampler so that the sampler gives one sequence per row."""

    samples = 1

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def choose(self, backend: Backend, logits: Array, seeds: Array, lengths: Array) -> tuple[Array, Array]:
        return self._sampler.choose(backend, logits, seeds, lengths)


def _one_each(sampler: Sampler) -> Sampler:
    if is_dataclass(sampler):
        one: Sampler = replace(sampler, samples=1)
        return one
    return _OneEach(sampler)
