"""Records of the distribution from which each token of a sequence was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logitloom.arrays.backend import NEG_INF, Array, Backend

__all__ = ["Distributions", "Sampled", "forced", "sampled"]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One token, and figures of the distribution from which it was chosen.

    Attributes:
        token: its id; an end-of-sequence token is also recorded.
        logprob: its log-probability after the chain (natural logarithm); 0 for a forced token.
        logprob_before: its log-probability under the model (with guidance: in the first branch). None for a forced
            token, for which the model was not evaluated.
        kept: number of ids with a logit above -inf after the chain; 1 for a forced token.
        entropy: the entropy of the distribution after the chain, in nats.

    Example:
        >>> from logitloom import processors
        >>> from logitloom.generation import Generator
        >>> from logitloom_contrib.llama import random_model
        >>> chain = processors.load(("top_k", {"k": 3}))
        >>> (found,) = Generator(random_model("numpy"), chain, max_tokens=2, record=True)([5, 6])
        >>> [each.kept for each in found.sampled], found.logprob == sum(each.logprob for each in found.sampled)
        ([3, 3], True)
    """

    token: int
    logprob: float
    logprob_before: float | None
    kept: int
    entropy: float


def sampled(
    backend: Backend, before: Array, after: Array, tokens: Sequence[int], logprobs: Sequence[float]
) -> list[Sampled]:
    """Record the distribution of each row's token.

    Args:
        backend: the backend of the arrays.
        before: ``[rows or more, vocab]``, the model's logits; rows of further branches come last and are not read.
        after: ``[rows, vocab]``, the processed logits.
        tokens: per row the chosen token.
        logprobs: per row its log-probability after the chain.
    """
    chosen = backend.asarray([[token] for token in tokens], dtype="int32")
    model = backend.gather(backend.log_softmax(before[: len(tokens)]), chosen)[:, 0]
    columns = backend.to_numpy(model).tolist(), *_kept_and_entropy(backend, after, backend.log_softmax(after))
    return [Sampled(*row) for row in zip(tokens, logprobs, *columns, strict=True)]


class Distributions:
    """The distributions of one step's rows, before the chain and after it, for tokens that are chosen later.

    Args:
        backend: the backend of the arrays.
        before: ``[rows or more, vocab]``, the model's logits; rows of further branches come last and are not read.
        after: ``[rows, vocab]``, the processed logits.
    """

    __slots__ = ("_after", "_before", "_entropy", "_kept", "nbytes")

    def __init__(self, backend: Backend, before: Array, after: Array) -> None:
        self._before = backend.log_softmax(before[: after.shape[0]])
        self._after = backend.log_softmax(after)
        # Who asks for tokens may be another thread, and a library may compute only in the thread that began.
        backend.synchronize(self._before, self._after)
        self._kept, self._entropy = _kept_and_entropy(backend, after, self._after)
        #: The memory of the arrays in bytes, as float32.
        self.nbytes = 2 * 4 * int(after.shape[0]) * int(after.shape[1])

    def sampled(self, row: int, token: int) -> Sampled:
        """Record a row's token."""
        after, before = float(self._after[row, token]), float(self._before[row, token])
        return Sampled(token, after, before, self._kept[row], self._entropy[row])


def _kept_and_entropy(backend: Backend, logits: Array, logprobs: Array) -> tuple[list[int], list[float]]:
    """Per row how many ids are left, and the entropy in nats."""
    xp = backend.xp
    kept = xp.sum(backend.cast(logits > NEG_INF, "int32"), axis=-1)
    probabilities = xp.exp(logprobs)
    terms = probabilities * xp.where(probabilities > 0, logprobs, xp.zeros_like(logprobs))
    return backend.to_numpy(kept).tolist(), backend.to_numpy(0.0 - xp.sum(terms, axis=-1)).tolist()


def forced(tokens: Sequence[int]) -> list[Sampled]:
    """Record forced tokens."""
    return [Sampled(token, 0.0, None, 1, 0.0) for token in tokens]
