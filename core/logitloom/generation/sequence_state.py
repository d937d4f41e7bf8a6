"""Sequences between two generations: tokens, weights and key-value cache, which can be sliced and joined like text."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import MOST_ROWS, instance, shown, whole
from logitloom.context import padded
from logitloom.display.warning import warn
from logitloom.errors import (
    BatchMismatchError,
    GenerationError,
    SampleMismatchError,
    SequenceIndexError,
    SlicingError,
)
from logitloom.generation import state_file
from logitloom.generation.generator import Generator
from logitloom.generation.model import Cache, ModelAdapter
from logitloom.generation.state_file import SavedSequences
from logitloom.generation.token_prefix import common_prefix, continuation_ids, retokenized
from logitloom.host.text_encoder import text_encoder
from logitloom.vocabulary import Vocabulary

__all__ = ["SequenceState"]

CACHE_LOST = "The current slicing does not preserve KV Cache, KV Cache will be recomputed in the next generation."


class SequenceState:
    """``samples`` sequences for each of ``batch`` prompts, which a generation can continue. Immutable.

    Made by :func:`logitloom.generation.continuous`. There are ``N = batch * samples`` rows, ordered by prompt, then by
    sample.

    ``state[batch, sample, chars]`` selects prompts, samples, and characters of the decoded text. An axis of length 1 is
    left out (``state[sample, chars]``, ``state[batch, chars]``, ``state[chars]``); a state of one sequence may also be
    indexed with three axes. A slice of characters gives a state, a single character a list of strings.
    ``state + text``, ``state + [text, ...]`` (one per row) and ``state + state`` join sequences.

    All operations keep the cache of the unchanged first tokens of a row. Missing parts of the cache are computed on
    demand, for all new tokens of all rows in one forward pass.

    Args:
        rows: ``N`` token id sequences, ragged.
        weights: ``[batch, samples]`` cumulative log-probabilities.
        scored: ``[batch, samples]``, number of tokens (an end of sequence included) in each weight.
        tokenizer: for added text and for cuts through a token; a tokenizer of any library.
        vocabulary: bytes of the tokens.
        model: the model of the cache.
        cache: the cache of the first tokens of each row, at most all but the last; None if no token is cached.

    Example:
        >>> words = Vocabulary([b"one ", b"two "])
        >>> state = SequenceState([(0, 1)], np.zeros((1, 1)), vocabulary=words)
        >>> str(state), str(state[:4]), state[0]
        ("SequenceState{'one two '}", "SequenceState{'one '}", ['o'])
    """

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        weights: NDArray[np.floating[Any]],
        *,
        scored: NDArray[np.integer[Any]] | None = None,
        tokenizer: Any = None,
        vocabulary: Vocabulary | None = None,
        model: ModelAdapter | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.rows: tuple[tuple[int, ...], ...] = tuple(tuple(int(token) for token in row) for row in rows)
        self.weights: NDArray[np.float64] = np.array(weights, dtype=np.float64)
        self.scored: NDArray[np.int64] = np.zeros(self.weights.shape, np.int64) if scored is None else np.array(scored)
        self.tokenizer, self.vocabulary, self.model = tokenizer, vocabulary, model
        self._cache = cache
        if self.weights.ndim != 2 or self.weights.size != len(self.rows) or not self.rows:
            raise GenerationError(
                f"A sequence state has [batch, samples] weights, one for each row, but got weights of shape "
                f"{list(self.weights.shape)} for {len(self.rows)} rows."
            )
        self.weights.flags.writeable = self.scored.flags.writeable = False

    # -- content -------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Number of prompts."""
        return int(self.weights.shape[0])

    @property
    def samples(self) -> int:
        """Sequences per prompt."""
        return int(self.weights.shape[1])

    @cached_property
    def token_ids(self) -> NDArray[np.int64]:
        """``[N, L]`` host integers, padded at the left with an end-of-sequence id (0 if there is none)."""
        eos = self.vocabulary.eos if self.vocabulary is not None else ()
        ids = np.full(self.attention_mask.shape, eos[0] if eos else 0, dtype=np.int64)
        ids[self.attention_mask == 1] = [token for row in self.rows for token in row]
        ids.flags.writeable = False
        return ids

    @cached_property
    def attention_mask(self) -> NDArray[np.int64]:
        """``[N, L]``: 1 at the tokens of ``token_ids``, 0 at its padding."""
        longest = max(len(row) for row in self.rows)
        lengths = np.asarray([len(row) for row in self.rows])
        mask: NDArray[np.int64] = (np.arange(longest) >= longest - lengths[:, None]).astype(np.int64)
        mask.flags.writeable = False
        return mask

    @property
    def held_cache(self) -> Cache | None:
        """The cache as computed so far, which may have fewer tokens than ``kv_cache``."""
        return self._cache

    @property
    def kv_cache(self) -> Cache | None:
        """The model's cache of all tokens of each row but the last, or None if no token is cached.

        If ``held_cache`` lacks tokens (added text, forced tokens), this property computes them in one forward pass. A
        generation that continues the state does not need this property.
        """
        if self._cache is None or self.model is None:
            return self._cache
        missing = [row[n : max(len(row) - 1, 0)] for row, n in zip(self.rows, self._cache.lengths, strict=True)]
        if any(missing):
            self._cache = self.model.forward(padded(missing), self._cache)[1]
        return self._cache

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The decoded text of each row. Special tokens have no text.

        Raises:
            GenerationError: without a vocabulary.
        """
        vocabulary = self._words
        return tuple(vocabulary.decode(row) for row in self.rows)

    @property
    def _words(self) -> Vocabulary:
        if self.vocabulary is None:
            raise GenerationError(
                "The text of these sequences is not known, because their generator has no vocabulary. Give "
                "Generator(vocabulary=...), or a chain that was loaded with a tokenizer."
            )
        return self.vocabulary

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __str__(self) -> str:
        if self.vocabulary is None:
            return repr(self)
        if len(self.rows) == 1:
            return f"SequenceState{{{self.texts[0]!r}}}"
        if 1 in self.weights.shape:
            return f"SequenceState{{{list(self.texts)}}}"
        each = self.samples
        groups = (", ".join(map(repr, self.texts[b * each : (b + 1) * each])) for b in range(self.batch))
        return f"SequenceState{{[{', '.join(f'Samples({group})' for group in groups)}]}}"

    def __repr__(self) -> str:
        lengths = [len(row) for row in self.rows]
        held = [0] * len(lengths) if self._cache is None else self._cache.lengths.tolist()
        return f"SequenceState(batch={self.batch}, samples={self.samples}, tokens={lengths}, cached={held})"

    # -- slices --------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> SequenceState | list[str]:
        """A selection of the sequences, and of the characters of their texts.

        Args:
            key: ``[batch, sample, chars]``, each an integer or a slice, without the axes of length 1.

        Returns:
            A state for a slice of characters; its weights are those of the sequences. For one character a list of
            strings, in the order of rows.

        Raises:
            SequenceIndexError: if the number of axes is wrong, or an index is outside its axis.
        """
        batch, sample, chars = self._axes(key)
        for given, what in ((batch, "prompts"), (sample, "samples"), (chars, "characters")):
            _check_slice(given, what)
        prompts = _indices(batch, self.batch, "prompts")
        samples = _indices(sample, self.samples, "samples")
        index = [b * self.samples + s for b in prompts for s in samples]
        if isinstance(chars, slice):
            return self._part(index, (len(prompts), len(samples)), chars)
        position = _whole_number(chars, "characters")
        for i in index:
            if not -len(self.texts[i]) <= position < len(self.texts[i]):
                raise SequenceIndexError(
                    f"Character {position} was asked of row {i} of a SequenceState, whose text has "
                    f"{len(self.texts[i])} characters. Use a slice for whatever there is."
                )
        return [self.texts[i][position] for i in index]

    def _axes(self, key: Any) -> tuple[Any, Any, Any]:
        keys = key if isinstance(key, tuple) else (key,)
        everything = slice(None)
        if len(self.rows) == 1:
            if len(keys) in (1, 3):
                return (everything, everything, keys[0]) if len(keys) == 1 else (keys[0], keys[1], keys[2])
            wanted = "be [chars], or a Tuple of size 3 [batch, sample, chars]"
        elif self.batch == 1:
            if len(keys) == 2:
                return everything, keys[0], keys[1]
            wanted = "be a Tuple of size 2 [sample, chars]"
        elif self.samples == 1:
            if len(keys) == 2:
                return keys[0], everything, keys[1]
            wanted = "be a Tuple of size 2 [batch, chars]"
        else:
            if len(keys) == 3:
                return keys[0], keys[1], keys[2]
            wanted = "be a Tuple of size 3 [batch, sample, chars]"
        raise SequenceIndexError(
            f"The index of a SequenceState with {self.batch} prompts and {self.samples} samples of each should "
            f"{wanted}, but it has {len(keys)} axes."
        )

    def _part(self, index: list[int], shape: tuple[int, int], chars: slice) -> SequenceState:
        rows = [self._cut(i, chars) for i in index]
        taken = np.asarray(index, dtype=np.int32)
        cache = None
        if self._cache is not None:
            held = [min(int(self._cache.lengths[i]), common_prefix(self.rows[i], row), max(len(row) - 1, 0))
                    for i, row in zip(index, rows, strict=True)]  # fmt: skip
            if any(held):
                cache = self._cache.take_rows(taken).crop(held)
            else:
                warn(CACHE_LOST)
        return self._with(
            rows, self.weights.reshape(-1)[taken].reshape(shape), self.scored.reshape(-1)[taken].reshape(shape), cache
        )

    def _cut(self, i: int, chars: slice) -> tuple[int, ...]:
        """The tokens of a part of the text of row ``i``."""
        row = self.rows[i]
        if (chars.start in (None, 0)) and chars.stop is None and chars.step in (None, 1):
            return row
        text = self.texts[i]
        wanted = text[chars]
        if wanted == text:
            return row
        try:
            return retokenized(row, wanted, self._words, self.tokenizer)
        except SlicingError:
            return self._encoded(wanted)

    def _encoded(self, text: str) -> tuple[int, ...]:
        if self.tokenizer is None:
            return tuple(continuation_ids(text, None)) if text else ()
        return tuple(text_encoder(self.tokenizer).encode(text))

    def fork(self, samples: int) -> SequenceState:
        """Each sequence repeated ``samples`` times: ``[batch, self.samples * samples]``. The cache is copied once.

        Raises:
            GenerationError: if ``samples`` is below 1.
        """
        samples = whole(samples, "samples", GenerationError, least=1, most=MOST_ROWS)
        index = np.repeat(np.arange(len(self.rows), dtype=np.int32), samples)
        cache = None if self._cache is None else self._cache.take_rows(index)
        return self._with(
            [self.rows[i] for i in index],
            np.repeat(self.weights, samples, axis=1),
            np.repeat(self.scored, samples, axis=1),
            cache,
        )

    # -- joining -------------------------------------------------------------------------------------

    def __add__(self, other: SequenceState | str | Sequence[str]) -> SequenceState:
        """The sequences with other sequences, or texts, appended. Weights of states are added; text resets them to 0.

        Raises:
            BatchMismatchError: if there is not one text for each row, or the numbers of prompts differ.
            SampleMismatchError: if the numbers of samples differ.
            GenerationError: if the states have different vocabularies, or text is added without a tokenizer.
        """
        if isinstance(other, SequenceState):
            return self._joined(other)
        texts = [other] if isinstance(other, str) else other
        if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
            return NotImplemented
        if len(texts) != len(self.rows):
            raise BatchMismatchError(
                f"A sequence and a string were added and their batch sizes were different. The state has "
                f"{len(self.rows)} sequences, but there are {len(texts)} texts; give one text for each."
            )
        rows = [
            (*row, *continuation_ids(text, self.tokenizer)) if row else self._encoded(text)
            for row, text in zip(self.rows, texts, strict=True)
        ]
        return self._with(rows, np.zeros_like(self.weights), np.zeros_like(self.scored), self._cache)

    def _joined(self, other: SequenceState) -> SequenceState:
        if self.batch != other.batch:
            raise BatchMismatchError(
                f"Sequences were added and their batch sizes were different. The left one has {self.batch} prompts, "
                f"the right one {other.batch}."
            )
        if self.samples != other.samples:
            raise SampleMismatchError(
                f"Sequences were added and their numbers of samples were different. The left SequenceState has "
                f"`num_samples == {self.samples}`, the right one `num_samples == {other.samples}`."
            )
        mine, theirs = self.vocabulary, other.vocabulary
        if mine is not theirs and (mine is None or theirs is None or mine.fingerprint != theirs.fingerprint):
            raise GenerationError(
                f"Sequences were added that have different vocabularies, {mine!r} and {theirs!r}, so that their ids do "
                f"not mean the same. Add the text of the right one: state + list(other)."
            )
        rows = [
            (*left, *(right[self._opening(right) :] if left else right))
            for left, right in zip(self.rows, other.rows, strict=True)
        ]
        return self._with(rows, self.weights + other.weights, self.scored + other.scored, self._cache)

    def _opening(self, row: tuple[int, ...]) -> int:
        """The number of special tokens that the tokenizer adds at the beginning of a text, in this row."""
        return 0 if self.tokenizer is None else common_prefix(row, text_encoder(self.tokenizer).encode(""))

    def _with(
        self, rows: Sequence[tuple[int, ...]], weights: NDArray[Any], scored: NDArray[Any], cache: Cache | None
    ) -> SequenceState:
        return SequenceState(
            rows, weights, scored=scored, tokenizer=self.tokenizer, vocabulary=self.vocabulary, model=self.model,
            cache=cache,
        )  # fmt: skip

    # -- copies --------------------------------------------------------------------------------------

    def __copy__(self) -> SequenceState:
        """The state itself, because it is immutable."""
        return self

    def __deepcopy__(self, memo: Any) -> SequenceState:
        """The state itself, because it is immutable."""
        return self

    def __reduce__(self) -> Any:
        """Pickle tokens, weights, vocabulary and tokenizer, without the model and the cache.

        A generation that continues the copy computes the cache again; :meth:`save` and :meth:`load` keep it.
        """
        again = functools.partial(
            SequenceState, scored=self.scored, tokenizer=self.tokenizer, vocabulary=self.vocabulary
        )
        return again, (self.rows, self.weights)

    # -- files ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens, weights and the computed cache to a safetensors file; see :meth:`load`.

        Raises:
            GenerationError: if the package safetensors is not installed.
            WriteError: if the file cannot be written; an existing file is then unchanged.
        """
        fingerprint = None if self.vocabulary is None else self.vocabulary.fingerprint
        saved = SavedSequences(self.rows, self.weights, self.scored, fingerprint)
        state_file.save(path, saved, self.held_cache)

    @classmethod
    def load(cls, path: str | os.PathLike[str], generator: Generator) -> SequenceState:
        """Read a state that :meth:`save` wrote, in any process and on any backend, to continue its sequences.

        Args:
            path: the file.
            generator: a generator with the model, tokenizer and vocabulary with which the state was made.

        Raises:
            GenerationError: if the file is damaged, or of another kind, vocabulary or model, or safetensors is not
                installed.
        """
        instance(path, (str, os.PathLike), "path", GenerationError)
        instance(
            generator, Generator, "generator", GenerationError, "Of a ContinuousGenerator give its attribute generator."
        )
        vocabulary = generator.known_vocabulary
        saved, cache = state_file.load(path, generator.model, vocabulary)
        return cls(
            saved.rows, saved.weights, scored=saved.scored, tokenizer=generator.tokenizer, vocabulary=vocabulary,
            model=generator.model, cache=cache,
        )  # fmt: skip


def _check_slice(key: Any, what: str) -> None:
    if isinstance(key, slice):
        try:
            key.indices(0)
        except (TypeError, ValueError) as error:
            raise SequenceIndexError(
                f"The {what} of a SequenceState were given as {key} ({error}). Give whole numbers, and a step that is "
                f"not 0."
            ) from None


def _indices(key: Any, size: int, what: str) -> list[int]:
    """The indices that a key of one axis selects."""
    if isinstance(key, slice):
        found = list(range(size))[key]
        if not found:
            raise SequenceIndexError(f"The slice {key} selects none of the {size} {what} of a SequenceState.")
        return found
    position = _whole_number(key, what)
    if not -size <= position < size:
        raise SequenceIndexError(f"Index {position} is outside the {size} {what} of a SequenceState.")
    return [position % size]


def _whole_number(key: Any, what: str) -> int:
    try:
        return operator.index(key)
    except TypeError:
        raise SequenceIndexError(
            f"A SequenceState is indexed by integers and slices, but its {what} were given as {shown(key)}."
        ) from None
