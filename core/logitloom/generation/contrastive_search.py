"""Contrastive search: likely tokens whose hidden state differs from the hidden states of the text so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import MOST_ROWS, id_lists, number, whole
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain import Chain
from logitloom.errors import GenerationError
from logitloom.generation import loop
from logitloom.generation.loop import DecodingBatch, Emission
from logitloom.generation.model import Cache, HiddenStateModel, ModelAdapter
from logitloom.generation.rows import ModelRows
from logitloom.vocabulary import Vocabulary

__all__ = ["ContrastiveSearch", "contrastive_search"]


@dataclass(frozen=True)
class ContrastiveSearch:
    """Choose the token with the best score among the ``k`` most likely tokens.

    ``score(v) = (1 - penalty_alpha) * p(v) - penalty_alpha * max_j cos(h_v, h_j)``: ``p`` is the processed
    distribution, ``h_v`` the last hidden state of the model after token ``v``, and ``h_j`` the last hidden states after
    all tokens of the prompt and the text so far. A token that the chain forbids is never chosen, even if fewer than
    ``k`` tokens are allowed. With ``k = 1`` or ``penalty_alpha = 0`` the result is that of greedy decoding.

    Each token costs one pass of the model over ``k`` rows per sequence, and memory for ``k`` caches.

    Raises:
        GenerationError: if an option is out of its range.

    Example:
        >>> from logitloom.generation import Generator
        >>> from logitloom_contrib.llama import random_model
        >>> search = ContrastiveSearch(k=4, penalty_alpha=0.6)
        >>> (found,) = Generator(random_model("numpy"), strategy=search, max_tokens=3, eos=())([5, 6])
        >>> len(found.tokens), found.finish
        (3, 'length')

    References:
        Y. Su et al., "A Contrastive Framework for Neural Text Generation", 2022, section 4.2.
    """

    #: Adding a constant to all logits of a row does not change the result.
    shift_invariant: ClassVar[bool] = True

    #: Candidates per token, at least 1.
    k: int = 4
    #: Weight of the penalty, 0 to 1.
    penalty_alpha: float = 0.6
    #: Sequences per prompt, which differ only if the chain draws random numbers.
    samples: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole(self.k, "k", GenerationError, most=MOST_ROWS))
        number(self.penalty_alpha, "penalty_alpha", GenerationError)
        whole(self.samples, "samples", GenerationError, most=MOST_ROWS)
        if self.k < 1:
            raise GenerationError(f"A contrastive search needs at least 1 candidate per token, but k is {self.k}.")
        if not 0.0 <= self.penalty_alpha <= 1.0:
            raise GenerationError(
                f"penalty_alpha weighs probability against similarity, from 0 to 1, but is {self.penalty_alpha}."
            )
        if self.samples < 1:
            raise GenerationError(f"A search returns at least 1 sequence per prompt, but samples is {self.samples}.")


def contrastive_search(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    settings: ContrastiveSearch,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
    record: bool = False,
) -> Iterator[Emission]:
    """Decode all prompts together by contrastive search, and yield the new tokens of each row, step by step.

    With guidance in one pass, the hidden states are those of the first branch. A forced token is the only candidate;
    the model reads it as any other token.

    Args:
        model: a model adapter with ``forward_hidden`` (:class:`logitloom.generation.HiddenStateModel`).
        prompts: token ids per prompt, ragged.
        chain: processors, possibly none.
        settings: number of candidates, and weight of the penalty.
        max_tokens: most new tokens per row.
        seed: seed of processors that draw random numbers.
        eos: ids that end a row; default: the vocabulary's.
        vocabulary: bytes of the tokens; default: the chain's.
        record: whether to record the distribution of each token (:attr:`Emission.sampled`).

    Yields:
        One :class:`Emission` per row and step, in the order of the rows.

    Raises:
        NoLegalToken: if a row has no legal token; the message names row, step and processor.
        InvalidLogits: if the processed logits of a row have NaN or +inf; the message names row and step.
        GenerationError: if the model has no method ``forward_hidden``, or as for :func:`logitloom.generation.decode`.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return
    if not hasattr(model, "forward_hidden"):
        raise GenerationError(
            f"Contrastive search compares hidden states, but {type(model).__name__} has no method "
            f"forward_hidden(tokens, cache). Use another strategy, such as Greedy or BeamSearch."
        )
    context, stop_ids = loop.sampling_start(
        model, prompts, chain, settings, max_tokens=max_tokens, seed=seed, eos=eos, vocabulary=vocabulary
    )
    batch = DecodingBatch(model, chain, context, max_tokens, stop_ids, False, record)
    yield from loop.run(batch, _ContrastiveStep(batch, cast(HiddenStateModel, model), settings))


class _ContrastiveStep:
    """The next token of each row has the best score of its candidates, and the model has read it already."""

    def __init__(self, batch: DecodingBatch, model: HiddenStateModel, settings: ContrastiveSearch) -> None:
        self.batch, self.settings = batch, settings
        self.hidden_rows = batch.model_rows = _HiddenRows(model, batch.branches)

    def begin(self) -> Iterator[Emission]:
        return iter(())

    def step(self) -> Iterator[Emission]:
        return self.batch.gain(self._choose)

    def _choose(self, processed: Array) -> tuple[Array, Array]:
        """``[rows]`` ids with the best scores, and their log-probabilities."""
        backend, alpha = self.batch.context.backend, self.settings.penalty_alpha
        width = min(self.settings.k, int(processed.shape[-1]))
        logprobs, tokens = backend.top_k(backend.log_softmax(processed), width)
        similarity = self.hidden_rows.try_tokens(backend.to_numpy(tokens).astype(np.int32))
        scores = (1.0 - alpha) * backend.xp.exp(logprobs) - alpha * similarity
        # A forbidden token has probability 0, but it could still have the best score, so it is masked.
        scores = backend.masked_fill(scores, logprobs == NEG_INF, NEG_INF)
        best = backend.xp.argmax(scores, axis=-1)
        self.hidden_rows.keep(backend.to_numpy(best).astype(np.int32))
        column = best[:, None]
        return backend.gather(tokens, column)[:, 0], backend.gather(logprobs, column)[:, 0]


class _History(NamedTuple):
    """The hidden states of each row's tokens.

    Attributes:
        directions: ``[rows, capacity, dim]`` floats, unit vectors; undefined from the row's length on.
        lengths: ``[rows]`` host integers: number of tokens of each row.
    """

    directions: Array
    lengths: NDArray[np.int32]

    def similarity(self, backend: Backend, candidates: Array) -> Array:
        """``[rows, k]``: the largest cosine of each candidate ``[rows, k, dim]`` with a token of its row."""
        xp = backend.xp
        cosines = xp.matmul(candidates, xp.permute_dims(self.directions, (0, 2, 1)))
        empty = backend.arange(int(cosines.shape[-1]))[None, :] >= backend.asarray(self.lengths)[:, None]
        return xp.max(backend.masked_fill(cosines, empty[:, None, :], NEG_INF), axis=-1)

    def append(self, backend: Backend, new: Array) -> _History:
        """The history with one more direction ``[rows, dim]`` per row. The capacity is doubled when it is used up."""
        xp, directions = backend.xp, self.directions
        if int(self.lengths.max()) == directions.shape[1]:
            directions = xp.concat([directions, xp.zeros_like(directions)], axis=1)
        here = backend.arange(int(directions.shape[1]))[None, :] == backend.asarray(self.lengths)[:, None]
        return _History(xp.where(here[:, :, None], new[:, None, :], directions), self.lengths + 1)

    def take(self, backend: Backend, index: NDArray[np.int32]) -> _History:
        """Rows ``index``, in that order."""
        return _History(backend.take_rows(self.directions, index), self.lengths[index])


class _HiddenRows(ModelRows):
    """A model with the cache of the rows, and the hidden states of their tokens.

    Args:
        model: a model adapter with ``forward_hidden``.
        prompts: the prompt of each row, per branch.
    """

    def __init__(self, model: HiddenStateModel, prompts: Sequence[Sequence[Sequence[int]]]) -> None:
        self._model = model
        #: ``[rows of the model, n, dim]``, the hidden states of the latest pass.
        self._hidden: Array
        super().__init__(model, prompts)
        lengths = np.asarray([len(prompt) for prompt in prompts[0]], dtype=np.int32)
        self._history = _History(_directions(model.backend, self._hidden[: len(lengths)]), lengths)

    def try_tokens(self, tokens: NDArray[np.int32]) -> Array:
        """Feed ``[rows, k]`` candidates, each to its own row of the model; return their similarity, ``[rows, k]``."""
        rows, width = tokens.shape
        super().take(np.repeat(np.arange(rows, dtype=np.int32), width))
        self.feed(tokens.reshape(-1, 1).tolist())
        hidden = _directions(self.model.backend, self._hidden[: rows * width, 0])
        return self._history.similarity(self.model.backend, self.model.backend.xp.reshape(hidden, (rows, width, -1)))

    def keep(self, best: NDArray[np.int32]) -> None:
        """Keep candidate ``best[row]`` of each row, and drop the others."""
        rows = len(best)
        width = self.cache.row_count() // (self.branches * rows)
        self._move(self._in_branches(np.arange(rows, dtype=np.int32) * width + best))
        backend = self.model.backend
        self._history = self._history.append(backend, _directions(backend, self._hidden[:rows, 0]))

    def take(self, index: NDArray[np.int32]) -> None:
        """Keep rows ``index``, with their logits and hidden states."""
        self._move(self._in_branches(index))
        self._history = self._history.take(self.model.backend, index)

    def _forward(self, tokens: NDArray[np.int32], cache: Cache) -> tuple[Array, Cache]:
        logits, self._hidden, cache = self._model.forward_hidden(tokens, cache)
        return logits, cache

    def _move(self, index: NDArray[np.int32]) -> None:
        super()._move(index)
        self._hidden = self.model.backend.take_rows(self._hidden, index)


def _directions(backend: Backend, hidden: Array) -> Array:
    """Hidden states ``[..., dim]`` divided by their Euclidean norms, at least float32; zero vectors stay zero."""
    xp = backend.xp
    hidden = backend.at_least_float32(hidden)
    squares = xp.sum(hidden * hidden, axis=-1, keepdims=True)
    return hidden / xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))
